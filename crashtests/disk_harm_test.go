package crashtests

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// damage is one way to harm a state directory: what its two files hold then.
type damage struct {
	name       string
	db, marker []byte
	must       bool // it has to be noticed
}

// harmed is a sound state directory to make damages of. other and newer are the journals of another directory and of a later version.
type harmed struct {
	db, marker, other, newer []byte
	used                     int            // bytes of db that the newer meta page counts
	last                     map[string]int // by bucket with a tree of its own: where the last leaf page begins
}

func loadHarmed(dir string) (h harmed, err error) {
	for name, to := range map[string]*[]byte{"journal.db": &h.db, "journal.marker": &h.marker, "other.db": &h.other, "newer.db": &h.newer} {
		b, e := os.ReadFile(filepath.Join(dir, name))
		err = errors.Join(err, e)
		*to = b
	}
	if err != nil {
		return h, err
	}
	for _, at := range []int{0, pageSize} {
		h.used = max(h.used, pageSize*int(binary.NativeEndian.Uint64(h.db[at+16+40:]))) //nolint:gosec // of a sound file
	}
	h.db = h.db[:h.used] // without what was grown in advance
	h.last, err = lastLeaves(filepath.Join(dir, "journal.db"), h.db)
	return h, err
}

func lastLeaves(path string, b []byte) (map[string]int, error) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer db.Close()
	all := map[string]int{}
	return all, db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, in *bolt.Bucket) error {
			for id := int(in.Root()); id != 0; { //nolint:gosec // of a sound file
				page := b[id*pageSize:]
				flags, count := binary.NativeEndian.Uint16(page[8:]), int(binary.NativeEndian.Uint16(page[10:]))
				if flags != 1 { // no branch
					all[string(name)], id = id*pageSize, 0
				} else {
					id = int(binary.NativeEndian.Uint64(page[16*count+8:])) //nolint:gosec // the last element's page, likewise
				}
			}
			return nil
		})
	})
}

// of makes a damage of a changed copy of the journal.
func (h harmed) of(name string, must bool, change func(db []byte) []byte) damage {
	return damage{name: name, db: change(bytes.Clone(h.db)), marker: h.marker, must: must}
}

// all lists the damages in a fixed order.
func (h harmed) all(wide bool) iter.Seq[damage] {
	return func(yield func(damage) bool) {
		for _, group := range []func(bool, func(damage) bool) bool{h.cuts, h.metas, h.zeros, h.counts, h.shorter, h.flips, h.foreign, h.markers} {
			if !group(wide, yield) {
				return
			}
		}
	}
}

func (h harmed) cuts(_ bool, yield func(damage) bool) bool {
	for n := 0; n <= h.used; n += pageSize {
		for _, at := range []int{n - 1, n, n + 1} {
			if at >= 0 && at < h.used && !yield(h.of(fmt.Sprintf("cut at %d", at), true, func(db []byte) []byte { return db[:at] })) {
				return false
			}
		}
	}
	return true
}

// metas flips each byte of both meta pages. Behind the 80 bytes that mean something the narrow sweep takes a sample.
func (h harmed) metas(wide bool, yield func(damage) bool) bool {
	for at := range 2 * pageSize {
		if !wide && at%pageSize >= 96 && at%61 != 0 {
			continue
		}
		d := h.of(fmt.Sprintf("byte %d of the meta pages", at), false, func(db []byte) []byte { db[at] ^= 0xff; return db })
		if !yield(d) {
			return false
		}
	}
	return yield(h.of("both meta pages", true, func(db []byte) []byte { db[16] ^= 1; db[pageSize+16] ^= 1; return db }))
}

func (h harmed) zeros(_ bool, yield func(damage) bool) bool {
	for n := 0; n < h.used; n += pageSize {
		if !yield(h.of(fmt.Sprintf("zeroed page %d", n/pageSize), false, func(db []byte) []byte { clear(db[n : n+pageSize]); return db })) {
			return false
		}
		next := (n + pageSize) % h.used
		d := h.of(fmt.Sprintf("page %d overwritten by its neighbour", n/pageSize), false, func(db []byte) []byte {
			copy(db[n:n+pageSize], h.db[next:next+pageSize])
			return db
		})
		if !yield(d) {
			return false
		}
	}
	return true
}

// counts flips each bit of how many elements a page says that it has: what a page loses by that, no record's own checksum covers.
func (h harmed) counts(_ bool, yield func(damage) bool) bool {
	for at := 2 * pageSize; at < h.used; at += pageSize {
		for bit := range 16 {
			name := fmt.Sprintf("bit %d of the count of page %d", bit, at/pageSize)
			if !yield(h.of(name, false, func(db []byte) []byte { db[at+10+bit/8] ^= 1 << (bit % 8); return db })) {
				return false
			}
		}
	}
	return true
}

// shorter takes the last element from a bucket's last page, as the page itself would tell it: nothing else of the file changes.
func (h harmed) shorter(_ bool, yield func(damage) bool) bool {
	for _, bucket := range slices.Sorted(maps.Keys(h.last)) {
		at := h.last[bucket] + 10
		d := h.of("bucket "+bucket+" without its last element", true, func(db []byte) []byte {
			binary.NativeEndian.PutUint16(db[at:], binary.NativeEndian.Uint16(db[at:])-1)
			return db
		})
		if !yield(d) {
			return false
		}
	}
	return true
}

func (h harmed) flips(wide bool, yield func(damage) bool) bool {
	seeds := uint64(400)
	if wide {
		seeds = 4000
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 7))
		d := h.of(fmt.Sprintf("flips of seed %d", seed), false, func(db []byte) []byte {
			for range 1 + rng.IntN(4) {
				at := rng.IntN(len(db))
				if seed%2 == 0 {
					at = at/pageSize*pageSize + rng.IntN(200) // headers and elements
				}
				db[at] ^= byte(1 << rng.IntN(8))
			}
			return db
		})
		if !yield(d) {
			return false
		}
	}
	return true
}

func (h harmed) foreign(_ bool, yield func(damage) bool) bool {
	version := func(db []byte) []byte { // of bbolt's own format, with right checksums
		for _, at := range []int{16, pageSize + 16} {
			binary.NativeEndian.PutUint32(db[at+4:], 3)
			sum := fnv.New64a()
			_, _ = sum.Write(db[at : at+56])
			binary.NativeEndian.PutUint64(db[at+56:], sum.Sum64())
		}
		return db
	}
	put := func(b []byte) func([]byte) []byte { return func([]byte) []byte { return b } }
	renamed := func(db []byte) []byte { return bytes.ReplaceAll(db, []byte("audit"), []byte("audiu")) } // keys stay in their order
	return yield(h.of("another version of bbolt", true, version)) && yield(h.of("bucket audit under another name", true, renamed)) && yield(h.of("a newer journal format", true, put(h.newer))) &&
		yield(h.of("another journal", true, put(h.other))) && yield(h.of("text", true, put(bytes.Repeat([]byte("text\n"), 9000)))) &&
		yield(h.of("zeros", true, func(db []byte) []byte { clear(db); return db }))
}

func (h harmed) markers(wide bool, yield func(damage) bool) bool {
	of := func(name string, must bool, change func([]byte) []byte) bool {
		return yield(damage{name: "marker: " + name, db: h.db, marker: change(bytes.Clone(h.marker)), must: must})
	}
	step := 7
	if wide {
		step = 1
	}
	for at := 0; at < len(h.marker); at += step {
		if !of(fmt.Sprintf("byte %d", at), false, func(b []byte) []byte { b[at] ^= 0xff; return b }) ||
			!of(fmt.Sprintf("cut at %d", at), at < 512, func(b []byte) []byte { return b[:at] }) {
			return false
		}
	}
	return of("zeroed", true, func(b []byte) []byte { clear(b); return b })
}
