package choria

import (
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode"

	jsonv2 "github.com/go-json-experiment/json"

	"provctl/receipt"
)

const (
	maxPath = 4096
	maxPEM  = 64 << 10
)

// DecodeKey reads what gen25519 answered (providers/agent/mcorpc/golang/provision/ed25519_action.go:23): 64 and 128 hex
// digits and a clean absolute path. It does not verify the signature: only the caller knows the nonce.
func DecodeKey(a receipt.Action, data json.RawMessage) (receipt.Key, error) {
	if a != receipt.Gen25519 {
		return receipt.Key{}, fmt.Errorf("%w: %s makes no ed25519 key", ErrMisuse, a)
	}
	var v struct {
		Public    *string `json:"public_key"`
		Directory *string `json:"directory"`
		Signature *string `json:"signature"`
	}
	if err := jsonv2.Unmarshal(data, &v); err != nil {
		return receipt.Key{}, fmt.Errorf("%w: the key's data cannot be read: %s", ErrBadReply, clean(err.Error()))
	}
	switch {
	case v.Public == nil || !isHex(*v.Public, 64):
		return receipt.Key{}, fmt.Errorf("%w: public_key is not 64 hex digits", ErrBadReply)
	case v.Signature == nil || !isHex(*v.Signature, 128):
		return receipt.Key{}, fmt.Errorf("%w: signature is not 128 hex digits", ErrBadReply)
	case v.Directory == nil:
		return receipt.Key{}, fmt.Errorf("%w: directory is missing", ErrBadReply)
	}
	if err := checkPath(*v.Directory); err != nil {
		return receipt.Key{}, fmt.Errorf("%w: directory: %w", ErrBadReply, err)
	}
	return receipt.Key{Public: strings.ToLower(*v.Public), Directory: *v.Directory, Signature: strings.ToLower(*v.Signature)}, nil
}

func isHex(s string, n int) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) == n
}

// checkPath accepts an absolute path of a node, POSIX or with a Windows drive.
func checkPath(p string) error {
	drive := len(p) > 2 && p[1] == ':' && (p[2] == '\\' || p[2] == '/') && (p[0]|0x20) >= 'a' && (p[0]|0x20) <= 'z'
	switch {
	case len(p) > maxPath:
		return errors.New("it is longer than 4096 bytes")
	case !path.IsAbs(p) && !drive:
		return errors.New("it is not absolute")
	case strings.ContainsFunc(p, unicode.IsControl) || strings.ContainsRune(p, unicode.ReplacementChar):
		return errors.New("it holds control characters")
	}
	return nil
}

// CSR is what gencsr answered.
type CSR struct {
	PEM       string // one CERTIFICATE REQUEST block; its content is not verified here
	PublicKey string // PEM
	SSLDir    string // on the node, absolute
}

// DecodeCSR reads what gencsr answered (providers/agent/mcorpc/golang/provision/csr_action.go:34).
func DecodeCSR(data json.RawMessage) (CSR, error) {
	var v struct {
		CSR       *string `json:"csr"`
		PublicKey *string `json:"public_key"`
		SSLDir    *string `json:"ssldir"`
	}
	if err := jsonv2.Unmarshal(data, &v); err != nil {
		return CSR{}, fmt.Errorf("%w: the request's data cannot be read: %s", ErrBadReply, clean(err.Error()))
	}
	if v.CSR == nil || v.PublicKey == nil || v.SSLDir == nil {
		return CSR{}, fmt.Errorf("%w: csr, public_key or ssldir is missing", ErrBadReply)
	}
	if len(*v.CSR) > maxPEM || len(*v.PublicKey) > maxPEM {
		return CSR{}, fmt.Errorf("%w: csr or public_key is longer than 64 KiB", ErrBadReply)
	}
	if block, _ := pem.Decode([]byte(*v.CSR)); block == nil || block.Type != "CERTIFICATE REQUEST" {
		return CSR{}, fmt.Errorf("%w: csr is no PEM certificate request", ErrBadReply)
	}
	if err := checkPath(*v.SSLDir); err != nil {
		return CSR{}, fmt.Errorf("%w: ssldir: %w", ErrBadReply, err)
	}
	return CSR{PEM: *v.CSR, PublicKey: *v.PublicKey, SSLDir: *v.SSLDir}, nil
}
