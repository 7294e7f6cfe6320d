package credentials_test

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/choria-io/tokens"

	"provctl/internal/credentials"
)

const year = 365 * 24 * time.Hour

// issue makes a token and reads it back as a broker in issuer mode does.
func issue(t *testing.T, o *org, s *credentials.Signer, claims string, configuration map[string]string, now time.Time) *tokens.ServerClaims {
	t.Helper()
	public, _ := pair(t)
	token, err := s.ServerJWT("n1.example.net", hex.EncodeToString(public), []byte(claims), configuration, year, now)
	if err != nil {
		t.Fatal(err)
	}
	var verify any = o.public
	if s.ExpiresAt().IsZero() {
		verify = o.chainKey.Public()
	}
	got, err := tokens.ParseServerToken(token, verify)
	if err != nil {
		t.Fatalf("a broker refuses it: %v", err)
	}
	if match, err := got.IsMatchingPublicKey(public); !match || err != nil {
		t.Errorf("public key: %v", err)
	}
	if got.ChoriaIdentity != "n1.example.net" {
		t.Errorf("identity %q", got.ChoriaIdentity)
	}
	return got
}

func TestServerJWTIsAcceptedByABroker(t *testing.T) {
	o := newOrg(t)
	now := time.Now()
	chained := issue(t, o, o.signer(o.tokenFile), "", nil, now)
	if !strings.HasPrefix(chained.Issuer, tokens.ChainIssuerPrefix) || chained.OrganizationUnit != "choria" || chained.Permissions != nil {
		t.Errorf("claims %+v", chained)
	}
	// The chain's end bounds the token's, which was asked for a year.
	if chained.ExpiresAt.After(chained.IssuerExpiresAt.Time) {
		t.Errorf("expires %v, issuer %v", chained.ExpiresAt, chained.IssuerExpiresAt)
	}
	plain := issue(t, o, o.signer(""), "", nil, now)
	if plain.Issuer != "Choria Provisioner" || plain.TrustChainSignature != "" || !plain.ExpiresAt.Equal(now.Truncate(time.Second).Add(year)) || !plain.IssuedAt.Equal(now.Truncate(time.Second)) {
		t.Errorf("claims %+v", plain)
	}
	// A token of a foreign chain must not pass.
	foreign := newOrg(t)
	token, err := foreign.signer(foreign.tokenFile).ServerJWT("n1", hex.EncodeToString(o.public), nil, nil, year, now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.ParseServerToken(token, o.public); err == nil {
		t.Error("a foreign chain was accepted")
	}
}

func TestServerJWTClaims(t *testing.T) {
	o := newOrg(t)
	s := o.signer(o.tokenFile)
	got := issue(t, o, s, `{"permissions":{"streams":true,"governor":true},"ou":"choria","pub_subjects":["a.>"],"identity":"other","public_key":"00","purpose":"choria_client_id","iss":"me","unknown":1}`, nil, time.Now())
	want := &tokens.ServerPermissions{Streams: true, Governor: true}
	if !reflect.DeepEqual(got.Permissions, want) || !reflect.DeepEqual(got.AdditionalPublishSubjects, []string{"a.>"}) {
		t.Errorf("claims %+v", got)
	}
}

func TestServerJWTCollectives(t *testing.T) {
	o := newOrg(t)
	s := o.signer("")
	tests := []struct {
		name, claims  string
		configuration map[string]string
		want          []string
	}{
		{"default", "", nil, []string{"mcollective"}},
		{"default of the choria provider", "{}", map[string]string{"plugin.security.provider": "choria"}, []string{"choria"}},
		{"configuration, trimmed", "", map[string]string{"collectives": " a , b,,", "plugin.security.provider": "choria"}, []string{"a", "b"}},
		{"configuration, empty", "", map[string]string{"collectives": " , "}, []string{"mcollective"}},
		{"claims win", `{"collectives":["c"]}`, map[string]string{"collectives": "a"}, []string{"c"}},
		{"empty claims do not", `{"collectives":[]}`, map[string]string{"collectives": "a"}, []string{"a"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := issue(t, o, s, tt.claims, tt.configuration, time.Now()).Collectives; !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestServerJWTExpiry(t *testing.T) {
	o := newOrg(t)
	s := o.signer("")
	now := time.Now().Truncate(time.Second)
	tests := []struct {
		name, exp string
		want      time.Time
	}{
		{"relative, the documented example", "157680000", now.Add(157680000 * time.Second)},
		{"relative, two hours", "7200", now.Add(2 * time.Hour)},
		{"relative, a fraction", "7200.9", now.Add(2 * time.Hour)},
		{"relative, exponent", "7.2e3", now.Add(2 * time.Hour)},
		{"in quotes", `"7200"`, now.Add(2 * time.Hour)},
		{"one hour is too short", "3600", now.Add(year)},
		{"just more than an hour", "3601", now.Add(3601 * time.Second)},
		{"zero", "0", now.Add(year)},
		{"null", "null", now.Add(year)},
		{"absolute", "4102444800", time.Unix(4102444800, 0)},
		{"absolute, past", "946684800", now.Add(year)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := issue(t, o, s, `{"exp":`+tt.exp+`}`, nil, now); !got.ExpiresAt.Equal(tt.want) {
				t.Errorf("got %v, want %v", got.ExpiresAt, tt.want)
			}
		})
	}
}

func TestServerJWTRefuses(t *testing.T) {
	o := newOrg(t)
	good := hex.EncodeToString(o.public)
	tests := []struct {
		name, identity, public, claims string
		configuration                  map[string]string
		validity                       time.Duration
	}{
		{name: "no identity", public: good},
		{name: "identity with a newline", identity: "a\nb", public: good},
		{name: "no key", identity: "n"},
		{name: "short key", identity: "n", public: good[:62]},
		{name: "key not hex", identity: "n", public: strings.Repeat("z", 64)},
		{name: "no validity", identity: "n", public: good, validity: -1},
		{name: "claims not JSON", identity: "n", public: good, claims: "{"},
		{name: "claims a list", identity: "n", public: good, claims: "[]"},
		{name: "claims mistyped", identity: "n", public: good, claims: `{"permissions":{"streams":"yes"}}`},
		{name: "wildcard collective", identity: "n", public: good, claims: `{"collectives":["*"]}`},
		{name: "collective of two words", identity: "n", public: good, configuration: map[string]string{"collectives": "a b"}},
		{name: "empty collective", identity: "n", public: good, claims: `{"collectives":[""]}`},
		{name: "subject with a space", identity: "n", public: good, claims: `{"pub_subjects":["a b"]}`},
		{name: "organization with a newline", identity: "n", public: good, claims: `{"ou":"a\nb"}`},
		{name: "negative expiry", identity: "n", public: good, claims: `{"exp":-1}`},
		{name: "huge expiry", identity: "n", public: good, claims: `{"exp":1e300}`},
		{name: "expiry of text", identity: "n", public: good, claims: `{"exp":"tomorrow"}`},
		{name: "expiry NaN", identity: "n", public: good, claims: `{"exp":"NaN"}`},
		{name: "expiry of a list", identity: "n", public: good, claims: `{"exp":[1]}`},
		{name: "many collectives", identity: "n", public: good, claims: `{"collectives":["a"` + strings.Repeat(`,"a"`, 1000) + `]}`},
	}
	s := o.signer(o.tokenFile)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.validity == 0 {
				tt.validity = year
			}
			token, err := s.ServerJWT(tt.identity, tt.public, []byte(tt.claims), tt.configuration, tt.validity, time.Now())
			if token != "" || !errors.Is(err, credentials.ErrClaims) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q, %v", token, err)
			}
		})
	}
	if _, err := s.ServerJWT("n", good, nil, nil, year, s.ExpiresAt()); !errors.Is(err, credentials.ErrIssuerExpired) {
		t.Errorf("expired issuer: %v", err)
	}
	dry, err := credentials.LoadSigner(o.seedFile, "", iotest.ErrReader(errors.New("dry")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dry.ServerJWT("n", good, nil, nil, year, time.Now()); err == nil {
		t.Error("a token without randomness")
	}
}

func TestSignerWithRSA(t *testing.T) {
	o := newOrg(t)
	key := rsaKey(t)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	for name, text := range map[string][]byte{
		"PKCS1": block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key), nil), "PKCS8": block("PRIVATE KEY", der, err),
	} {
		s, err := credentials.LoadSigner(o.write(name, text), "", rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		token, err := s.ServerJWT("n1", hex.EncodeToString(o.public), nil, nil, year, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tokens.ParseServerToken(token, &key.PublicKey); err != nil {
			t.Error(err)
		}
		if _, err := credentials.LoadSigner(o.dir+"/"+name, o.tokenFile, rand.Reader); !errors.Is(err, credentials.ErrKey) {
			t.Errorf("a chain with an RSA key: %v", err)
		}
	}
}

func TestLoadSignerRefuses(t *testing.T) {
	o := newOrg(t)
	foreign := newOrg(t)
	seed := hex.EncodeToString(o.chainKey.Seed())
	for name, file := range map[string]string{
		"missing": o.dir + "/nope", "directory": o.dir, "empty": o.write("empty", nil), "short seed": o.write("short", []byte(seed[:62])),
		"text": o.write("text", []byte("hello")), "certificate": o.write("cert", certificate(t, o.key)), "broken PEM": o.write("broken", block("PRIVATE KEY", []byte(seed), nil)),
	} {
		t.Run("key "+name, func(t *testing.T) {
			s, err := credentials.LoadSigner(file, "", rand.Reader)
			if s != nil || !errors.Is(err, credentials.ErrKey) || strings.Contains(err.Error(), seed[:20]) {
				t.Errorf("got %v, %v", s, err)
			}
		})
	}
	node := sign(t, provisioning(t, nil), o.key)
	for name, text := range map[string]string{
		"empty": "", "text": "hello", "provisioning token": node,
		"plain client":     o.chainToken(year, func(c *tokens.ClientIDClaims) { c.TrustChainSignature = ""; c.Issuer = "someone" }),
		"forged chain":     o.chainToken(year, func(c *tokens.ClientIDClaims) { c.TrustChainSignature = strings.Repeat("00", 64) }),
		"short issuer":     o.chainToken(year, func(c *tokens.ClientIDClaims) { c.Issuer = "I-00" }),
		"no expiry":        o.chainToken(year, func(c *tokens.ClientIDClaims) { c.ExpiresAt = nil }),
		"another's":        foreign.chainToken(year, nil),
		"signature no hex": o.chainToken(year, func(c *tokens.ClientIDClaims) { c.TrustChainSignature = "zz" }),
	} {
		t.Run("token "+name, func(t *testing.T) {
			s, err := credentials.LoadSigner(o.seedFile, o.write("token", []byte(text)), rand.Reader)
			if s != nil || !errors.Is(err, credentials.ErrKey) {
				t.Errorf("got %v, %v", s, err)
			}
		})
	}
	if _, err := credentials.LoadSigner(o.seedFile, o.dir+"/nope", rand.Reader); !errors.Is(err, credentials.ErrKey) {
		t.Errorf("missing token: %v", err)
	}
}

// FuzzServerClaims: whatever a helper claims, the result is an error of one line
// or a token that a broker accepts.
func FuzzServerClaims(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"exp":157680000}`, `{"exp":"1e999"}`, `{"collectives":["a"],"permissions":null}`, `{"pub_subjects":[">"]}`, `{"exp":1e-300}`, `null`} {
		f.Add([]byte(seed), "a,b")
	}
	var o *org
	var s *credentials.Signer
	f.Fuzz(func(t *testing.T, claims []byte, collectives string) {
		if s == nil {
			o = newOrg(t)
			s = o.signer(o.tokenFile)
		}
		token, err := s.ServerJWT("n1", hex.EncodeToString(o.public), claims, map[string]string{"collectives": collectives}, year, time.Now())
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r\x1b") {
				t.Fatalf("error %q", err)
			}
			return
		}
		if _, err := tokens.ParseServerToken(token, o.public); err != nil {
			t.Fatalf("a broker refuses it: %v", err)
		}
	})
}
