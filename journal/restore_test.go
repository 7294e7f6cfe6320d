package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"provctl/journal"
	"provctl/receipt"
)

// restorable is a directory whose journal has gone on since a backup of it was made.
type restorable struct {
	dir, db, marker, file string
	backup, now           journal.Info
}

func newRestorable(t *testing.T) restorable {
	t.Helper()
	s := newSample(t)
	r := restorable{dir: t.TempDir()}
	s.copyTo(t, r.dir, s.db)
	r.db, r.marker, r.file = filepath.Join(r.dir, "journal.db"), filepath.Join(r.dir, "journal.marker"), filepath.Join(t.TempDir(), "backup.db")
	j, err := journal.Open(r.dir, journal.Options{})
	must(t, err)
	r.backup = saved(t, j, r.file)
	for range 3 {
		_, err = j.RaiseEpoch()
		must(t, err)
	}
	r.now = j.Info()
	must(t, j.Close())
	return r
}

func (r restorable) order() journal.Restoration {
	return journal.Restoration{File: r.file, By: "me", Reason: "the disk broke"}
}

// TestRestore puts a backup in place of what can be there, once without --replace and else only with it.
func TestRestore(t *testing.T) {
	t.Parallel()
	for what, tc := range map[string]struct {
		harm func(t *testing.T, r restorable)
		keep bool // refused without Replace
		none bool // nothing is set aside
	}{
		"newer":        {keep: true},
		"damaged":      {harm: func(t *testing.T, r restorable) { must(t, os.Truncate(r.db, 5000)) }},
		"empty":        {harm: func(t *testing.T, r restorable) { must(t, os.Truncate(r.db, 0)) }},
		"missing":      {harm: func(t *testing.T, r restorable) { must(t, os.Remove(r.db)) }, none: true},
		"dangling":     {harm: func(t *testing.T, r restorable) { must(t, errors.Join(os.Remove(r.db), os.Symlink("nowhere", r.db))) }},
		"no marker":    {harm: func(t *testing.T, r restorable) { must(t, os.Remove(r.marker)) }, keep: true},
		"all gone":     {harm: func(t *testing.T, r restorable) { must(t, errors.Join(os.Remove(r.db), os.Remove(r.marker))) }, none: true},
		"newer format": {harm: func(t *testing.T, r restorable) { must(t, journal.SetFormat(r.db, 99)) }, keep: true},
		"another": {harm: func(t *testing.T, r restorable) {
			must(t, errors.Join(os.Remove(r.db), os.Remove(r.marker)))
			_, err := journal.Init(r.dir)
			must(t, err)
		}, keep: true},
		"restored already": {harm: func(t *testing.T, r restorable) {
			b, err := os.ReadFile(r.file)
			must(t, errors.Join(err, os.WriteFile(r.db, b, 0o600)))
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := newRestorable(t)
			if tc.harm != nil {
				tc.harm(t, r)
			}
			was, _ := os.ReadFile(r.db)
			order := r.order()
			if tc.keep {
				if _, err := journal.Restore(r.dir, order); !errors.Is(err, journal.ErrKeep) || !strings.Contains(err.Error(), "--replace") {
					t.Fatalf("a sound journal was replaced: %v", err)
				}
				if is, err := os.ReadFile(r.db); err != nil || string(is) != string(was) {
					t.Fatalf("it was changed: %v", err)
				}
				order.Replace = true
			}
			got, err := journal.Restore(r.dir, order)
			must(t, err)
			if (got.Aside == "") != tc.none {
				t.Errorf("the former journal is %q", got.Aside)
			}
			if kept, _ := os.ReadFile(got.Aside); !tc.none && string(kept) != string(was) {
				t.Errorf("what is kept of the former journal has %d bytes, want %d", len(kept), len(was))
			}
			r.restored(t, got)
		})
	}
}

// restored checks a journal that was restored just now.
func (r restorable) restored(t *testing.T, got journal.Restored) {
	t.Helper()
	must(t, journal.Verify(r.db))
	j, err := journal.Open(r.dir, journal.Options{})
	must(t, err)
	info := j.Info()
	if info != got.Info || info.ID != r.backup.ID || info.Accepted.IsZero() || info.Seq <= r.backup.Seq || info.Epoch <= r.backup.Epoch {
		t.Errorf("it goes on as %+v, told %+v, the backup was %+v", info, got.Info, r.backup)
	}
	if _, err := os.Stat(r.marker); err == nil && strings.Contains(got.Was, "its marker at") && (info.Seq <= r.now.Seq || info.Epoch <= r.now.Epoch) {
		t.Errorf("it goes on at %d in %d, though %d in %d was acknowledged", info.Seq, info.Epoch, r.now.Seq, r.now.Epoch)
	}
	open, err := j.OpenReceipts()
	must(t, err)
	acts, err := j.Audit(0)
	must(t, err)
	if len(open) != 1 || len(acts) != 2 || acts[1].Did != journal.DidAccept || acts[1].By != "me" || !strings.HasPrefix(acts[1].Result, "restored from "+r.file) {
		t.Errorf("open %d, acts %+v", len(open), acts)
	}
	must(t, j.Close())
	left, err := filepath.Glob(filepath.Join(r.dir, ".journal-*"))
	if must(t, err); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// TestRestoreRefused: what is no backup, and what nobody gives a reason for. Nothing is changed.
func TestRestoreRefused(t *testing.T) {
	t.Parallel()
	r := newRestorable(t)
	newer, cut := filepath.Join(t.TempDir(), "newer"), filepath.Join(t.TempDir(), "cut")
	b, err := os.ReadFile(r.file)
	must(t, errors.Join(err, os.WriteFile(newer, b, 0o600), os.WriteFile(cut, b[:len(b)/2], 0o600)))
	must(t, journal.SetFormat(newer, 99))
	before, err := journal.Read(r.dir)
	must(t, err)
	for what, tc := range map[string]struct {
		change func(*journal.Restoration)
		want   error
	}{
		"no reason": {func(o *journal.Restoration) { o.Reason = " " }, receipt.ErrInvalid},
		"no name":   {func(o *journal.Restoration) { o.By = "" }, receipt.ErrInvalid},
		"cut":       {func(o *journal.Restoration) { o.File = cut }, receipt.ErrDamaged},
		"newer":     {func(o *journal.Restoration) { o.File = newer }, journal.ErrNewer},
		"missing":   {func(o *journal.Restoration) { o.File = cut + "x" }, os.ErrNotExist},
		"directory": {func(o *journal.Restoration) { o.File = r.dir }, receipt.ErrInvalid},
		"itself":    {func(o *journal.Restoration) { o.File = r.db }, nil},
	} {
		order := r.order()
		order.Replace = true
		tc.change(&order)
		if _, err := journal.Restore(r.dir, order); err == nil || tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", what, err, tc.want)
		}
	}
	after, err := journal.Read(r.dir)
	must(t, err)
	if after.Info != before.Info {
		t.Errorf("changed: %+v, was %+v", after.Info, before.Info)
	}
	left, err := filepath.Glob(filepath.Join(r.dir, "*"))
	hidden, err2 := filepath.Glob(filepath.Join(r.dir, ".journal-*"))
	if must(t, errors.Join(err, err2)); len(left) != 2 || len(hidden) != 0 {
		t.Errorf("left over: %v %v", left, hidden)
	}
}

// TestRestoreInterrupted: with the backup in place and not accepted, nothing begins until Restore is run again, or Accept.
func TestRestoreInterrupted(t *testing.T) {
	t.Parallel()
	for what, mend := range map[string]func(r restorable) error{
		"again": func(r restorable) error { _, err := journal.Restore(r.dir, r.order()); return err },
		"accept": func(r restorable) error {
			_, err := journal.Accept(r.dir, journal.Acceptance{By: "me", Reason: "x"})
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := newRestorable(t)
			b, err := os.ReadFile(r.file)
			must(t, errors.Join(err, os.Rename(r.db, r.db+".replaced-x"), os.WriteFile(r.db, b, 0o600)))
			if _, err := journal.Open(r.dir, journal.Options{}); !errors.Is(err, receipt.ErrDamaged) {
				t.Fatalf("Open = %v", err)
			}
			must(t, mend(r))
			j, err := journal.Open(r.dir, journal.Options{})
			must(t, err)
			if info := j.Info(); info.Accepted.IsZero() || info.Epoch <= r.now.Epoch || info.Seq <= r.now.Seq {
				t.Errorf("it goes on as %+v, it was at %+v", info, r.now)
			}
			must(t, j.Close())
		})
	}
}
