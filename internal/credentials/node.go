// Package credentials checks what a node presents (its provisioning token, the
// proof that it holds its new key) and makes what it gets (its server token).
// It connects nowhere and writes nothing.
package credentials

import (
	"crypto"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/choria-io/tokens"
	"github.com/golang-jwt/jwt/v5"
)

// maxToken bounds a token in bytes; a real one has about one kilobyte.
const maxToken = 64 << 10

// nonceBytes makes 32 hex digits; the node's agent declares at most 64
// characters (go-choria client/choria_provisionclient/ddl.json).
const nonceBytes = 16

// Verifier verifies nodes' provisioning tokens with one public key. Make it with
// [LoadVerifier]; the zero Verifier refuses every token.
type Verifier struct {
	key crypto.PublicKey
}

// LoadVerifier takes what the key jwt_verify_cert holds: 64 hex digits, or a
// file with hex digits, a certificate or a PEM public key.
func LoadVerifier(fileOrHex string) (*Verifier, error) {
	const remedy = "set jwt_verify_cert to the issuer's public key in hex, or to a file with it or with a certificate"
	if key, ok := hexKey(fileOrHex); ok {
		return &Verifier{key: ed25519.PublicKey(key)}, nil
	}
	text, err := readFile(fileOrHex, remedy)
	if err != nil {
		return nil, err
	}
	key, err := parsePublic(text)
	if err != nil {
		return nil, &Error{Kind: ErrKey, Where: fileOrHex, Detail: err.Error(), Remedy: remedy}
	}
	return &Verifier{key: key}, nil
}

// NodeClaims are the verified claims of a node's provisioning token. They hold a
// secret, so printing them shows the organization only.
type NodeClaims struct {
	Organization string
	ExpiresAt    time.Time // zero: never

	form []byte
}

// JSON returns the claims in the form that helpers get.
func (c *NodeClaims) JSON() json.RawMessage { return append(json.RawMessage(nil), c.form...) }

// Format writes the organization, whatever the verb.
func (c *NodeClaims) Format(f fmt.State, _ rune) {
	if c == nil {
		_, _ = io.WriteString(f, "no claims")
		return
	}
	_, _ = fmt.Fprintf(f, "provisioning claims of %s", short(c.Organization))
}

// VerifyNodeJWT verifies a node's provisioning token: size, signature, validity
// at this machine's present time, purpose. White space around it is ignored,
// since nodes send their file as it is.
func (v *Verifier) VerifyNodeJWT(token string) (*NodeClaims, error) {
	token = strings.TrimSpace(token)
	if token == "" || len(token) > maxToken {
		return nil, &Error{Kind: ErrTokenSize, Detail: fmt.Sprintf("%d bytes", len(token)), Remedy: "place a provisioning.jwt on the node"}
	}
	claims, err := tokens.ParseProvisioningToken(token, v.key)
	if err != nil {
		return nil, v.tokenError(token, err)
	}
	form, err := json.Marshal(claims)
	if err != nil {
		return nil, &Error{Kind: ErrTokenInvalid, Detail: plain(err), Remedy: "issue the node's provisioning.jwt again", Cause: err}
	}
	out := &NodeClaims{Organization: claims.OrganizationUnit, form: form}
	if claims.ExpiresAt != nil || claims.IssuerExpiresAt != nil {
		out.ExpiresAt = claims.ExpireTime()
	}
	return out, nil
}

// tokenError finds the reason of a refusal. The library flattens its errors to
// text, so the token is parsed once more by the function that keeps them.
func (v *Verifier) tokenError(token string, refused error) error {
	e := &Error{Kind: ErrTokenInvalid, Detail: plain(refused), Cause: refused}
	claims := &tokens.ProvisioningClaims{}
	err := tokens.ParseToken(token, claims, v.key)
	switch {
	case errors.Is(err, jwt.ErrTokenExpired):
		e.Kind, e.Remedy = ErrTokenExpired, "issue the node's provisioning.jwt again"
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		e.Kind, e.Remedy = ErrTokenEarly, "check the clock here and where it was issued"
	case err != nil:
		e.Remedy = "check that jwt_verify_cert belongs to the issuer of the node's provisioning.jwt"
	case !tokens.IsProvisioningToken(claims.StandardClaims):
		e.Kind, e.Remedy = ErrTokenPurpose, "place a token made by choria jwt provisioning on the node"
	default: // what remains is the issuer's expiry
		e.Kind, e.Remedy = ErrTokenExpired, "issue the node's provisioning.jwt with an issuer that is still valid"
	}
	return e
}

// NewNonce makes what a node signs with its new key: text of 32 hex digits.
func NewNonce(rand io.Reader) ([]byte, error) {
	raw := make([]byte, nonceBytes)
	if _, err := io.ReadFull(rand, raw); err != nil {
		return nil, fmt.Errorf("make a nonce: %w", err)
	}
	return hex.AppendEncode(nil, raw), nil
}

// VerifyEd25519Reply verifies a node's answer to gen25519: its public key and its
// signature over the nonce that was sent, both in hex. Lengths are checked
// first, because the signature check panics on a short key.
func VerifyEd25519Reply(pubHex, sigHex string, nonce []byte) error {
	refuse := func(detail string) error {
		return &Error{Kind: ErrProof, Detail: detail, Remedy: "do not configure this node; another process may answer for it"}
	}
	key, ok := hexKey(pubHex)
	if !ok {
		return refuse("the public key is not 64 hex digits, it has " + fmt.Sprint(len(pubHex)))
	}
	if len(sigHex) != hex.EncodedLen(ed25519.SignatureSize) {
		return refuse("the signature is not 128 hex digits, it has " + fmt.Sprint(len(sigHex)))
	}
	sig, err := hex.DecodeString(sigHex)
	if err != nil {
		return refuse("the signature is not hex")
	}
	if len(nonce) == 0 {
		return refuse("no nonce was sent")
	}
	if !ed25519.Verify(key, nonce, sig) {
		return refuse("the signature does not match key and nonce")
	}
	return nil
}
