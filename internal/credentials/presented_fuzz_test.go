package credentials_test

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"provctl/internal/credentials"
)

// refusal fails the test unless the error is one of ours, of one line, with a remedy.
func refusal(t *testing.T, err error, kinds ...error) {
	t.Helper()
	var e *credentials.Error
	if !errors.As(err, &e) || e.Remedy == "" || strings.ContainsAny(err.Error(), "\n\r\x1b") {
		t.Fatalf("error %q", err)
	}
	for _, k := range kinds {
		if errors.Is(err, k) {
			return
		}
	}
	t.Fatalf("error %q is none of %v", err, kinds)
}

// FuzzSignedNodeJWT: whatever the issuer's key has signed is refused with a typed error, or has the purpose of a provisioning token and has
// not ended.
func FuzzSignedNodeJWT(f *testing.F) {
	key := ed25519.NewKeyFromSeed(make([]byte, 32))
	v, err := credentials.LoadVerifier(hex.EncodeToString(key.Public().(ed25519.PublicKey)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"alg":"EdDSA","typ":"JWT"}`), []byte(`{"purpose":"choria_provisioning","cht":"x","ou":"choria"}`))
	f.Fuzz(func(t *testing.T, header, payload []byte) {
		signed := base64.RawURLEncoding.EncodeToString(header) + "." + base64.RawURLEncoding.EncodeToString(payload)
		token := signed + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, []byte(signed)))
		claims, err := v.VerifyNodeJWT(token)
		if err != nil {
			refusal(t, err, credentials.ErrTokenInvalid, credentials.ErrTokenExpired, credentials.ErrTokenEarly, credentials.ErrTokenPurpose,
				credentials.ErrTokenSize)
			if claims != nil {
				t.Fatalf("%v with claims", err)
			}
			return
		}
		var form struct {
			Purpose string `json:"purpose"`
		}
		if err := json.Unmarshal(claims.JSON(), &form); err != nil || form.Purpose != "choria_provisioning" {
			t.Fatalf("%s is accepted as %s: %v", payload, claims.JSON(), err)
		}
		if !claims.ExpiresAt.IsZero() && time.Since(claims.ExpiresAt) > time.Minute {
			t.Fatalf("%s is accepted after %s", payload, claims.ExpiresAt)
		}
		if again, err := v.VerifyNodeJWT(" " + token + "\n"); err != nil || string(again.JSON()) != string(claims.JSON()) {
			t.Fatalf("the second time: %v", err)
		}
	})
}

// FuzzProof: only the signature of the nonce that was sent is accepted, however key and signature are written.
func FuzzProof(f *testing.F) {
	key := ed25519.NewKeyFromSeed(make([]byte, 32))
	public := hex.EncodeToString(key.Public().(ed25519.PublicKey))
	f.Add(public, hex.EncodeToString(ed25519.Sign(key, []byte("nonce"))), []byte("nonce"))
	f.Fuzz(func(t *testing.T, public, signature string, nonce []byte) {
		if err := credentials.VerifyEd25519Reply(public, signature, nonce); err != nil {
			refusal(t, err, credentials.ErrProof)
			return
		}
		k, err1 := hex.DecodeString(public)
		s, err2 := hex.DecodeString(signature)
		if err1 != nil || err2 != nil || len(nonce) == 0 || len(k) != ed25519.PublicKeySize || !ed25519.Verify(k, nonce, s) {
			t.Fatalf("%q and %q are accepted for %q", public, signature, nonce)
		}
		other := sha256.Sum256(nonce)
		if credentials.VerifyEd25519Reply(public, signature, other[:]) == nil && !weak(k) {
			t.Fatalf("%q and %q are accepted for any nonce", public, signature)
		}
	})
}

// weak tells whether a key is one of the few of low order, which verify signatures of anything.
func weak(public []byte) bool {
	zero := make([]byte, ed25519.SignatureSize)
	for _, m := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"} {
		zero[0] = 1
		if ed25519.Verify(public, []byte(m), zero) {
			return true
		}
	}
	return false
}

// FuzzRequestKey: the key beside a request is the request's, in one of the two forms, or ErrCSR.
func FuzzRequestKey(f *testing.F) {
	csr := csrPEM(request(ed25519.NewKeyFromSeed(make([]byte, 32)), nil))
	f.Add(csr, csr)
	f.Fuzz(func(t *testing.T, csr, public string) {
		err := credentials.CheckRequestKey(csr, public)
		if err != nil {
			refusal(t, err, credentials.ErrCSR)
		}
		if err == nil && (!strings.Contains(csr, "CERTIFICATE REQUEST") || !strings.Contains(public, "-----BEGIN ")) {
			t.Fatalf("%q beside %q is accepted", public, csr)
		}
	})
}

// FuzzIssued: whatever certificate, bundle and key a helper delivers is refused in one line that holds nothing of the key, or is of the node
// and its key; under a given CA nothing is accepted but what that has issued.
func FuzzIssued(f *testing.F) {
	ca := newAuthority("ca", nil, nil)
	own := ed25519.NewKeyFromSeed(make([]byte, 32))
	good := ca.issue(own.Public(), nil)
	d := denyList(f, siteDenies...)
	if err := d.CheckIssued(credentials.Issued{Certificate: good, CA: ca.pem}, nodeName, own.Public(), testNow); err != nil {
		f.Fatal(err)
	}
	for _, parts := range [][3]string{{"", "", ""}, {good, ca.pem, ""}, {good, good, "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n"}} {
		f.Add(parts[0], parts[1], parts[2], false)
	}
	f.Fuzz(func(t *testing.T, certificate, bundle, key string, trusted bool) {
		if trusted {
			bundle = ca.pem
		}
		var want crypto.PublicKey = own.Public()
		err := d.CheckIssued(credentials.Issued{Certificate: certificate, CA: bundle, Key: key}, nodeName, want, testNow)
		if err == nil {
			der, _ := pemDecode(certificate)
			issued, _ := pemDecode(good)
			leaf, err := x509.ParseCertificate(der)
			if err != nil || !own.Public().(ed25519.PublicKey).Equal(leaf.PublicKey) || leaf.Subject.CommonName != nodeName ||
				trusted && !bytes.Equal(der, issued) {
				t.Fatalf("accepted %q: %v", certificate, err)
			}
			return
		}
		refusal(t, err, credentials.ErrIssued, credentials.ErrDenied)
		for _, word := range strings.Fields(key) {
			if len(word) >= 32 && strings.Contains(err.Error(), word) {
				t.Fatalf("%q shows the key", err)
			}
		}
	})
}
