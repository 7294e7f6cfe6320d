package fleet

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// CA is a certificate authority on disk. A helper program that gets the two paths signs as the fleet does.
type CA struct {
	// Certificate and Key are the paths of its PEM files.
	Certificate, Key string
}

// CA is that of a fleet with Options.X509; without, its files do not exist.
func (f *Fleet) CA() CA { return f.keys.ca() }

func (k *keys) ca() CA { return CA{Certificate: k.path("ca.crt"), Key: k.path("ca.key")} }

// create writes a new authority.
func (a CA) create() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template, err := certificateOf("provctl fleet CA")
	if err != nil {
		return err
	}
	template.IsCA, template.BasicConstraintsValid, template.ExtKeyUsage = true, true, nil
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	if err = writeKey(a.Key, key); err != nil {
		return err
	}
	return writePEM(a.Certificate, "CERTIFICATE", der)
}

// certificateOf starts the certificate of a client and server of that name.
func certificateOf(name string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(tokenValidity),
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, nil
}

func writeKey(path string, key crypto.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "PRIVATE KEY", der)
}

// Sign makes the certificate, in PEM, that a PEM certificate request asks for: its subject, its public key and its DNS
// names, or the common name as the only one. It refuses a request whose signature is not by its own key.
func (a CA) Sign(csr string) (string, error) {
	block, _ := pem.Decode([]byte(csr))
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return "", errors.New("signing a certificate request: it is not one in PEM")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = request.CheckSignature()
	}
	if err != nil {
		return "", fmt.Errorf("signing a certificate request: %w", err)
	}
	template, err := certificateOf(request.Subject.CommonName)
	if err != nil {
		return "", err
	}
	template.Subject, template.DNSNames = request.Subject, request.DNSNames
	if len(template.DNSNames) == 0 {
		template.DNSNames = []string{request.Subject.CommonName}
	}
	return a.sign(template, request.PublicKey)
}

// Issue makes an RSA key and its certificate for that name, both in PEM: what a helper that supplies the key sends. The
// signatures of protocol 1 need RSA (providers/security/filesec/file_security.go:230).
func (a CA) Issue(name string) (certificate, key string, err error) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", "", err
	}
	template, err := certificateOf(name)
	if err != nil {
		return "", "", err
	}
	template.DNSNames = []string{name}
	if certificate, err = a.sign(template, private.Public()); err != nil {
		return "", "", err
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)}
	return certificate, string(pem.EncodeToMemory(block)), nil
}

// sign reads the authority's files, since a helper holds no more than their paths.
func (a CA) sign(template *x509.Certificate, public crypto.PublicKey) (string, error) {
	certificate, err := readPEM(a.Certificate)
	if err != nil {
		return "", err
	}
	parent, err := x509.ParseCertificate(certificate)
	if err != nil {
		return "", fmt.Errorf("reading the CA's certificate %s: %w", a.Certificate, err)
	}
	private, err := readPEM(a.Key)
	if err != nil {
		return "", err
	}
	key, err := x509.ParsePKCS8PrivateKey(private)
	if err != nil {
		return "", fmt.Errorf("reading the CA's key %s: %w", a.Key, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return "", fmt.Errorf("signing a certificate for %s: %w", template.Subject.CommonName, err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), nil
}

func readPEM(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the CA's files (a fleet has them with X509): %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("reading the CA's files: %s holds no PEM", path)
	}
	return block.Bytes, nil
}

// brokerCertificate is signed by the authority, or by itself without one: a Choria broker without a certificate rejects
// every TCP client.
func (k *keys) brokerCertificate() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template, err := certificateOf("localhost")
	if err != nil {
		return err
	}
	template.DNSNames, template.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	if err = writeKey(k.path("broker.key"), key); err != nil {
		return err
	}
	if k.x509 {
		text, err := k.ca().sign(template, &key.PublicKey)
		if err != nil {
			return err
		}
		return os.WriteFile(k.path("broker.crt"), []byte(text), 0o600)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	return writePEM(k.path("broker.crt"), "CERTIFICATE", der)
}

// writeAuthority makes the authority, the certificate that the provisioner connects with, and the public key by which the
// broker knows provisioning tokens.
func (k *keys) writeAuthority() error {
	if err := k.ca().create(); err != nil {
		return err
	}
	certificate, key, err := k.ca().Issue(provisionerName)
	if err != nil {
		return err
	}
	for name, text := range map[string]string{"provisioner.crt": certificate, "provisioner.key": key, "issuer.pub": k.issuerHex} {
		if err = os.WriteFile(k.path(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// fileSecurity are Choria's settings for one of the fleet's certificates.
func (k *keys) fileSecurity(name string) []string {
	return []string{
		"plugin.security.provider=file",
		"plugin.security.file.certificate=" + k.path(name+".crt"),
		"plugin.security.file.key=" + k.path(name+".key"),
		"plugin.security.file.ca=" + k.ca().Certificate,
	}
}
