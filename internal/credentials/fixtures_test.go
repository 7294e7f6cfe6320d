package credentials_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/choria-io/tokens"
	"github.com/golang-jwt/jwt/v5"

	"provctl/internal/credentials"
)

// org is an organization issuer and a chain issuer below it, with their files.
type org struct {
	t      *testing.T
	dir    string
	public ed25519.PublicKey
	key    ed25519.PrivateKey

	chainKey  ed25519.PrivateKey
	seedFile  string
	tokenFile string
}

func newOrg(t *testing.T) *org {
	t.Helper()
	o := &org{t: t, dir: t.TempDir()}
	o.public, o.key = pair(t)
	_, o.chainKey = pair(t)
	o.seedFile = o.write("signer.seed", []byte(hex.EncodeToString(o.chainKey.Seed())+"\n"))
	o.tokenFile = o.write("signer.jwt", []byte(o.chainToken(time.Hour*24*365, nil)+"\n"))
	return o
}

// chainToken is the client token of the chain issuer; spoil may damage it first.
func (o *org) chainToken(validity time.Duration, spoil func(*tokens.ClientIDClaims)) string {
	o.t.Helper()
	claims, err := tokens.NewClientIDClaims("choria=provisioner", nil, "choria", nil, "", "", validity, nil, o.chainKey.Public().(ed25519.PublicKey))
	if err != nil {
		o.t.Fatal(err)
	}
	if err := claims.AddOrgIssuerData(o.key); err != nil {
		o.t.Fatal(err)
	}
	if spoil != nil {
		spoil(claims)
	}
	return sign(o.t, claims, o.key)
}

func (o *org) write(name string, content []byte) string {
	o.t.Helper()
	path := filepath.Join(o.dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		o.t.Fatal(err)
	}
	return path
}

func (o *org) signer(tokenFile string) *credentials.Signer {
	o.t.Helper()
	s, err := credentials.LoadSigner(o.seedFile, tokenFile, rand.Reader)
	if err != nil {
		o.t.Fatal(err)
	}
	return s
}

func pair(t *testing.T) (ed25519.PublicKey, ed25519.PrivateKey) {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return public, key
}

func sign(t *testing.T, claims jwt.Claims, key any) string {
	t.Helper()
	token, err := tokens.SignToken(claims, key)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// provisioning makes the claims of a node's token.
func provisioning(t *testing.T, edit func(*tokens.ProvisioningClaims)) *tokens.ProvisioningClaims {
	t.Helper()
	claims, err := tokens.NewProvisioningClaims(true, true, "s3cret", "", "", []string{"nats://broker.example.net:4222"}, "", "", "", "", "test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(claims)
	}
	return claims
}

func rsaKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func block(kind string, der []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func certificate(t *testing.T, key crypto.Signer) []byte {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return block("CERTIFICATE", der, err)
}
