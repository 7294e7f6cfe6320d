package credentials

import (
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/hex"
	"strings"
	"testing"
	"time"
)

// FuzzKeyFiles reads key files: a key is RSA or ed25519 and whole, and what is refused shows nothing of a private one.
func FuzzKeyFiles(f *testing.F) {
	for _, s := range []string{
		strings.Repeat("0a", 32), "-----BEGIN PUBLIC KEY-----\nAA==\n-----END PUBLIC KEY-----\n",
		"-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		public, err := parsePublic(text)
		if err != nil {
			if public != nil || strings.ContainsAny(err.Error(), "\n\r\x1b") {
				t.Fatalf("%v, %q", public, err)
			}
		} else {
			switch k := public.(type) {
			case ed25519.PublicKey:
				_ = ed25519.Verify(k, text, make([]byte, ed25519.SignatureSize)) // panics on a short key
			case *rsa.PublicKey:
				if k.N == nil || k.N.Sign() <= 0 {
					t.Fatalf("%v", k)
				}
			default:
				t.Fatalf("a key of type %T", public)
			}
		}
		private, err := parsePrivate(text)
		if err != nil {
			for line := range strings.Lines(string(text)) {
				if line = strings.TrimSpace(line); private != nil || len(line) > 40 && !strings.HasPrefix(line, "-----") && strings.Contains(err.Error(), line) {
					t.Fatalf("%v, %q", private, err)
				}
			}
			return
		}
		switch k := private.(type) {
		case ed25519.PrivateKey:
			if again, ok := hexKey(hex.EncodeToString(k.Seed())); !ok || !k.Equal(ed25519.NewKeyFromSeed(again)) {
				t.Fatal("the seed is not the key's")
			}
		case *rsa.PrivateKey:
			if err := k.Validate(); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("a key of type %T", private)
		}
	})
}

// FuzzExpiry: a token ends after now and not later than a year that can be written, however a helper says when.
func FuzzExpiry(f *testing.F) {
	for _, s := range []string{`{"exp":157680000}`, `{"exp":"1e999"}`, `{"exp":253402300799}`, `{"exp":946684800}`, `{"exp":-0}`, `{"exp":"nan"}`} {
		f.Add([]byte(s), int64(1900000000))
	}
	f.Fuzz(func(t *testing.T, raw []byte, at int64) {
		if at < 0 || at > latestExpiry-10*relativeBelow {
			return
		}
		c, err := parseClaims(raw)
		if err != nil {
			return
		}
		if len(c.Collectives) > maxNames || len(c.AdditionalPublish) > maxNames {
			t.Fatalf("%d collectives", len(c.Collectives))
		}
		now := time.Unix(at, 0).UTC()
		end, err := c.expiry(now, 24*time.Hour)
		if err == nil && (end.Sub(now) <= minValidity || end.Year() > 9999) {
			t.Fatalf("%s ends at %s, now is %s", raw, end, now)
		}
	})
}
