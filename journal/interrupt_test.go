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

// TestRestoreInterruptedAtEachStep in directories of each kind: the former journal is in place as it was, or the restored one, which never
// begins without having been accepted. The same order completes it.
func TestRestoreInterruptedAtEachStep(t *testing.T) {
	t.Parallel()
	died := errors.New("it died here")
	for what, tc := range map[string]struct {
		prepare func(t *testing.T, r restorable)
		replace bool
		unknown bool // no marker tells how far the former journal came
	}{
		"damaged":        {prepare: func(t *testing.T, r restorable) { must(t, os.Truncate(r.db, 5000)) }},
		"newer":          {replace: true},
		"all gone":       {unknown: true, prepare: func(t *testing.T, r restorable) { must(t, errors.Join(os.Remove(r.db), os.Remove(r.marker))) }},
		"damaged marker": {unknown: true, prepare: func(t *testing.T, r restorable) { must(t, errors.Join(os.Remove(r.db), os.Truncate(r.marker, 7))) }},
		"marker behind": {unknown: true, prepare: func(t *testing.T, r restorable) {
			must(t, errors.Join(os.Remove(r.db), os.WriteFile(r.marker, journal.EncodeSlot(r.backup.ID, 1, 1, 1), 0o600)))
		}},
		"another": {replace: true, unknown: true, prepare: func(t *testing.T, r restorable) {
			must(t, errors.Join(os.Remove(r.db), os.Remove(r.marker)))
			_, err := journal.Init(r.dir)
			must(t, err)
		}},
	} {
		for _, step := range []string{"accepted", "kept", "marked", "placed"} {
			t.Run(what+" "+step, func(t *testing.T) {
				t.Parallel()
				r := newRestorable(t)
				if tc.prepare != nil {
					tc.prepare(t, r)
				}
				was, _ := os.ReadFile(r.db)
				order, passed := r.order(), false
				order.Replace = tc.replace
				_, err := journal.Restore(r.dir, journal.RestoreWithFault(order, func(point string) error {
					if passed = passed || point == step; point == step {
						return died
					}
					return nil
				}))
				if !errors.Is(err, died) || !passed {
					t.Fatalf("Restore = %v", err)
				}
				is, _ := os.ReadFile(r.db)
				if former := string(is) == string(was); former == (step == "placed") {
					t.Errorf("the former journal is in place: %v", former)
				}
				if j, err := journal.Open(r.dir, journal.Options{}); err == nil {
					info := j.Info()
					acts, err := j.Audit(0)
					must(t, errors.Join(err, j.Close()))
					if info.ID == r.backup.ID && info.Seq < r.now.Seq && (info.Accepted.IsZero() || len(acts) != 2) {
						t.Errorf("it began with the backup unaccepted: %+v, %+v", info, acts)
					}
				} else if !errors.Is(err, receipt.ErrDamaged) || step == "placed" {
					t.Errorf("Open = %v", err)
				}
				got, err := journal.Restore(r.dir, order)
				if step == "placed" && !tc.replace { // it was complete, and there is nothing to do but to say so
					if !errors.Is(err, journal.ErrKeep) || !strings.Contains(err.Error(), "a worker goes on with it") {
						t.Errorf("once more: %v", err)
					}
					return
				}
				must(t, err)
				if tc.unknown {
					r.now = r.backup
				}
				r.restored(t, got)
			})
		}
	}
}

// TestRestoreBesideAForeignMarker: a damaged or missing journal whose marker names another one is not replaced unasked.
func TestRestoreBesideAForeignMarker(t *testing.T) {
	t.Parallel()
	for what, harm := range map[string]func(db string) error{
		"damaged": func(db string) error { return os.Truncate(db, 5000) },
		"empty":   func(db string) error { return os.Truncate(db, 0) },
		"missing": os.Remove,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := newRestorable(t)
			must(t, errors.Join(os.WriteFile(r.marker, journal.EncodeSlot("01ANOTHER", 3, 9, 1), 0o600), harm(r.db)))
			order := r.order()
			_, err := journal.Restore(r.dir, order)
			if !errors.Is(err, journal.ErrKeep) || errors.Is(err, receipt.ErrDamaged) || !strings.Contains(err.Error(), "01ANOTHER") || !strings.Contains(err.Error(), "--replace") {
				t.Fatalf("Restore = %v", err)
			}
			order.Replace = true
			got, err := journal.Restore(r.dir, order)
			must(t, err)
			r.restored(t, got)
		})
	}
}

// TestRestoreKeepsWithoutMarker: a sound journal that no worker begins with is kept with the words for how to go on with it.
func TestRestoreKeepsWithoutMarker(t *testing.T) {
	t.Parallel()
	for what, harm := range map[string]func(marker string) error{
		"none": os.Remove,
		"torn": func(marker string) error { return os.Truncate(marker, 9) },
		"behind": func(marker string) error {
			return os.WriteFile(marker, journal.EncodeSlot("01ANOTHER", 3, 9, 1), 0o600)
		},
	} {
		r := newRestorable(t)
		must(t, harm(r.marker))
		if _, err := journal.Restore(r.dir, r.order()); !errors.Is(err, journal.ErrKeep) || !strings.Contains(err.Error(), "'provctl journal accept' goes on with it") {
			t.Errorf("%s: %v", what, err)
		}
	}
	r := newRestorable(t)
	if _, err := journal.Restore(r.dir, r.order()); !errors.Is(err, journal.ErrKeep) || strings.Contains(err.Error(), "accept") {
		t.Errorf("with its marker: %v", err)
	}
}

// TestRestoreKeepsANewerFormat though the full check, in another process, can only say that it is damaged.
func TestRestoreKeepsANewerFormat(t *testing.T) {
	t.Parallel()
	r := newRestorable(t)
	must(t, journal.SetFormat(r.db, 99))
	order := r.order()
	order.Verify = func(path string) error {
		if journal.Verify(path) != nil {
			return receipt.ErrDamaged
		}
		return nil
	}
	if _, err := journal.Restore(r.dir, order); !errors.Is(err, journal.ErrKeep) {
		t.Errorf("Restore = %v", err)
	}
}

// TestMakeDir makes the name of every directory durable that was not there.
func TestMakeDir(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	var synced []string
	sync := func(dir string) error {
		synced = append(synced, dir)
		return nil
	}
	deep := filepath.Join(at, "a", "b", "c")
	must(t, journal.MakeDirWith(deep, sync))
	if want := at + " " + filepath.Join(at, "a") + " " + filepath.Join(at, "a", "b"); strings.Join(synced, " ") != want {
		t.Errorf("synced %v, want %s", synced, want)
	}
	if st, err := os.Stat(deep); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st, err)
	}
	synced = nil
	must(t, journal.MakeDirWith(deep, sync))
	if len(synced) > 0 {
		t.Errorf("synced %v", synced)
	}
	failed := errors.New("the disk is gone")
	if err := journal.MakeDirWith(filepath.Join(at, "x"), func(string) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("not synced: %v", err)
	}
}
