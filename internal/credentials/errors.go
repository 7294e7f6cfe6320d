package credentials

import (
	"errors"
	"fmt"
	"strconv"
)

// What callers branch on with errors.Is. The error itself is an [*Error].
var (
	// ErrKey is returned when a key, certificate or token file of ours cannot be used.
	ErrKey = errors.New("key or token file cannot be used")
	// ErrTokenSize is returned when a token is empty or longer than 64 KiB.
	ErrTokenSize = errors.New("token is empty or too long")
	// ErrTokenInvalid is returned when a token is malformed or its signature does
	// not verify.
	ErrTokenInvalid = errors.New("token does not verify")
	// ErrTokenExpired is returned when a token is past its expiry.
	ErrTokenExpired = errors.New("token has expired")
	// ErrTokenEarly is returned when a token is not valid yet.
	ErrTokenEarly = errors.New("token is not valid yet")
	// ErrTokenPurpose is returned when a token verifies and is not a provisioning token.
	ErrTokenPurpose = errors.New("token is not a provisioning token")
	// ErrProof is returned when a node does not prove that it holds its key.
	ErrProof = errors.New("node does not prove its ed25519 key")
	// ErrClaims is returned when a server token cannot be made from what the helper
	// and the node gave.
	ErrClaims = errors.New("server token claims cannot be used")
	// ErrIssuerExpired is returned when the token that lets us issue has expired.
	ErrIssuerExpired = errors.New("the issuer's token has expired")
	// ErrDenyList is returned when a pattern of cert_deny_list cannot be used.
	ErrDenyList = errors.New("certificate deny list cannot be used")
	// ErrDenied is returned when a request or certificate has a name on the deny list.
	ErrDenied = errors.New("name is on the certificate deny list")
	// ErrCSR is returned when a node's certificate request must not be signed.
	ErrCSR = errors.New("certificate request is refused")
	// ErrIssued is returned when a node could not use a certificate that the helper
	// delivered, or must not get it.
	ErrIssued = errors.New("delivered certificate cannot be used")
	// ErrSeal is returned when a delivered private key cannot be encrypted for its node.
	ErrSeal = errors.New("private key cannot be sealed")
)

// Error is a refused credential. It repeats no key and no token.
type Error struct {
	Kind   error  // one of the sentinels of this package
	Where  string // file, claim, name or node; may be empty
	Detail string // may be empty
	Remedy string
	Cause  error // underlying error for errors.Is, or nil
}

// Error renders the failure on one line.
func (e *Error) Error() string {
	text := e.Kind.Error()
	if e.Where != "" {
		text = e.Where + ": " + text
	}
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text + "; " + e.Remedy
}

// Unwrap returns the sentinel and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause != nil {
		return []error{e.Kind, e.Cause}
	}
	return []error{e.Kind}
}

// plain makes a library's message fit for one line of ours.
func plain(err error) string {
	text := err.Error()
	if len(text) > 200 {
		text = text[:200]
	}
	quoted := strconv.QuoteToASCII(text)
	return quoted[1 : len(quoted)-1]
}

func claimError(claim, detail, remedy string) error {
	return &Error{Kind: ErrClaims, Where: claim, Detail: detail, Remedy: remedy}
}

// short quotes a foreign value for an error.
func short(value string) string {
	if len(value) > 60 {
		return fmt.Sprintf("%s…", strconv.QuoteToASCII(value[:60]))
	}
	return strconv.QuoteToASCII(value)
}
