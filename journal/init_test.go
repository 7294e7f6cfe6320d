package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"provctl/journal"
)

func TestInit(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b")
	info, err := journal.Init(dir)
	must(t, err)
	if info.ID == "" || info.Epoch != 0 || info.Seq != 0 || info.Format != 2 || info.Created.IsZero() {
		t.Errorf("info is %+v", info)
	}
	for name, want := range map[string]os.FileMode{"": os.ModeDir | 0o700, "journal.db": 0o600, "journal.marker": 0o600} {
		st, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
		if st.Mode() != want {
			t.Errorf("mode of %q is %s, want %s", name, st.Mode(), want)
		}
	}
	entries, err := os.ReadDir(dir)
	must(t, err)
	if len(entries) != 2 {
		t.Errorf("left over: %v", entries)
	}
	if _, err = journal.Init(dir); !errors.Is(err, journal.ErrExists) {
		t.Errorf("second Init = %v", err)
	}
	s, err := journal.Read(dir)
	must(t, err)
	if s.Info != info {
		t.Errorf("Read finds %+v, Init said %+v", s.Info, info)
	}
	j, err := journal.Open(dir, journal.Options{})
	must(t, err)
	_, err = j.RaiseEpoch()
	must(t, err)
	must(t, j.Close())
	// A journal that was used and is gone is not replaced by a blank one.
	must(t, os.Remove(filepath.Join(dir, "journal.db")))
	if _, err = journal.Init(dir); !errors.Is(err, journal.ErrExists) || !strings.Contains(err.Error(), "journal.marker") {
		t.Errorf("Init over a lost journal = %v", err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "journal.marker"), []byte("torn"), 0o600))
	if _, err = journal.Init(dir); !errors.Is(err, journal.ErrExists) {
		t.Errorf("Init over a torn marker = %v", err)
	}
}

func TestInterruptedInitCanBeRepeated(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := journal.Init(dir)
	must(t, err)
	// As if the machine had died before the journal got its name.
	must(t, os.Rename(filepath.Join(dir, "journal.db"), filepath.Join(dir, ".journal-1.tmp")))
	_, err = journal.Init(dir)
	must(t, err)
	j, err := journal.Open(dir, journal.Options{})
	must(t, err)
	must(t, j.Close())
	if left, _ := filepath.Glob(filepath.Join(dir, ".journal-*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestInitWhereItCannot(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, dir := range []string{file, filepath.Join(file, "below"), "/proc/self/state"} {
		if _, err := journal.Init(dir); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("Init(%s) = %v", dir, err)
		}
	}
}

func TestManyInits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var won, lost atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			switch _, err := journal.Init(dir); {
			case err == nil:
				won.Add(1)
			case errors.Is(err, journal.ErrExists):
				lost.Add(1)
			default:
				t.Errorf("Init = %v", err)
			}
		})
	}
	all.Wait()
	if won.Load() != 1 {
		t.Errorf("%d inits won", won.Load())
	}
	_, err := journal.Read(dir)
	must(t, err)
}
