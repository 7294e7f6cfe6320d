package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"provctl/journal"
	"provctl/receipt"
)

// TestMigrationKeepsTheOldFile until the first commit: with its name back, the older program finds what it wrote, to the byte.
func TestMigrationKeepsTheOldFile(t *testing.T) {
	t.Parallel()
	dir := former(t, "format-1")
	db, kept := filepath.Join(dir, "journal.db"), filepath.Join(dir, "journal.db.format-1")
	old, err := os.ReadFile(db)
	must(t, err)
	for range 2 { // a start that ends before its first commit changes nothing of it
		j, err := journal.Open(dir, journal.Options{})
		must(t, err)
		must(t, j.Close())
		if b, err := os.ReadFile(kept); err != nil || string(b) != string(old) {
			t.Fatalf("the old file is not kept: %d bytes of %d, %v", len(b), len(old), err)
		}
	}
	must(t, os.Rename(kept, db)) // the way back
	before, err := journal.Read(dir)
	if must(t, err); before.Info.Format != 1 {
		t.Errorf("the old file has format %d", before.Info.Format)
	}
	j, err := journal.Open(dir, journal.Options{})
	must(t, err)
	_, err = j.RaiseEpoch()
	must(t, err)
	if _, err := os.Stat(kept); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the first commit the old file is still there: %v", err)
	}
	must(t, j.Close())
}

// TestMigrationInterrupted at each step: the next start finds the old journal or the new one, whole.
func TestMigrationInterrupted(t *testing.T) {
	t.Parallel()
	died := errors.New("it died here")
	for _, step := range []string{"migrated", "kept"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			dir := former(t, "format-1")
			db := filepath.Join(dir, "journal.db")
			before, err := journal.Read(dir)
			must(t, err)
			old, err := os.ReadFile(db)
			must(t, err)
			passed := false
			_, err = journal.Open(dir, journal.WithFault(journal.Options{}, func(point string) error {
				if passed = passed || point == step; point == step {
					return died
				}
				return nil
			}))
			if !errors.Is(err, died) || !passed {
				t.Fatalf("Open = %v", err)
			}
			if b, err := os.ReadFile(db); err != nil || string(b) != string(old) {
				t.Fatalf("the old file was changed: %v", err)
			}
			j, err := journal.Open(dir, journal.Options{})
			must(t, err)
			_, err = j.RaiseEpoch()
			must(t, err)
			must(t, j.Close())
			after, err := journal.Read(dir)
			must(t, err)
			if after.Info.Format != 2 || after.Info.ID != before.Info.ID || len(after.Open) != len(before.Open) || len(after.Jobs) != len(before.Jobs) {
				t.Errorf("it became %+v, was %+v", after.Info, before.Info)
			}
			files, err := os.ReadDir(dir)
			if must(t, err); len(files) != 2 {
				t.Errorf("left over: %v", files)
			}
		})
	}
}

// TestOlderProgramRefuses what a newer one wrote, and changes nothing in it.
func TestOlderProgramRefuses(t *testing.T) {
	t.Parallel()
	s, dir := newSample(t), t.TempDir()
	db := s.copyTo(t, dir, s.db)
	must(t, journal.SetFormat(db, 3))
	before, err := os.ReadFile(db)
	must(t, err)
	_, opened := journal.Open(dir, journal.Options{})
	_, compacted := journal.Compact(dir)
	_, read := journal.Read(dir)
	_, accepted := journal.Accept(dir, journal.Acceptance{By: "me", Reason: "x", SetAside: true})
	for what, err := range map[string]error{"Open": opened, "Compact": compacted, "Read": read, "Accept": accepted, "Verify": journal.Verify(db)} {
		if !errors.Is(err, journal.ErrNewer) || !errors.Is(err, receipt.ErrDamaged) {
			t.Errorf("%s = %v", what, err)
		}
	}
	after, err := os.ReadFile(db)
	if must(t, err); string(after) != string(before) {
		t.Error("it was changed")
	}
	files, err := os.ReadDir(dir)
	if must(t, err); len(files) != 2 {
		t.Errorf("left over: %v", files)
	}
}

// TestCopyFile replaces what has the name at once: it never writes into it, and leaves nothing if it fails.
func TestCopyFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from, to, other := filepath.Join(dir, "from"), filepath.Join(dir, "to"), filepath.Join(dir, "other")
	must(t, errors.Join(os.WriteFile(from, []byte("new"), 0o640), os.WriteFile(other, []byte("former"), 0o600), os.Link(other, to)))
	must(t, journal.CopyFile(from, to))
	is, err := os.ReadFile(to)
	was, err2 := os.ReadFile(other)
	st, err3 := os.Stat(to)
	if must(t, errors.Join(err, err2, err3)); string(is) != "new" || string(was) != "former" || st.Mode().Perm() != 0o640 {
		t.Errorf("%q of mode %o, the former file is %q", is, st.Mode().Perm(), was)
	}
	if journal.CopyFile(dir, to) == nil || journal.CopyFile(from, filepath.Join(to, "x")) == nil {
		t.Error("it copied a directory, or into a file")
	}
	left, err := os.ReadDir(dir)
	if must(t, err); len(left) != 3 {
		t.Errorf("left over: %v", left)
	}
}
