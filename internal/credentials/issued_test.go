package credentials_test

import (
	"crypto"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"provctl/internal/credentials"
)

func pemDecode(text string) (der, rest []byte) {
	b, rest := pem.Decode([]byte(text))
	if b == nil {
		return nil, rest
	}
	return b.Bytes, rest
}

func pkcs1(key *rsa.PrivateKey) string {
	return string(block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key), nil))
}

func pkcs8(key any) string {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return string(block("PRIVATE KEY", der, err))
}

func TestCheckIssued(t *testing.T) {
	k := testKeys()
	root := newAuthority("root", nil, nil)
	other := newAuthority("root", nil, nil) // the same name, another key
	sub := newAuthority("intermediate", root, nil)
	expired := newAuthority("old", nil, func(c *x509.Certificate) { c.NotAfter = testNow.Add(-time.Second) })
	public := k.rsa.Public()
	good := root.issue(public, nil)
	with := func(edit func(*x509.Certificate)) credentials.Issued {
		return credentials.Issued{Certificate: root.issue(public, edit), CA: root.pem}
	}
	selfMade := string(certificate(t, k.rsa))
	e := credentials.ErrIssued
	tests := []struct {
		name   string
		issued credentials.Issued
		want   crypto.PublicKey
		kind   error
		text   string
	}{
		{"the node's key", credentials.Issued{Certificate: good, CA: root.pem}, public, nil, ""},
		{"a delivered key", credentials.Issued{Certificate: good, CA: root.pem, Key: pkcs1(k.rsa)}, nil, nil, ""},
		{"a delivered key in PKCS#8", credentials.Issued{Certificate: good, CA: root.pem, Key: pkcs8(k.rsa)}, nil, nil, ""},
		{"a delivered key wins over the node's", credentials.Issued{Certificate: good, CA: root.pem, Key: pkcs1(k.rsa)}, k.other.Public(), nil, ""},
		{"a key never seen", credentials.Issued{Certificate: good, CA: root.pem}, credentials.UnseenKey{}, nil, ""},
		{"chain in the certificate", credentials.Issued{Certificate: sub.issue(public, nil) + sub.pem, CA: root.pem}, public, nil, ""},
		{"chain in the bundle", credentials.Issued{Certificate: sub.issue(public, nil), CA: sub.pem + root.pem}, public, nil, ""},
		{"comments and more CAs", credentials.Issued{Certificate: "Subject: n1\n" + good, CA: "# ours\n" + other.pem + "# next\n" + root.pem}, public, nil, ""},
		{"clock of the CA ahead a little", with(func(c *x509.Certificate) { c.NotBefore = testNow.Add(time.Minute) }), public, nil, ""},
		{"no key usages named", with(func(c *x509.Certificate) { c.ExtKeyUsage = nil }), public, nil, ""},

		{"another key than the node's", credentials.Issued{Certificate: good, CA: root.pem}, k.other.Public(), e, "the node's request"},
		{"another key than the delivered", credentials.Issued{Certificate: good, CA: root.pem, Key: pkcs1(k.other)}, public, e, "the delivered key"},
		{"no key at all", credentials.Issued{Certificate: good, CA: root.pem}, nil, e, "no key"},
		{"EC key delivered", credentials.Issued{Certificate: root.issue(k.ec.Public(), nil), CA: root.pem, Key: pkcs8(k.ec)}, nil, e, "not an RSA key"},
		{"key not PEM", credentials.Issued{Certificate: good, CA: root.pem, Key: "hunter2"}, nil, e, "not PEM"},
		{"no certificate", credentials.Issued{CA: root.pem}, public, e, "certificate"},
		{"no bundle", credentials.Issued{Certificate: good}, public, e, "ca"},
		{"certificate not PEM", credentials.Issued{Certificate: "hello", CA: root.pem}, public, e, "not PEM"},
		{"certificate too large", credentials.Issued{Certificate: good + strings.Repeat("\n", 100<<10), CA: root.pem}, public, e, "102400 are accepted"},
		{"key in the certificate", credentials.Issued{Certificate: good + pkcs1(k.rsa), CA: root.pem}, public, e, "block 2"},
		{"request for certificate", credentials.Issued{Certificate: csrPEM(request(k.rsa, nil)), CA: root.pem}, public, e, "CERTIFICATE REQUEST"},
		{"cut certificate", credentials.Issued{Certificate: good[:len(good)-30], CA: root.pem}, public, e, "0 can be decoded"},
		{"cut bundle", credentials.Issued{Certificate: good, CA: other.pem + root.pem[:100]}, public, e, "2 PEM blocks begin and 1 can be decoded"},
		{"garbage in a block", credentials.Issued{Certificate: string(block("CERTIFICATE", []byte("x"), nil)), CA: root.pem}, public, e, "block 1"},
		{"bundle without a CA", credentials.Issued{Certificate: good, CA: good}, public, e, "no CA certificate"},
		{"self-made", credentials.Issued{Certificate: selfMade, CA: root.pem}, public, e, "common name"},
		{"another CA of that name", credentials.Issued{Certificate: good, CA: other.pem}, public, e, "does not chain"},
		{"intermediate missing", credentials.Issued{Certificate: sub.issue(public, nil), CA: root.pem}, public, e, "does not chain"},
		{"CA first", credentials.Issued{Certificate: root.pem + good, CA: root.pem}, public, e, "does not belong"},
		{"expired CA", credentials.Issued{Certificate: expired.issue(public, nil), CA: expired.pem}, public, e, "expired"},
		{"expired", with(func(c *x509.Certificate) { c.NotAfter = testNow.Add(-time.Second) }), public, e, "expired at 2030-03-04T05:06:06Z"},
		{"not yet valid", with(func(c *x509.Certificate) { c.NotBefore = testNow.Add(10 * time.Minute) }), public, e, "not valid before 2030-03-04T05:16:07Z"},
		{"for servers only", with(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), public, e, "key usage"},
		{"is a CA", with(func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true }), public, e, "is a CA certificate"},
		{"another CN", with(func(c *x509.Certificate) { c.Subject.CommonName = "n2.example.net" }), public, e, "common name"},
		{"two CNs", with(func(c *x509.Certificate) {
			c.RawSubject = must(asn1.Marshal(pkix.RDNSequence{{cn("root")}, {cn(nodeName)}}))
		}), public, e, "2 common names"},
		{"weak key", credentials.Issued{Certificate: root.issue(k.small.Public(), nil), CA: root.pem}, k.small.Public(), e, "1024 bits"},
		{"otherName", with(func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{altNames(general(0, "\x06\x03\x2a\x03\x04"))}
		}), public, e, "otherName"},
		{"denied name", with(func(c *x509.Certificate) { c.DNSNames = []string{"rip.choria"} }), public, credentials.ErrDenied, "rip.choria"},
	}
	d := denyList(t, siteDenies...)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := d.CheckIssued(tt.issued, nodeName, tt.want, testNow)
			if !errors.Is(err, tt.kind) {
				t.Fatalf("got %v, want %v", err, tt.kind)
			}
			if tt.kind != nil {
				checkText(t, err, tt.text)
				if strings.Contains(err.Error(), "hunter2") {
					t.Errorf("repeats the key: %v", err)
				}
			}
		})
	}
	if err := new(credentials.DenyList).CheckIssued(credentials.Issued{Certificate: good, CA: root.pem}, nodeName, public, testNow); !errors.Is(err, credentials.ErrDenyList) {
		t.Errorf("the zero deny list: %v", err)
	}
	secret := credentials.Issued{Key: "hunter2"}
	if text := fmt.Sprintf("%v %+v %#v %s %v", secret, secret, secret, secret, &secret); strings.Contains(text, "hunter2") {
		t.Errorf("printed: %s", text)
	}
}

// open does what the node does with a sealed key: providers/agent/mcorpc/golang/provision/util.go:67-99.
func open(t *testing.T, node *ecdh.PrivateKey, sealed, publicHex string) []byte {
	t.Helper()
	remote, err := ecdh.X25519().NewPublicKey(must(hex.DecodeString(publicHex)))
	if err != nil {
		t.Fatal(err)
	}
	b, rest := pem.Decode([]byte(sealed))
	//lint:ignore SA1019 the form that nodes read
	if b == nil || len(rest) > 0 || !x509.IsEncryptedPEMBlock(b) {
		t.Fatalf("not one encrypted block: %q", sealed)
	}
	//lint:ignore SA1019 the form that nodes read
	der, err := x509.DecryptPEMBlock(b, must(node.ECDH(remote)))
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: der})
}

func TestSealKey(t *testing.T) {
	k := testKeys()
	node := must(ecdh.X25519().GenerateKey(rand.Reader))
	nodeHex := hex.EncodeToString(node.PublicKey().Bytes())
	want := pkcs1(k.rsa)
	for name, text := range map[string]string{"PKCS#1": want, "PKCS#8": pkcs8(k.rsa), "a comment before": "Bag Attributes\n" + want} {
		sealed, public, err := credentials.SealKey(text, nodeHex, rand.Reader)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := open(t, node, sealed, public); string(got) != want {
			t.Errorf("%s: the node writes another key", name)
		}
		again, publicAgain, err := credentials.SealKey(text, nodeHex, rand.Reader)
		if err != nil || again == sealed || public == publicAgain {
			t.Errorf("%s: a second sealing is the same, or %v", name, err)
		}
	}
	constant := func() io.Reader { return strings.NewReader(strings.Repeat("7", 100)) }
	one, onePublic, err := credentials.SealKey(want, nodeHex, constant())
	two, twoPublic, _ := credentials.SealKey(want, strings.ToUpper(nodeHex), constant())
	if err != nil || one != two || onePublic != twoPublic {
		t.Errorf("the randomness is not the injected one: %v", err)
	}
}

func TestSealKeyRefuses(t *testing.T) {
	k := testKeys()
	nodeHex := hex.EncodeToString(must(ecdh.X25519().GenerateKey(rand.Reader)).PublicKey().Bytes())
	key := pkcs1(k.rsa)
	ec, err := x509.MarshalECPrivateKey(k.ec)
	ecPEM := string(block("EC PRIVATE KEY", ec, err))
	//lint:ignore SA1019 an old form that helpers may have
	encrypted, err := x509.EncryptPEMBlock(rand.Reader, "RSA PRIVATE KEY", []byte("x"), []byte("hunter2"), x509.PEMCipherAES256)
	if err != nil {
		t.Fatal(err)
	}
	const order8 = "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"
	tests := []struct {
		name, key, node string
		random          io.Reader
		text            string
	}{
		{"ed25519", pkcs8(k.ed), nodeHex, nil, "not an RSA key"},
		{"ECDSA in PKCS#8", pkcs8(k.ec), nodeHex, nil, "not an RSA key"},
		{"ECDSA", ecPEM, nodeHex, nil, "not an RSA key"},
		{"weak RSA", pkcs1(k.small), nodeHex, nil, "1024 bits"},
		{"encrypted", string(pem.EncodeToMemory(encrypted)), nodeHex, nil, "passphrase"},
		{"encrypted in PKCS#8", string(block("ENCRYPTED PRIVATE KEY", []byte("x"), nil)), nodeHex, nil, "passphrase"},
		{"public key", string(block("PUBLIC KEY", []byte("x"), nil)), nodeHex, nil, "not a private key"},
		{"two keys", key + key, nodeHex, nil, "2 PEM blocks"},
		{"nothing", "", nodeHex, nil, "not PEM"},
		{"not PEM", "hunter2", nodeHex, nil, "not PEM"},
		{"huge", strings.Repeat("x", 100<<10+1), nodeHex, nil, "are accepted"},
		{"garbage inside", string(block("RSA PRIVATE KEY", []byte("hunter2"), nil)), nodeHex, nil, "cannot be parsed"},
		{"no node key", key, "", nil, "64 hex digits"},
		{"short node key", key, nodeHex[:62], nil, "64 hex digits"},
		{"long node key", key, nodeHex + "00", nil, "64 hex digits"},
		{"node key not hex", key, strings.Repeat("x", 64), nil, "64 hex digits"},
		{"node key all zero", key, strings.Repeat("0", 64), nil, "low order"},
		{"node key one", key, "01" + strings.Repeat("0", 62), nil, "low order"},
		{"node key of order 8", key, order8, nil, "low order"},
		{"no randomness", key, nodeHex, iotest.ErrReader(errors.New("dry")), "randomness"},
		{"randomness for the key only", key, nodeHex, io.LimitReader(rand.Reader, 32), "randomness"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			random := tt.random
			if random == nil {
				random = rand.Reader
			}
			sealed, public, err := credentials.SealKey(tt.key, tt.node, random)
			if sealed != "" || public != "" || !errors.Is(err, credentials.ErrSeal) {
				t.Fatalf("got %q, %v", public, err)
			}
			checkText(t, err, tt.text)
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("repeats a secret: %v", err)
			}
		})
	}
}
