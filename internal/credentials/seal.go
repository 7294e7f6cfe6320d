package credentials

import (
	"crypto/ecdh"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"io"
)

// SealKey encrypts a delivered private key for one node: with the secret that X25519 makes of a new key of ours and the
// node's, whose public half the jwt action gives in hex (providers/agent/mcorpc/golang/provision/util.go:54-90). sealed is a
// PEM block that only this node opens, until its next jwt action; publicHex is our public key, which it needs for that.
//
// The node writes what it finds inside as RSA PRIVATE KEY, so the key is converted to PKCS#1, and one that is not RSA is
// refused. random must be a secure source; it is read for the new key and for the cipher. The error is an [*Error] of kind
// [ErrSeal] and holds no secret.
func SealKey(keyPEM, nodePublicHex string, random io.Reader) (sealed, publicHex string, err error) {
	refuse := func(where, detail, remedy string) (string, string, error) {
		return "", "", &Error{Kind: ErrSeal, Where: where, Detail: detail, Remedy: remedy}
	}
	const nodeRemedy = "look at the node's reply to the jwt action; another process may answer for it"
	key, err := deliveredKey(keyPEM)
	if err != nil {
		return refuse("key", err.Error(), "make the helper deliver an unencrypted RSA key of 2048 bits or more, in PEM")
	}
	raw, ok := hexKey(nodePublicHex)
	if !ok {
		return refuse("the node's ecdh_public", "it is not 64 hex digits", nodeRemedy)
	}
	remote, err := ecdh.X25519().NewPublicKey(raw)
	if err != nil {
		return refuse("the node's ecdh_public", plain(err), nodeRemedy)
	}
	scalar := make([]byte, 32)
	if _, err := io.ReadFull(random, scalar); err != nil {
		return refuse("a new key", plain(err), "check the system's source of randomness")
	}
	own, err := ecdh.X25519().NewPrivateKey(scalar)
	if err != nil {
		return refuse("a new key", plain(err), "check the system's source of randomness")
	}
	secret, err := own.ECDH(remote) // refuses keys of low order, whose secret is known to all
	if err != nil {
		return refuse("the node's ecdh_public", "it is of low order", nodeRemedy)
	}
	//lint:ignore SA1019 the only form that nodes read
	block, err := x509.EncryptPEMBlock(random, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key), secret, x509.PEMCipherAES256)
	if err != nil {
		return refuse("key", "it cannot be encrypted: "+plain(err), "check the system's source of randomness")
	}
	return string(pem.EncodeToMemory(block)), hex.EncodeToString(own.PublicKey().Bytes()), nil
}
