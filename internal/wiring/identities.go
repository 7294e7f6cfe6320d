package wiring

import (
	"crypto"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"provctl/internal/choria"
	"provctl/internal/config"
	"provctl/internal/credentials"
	"provctl/internal/helper"
	"provctl/receipt"
)

// Identities implements sequence.Credentials: it checks what nodes present and issues what they get. Of what the configuration does
// not ask for it has nothing.
type Identities struct {
	verifier *credentials.Verifier
	signer   *credentials.Signer
	denied   *credentials.DenyList
	validity time.Duration
}

// NewIdentities reads the key and token files and compiles the deny list, as far as the configuration's flow needs them. Its error is
// an [*config.Invalid] with all that is wrong with them, for good.
func NewIdentities(cfg *config.Config, now time.Time) (Identities, error) {
	var wrong config.Invalid
	refuse := func(key string, err error) { wrong.Problems = append(wrong.Problems, cfg.Refuse(key, err).Problems...) }
	ids := Identities{validity: cfg.ServerJWTValidity}
	var err error
	if cfg.Features.JWT {
		if ids.verifier, err = credentials.LoadVerifier(cfg.JWTVerifyCert); err != nil {
			refuse("jwt_verify_cert", err)
		}
	}
	// The helper may deliver certificates in any flow.
	if ids.denied, err = credentials.CompileDenyList(cfg.CertDenyList); err != nil {
		refuse("cert_deny_list", err)
	}
	if cfg.Features.Ed25519 {
		if ids.signer, err = loadSigner(cfg, now); err != nil {
			key := "jwt_signing_key"
			if e := (*credentials.Error)(nil); errors.As(err, &e) && e.Where == cfg.JWTSigningToken {
				key = "jwt_signing_token"
			}
			refuse(key, err)
		}
	}
	if len(wrong.Problems) > 0 {
		return Identities{}, &wrong
	}
	return ids, nil
}

func loadSigner(cfg *config.Config, now time.Time) (*credentials.Signer, error) {
	signer, err := credentials.LoadSigner(cfg.JWTSigningKey, cfg.JWTSigningToken, rand.Reader)
	if err != nil {
		return nil, err
	}
	// Found out later, it would cost each node a key and a hold.
	if end := signer.ExpiresAt(); !end.IsZero() && !now.Before(end) {
		return nil, &credentials.Error{
			Kind: credentials.ErrIssuerExpired, Where: cfg.JWTSigningToken, Detail: "at " + end.UTC().Format(time.RFC3339), Remedy: "issue a new one for the same key",
		}
	}
	return signer, nil
}

// VerifyNode checks a provisioning token and returns its claims.
func (i Identities) VerifyNode(token string) (json.RawMessage, error) {
	if i.verifier == nil {
		return nil, errors.New("features.jwt is off: no token can be verified")
	}
	claims, err := i.verifier.VerifyNodeJWT(token)
	if err != nil {
		return nil, err
	}
	return claims.JSON(), nil
}

// ReadKey decodes the reply to a key generation; of an ed25519 key it verifies the signature over the nonce.
func (i Identities) ReadKey(a receipt.Action, data json.RawMessage, nonce string) (receipt.Key, error) {
	if a == receipt.GenCSR {
		csr, err := choria.DecodeCSR(data)
		if err != nil {
			return receipt.Key{}, err
		}
		return receipt.Key{Public: csr.PublicKey, Directory: csr.SSLDir, CSR: csr.PEM}, credentials.CheckRequestKey(csr.PEM, csr.PublicKey)
	}
	key, err := choria.DecodeKey(a, data)
	if err != nil {
		return receipt.Key{}, err
	}
	return key, credentials.VerifyEd25519Reply(key.Public, key.Signature, []byte(nonce))
}

// CheckCSR verifies a certificate signing request and that no name in it is denied.
func (i Identities) CheckCSR(node receipt.NodeID, csr string) error {
	_, err := i.denied.CheckCSR(csr, string(node))
	return err
}

// CheckIssued verifies what the helper delivers: a certificate for the key that the node made, or for the key that comes with it.
func (i Identities) CheckIssued(node receipt.NodeID, csr string, reply *helper.Reply) error {
	var want crypto.PublicKey // none: the key comes along
	switch {
	case csr == "" && reply.Key == "":
		want = credentials.UnseenKey{} // from the node's image
	case csr != "":
		var err error
		if want, err = i.denied.CheckCSR(csr, string(node)); err != nil {
			return err
		}
	}
	return i.denied.CheckIssued(credentials.Issued{Certificate: reply.Certificate, CA: reply.CA, Key: reply.Key}, string(node), want, time.Now())
}

// SealKey encrypts a private key to a node.
func (i Identities) SealKey(key, ecdh string) (sealed, public string, err error) {
	return credentials.SealKey(key, ecdh, rand.Reader)
}

// ServerJWT signs a node's server token.
func (i Identities) ServerJWT(node receipt.NodeID, publicKey string, reply *helper.Reply) (string, error) {
	if i.signer == nil {
		return "", fmt.Errorf("features.ed25519 is off: no server token can be signed")
	}
	return i.signer.ServerJWT(string(node), publicKey, reply.ServerClaims, reply.Configuration, i.validity, time.Now())
}
