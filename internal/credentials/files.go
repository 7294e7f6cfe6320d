package credentials

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxFile bounds key and token files; a real one has a few kilobytes.
const maxFile = 64 << 10

// readFile reads a small regular file, without the white space around its text.
func readFile(path, remedy string) ([]byte, error) {
	refuse := func(detail string, cause error) error {
		return &Error{Kind: ErrKey, Where: path, Detail: detail, Remedy: remedy, Cause: cause}
	}
	info, err := os.Stat(path) // opening a pipe would hang
	if err != nil {
		return nil, refuse(plain(err), err)
	}
	if !info.Mode().IsRegular() {
		return nil, refuse("it is not a regular file", nil)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, refuse(plain(err), err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, refuse(plain(err), err)
	case len(text) > maxFile:
		return nil, refuse("it is larger than 64 KiB", nil)
	}
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return nil, refuse("it is empty", nil)
	}
	return text, nil
}

// hexKey decodes 32 bytes written in hex, the form of Choria's seeds and public keys.
func hexKey(text string) ([]byte, bool) {
	if len(text) != hex.EncodedLen(ed25519.PublicKeySize) {
		return nil, false
	}
	key, err := hex.DecodeString(text)
	return key, err == nil
}

// parsePublic reads a public key: hex, a certificate or a PEM public key.
func parsePublic(text []byte) (crypto.PublicKey, error) {
	if key, ok := hexKey(string(text)); ok {
		return ed25519.PublicKey(key), nil
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("it holds neither 64 hex digits nor PEM")
	}
	var key any
	var err error
	switch block.Type {
	case "CERTIFICATE":
		var cert *x509.Certificate
		if cert, err = x509.ParseCertificate(block.Bytes); err == nil {
			key = cert.PublicKey
		}
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		key, err = x509.ParsePKCS1PublicKey(block.Bytes)
	default:
		return nil, fmt.Errorf("its PEM block is %s", short(block.Type))
	}
	if err != nil {
		return nil, errors.New(plain(err))
	}
	switch key.(type) {
	case *rsa.PublicKey, ed25519.PublicKey:
		return key, nil
	}
	return nil, errors.New("its key is neither RSA nor ed25519")
}

// parsePrivate reads a signing key: a seed in hex or an RSA key in PEM.
func parsePrivate(text []byte) (crypto.Signer, error) {
	if seed, ok := hexKey(string(text)); ok {
		return ed25519.NewKeyFromSeed(seed), nil
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("it holds neither a seed of 64 hex digits nor PEM")
	}
	var key any
	var err error
	switch block.Type {
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("its PEM block is %s", short(block.Type))
	}
	if err != nil {
		return nil, errors.New("its PEM block cannot be parsed") // the library's text may hold parts of the key
	}
	switch k := key.(type) {
	case *rsa.PrivateKey:
		return k, nil
	case ed25519.PrivateKey:
		return k, nil
	}
	return nil, errors.New("its key is neither RSA nor ed25519")
}
