package crashtests

import (
	"crypto/ed25519"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/choria-io/tokens"
	"github.com/golang-jwt/jwt/v5"
	bolt "go.etcd.io/bbolt"
)

const pageSize = 4096

// flip inverts some bytes in the middle of every page from the given one on.
func flip(t *testing.T, path string, from int) {
	t.Helper()
	b := []byte(read(t, path))
	for at := from * pageSize; at < len(b); at += pageSize {
		for i := at + 16; i < at+48 && i < len(b); i++ {
			b[i] = ^b[i]
		}
	}
	write(t, path, string(b))
}

// cut shortens a file to so many pages.
func cut(t *testing.T, path string, pages int64) {
	t.Helper()
	if err := os.Truncate(path, pages*pageSize); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

// change opens a file with bbolt itself and changes it.
func change(t *testing.T, path string, f func(*bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(f); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// otherBolt makes the file of some other program.
func otherBolt(t *testing.T, path string) {
	t.Helper()
	change(t, path, func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("users"))
		if err != nil {
			return err
		}
		return b.Put([]byte("name"), []byte("value"))
	})
}

// newerFormat makes the journal say that a later version wrote it: a sealed record is a version byte, a CRC-32C over place and
// content, and the content.
func newerFormat(t *testing.T, path string) {
	t.Helper()
	change(t, path, func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte("meta"))
		old := b.Get([]byte("journal"))
		content := strings.Replace(string(old[5:]), `"format":2`, `"format":3`, 1)
		if content == string(old[5:]) {
			t.Fatalf("no format in %q", content)
		}
		sum := crc32.Checksum([]byte("meta/journal\x00"+content), crc32.MakeTable(crc32.Castagnoli))
		record := append([]byte{old[0]}, binary.BigEndian.AppendUint32(nil, sum)...)
		return b.Put([]byte("journal"), append(record, content...))
	})
}

// expired is the signer's token as it would be had it ended long ago.
func (s *stand) expired(t *testing.T) string {
	t.Helper()
	claims, err := tokens.ParseClientIDTokenUnverified(read(t, s.files.SignerToken))
	if err != nil {
		t.Fatal(err)
	}
	claims.ExpiresAt = jwt.NewNumericDate(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC))
	seed, err := hex.DecodeString(read(t, filepath.Join(s.fleet.Dir(), "keys", "issuer.seed")))
	if err != nil {
		t.Fatal(err)
	}
	token, err := tokens.SignToken(claims, ed25519.NewKeyFromSeed(seed))
	if err != nil {
		t.Fatal(err)
	}
	return token
}
