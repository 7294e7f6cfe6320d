package credentials_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/choria-io/tokens"
	"github.com/golang-jwt/jwt/v5"

	"provctl/internal/credentials"
)

func TestVerifyNodeJWT(t *testing.T) {
	o := newOrg(t)
	_, stranger := pair(t)
	v, err := credentials.LoadVerifier(hex.EncodeToString(o.public))
	if err != nil {
		t.Fatal(err)
	}
	good := sign(t, provisioning(t, nil), o.key)
	server, err := tokens.NewServerClaims("n1", []string{"choria"}, "", nil, nil, o.public, "", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	at := func(d time.Duration) *jwt.NumericDate { return jwt.NewNumericDate(time.Now().Add(d)) }
	parts := strings.Split(good, ".")
	unsigned, err := jwt.NewWithClaims(jwt.SigningMethodNone, provisioning(t, nil)).SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	hmac, err := jwt.NewWithClaims(jwt.SigningMethodHS256, provisioning(t, nil)).SignedString([]byte(o.public))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, token string
		want        error
	}{
		{"good", good, nil},
		{"white space around", "\n " + good + "\n", nil},
		{"no expiry", sign(t, provisioning(t, func(c *tokens.ProvisioningClaims) { c.ExpiresAt = nil }), o.key), nil},
		{"empty", "", credentials.ErrTokenSize},
		{"blank", " \n", credentials.ErrTokenSize},
		{"too long", strings.Repeat("a", 64<<10+1), credentials.ErrTokenSize},
		{"not a token", "hello", credentials.ErrTokenInvalid},
		{"dots", "...", credentials.ErrTokenInvalid},
		{"binary", "\x00\xff.\x00.\xff", credentials.ErrTokenInvalid},
		{"stranger's signature", sign(t, provisioning(t, nil), stranger), credentials.ErrTokenInvalid},
		{"no signature", parts[0] + "." + parts[1] + ".", credentials.ErrTokenInvalid},
		{"other claims", parts[0] + "." + strings.Split(sign(t, server, o.key), ".")[1] + "." + parts[2], credentials.ErrTokenInvalid},
		{"algorithm none", unsigned, credentials.ErrTokenInvalid},
		{"public key as secret", hmac, credentials.ErrTokenInvalid},
		{"rsa", sign(t, provisioning(t, nil), rsaKey(t)), credentials.ErrTokenInvalid},
		{"expired", sign(t, provisioning(t, func(c *tokens.ProvisioningClaims) { c.ExpiresAt = at(-time.Minute) }), o.key), credentials.ErrTokenExpired},
		{"not yet valid", sign(t, provisioning(t, func(c *tokens.ProvisioningClaims) { c.NotBefore = at(time.Hour) }), o.key), credentials.ErrTokenEarly},
		{"server token", sign(t, server, o.key), credentials.ErrTokenPurpose},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			claims, err := v.VerifyNodeJWT(tt.token)
			if !errors.Is(err, tt.want) || (claims != nil) != (tt.want == nil) {
				t.Fatalf("got %v, %v, want %v", claims, err, tt.want)
			}
			if err != nil && (strings.ContainsAny(err.Error(), "\n\x00") || len(err.Error()) > 600 || len(tt.token) > 100 && strings.Contains(err.Error(), tt.token[:100])) {
				t.Errorf("not fit for an operator: %q", err)
			}
		})
	}
	if _, err := new(credentials.Verifier).VerifyNodeJWT(good); !errors.Is(err, credentials.ErrTokenInvalid) {
		t.Errorf("zero verifier: %v", err)
	}
}

func TestNodeClaims(t *testing.T) {
	o := newOrg(t)
	v, err := credentials.LoadVerifier(hex.EncodeToString(o.public))
	if err != nil {
		t.Fatal(err)
	}
	given := provisioning(t, func(c *tokens.ProvisioningClaims) { c.OrganizationUnit = "north"; c.ProtoV2 = true })
	claims, err := v.VerifyNodeJWT(sign(t, given, o.key))
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(claims.JSON(), want) || claims.Organization != "north" || !claims.ExpiresAt.Equal(given.ExpiresAt.Time) {
		t.Errorf("got  %s\nwant %s", claims.JSON(), want)
	}
	if out := fmt.Sprintf("%v %+v %#v %s %d %x", claims, claims, claims, claims, claims, claims); strings.Contains(out, "s3cret") || strings.Contains(out, hex.EncodeToString([]byte("s3cret"))) {
		t.Errorf("printed: %s", out)
	}
}

func TestLoadVerifier(t *testing.T) {
	o := newOrg(t)
	rsa := rsaKey(t)
	der, err := x509.MarshalPKIXPublicKey(o.public)
	edPEM := block("PUBLIC KEY", der, err)
	der, err = x509.MarshalPKIXPublicKey(&rsa.PublicKey)
	rsaPEM := block("PUBLIC KEY", der, err)
	hexText := hex.EncodeToString(o.public)
	tests := []struct {
		name, verifier string
		key            any
	}{
		{"hex", hexText, o.key},
		{"upper case hex", strings.ToUpper(hexText), o.key},
		{"hex file", o.write("hex", []byte(hexText)), o.key},
		{"hex file with newline", o.write("hexn", []byte(hexText+"\n")), o.key},
		{"ed25519 PEM", o.write("ed.pem", edPEM), o.key},
		{"ed25519 certificate", o.write("edcert.pem", certificate(t, o.key)), o.key},
		{"RSA PEM", o.write("rsa.pem", rsaPEM), rsa},
		{"RSA PKCS1 PEM", o.write("rsa1.pem", block("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&rsa.PublicKey), nil)), rsa},
		{"RSA certificate", o.write("rsacert.pem", certificate(t, rsa)), rsa},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, err := credentials.LoadVerifier(tt.verifier)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := v.VerifyNodeJWT(sign(t, provisioning(t, nil), tt.key)); err != nil {
				t.Error(err)
			}
		})
	}
	for name, verifier := range map[string]string{
		"missing file": o.dir + "/nope", "directory": o.dir, "empty name": "", "short hex": hexText[:62],
		"empty file": o.write("empty", nil), "text": o.write("text", []byte("hello")), "odd hex": strings.Repeat("zz", 32),
		"private key": o.write("private", block("PRIVATE KEY", []byte("x"), nil)), "broken PEM": o.write("broken", block("PUBLIC KEY", []byte("x"), nil)),
		"large file": o.write("large", bytes.Repeat([]byte("a"), 64<<10+1)),
	} {
		t.Run(name, func(t *testing.T) {
			if v, err := credentials.LoadVerifier(verifier); v != nil || !errors.Is(err, credentials.ErrKey) {
				t.Errorf("got %v, %v", v, err)
			}
		})
	}
}

func TestVerifyEd25519Reply(t *testing.T) {
	public, key := pair(t)
	nonce, err := credentials.NewNonce(bytes.NewReader(bytes.Repeat([]byte{0xab}, 16)))
	if err != nil || string(nonce) != strings.Repeat("ab", 16) {
		t.Fatal(string(nonce), err)
	}
	if _, err := credentials.NewNonce(bytes.NewReader(nil)); err == nil {
		t.Error("a nonce without randomness")
	}
	pub, sig := hex.EncodeToString(public), hex.EncodeToString(ed25519.Sign(key, nonce))
	other, _ := pair(t)
	tests := []struct {
		name, pub, sig string
		nonce          []byte
		ok             bool
	}{
		{"good", pub, sig, nonce, true},
		{"upper case", strings.ToUpper(pub), strings.ToUpper(sig), nonce, true},
		{"other nonce", pub, sig, []byte("other"), false},
		{"no nonce", pub, hex.EncodeToString(ed25519.Sign(key, nil)), nil, false},
		{"other key", hex.EncodeToString(other), sig, nonce, false},
		{"empty key", "", sig, nonce, false},
		{"short key", pub[:62], sig, nonce, false},
		{"long key", pub + "00", sig, nonce, false},
		{"key not hex", strings.Repeat("z", 64), sig, nonce, false},
		{"empty signature", pub, "", nonce, false},
		{"short signature", pub, sig[:126], nonce, false},
		{"signature not hex", pub, strings.Repeat("z", 128), nonce, false},
		{"zero signature", pub, strings.Repeat("0", 128), nonce, false},
		{"huge", strings.Repeat("a", 1<<20), strings.Repeat("a", 1<<20), nonce, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := credentials.VerifyEd25519Reply(tt.pub, tt.sig, tt.nonce)
			if tt.ok != (err == nil) || err != nil && !errors.Is(err, credentials.ErrProof) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// FuzzNodeJWT: whatever a node calls its token is refused with a typed error.
func FuzzNodeJWT(f *testing.F) {
	key := ed25519.NewKeyFromSeed(make([]byte, 32))
	v, err := credentials.LoadVerifier(hex.EncodeToString(key.Public().(ed25519.PublicKey)))
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{"", "a.b.c", "eyJhbGciOiJFZERTQSJ9.e30.", "eyJhbGciOiJFZERTQSJ9.eyJleHAiOjFlOTk5fQ.AA", "eyJhbGciOiJSUzI1NiJ9.bnVsbA.AA", "eyJhbGciOm51bGx9.W10.AA"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		claims, err := v.VerifyNodeJWT(token)
		var e *credentials.Error
		if claims != nil || !errors.As(err, &e) || e.Remedy == "" || strings.ContainsAny(err.Error(), "\n\r\x1b") {
			t.Fatalf("got %v, %q", claims, err)
		}
	})
}
