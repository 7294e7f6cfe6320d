package credentials

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"encoding/hex"
	"io"
	"strings"
	"time"

	"github.com/choria-io/tokens"
	"github.com/golang-jwt/jwt/v5"
	"github.com/segmentio/ksuid"
)

const (
	issuerName  = "Choria Provisioner"
	defaultOrg  = "choria"
	ksuidRandom = 16 // bytes of a KSUID that are not time
)

// Signer issues server tokens. Make it with [LoadSigner]; it is safe for
// concurrent use if its source of randomness is.
type Signer struct {
	key   crypto.Signer
	chain *tokens.ClientIDClaims // nil: the key's owner is trusted directly
	rand  io.Reader
}

// LoadSigner reads the files of jwt_signing_key and, unless empty,
// jwt_signing_token once. With a token the issued ones carry its chain of trust,
// and it must be a chain issuer's and belong to the key.
func LoadSigner(keyFile, tokenFile string, rand io.Reader) (*Signer, error) {
	const keyRemedy = "set jwt_signing_key to a seed made by choria jwt keys"
	text, err := readFile(keyFile, keyRemedy)
	if err != nil {
		return nil, err
	}
	key, err := parsePrivate(text)
	if err != nil {
		return nil, &Error{Kind: ErrKey, Where: keyFile, Detail: err.Error(), Remedy: keyRemedy}
	}
	s := &Signer{key: key, rand: rand}
	if tokenFile == "" {
		return s, nil
	}
	if err := s.loadChain(tokenFile, keyFile); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Signer) loadChain(tokenFile, keyFile string) error {
	const remedy = "set jwt_signing_token to a token made by choria jwt client with --issuer for this key, or leave it out"
	refuse := func(detail string) error {
		return &Error{Kind: ErrKey, Where: tokenFile, Detail: detail, Remedy: remedy}
	}
	text, err := readFile(tokenFile, remedy)
	if err != nil {
		return err
	}
	key, ok := s.key.(ed25519.PrivateKey)
	if !ok {
		return refuse("it needs an ed25519 key in " + keyFile)
	}
	claims, err := tokens.ParseClientIDTokenUnverified(string(text))
	if err != nil {
		return refuse(plain(err))
	}
	public, _ := hexKey(claims.PublicKey)
	issuer, _ := hexKey(strings.TrimPrefix(claims.Issuer, tokens.OrgIssuerPrefix))
	switch {
	case issuer == nil || !claims.IsChainedIssuer(true):
		return refuse("it may not issue tokens: the organization issuer's signature is missing or wrong")
	case !bytes.Equal(public, key.Public().(ed25519.PublicKey)):
		return refuse("it belongs to another key than " + keyFile)
	case claims.ExpiresAt == nil:
		return refuse("it has no expiry")
	}
	s.chain = claims
	return nil
}

// ExpiresAt returns when the issuer's token ends, and no issued token lives
// longer. Zero: there is no such token.
func (s *Signer) ExpiresAt() time.Time {
	if s.chain == nil {
		return time.Time{}
	}
	return s.chain.ExpiresAt.Time
}

// ServerJWT issues the server token of a node for the public key that it has
// proved to hold (64 hex digits). claims is the helper's server_claims, or nil;
// configuration is what the node will be configured with. validity holds where
// the claims set no usable expiry; now is when the token begins.
func (s *Signer) ServerJWT(identity, publicKey string, claims []byte, configuration map[string]string, validity time.Duration, now time.Time) (string, error) {
	given, err := parseClaims(claims)
	if err != nil {
		return "", err
	}
	token, err := s.serverClaims(identity, publicKey, given, configuration, validity, now)
	if err != nil {
		return "", err
	}
	if s.chain != nil {
		if !now.Before(s.chain.ExpiresAt.Time) {
			return "", &Error{Kind: ErrIssuerExpired, Where: "jwt_signing_token", Detail: "at " + s.chain.ExpiresAt.UTC().Format(time.RFC3339), Remedy: "issue a new one and restart"}
		}
		if err := token.AddChainIssuerData(s.chain, s.key.(ed25519.PrivateKey)); err != nil {
			return "", &Error{Kind: ErrKey, Where: "jwt_signing_token", Detail: plain(err), Remedy: "issue it again", Cause: err}
		}
	}
	signed, err := tokens.SignToken(token, s.key)
	if err != nil {
		return "", &Error{Kind: ErrKey, Where: "jwt_signing_key", Detail: plain(err), Remedy: "check the key", Cause: err}
	}
	return signed, nil
}

func (s *Signer) serverClaims(identity, publicKey string, given serverClaims, configuration map[string]string, validity time.Duration, now time.Time) (*tokens.ServerClaims, error) {
	public, ok := hexKey(publicKey)
	switch {
	case identity == "" || strings.ContainsFunc(identity, notPrintable):
		return nil, claimError("identity", short(identity)+" is empty or holds spaces or control characters", "check the node's identity")
	case !ok:
		return nil, claimError("public key", "it is not 64 hex digits", "ask the node for its key again")
	case validity < time.Second:
		return nil, claimError("validity", validity.String()+" is no validity", "set server_jwt_validity")
	}
	collectives, err := given.collectives(configuration)
	if err != nil {
		return nil, err
	}
	now = now.UTC().Truncate(time.Second) // the token's id must hold its time to the second
	end, err := given.expiry(now, validity)
	if err != nil {
		return nil, err
	}
	id, err := s.tokenID(now)
	if err != nil {
		return nil, err
	}
	org := given.Organization
	if org == "" {
		org = defaultOrg
	}
	return &tokens.ServerClaims{
		ChoriaIdentity: identity, Collectives: collectives, Permissions: given.Permissions.token(),
		OrganizationUnit: org, AdditionalPublishSubjects: given.AdditionalPublish,
		StandardClaims: tokens.StandardClaims{
			Purpose: tokens.ServerPurpose, PublicKey: hex.EncodeToString(public),
			RegisteredClaims: jwt.RegisteredClaims{
				ID: id, Issuer: issuerName, IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(end),
			},
		},
	}, nil
}

// tokenID makes the token's id: a KSUID of the issue time, which brokers check
// (tokens standard.go, verifyIssuerRequiredClaims).
func (s *Signer) tokenID(now time.Time) (string, error) {
	random := make([]byte, ksuidRandom)
	if _, err := io.ReadFull(s.rand, random); err != nil {
		return "", claimError("token id", plain(err), "check the system's source of randomness")
	}
	id, err := ksuid.FromParts(now, random)
	if err != nil {
		return "", claimError("token id", plain(err), "check the system's clock")
	}
	return id.String(), nil
}
