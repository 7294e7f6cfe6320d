package credentials

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
)

// CheckRequestKey checks that the public key which a node names beside its request is the request's: a helper may use either. A Choria
// server writes it in PKCS #1 although the PEM block says otherwise (go-choria v0.30.2
// providers/agent/mcorpc/golang/provision/csr_action.go:136-141); the form that the block promises is accepted too. The request itself is
// for [DenyList.CheckCSR] to check. The error is [ErrCSR].
func CheckRequestKey(csrPEM, publicPEM string) error {
	refuse := func(detail string) error {
		return &Error{Kind: ErrCSR, Where: "public_key", Detail: detail, Remedy: "do not configure this node; look at its server version, and at who else may answer for it"}
	}
	der, err := requestDER(csrPEM)
	if err != nil {
		return refuse("the request beside it: " + err.Error())
	}
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return refuse("the request beside it cannot be parsed: " + plain(err))
	}
	if len(publicPEM) > maxCSR {
		return refuse("it is too large")
	}
	block, _ := pem.Decode([]byte(publicPEM))
	if block == nil {
		return refuse("it is not PEM")
	}
	public, err := publicKeyOf(block.Bytes)
	if err != nil {
		return refuse(err.Error())
	}
	if mine, ok := csr.PublicKey.(interface{ Equal(x crypto.PublicKey) bool }); !ok || !mine.Equal(public) {
		return refuse("it is not the key of the request")
	}
	return nil
}

func publicKeyOf(der []byte) (crypto.PublicKey, error) {
	if key, err := x509.ParsePKCS1PublicKey(der); err == nil {
		return key, nil
	}
	key, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, errors.New("it holds no public key")
	}
	return key, nil
}
