package credentials

import (
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// maxIssued bounds each of the three texts of [Issued] in bytes.
	maxIssued = 100 << 10
	// issuerSkew is how far the clock of who issued a certificate may be ahead of ours.
	issuerSkew = 5 * time.Minute
)

// Issued is what a helper delivers for a node, each text in PEM.
type Issued struct {
	Certificate string // the node's certificate first, its chain may follow
	CA          string // the bundle that the node trusts
	Key         string // private key, or empty if the node made its own
}

// Format writes the sizes only, whatever the verb: the key is a secret.
func (i Issued) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "certificate of %d bytes, CA of %d, key of %d", len(i.Certificate), len(i.CA), len(i.Key))
}

// UnseenKey stands for a key that the node holds and never showed, as on a site that places keys in its images. As want of
// [DenyList.CheckIssued] it says that nothing can be compared; it is a type of its own so that a forgotten key is not one.
type UnseenKey struct{}

// CheckIssued checks, at the time now, that a node could join with what the helper delivers, and as nobody but itself: the
// certificate belongs to the delivered key or else to want, its common name is the identity, no name is denied, it is a
// valid client certificate and chains to the bundle. want is the key of the node's request, or nil if a key is delivered.
//
// The error is an [*Error]: [ErrDenied] for a name on the deny list, [ErrIssued] otherwise. It holds nothing of the key.
func (d *DenyList) CheckIssued(i Issued, identity string, want crypto.PublicKey, now time.Time) error {
	refuse := func(where string, err error, remedy string) error {
		return &Error{Kind: ErrIssued, Where: "helper reply for node " + short(identity) + ": " + where, Detail: err.Error(), Remedy: remedy}
	}
	chain, err := certificates(i.Certificate)
	if err != nil {
		return refuse("certificate", err, "deliver the node's certificate first and its chain after it, in PEM")
	}
	roots, err := certificates(i.CA)
	if err != nil {
		return refuse("ca", err, "deliver the CA certificates that the node is to trust, in PEM")
	}
	leaf := chain[0]
	if err := belongs(leaf, i.Key, want); err != nil {
		return refuse("certificate and key", err, "sign the request that the helper was given in csr, or deliver the key that belongs to the certificate")
	}
	names, err := subjectAndNames(leaf.RawSubject, leaf.Extensions, identity)
	if err != nil {
		return refuse("certificate", err, "issue it with the identity as its only common name")
	}
	if err := d.check(names, identity); err != nil {
		return err
	}
	if leaf.IsCA {
		return refuse("certificate", errors.New("it is a CA certificate, with which the node could make others"), "deliver the node's certificate first, then its chain")
	}
	if err := verifyChain(chain, roots, now); err != nil {
		return refuse("certificate and ca", err, "issue it for client authentication by a CA of the bundle, and renew what has expired")
	}
	return nil
}

// certificates reads PEM that holds nothing but certificates. Text between the blocks is a comment.
func certificates(text string) ([]*x509.Certificate, error) {
	blocks, err := pemBlocks(text)
	if err != nil {
		return nil, err
	}
	var out []*x509.Certificate
	for i, b := range blocks {
		if b.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("PEM block %d is %s, not a CERTIFICATE", i+1, short(b.Type))
		}
		cert, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, fmt.Errorf("PEM block %d: %s", i+1, plain(err))
		}
		out = append(out, cert)
	}
	return out, nil
}

// pemBlocks returns all PEM blocks of a text, at least one. One that the decoder would skip is an error.
func pemBlocks(text string) ([]*pem.Block, error) {
	if len(text) > maxIssued {
		return nil, fmt.Errorf("it has %d bytes, %d are accepted", len(text), maxIssued)
	}
	var out []*pem.Block
	for rest := []byte(text); ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		out = append(out, b)
	}
	begun := strings.Count(text, "-----BEGIN ")
	switch {
	case begun == 0:
		return nil, errors.New("it is not PEM")
	case begun != len(out):
		return nil, fmt.Errorf("%d PEM blocks begin and %d can be decoded", begun, len(out))
	}
	return out, nil
}

// belongs compares the certificate's key with the delivered one or, without it, with the one wanted.
func belongs(leaf *x509.Certificate, keyPEM string, want crypto.PublicKey) error {
	if err := checkKey(leaf.PublicKey); err != nil {
		return fmt.Errorf("the certificate: %w", err)
	}
	owner := "the node's request"
	if keyPEM != "" {
		key, err := deliveredKey(keyPEM)
		if err != nil {
			return fmt.Errorf("the key: %w", err)
		}
		owner, want = "the delivered key", key.Public()
	}
	if _, unseen := want.(UnseenKey); unseen {
		return nil
	}
	public, given := want.(interface{ Equal(crypto.PublicKey) bool })
	switch {
	case !given:
		return errors.New("there is no key that the certificate could belong to: the node made none and the reply has none")
	case !public.Equal(leaf.PublicKey):
		return errors.New("the certificate does not belong to " + owner)
	}
	return nil
}

// deliveredKey reads the private key of a reply. Its errors hold nothing of it.
func deliveredKey(text string) (*rsa.PrivateKey, error) {
	blocks, err := pemBlocks(text)
	if err != nil {
		return nil, err
	}
	b := blocks[0]
	if len(blocks) > 1 {
		return nil, fmt.Errorf("it has %d PEM blocks, not one", len(blocks))
	}
	if strings.Contains(b.Type, "ENCRYPTED") || b.Headers["DEK-Info"] != "" || strings.Contains(b.Headers["Proc-Type"], "ENCRYPTED") {
		return nil, errors.New("it is encrypted with a passphrase that nobody gave")
	}
	var key any
	switch b.Type {
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(b.Bytes)
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(b.Bytes)
	case "EC PRIVATE KEY":
	default:
		return nil, fmt.Errorf("its PEM block is %s, not a private key", short(b.Type))
	}
	if err != nil {
		return nil, errors.New("its PEM block cannot be parsed") // the library's text may hold parts of the key
	}
	private, ok := key.(*rsa.PrivateKey)
	if !ok {
		return nil, errors.New("it is not an RSA key, and a node writes any other as RSA PRIVATE KEY and cannot read it again")
	}
	if err := checkKey(private.Public()); err != nil {
		return nil, err
	}
	return private, nil
}

// verifyChain verifies the leaf as the broker will. Intermediates may be in either text.
func verifyChain(chain, bundle []*x509.Certificate, now time.Time) error {
	leaf := chain[0]
	at := now
	switch {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("the certificate expired at %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	case leaf.NotBefore.Sub(now) > issuerSkew:
		return fmt.Errorf("the certificate is not valid before %s", leaf.NotBefore.UTC().Format(time.RFC3339))
	case leaf.NotBefore.After(now):
		at = leaf.NotBefore
	}
	opts := x509.VerifyOptions{
		Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: at,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	authorities := 0
	for _, c := range bundle {
		if c.IsCA || c.Version == 1 { // the first version could not say it
			authorities++
			opts.Roots.AddCert(c)
		}
	}
	if authorities == 0 {
		return errors.New("the bundle holds no CA certificate")
	}
	for _, c := range chain[1:] {
		opts.Intermediates.AddCert(c)
	}
	if _, err := leaf.Verify(opts); err != nil {
		return errors.New("the certificate does not chain to the bundle: " + plain(err))
	}
	return nil
}
