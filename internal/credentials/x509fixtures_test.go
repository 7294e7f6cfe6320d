package credentials_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"net/url"
	"sync"
	"testing"
	"time"

	"provctl/internal/credentials"
)

const nodeName = "n1.example.net"

// testKeys are made once: RSA keys take a while.
var testKeys = sync.OnceValue(func() (k struct {
	rsa, other, small *rsa.PrivateKey
	ec, p224          *ecdsa.PrivateKey
	ed                ed25519.PrivateKey
},
) {
	for _, r := range []struct {
		dst  **rsa.PrivateKey
		bits int
	}{{&k.rsa, 2048}, {&k.other, 2048}, {&k.small, 1024}} {
		*r.dst = must(rsa.GenerateKey(rand.Reader, r.bits))
	}
	k.ec = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	k.p224 = must(ecdsa.GenerateKey(elliptic.P224(), rand.Reader))
	_, k.ed, _ = ed25519.GenerateKey(rand.Reader)
	return k
})

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func denyList(t testing.TB, patterns ...string) *credentials.DenyList {
	t.Helper()
	d, err := credentials.CompileDenyList(patterns)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// request makes a CSR for nodeName as DER; edit may change the template first.
func request(key crypto.Signer, edit func(*x509.CertificateRequest)) []byte {
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: nodeName}}
	if edit != nil {
		edit(template)
	}
	return must(x509.CreateCertificateRequest(rand.Reader, template, key))
}

func csrPEM(der []byte) string { return string(block("CERTIFICATE REQUEST", der, nil)) }

// signedTBS signs a request that no library would make. It is the request's outer structure, over any tbs.
func signedTBS(tbs []byte) []byte {
	sum := crypto.SHA256.New()
	sum.Write(tbs)
	sig := must(rsa.SignPKCS1v15(rand.Reader, testKeys().rsa, crypto.SHA256, sum.Sum(nil)))
	algorithm := pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}, Parameters: asn1.NullRawValue}
	return must(asn1.Marshal(struct {
		TBS       asn1.RawValue
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{asn1.RawValue{FullBytes: tbs}, algorithm, asn1.BitString{Bytes: sig, BitLength: 8 * len(sig)}}))
}

// withAttributes makes a request with the attributes given.
func withAttributes(attributes ...any) []byte {
	body := []byte{}
	for _, a := range attributes {
		body = append(body, must(asn1.Marshal(a))...)
	}
	public := must(x509.MarshalPKIXPublicKey(testKeys().rsa.Public()))
	return signedTBS(must(asn1.Marshal(struct {
		Version    int
		Subject    pkix.RDNSequence
		Public     asn1.RawValue
		Attributes asn1.RawValue
	}{
		0, pkix.Name{CommonName: nodeName}.ToRDNSequence(),
		asn1.RawValue{FullBytes: public},
		asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: body},
	})))
}

type attributeOf struct {
	Type   asn1.ObjectIdentifier
	Values []any `asn1:"set"`
}

// altNames is a SAN extension of raw GeneralNames: pairs of a tag and its bytes.
func altNames(names ...asn1.RawValue) pkix.Extension {
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: must(asn1.Marshal(names))}
}

func general(tag int, content string) asn1.RawValue {
	return asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: tag, Bytes: []byte(content), IsCompound: tag == 0 || tag == 3 || tag == 4 || tag == 5}
}

// extra asks for an alternative name by its raw form.
func extra(names ...asn1.RawValue) func(*x509.CertificateRequest) {
	return func(c *x509.CertificateRequest) { c.ExtraExtensions = []pkix.Extension{altNames(names...)} }
}

func mustURL(s string) *url.URL { return must(url.Parse(s)) }

func rawSubject(attributes ...pkix.AttributeTypeAndValue) func(*x509.CertificateRequest) {
	return func(c *x509.CertificateRequest) {
		c.RawSubject = must(asn1.Marshal(pkix.RDNSequence{attributes}))
	}
}

func cn(value any) pkix.AttributeTypeAndValue {
	return pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: value}
}

// sha1Request is a request with a signature that crypto/x509 checks and does not make.
func sha1Request() []byte {
	var outer struct{ TBS, Algorithm, Signature asn1.RawValue }
	if _, err := asn1.Unmarshal(request(testKeys().rsa, nil), &outer); err != nil {
		panic(err)
	}
	sum := crypto.SHA1.New()
	sum.Write(outer.TBS.FullBytes)
	sig := must(rsa.SignPKCS1v15(rand.Reader, testKeys().rsa, crypto.SHA1, sum.Sum(nil)))
	return must(asn1.Marshal(struct {
		TBS       asn1.RawValue
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{
		outer.TBS,
		pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 5}, Parameters: asn1.NullRawValue},
		asn1.BitString{Bytes: sig, BitLength: 8 * len(sig)},
	}))
}

// authority is a CA that issues for the tests.
type authority struct {
	key  crypto.Signer
	cert *x509.Certificate
	pem  string
}

// newAuthority makes a CA below parent, or a root.
func newAuthority(name string, parent *authority, edit func(*x509.Certificate)) *authority {
	a := &authority{key: must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: name}, NotBefore: testNow.Add(-time.Hour), NotAfter: testNow.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if edit != nil {
		edit(template)
	}
	signer, by := a.key, template
	if parent != nil {
		signer, by = parent.key, parent.cert
	}
	der := must(x509.CreateCertificate(rand.Reader, template, by, a.key.Public(), signer))
	a.cert, a.pem = must(x509.ParseCertificate(der)), string(block("CERTIFICATE", der, nil))
	return a
}

// issue makes the certificate of nodeName in PEM.
func (a *authority) issue(public crypto.PublicKey, edit func(*x509.Certificate)) string {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(9), Subject: pkix.Name{CommonName: nodeName}, NotBefore: testNow.Add(-time.Minute), NotAfter: testNow.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	if edit != nil {
		edit(template)
	}
	return string(block("CERTIFICATE", must(x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)), nil))
}

var testNow = time.Date(2030, 3, 4, 5, 6, 7, 0, time.UTC)
