package credentials

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// maxCSR bounds a request in bytes; one with an RSA key of 2048 bits has about 900.
const maxCSR = 16 << 10

const requestBlock = "CERTIFICATE REQUEST"

// signatures are the algorithms accepted for a request. crypto/x509 itself still takes SHA-1 there.
var signatures = map[x509.SignatureAlgorithm]bool{
	x509.SHA256WithRSA: true, x509.SHA384WithRSA: true, x509.SHA512WithRSA: true,
	x509.SHA256WithRSAPSS: true, x509.SHA384WithRSAPSS: true, x509.SHA512WithRSAPSS: true,
	x509.ECDSAWithSHA256: true, x509.ECDSAWithSHA384: true, x509.ECDSAWithSHA512: true,
	x509.PureEd25519: true,
}

// CheckCSR checks the request that a node made and returns its public key: *rsa.PublicKey, *ecdsa.PublicKey or
// ed25519.PublicKey. What a signer further down the line may read otherwise than it was read here is refused: text around the
// one PEM block, attributes and extensions beside the alternative names (a Choria server asks for none:
// providers/agent/mcorpc/golang/provision/csr_action.go:105-108), alternative names of unknown kinds, and several common names.
//
// The error is an [*Error]: [ErrDenied] for a name on the deny list, [ErrCSR] otherwise.
func (d *DenyList) CheckCSR(csrPEM, identity string) (publicKey crypto.PublicKey, err error) {
	refuse := func(err error) (crypto.PublicKey, error) {
		return nil, &Error{
			Kind: ErrCSR, Where: "node " + short(identity), Detail: err.Error(),
			Remedy: "do not configure this node; look at its server version, and at who else may answer for it",
		}
	}
	der, err := requestDER(csrPEM)
	if err != nil {
		return refuse(err)
	}
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return refuse(errors.New("it cannot be parsed: " + plain(err)))
	}
	if err := checkKey(csr.PublicKey); err != nil {
		return refuse(err)
	}
	if !signatures[csr.SignatureAlgorithm] {
		return refuse(fmt.Errorf("its signature algorithm, %s, is weak or unknown", csr.SignatureAlgorithm))
	}
	if err := csr.CheckSignature(); err != nil {
		return refuse(errors.New("its signature is not by its key"))
	}
	if err := checkRequested(csr); err != nil {
		return refuse(err)
	}
	names, err := subjectAndNames(csr.RawSubject, csr.Extensions, identity)
	if err != nil {
		return refuse(err)
	}
	if err := d.check(names, identity); err != nil {
		return nil, err
	}
	return csr.PublicKey, nil
}

// requestDER takes the content out of exactly one PEM block. The block is written again and compared, without white space,
// since the decoder skips what it cannot read, and a signer's decoder may not.
func requestDER(text string) ([]byte, error) {
	if len(text) > maxCSR {
		return nil, fmt.Errorf("it has %d bytes, %d are accepted", len(text), maxCSR)
	}
	block, _ := pem.Decode([]byte(text))
	switch {
	case block == nil:
		return nil, errors.New("it is not PEM")
	case block.Type != requestBlock:
		return nil, fmt.Errorf("its PEM block is %s, not %s", short(block.Type), requestBlock)
	case len(block.Headers) > 0:
		return nil, errors.New("its PEM block has headers")
	case !bytes.Equal(squeeze([]byte(text)), squeeze(pem.EncodeToMemory(block))):
		return nil, errors.New("there is more in it than one PEM block")
	}
	return block.Bytes, nil
}

func squeeze(text []byte) []byte {
	return bytes.Map(func(r rune) rune {
		if strings.ContainsRune(" \t\r\n", r) {
			return -1
		}
		return r
	}, text)
}

// checkRequested refuses what a request asks for besides names. The parser passes over attributes that it does not know;
// other signers read some of those as extensions.
func checkRequested(csr *x509.CertificateRequest) error {
	outer, err := sequence(csr.Raw)
	if err != nil || len(outer) != 3 {
		return errNotDER
	}
	parts, err := elements(outer[0].Bytes) // version, subject, key, attributes
	if err != nil || len(parts) != 4 {
		return errNotDER
	}
	attributes, err := elements(parts[3].Bytes)
	if err != nil {
		return err
	}
	if len(attributes) > 1 {
		return fmt.Errorf("it has %d attributes, one is accepted", len(attributes))
	}
	for _, a := range attributes {
		oid, set, err := attribute(a)
		if err != nil {
			return err
		}
		if !oid.Equal(oidExtRequest) {
			return fmt.Errorf("it has the attribute %s, which cannot be checked", short(oid.String()))
		}
		if values, err := elements(set.Bytes); err != nil || len(values) != 1 {
			return errors.New("its list of requested extensions is not one")
		}
	}
	for _, e := range csr.Extensions {
		if !e.Id.Equal(oidAltName) {
			return fmt.Errorf("it asks for the extension %s, only alternative names are accepted", short(e.Id.String()))
		}
	}
	return nil
}
