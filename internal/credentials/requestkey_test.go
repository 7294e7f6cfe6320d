package credentials_test

import (
	"crypto/x509"
	"errors"
	"strings"
	"testing"

	"provctl/internal/credentials"
)

func TestCheckRequestKey(t *testing.T) {
	mine, other := rsaKey(t), rsaKey(t)
	csr := csrPEM(request(mine, nil))
	pkcs1 := func(der []byte) string { return string(block("PUBLIC KEY", der, nil)) }
	pkix := string(block("PUBLIC KEY", must(x509.MarshalPKIXPublicKey(mine.Public())), nil))
	for _, good := range []string{pkcs1(x509.MarshalPKCS1PublicKey(&mine.PublicKey)), pkix} {
		if err := credentials.CheckRequestKey(csr, good); err != nil {
			t.Error(err)
		}
	}
	for name, c := range map[string]struct{ csr, public, want string }{
		"another key":      {csr, pkcs1(x509.MarshalPKCS1PublicKey(&other.PublicKey)), "not the key of the request"},
		"no PEM":           {csr, "none", "not PEM"},
		"no key":           {csr, pkcs1([]byte{1, 2, 3}), "no public key"},
		"huge":             {csr, strings.Repeat("x", 1<<20), "too large"},
		"no request":       {"none", pkix, "the request beside it"},
		"a broken request": {csrPEM([]byte{1, 2}), pkix, "cannot be parsed"},
	} {
		if err := credentials.CheckRequestKey(c.csr, c.public); !errors.Is(err, credentials.ErrCSR) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
