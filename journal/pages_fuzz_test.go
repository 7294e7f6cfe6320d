package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"provctl/receipt"
)

// fuzzPage is the page size of the files that are damaged here: small, so that a short input reaches all of them.
const fuzzPage = 1024

// FuzzPages overwrites parts of a bbolt file, with checksums that are right afterwards, and has the pages checked by reads alone: the
// answer is ErrDamaged, or bbolt itself reads the file to its end and finds nothing that would make it panic. Each edit is a place
// (2 bytes), and what to write there (2 bytes).
func FuzzPages(f *testing.F) {
	whole := pageFile(f)
	if err := checkPages(bytes.NewReader(whole), int64(len(whole)), false); err != nil {
		f.Fatalf("the file as bbolt wrote it: %v", err)
	}
	f.Add([]byte{0, 16, 0, 0}, uint16(0))
	path := filepath.Join(f.TempDir(), "damaged.db")
	f.Fuzz(func(t *testing.T, edits []byte, cut uint16) {
		b := append([]byte(nil), whole[:len(whole)-int(cut)%len(whole)]...)
		for ; len(edits) >= 4 && len(b) >= 2*fuzzPage; edits = edits[4:] {
			at := int(binary.BigEndian.Uint16(edits)) % (len(b) - 1)
			copy(b[at:], edits[2:4])
		}
		resum(b)
		if err := checkPages(bytes.NewReader(b), int64(len(b)), false); err != nil {
			if !errors.Is(err, receipt.ErrDamaged) || !strings.Contains(err.Error(), "restore") || strings.Contains(err.Error(), "%!") {
				t.Fatalf("%v, want ErrDamaged with a remedy", err)
			}
			return
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := boltReads(path); err != nil {
			t.Fatalf("the pages pass, but bbolt: %v", err)
		}
	})
}

// resum makes the checksums of both meta pages right, as a file would have that was damaged before it was written.
func resum(b []byte) {
	for _, at := range []int{pageHeader, fuzzPage + pageHeader} {
		if len(b) < at+metaBytes {
			return
		}
		sum := fnv.New64a()
		_, _ = sum.Write(b[at : at+metaBytes-8])
		native.PutUint64(b[at+metaBytes-8:], sum.Sum64())
	}
}

// pageFile is a file with everything in it that bbolt has: a tree of two levels, a value over several pages, buckets of their own and
// inline, and free pages.
func pageFile(f *testing.F) []byte {
	f.Helper()
	path := filepath.Join(f.TempDir(), "whole.db")
	db, err := bolt.Open(path, 0o600, &bolt.Options{PageSize: fuzzPage, NoSync: true, InitialMmapSize: 1 << 16})
	if err != nil {
		f.Fatal(err)
	}
	fill := func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("jobs"))
		if err != nil {
			return err
		}
		inline, err := b.CreateBucketIfNotExists([]byte("inline"))
		if err != nil {
			return err
		}
		errs := []error{inline.Put([]byte("k"), []byte("v")), b.Put([]byte("large"), bytes.Repeat([]byte("x"), 2*fuzzPage))}
		for i := range 40 {
			errs = append(errs, b.Put(fmt.Appendf(nil, "key-%d", i), bytes.Repeat([]byte{byte(i)}, 60)))
		}
		return errors.Join(errs...)
	}
	thin := func(tx *bolt.Tx) error {
		var errs []error
		for i := range 20 {
			errs = append(errs, tx.Bucket([]byte("jobs")).Delete(fmt.Appendf(nil, "key-%d", i)))
		}
		return errors.Join(errs...)
	}
	if err := errors.Join(db.Update(fill), db.Update(thin), db.Close()); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	most := max(native.Uint64(whole[pageHeader+40:]), native.Uint64(whole[fuzzPage+pageHeader+40:]))
	return whole[:most*fuzzPage]
}

// boltReads walks a whole file with bbolt: a fault in its memory or a panic is an error.
func boltReads(path string) error {
	return guard(path, func() error {
		db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
		if err != nil {
			return err
		}
		walked := db.View(func(tx *bolt.Tx) error {
			return tx.ForEach(func(_ []byte, b *bolt.Bucket) error { return walk(b, 0) })
		})
		return errors.Join(walked, db.Close())
	})
}

func walk(b *bolt.Bucket, depth int) error {
	if depth > maxTreeDepth {
		return errors.New("buckets lie too deep")
	}
	sum := 0
	return b.ForEach(func(k, v []byte) error {
		for _, c := range append(append([]byte(nil), k...), v...) {
			sum += int(c)
		}
		if v == nil {
			if kid := b.Bucket(k); kid != nil {
				return walk(kid, depth+1)
			}
		}
		return nil
	})
}
