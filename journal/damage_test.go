package journal_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"provctl/journal"
	"provctl/journal/journaltest"
	"provctl/receipt"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sample is a closed journal with some of everything in it.
type sample struct {
	dir        string
	db, marker []byte
	snapshot   journal.Snapshot
	all        []journal.Exported
}

func newSample(t testing.TB) sample {
	t.Helper()
	dir := t.TempDir()
	var j *journal.Journal
	f := factory()
	create := f.Create
	f.Create = func(string) error { return create(dir) }
	f.Open = func(_ string, o journal.Options) (journaltest.Store, error) {
		var err error
		j, err = journal.Open(dir, o)
		return j, err
	}
	f.Verify = func(string) error { return journal.Verify(filepath.Join(dir, "journal.db")) }
	b := journaltest.NewBench(t, f)
	b.Fill()
	must(t, j.Close())
	s := sample{dir: dir}
	var err error
	s.db, err = os.ReadFile(filepath.Join(dir, "journal.db"))
	must(t, err)
	s.db = s.db[:int(highWater(s.db, os.Getpagesize()))*os.Getpagesize()] // without what bbolt grew in advance
	s.marker, err = os.ReadFile(filepath.Join(dir, "journal.marker"))
	must(t, err)
	s.snapshot, err = journal.Read(dir)
	must(t, err)
	s.all = exported(t, dir)
	return s
}

// copyTo lays the sample out in a directory, with another database file in its place.
func (s sample) copyTo(t testing.TB, dir string, db []byte) string {
	t.Helper()
	path := filepath.Join(dir, "journal.db")
	must(t, os.WriteFile(path, db, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "journal.marker"), s.marker, 0o600))
	return path
}

// damagedOrWhole expects a changed file to be refused as damaged, or to hold all that it held before.
func (s sample) damagedOrWhole(t testing.TB, dir, what string, db []byte) (damaged bool) {
	t.Helper()
	s.copyTo(t, dir, db)
	got, err := journal.Read(dir)
	whole := journal.Verify(filepath.Join(dir, "journal.db"))
	switch {
	case err != nil:
		if !errors.Is(err, receipt.ErrDamaged) {
			t.Errorf("%s: error is %v, want ErrDamaged", what, err)
		}
		return true
	case whole != nil:
		t.Errorf("%s: a reader takes what a worker does not: %v", what, whole)
		return true
	}
	got.Taken, got.Info.Path = s.snapshot.Taken, s.snapshot.Info.Path
	if all := exported(t, dir); !reflect.DeepEqual(got, s.snapshot) || !reflect.DeepEqual(all, s.all) {
		t.Errorf("%s: accepted, but differs: %d records, were %d, %+v, was %+v", what, len(all), len(s.all), got, s.snapshot)
	}
	return false
}

// exported are all records of a journal without damage.
func exported(t testing.TB, dir string) (all []journal.Exported) {
	t.Helper()
	lost, err := journal.Export(dir, func(r journal.Exported) error {
		if r.Journal != nil {
			r.Journal.Path = ""
		}
		all = append(all, r)
		return nil
	})
	if err != nil {
		t.Fatalf("%v: %+v", err, lost)
	}
	return all
}

func TestCutAtEveryPage(t *testing.T) {
	t.Parallel()
	s, dir := newSample(t), t.TempDir()
	page := os.Getpagesize()
	pages := int(highWater(s.db, page))
	for n := 1; n < len(s.db); n += page / 2 {
		damaged := s.damagedOrWhole(t, dir, fmt.Sprintf("cut at %d", n), s.db[:n])
		if n < pages*page && !damaged {
			t.Errorf("cut at %d of %d used bytes and nobody noticed", n, pages*page)
		}
		if j, err := journal.Open(dir, journal.Options{}); (err != nil) != damaged {
			t.Errorf("cut at %d: Open = %v, %v; damaged is %v", n, j, err, damaged)
		} else if err == nil {
			must(t, j.Close())
		}
	}
}

// highWater reads how many pages the newer meta page counts.
func highWater(db []byte, page int) uint64 {
	most := uint64(0)
	for _, at := range []int{0, page} {
		most = max(most, binary.NativeEndian.Uint64(db[at+16+40:]))
	}
	return most
}

func TestEveryByteOfBothMetaPages(t *testing.T) {
	t.Parallel()
	s, dir := newSample(t), t.TempDir()
	page := os.Getpagesize()
	count := 0
	for at := range 2 * page {
		if at%page > 128 && at%64 != 0 {
			continue // behind the 80 bytes that mean something, a sample is enough
		}
		db := append([]byte(nil), s.db...)
		db[at] ^= 0xff
		if s.damagedOrWhole(t, dir, fmt.Sprintf("byte %d", at), db) {
			count++
		}
	}
	// The newer page's 64 bytes at least: falling back to the older one loses the last commit, which the marker knows of.
	if count < 64 {
		t.Errorf("only %d flipped bytes were noticed", count)
	}
	both := append([]byte(nil), s.db...)
	both[16], both[page+16] = 0, 0
	if !s.damagedOrWhole(t, dir, "both meta pages", both) {
		t.Error("two invalid meta pages were accepted")
	}
}

func TestEveryPageZeroedOrSwapped(t *testing.T) {
	t.Parallel()
	s, dir := newSample(t), t.TempDir()
	page := os.Getpagesize()
	pages := int(highWater(s.db, page))
	count := 0
	for n := range pages {
		db := append([]byte(nil), s.db...)
		clear(db[n*page : (n+1)*page])
		if s.damagedOrWhole(t, dir, fmt.Sprintf("page %d zeroed", n), db) {
			count++
		}
		db = append([]byte(nil), s.db...)
		copy(db[n*page:(n+1)*page], s.db[(n+1)%pages*page:])
		s.damagedOrWhole(t, dir, fmt.Sprintf("page %d overwritten by its neighbour", n), db)
	}
	if count < 5 {
		t.Errorf("only %d zeroed pages were noticed", count)
	}
}

func TestRandomFlips(t *testing.T) {
	t.Parallel()
	s, dir := newSample(t), t.TempDir()
	page := os.Getpagesize()
	rng := rand.New(rand.NewPCG(1, 2))
	used := int(highWater(s.db, page)) * page
	count := 0
	for i := range 500 {
		db := append([]byte(nil), s.db...)
		at := rng.IntN(used)
		if i%2 == 0 {
			at = at/page*page + rng.IntN(200) // headers and elements
		}
		db[at] ^= byte(1 << rng.IntN(8))
		if s.damagedOrWhole(t, dir, fmt.Sprintf("flip %d at %d", i, at), db) {
			count++
		}
	}
	t.Logf("%d of 500 flips noticed, the others in free pages or unused bytes", count)
	if count < 100 {
		t.Errorf("only %d flips were noticed", count)
	}
}

// TestEveryBitOfPageHeaders flips what bbolt has no checksum for and what a record's own does not cover: a page that says that it has fewer
// elements would take records away, and from a reader unnoticed.
func TestEveryBitOfPageHeaders(t *testing.T) {
	t.Parallel()
	s, dir := newSample(t), t.TempDir()
	page := os.Getpagesize()
	noticed, flips := 0, 0
	flip := func(at, bit int) {
		db := append([]byte(nil), s.db...)
		db[at] ^= 1 << bit
		flips++
		if s.damagedOrWhole(t, dir, fmt.Sprintf("bit %d of byte %d of page %d", bit, at%page, at/page), db) {
			noticed++
		}
	}
	root := 0
	for _, at := range []int{0, page} {
		if tx := binary.NativeEndian.Uint64(s.db[at+16+48:]); tx > binary.NativeEndian.Uint64(s.db[page-at+16+48:]) {
			root = page * int(binary.NativeEndian.Uint64(s.db[at+16+16:]))
		}
	}
	for n := 2 * page; n < len(s.db); n += page {
		for at := range 16 {
			for bit := range 8 {
				flip(n+at, bit)
			}
		}
	}
	for at := root + 16; s.db[at] != 0 || s.db[at+1] != 0 || at < root+512; at++ { // the buckets, some of which lie in this very page
		for bit := range 8 {
			flip(at, bit)
		}
	}
	t.Logf("%d of %d flips noticed, the others in free pages or checksums of nothing", noticed, flips)
	if noticed < 1000 {
		t.Errorf("only %d of %d flips were noticed", noticed, flips)
	}
}

func TestMeddling(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	for _, what := range []string{
		"open index entry lost", "open index entry left over", "active index entry lost", "history entry lost", "tombstone of nobody",
		"receipt lost", "job lost", "node lost", "receipt settled behind the job's back", "receipt under another id",
		"version from the future", "bucket lost", "record byte changed", "meta record lost", "meta magic",
		"totals too small", "receipt totals too small", "job filed as ended without a receipt",
	} {
		dir := t.TempDir()
		path := s.copyTo(t, dir, s.db)
		must(t, journal.Meddle(path, what))
		if err := journal.Verify(path); !errors.Is(err, receipt.ErrDamaged) || !strings.Contains(err.Error(), "restore") {
			t.Errorf("%s: Verify = %v, want ErrDamaged with a remedy", what, err)
		}
		if j, err := journal.Open(dir, journal.Options{}); !errors.Is(err, receipt.ErrDamaged) {
			t.Errorf("%s: Open = %v, %v", what, j, err)
		}
	}
}

func TestNotOurs(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	other := newSample(t)
	for what, harm := range map[string]func(t *testing.T, dir, path string){
		"missing":       func(t *testing.T, _, path string) { must(t, os.Remove(path)) },
		"empty":         func(t *testing.T, _, path string) { must(t, os.Truncate(path, 0)) },
		"dangling link": func(t *testing.T, _, path string) { must(t, os.Remove(path)); must(t, os.Symlink(path+".gone", path)) },
		"link": func(t *testing.T, _, path string) {
			must(t, os.Rename(path, path+".x"))
			must(t, os.Symlink(path+".x", path))
		},
		"directory": func(t *testing.T, _, path string) { must(t, os.Remove(path)); must(t, os.Mkdir(path, 0o700)) },
		"text": func(t *testing.T, _, path string) {
			must(t, os.WriteFile(path, []byte(strings.Repeat("not a database\n", 9999)), 0o600))
		},
		"foreign bbolt file": func(t *testing.T, _, path string) {
			must(t, os.Remove(path))
			db, err := bolt.Open(path, 0o600, nil)
			must(t, err)
			must(t, db.Close())
		},
		"another journal": func(t *testing.T, _, path string) { must(t, os.WriteFile(path, other.db, 0o600)) },
		"newer format":    func(t *testing.T, _, path string) { must(t, journal.SetFormat(path, 3)) },
		"format 0":        func(t *testing.T, _, path string) { must(t, journal.SetFormat(path, 0)) },
		"no marker":       func(t *testing.T, dir, _ string) { must(t, os.Remove(filepath.Join(dir, "journal.marker"))) },
		"empty marker":    func(t *testing.T, dir, _ string) { must(t, os.Truncate(filepath.Join(dir, "journal.marker"), 0)) },
		"marker of another": func(t *testing.T, dir, _ string) {
			must(t, os.WriteFile(filepath.Join(dir, "journal.marker"), other.marker, 0o600))
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			harm(t, dir, s.copyTo(t, dir, s.db))
			j, err := journal.Open(dir, journal.Options{})
			if !errors.Is(err, receipt.ErrDamaged) || !strings.Contains(err.Error(), dir) {
				t.Errorf("Open = %v, %v; want ErrDamaged that names the place", j, err)
			}
			if what == "missing" || what == "empty" || what == "dangling link" {
				if !errors.Is(err, journal.ErrMissing) {
					t.Errorf("Open = %v, want ErrMissing", err)
				}
			}
			if _, err := journal.Read(dir); !errors.Is(err, receipt.ErrDamaged) {
				t.Errorf("Read = %v", err)
			}
			if info, err := os.Stat(filepath.Join(dir, "journal.db")); what == "missing" && err == nil {
				t.Errorf("a blank journal came into being: %+v", info)
			}
		})
	}
}

func TestRolledBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := journal.Init(dir)
	must(t, err)
	path := filepath.Join(dir, "journal.db")
	term := func(nodes ...receipt.NodeID) {
		t.Helper()
		j, err := journal.Open(dir, journal.Options{})
		must(t, err)
		_, err = j.RaiseEpoch()
		must(t, err)
		for _, n := range nodes {
			_, err = j.Admit(t.Context(), []journal.Sighting{{Node: n}}, 1)
			must(t, err)
		}
		must(t, j.Close())
	}
	term("n1")
	old, err := os.ReadFile(path)
	must(t, err)
	oldMarker, err := os.ReadFile(filepath.Join(dir, "journal.marker"))
	must(t, err)
	term("n2", "n3")
	now, err := os.ReadFile(path)
	must(t, err)

	must(t, os.WriteFile(path, old, 0o600))
	if _, err = journal.Open(dir, journal.Options{}); !errors.Is(err, receipt.ErrDamaged) || !strings.Contains(err.Error(), "rolled back") {
		t.Errorf("Open = %v, want rolled back", err)
	}
	// A journal ahead of its marker by a crash is right, and repaired.
	must(t, os.WriteFile(path, now, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "journal.marker"), oldMarker, 0o600))
	term()
	// One torn slot leaves the other: whichever it is, the journal opens.
	marker, err := os.ReadFile(filepath.Join(dir, "journal.marker"))
	must(t, err)
	for slot := range 2 {
		torn := append([]byte(nil), marker...)
		clear(torn[slot*512+100 : slot*512+512])
		must(t, os.WriteFile(filepath.Join(dir, "journal.marker"), torn, 0o600))
		term()
		if marker, err = os.ReadFile(filepath.Join(dir, "journal.marker")); err != nil {
			t.Fatal(err)
		}
	}
}
