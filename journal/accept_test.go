package journal_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"provctl/journal"
	"provctl/receipt"
)

// former puts a journal of an earlier format into a directory.
func former(t *testing.T, format string) string {
	t.Helper()
	dir := t.TempDir()
	from := filepath.Join("testdata", format)
	packed, err := os.Open(filepath.Join(from, "journal.db.gz"))
	must(t, err)
	defer func() { _ = packed.Close() }()
	z, err := gzip.NewReader(packed)
	must(t, err)
	content, err := io.ReadAll(z)
	must(t, err)
	mark, err := os.ReadFile(filepath.Join(from, "journal.marker"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "journal.db"), content, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "journal.marker"), mark, 0o600))
	return dir
}

// TestFormerFormat: a journal of format 1 is shown and verified as it is, and brought up to date by the first start; nothing in it changes.
func TestFormerFormat(t *testing.T) {
	t.Parallel()
	dir := former(t, "format-1")
	must(t, journal.Verify(filepath.Join(dir, "journal.db")))
	before, err := journal.Read(dir)
	must(t, err)
	if before.Info.Format != 1 || len(before.Open) != 1 || len(before.Jobs) != 2 || before.ByStatus[receipt.Applied] != 2 {
		t.Fatalf("format 1 reads as %+v", before)
	}
	j, err := journal.Open(dir, journal.Options{})
	must(t, err)
	acts, err := j.Audit(0)
	if must(t, err); len(acts) != 0 {
		t.Errorf("acts %+v", acts)
	}
	_, err = j.RaiseEpoch()
	must(t, err)
	r := before.Open[0]
	_, err = j.Decide(t.Context(), journal.Decision{Receipt: r.ID, Seen: r.Version, Verdict: receipt.VerdictAbandon, By: "me", Reason: "it is old"})
	must(t, err)
	must(t, j.Close())
	must(t, journal.Verify(filepath.Join(dir, "journal.db")))
	after, err := journal.Read(dir)
	must(t, err)
	if after.Info.Format != 2 || after.Info.ID != before.Info.ID || len(after.Open) != 0 || after.ByStatus[receipt.Applied] != 2 {
		t.Errorf("migrated to %+v", after)
	}
}

// worked is a journal with one blocked node, and copies of it as it was before that.
func worked(t *testing.T) (dir string, older []byte) {
	t.Helper()
	dir = former(t, "format-1")
	j, err := journal.Open(dir, journal.Options{})
	must(t, err)
	must(t, j.Close())
	older, err = os.ReadFile(filepath.Join(dir, "journal.db"))
	must(t, err)
	for range 3 { // terms go by
		j, err := journal.Open(dir, journal.Options{})
		must(t, err)
		_, err = j.RaiseEpoch()
		must(t, err)
		must(t, j.Close())
	}
	return dir, older
}

// TestAccept goes on with what Open refuses, and only then.
func TestAccept(t *testing.T) {
	t.Parallel()
	for what, tc := range map[string]struct {
		harm  func(t *testing.T, db, marker string, older []byte)
		blank bool // what was in the journal is gone
		aside bool
	}{
		"older":             {harm: func(t *testing.T, db, _ string, older []byte) { must(t, os.WriteFile(db, older, 0o600)) }},
		"missing":           {harm: func(t *testing.T, db, _ string, _ []byte) { must(t, os.Remove(db)) }, blank: true},
		"empty":             {harm: func(t *testing.T, db, _ string, _ []byte) { must(t, os.Truncate(db, 0)) }, blank: true},
		"no marker":         {harm: func(t *testing.T, _, marker string, _ []byte) { must(t, os.Remove(marker)) }},
		"unreadable marker": {harm: func(t *testing.T, _, marker string, _ []byte) { must(t, os.Truncate(marker, 100)) }},
		"another's marker": {harm: func(t *testing.T, _, marker string, _ []byte) {
			must(t, os.WriteFile(marker, journal.EncodeSlot("other", 90, 900, 1), 0o600))
		}},
		"missing and marker": {harm: func(t *testing.T, db, marker string, _ []byte) {
			must(t, os.Remove(db))
			must(t, os.Truncate(marker, 1))
		}, blank: true},
		"damaged": {harm: func(t *testing.T, db, _ string, _ []byte) {
			b, err := os.ReadFile(db)
			must(t, err)
			for i := 4096 * 2; i < len(b); i++ {
				b[i] ^= 0x55
			}
			must(t, os.WriteFile(db, b, 0o600))
		}, blank: true, aside: true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir, older := worked(t)
			db, marker := filepath.Join(dir, "journal.db"), filepath.Join(dir, "journal.marker")
			was, err := journal.Read(dir)
			must(t, err)
			tc.harm(t, db, marker, older)
			if _, err := journal.Open(dir, journal.Options{}); !errors.Is(err, receipt.ErrDamaged) {
				t.Fatalf("Open = %v", err)
			}
			a := journal.Acceptance{By: "me", Reason: "the disk broke"}
			if tc.aside {
				if _, err := journal.Accept(dir, a); !errors.Is(err, receipt.ErrDamaged) || !strings.Contains(err.Error(), "--set-aside") {
					t.Fatalf("a damaged journal was accepted: %v", err)
				}
				a.SetAside = true
			}
			got, err := journal.Accept(dir, a)
			must(t, err)
			if (got.Aside != "") != tc.aside || got.Was == "" {
				t.Errorf("accepted %+v", got)
			}
			if tc.aside {
				if _, err := os.Stat(got.Aside); err != nil {
					t.Errorf("set aside: %v", err)
				}
			}
			if _, err := journal.Accept(dir, a); !errors.Is(err, journal.ErrNothingToAccept) {
				t.Errorf("accepted twice: %v", err)
			}
			must(t, journal.Verify(db))
			now, err := journal.Read(dir)
			must(t, err)
			if now.Info != got.Info || now.Info.Accepted.IsZero() || (now.Info.ID != was.Info.ID) != tc.blank || (len(now.Open) == 0) != tc.blank {
				t.Errorf("after it: %+v, told %+v, before %+v", now.Info, got.Info, was.Info)
			}
			known := !strings.Contains(what, "marker") || what == "another's marker" // else nobody can say what the last epoch was
			if known && (now.Info.Epoch <= was.Info.Epoch || now.Info.Seq <= was.Info.Seq) {
				t.Errorf("it went on at epoch %d, sequence %d; it was at %d, %d", now.Info.Epoch, now.Info.Seq, was.Info.Epoch, was.Info.Seq)
			}
			j, err := journal.Open(dir, journal.Options{})
			must(t, err)
			acts, err := j.Audit(0)
			must(t, err)
			if len(acts) != 1 || acts[0].Did != journal.DidAccept || acts[0].By != "me" || acts[0].Reason != a.Reason || acts[0].Result != got.Was {
				t.Errorf("acts %+v", acts)
			}
			must(t, j.Close())
		})
	}
}

// TestAcceptRefused: what is whole, what never was, and what nobody gives a reason for.
func TestAcceptRefused(t *testing.T) {
	t.Parallel()
	dir, _ := worked(t)
	for _, a := range []journal.Acceptance{{By: "me"}, {Reason: "x"}, {By: " ", Reason: "\t"}} {
		if _, err := journal.Accept(dir, a); !errors.Is(err, receipt.ErrInvalid) {
			t.Errorf("%+v: %v", a, err)
		}
	}
	a := journal.Acceptance{By: "me", Reason: "x", SetAside: true}
	if _, err := journal.Accept(dir, a); !errors.Is(err, journal.ErrNothingToAccept) {
		t.Errorf("a whole journal was accepted: %v", err)
	}
	newer, _ := worked(t)
	must(t, journal.SetFormat(filepath.Join(newer, "journal.db"), 99))
	if _, err := journal.Accept(newer, a); !errors.Is(err, journal.ErrNewer) {
		t.Errorf("a newer program's journal was set aside: %v", err)
	}
	never := t.TempDir()
	if _, err := journal.Accept(never, a); !errors.Is(err, journal.ErrMissing) || !strings.Contains(err.Error(), "provctl init") {
		t.Errorf("what never was: %v", err)
	}
	if left, err := os.ReadDir(never); err != nil || len(left) != 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	must(t, os.Symlink(dir, filepath.Join(never, "journal.db")))
	if _, err := journal.Accept(never, a); !errors.Is(err, receipt.ErrDamaged) {
		t.Errorf("a link was accepted: %v", err)
	}
}

// TestExport writes every record of a sound journal, and of a damaged one all that can be read.
func TestExport(t *testing.T) {
	t.Parallel()
	dir, _ := worked(t)
	count := func() (kinds map[string]int, lost []journal.Lost, err error) {
		kinds = map[string]int{}
		lost, err = journal.Export(dir, func(r journal.Exported) error {
			switch {
			case r.Journal != nil:
				kinds["journal"]++
			case r.Job != nil:
				kinds["job"]++
			case r.Receipt != nil:
				kinds["receipt"]++
			case r.Node != nil:
				kinds["node"]++
			case r.Act != nil:
				kinds["act"]++
			}
			return nil
		})
		return kinds, lost, err
	}
	j, err := journal.Open(dir, journal.Options{})
	must(t, err)
	_, err = j.RaiseEpoch()
	must(t, err)
	_, err = j.SetPause(t.Context(), "me", "maintenance")
	must(t, err)
	if _, err := journal.Export(dir, func(journal.Exported) error { return nil }); !errors.Is(err, journal.ErrBusy) {
		t.Errorf("while it is open: %v", err)
	}
	must(t, j.Close())
	kinds, lost, err := count()
	want := map[string]int{"journal": 1, "job": 3, "receipt": 3, "node": 3, "act": 1}
	if err != nil || len(lost) != 0 || !maps.Equal(kinds, want) {
		t.Errorf("exported %v, lost %v, %v; want %v", kinds, lost, err, want)
	}
	held := 0
	_, err = journal.Export(dir, func(journal.Exported) error { // however long it takes, a worker can start
		f, err := os.Open(filepath.Join(dir, "journal.db"))
		must(t, err)
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			held++
		}
		return f.Close()
	})
	if must(t, err); held > 0 {
		t.Errorf("a slow reader of the export holds the journal: %d times", held)
	}
	stop := errors.New("the reader has gone")
	if _, err := journal.Export(dir, func(journal.Exported) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("a reader that has gone: %v", err)
	}
	db := filepath.Join(dir, "journal.db")
	b, err := os.ReadFile(db)
	must(t, err)
	at := bytes.LastIndex(b, []byte(`"blocked.example.net"`))
	b[at+1] ^= 1
	must(t, os.WriteFile(db, b, 0o600))
	damaged, lost, err := count()
	if !errors.Is(err, receipt.ErrDamaged) || len(lost) != 1 || lost[0].Place == "" || lost[0].Why == "" || damaged["job"]+damaged["receipt"]+damaged["node"] != 8 {
		t.Errorf("exported %v, lost %v, %v", damaged, lost, err)
	}
}

// TestCompact makes a file as small as its content and changes nothing else.
func TestCompact(t *testing.T) {
	t.Parallel()
	dir := newSample(t).dir
	before, err := journal.Read(dir)
	must(t, err)
	got, err := journal.Compact(dir)
	must(t, err)
	size, err := os.Stat(filepath.Join(dir, "journal.db"))
	must(t, err)
	after, err := journal.Read(dir)
	must(t, err)
	after.Taken = before.Taken
	if got.After >= got.Before || got.After != size.Size() || !reflect.DeepEqual(before, after) {
		t.Errorf("compacted %+v, the file has %d bytes; before it %+v, after it %+v", got, size.Size(), before, after)
	}
	if _, err := journal.Compact(t.TempDir()); !errors.Is(err, journal.ErrMissing) {
		t.Errorf("nothing was compacted: %v", err)
	}
}
