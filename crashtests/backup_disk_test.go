package crashtests

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"provctl/crashtests/powerloss"
	"provctl/crashtests/trace"
	"provctl/crashtests/tracefs"
)

// traced runs the program on a directory whose events are counted.
type traced struct {
	t     *testing.T
	fs    *tracefs.FS
	trace *trace.Trace

	mu    sync.Mutex
	child *exec.Cmd
}

// newTraced mounts a directory that traces over a copy of another one.
func newTraced(t *testing.T, from string) *traced {
	t.Helper()
	backing := fastDir(t)
	if err := os.CopyFS(backing, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	d := &traced{t: t, trace: trace.New()}
	var err error
	if d.fs, err = tracefs.Mount(backing, t.TempDir(), d.trace); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.fs.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// runs runs the program and returns what it printed and its exit code, -1 if it was killed.
func (d *traced) runs(args ...string) (string, int) {
	d.t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(d.t.Context(), program, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	d.mu.Lock()
	d.child = cmd
	err := cmd.Start()
	d.mu.Unlock()
	if err != nil {
		d.t.Fatal(err)
	}
	err = cmd.Wait()
	return out.String(), exitOf(err)
}

// killed runs the program and kills it before event n; false if it never came to that, and then it must have ended well.
func (d *traced) killed(n int, args ...string) (hit bool) {
	d.t.Helper()
	d.fs.KillAt(n, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		_ = d.child.Process.Kill()
	})
	out, code := d.runs(args...)
	if hit = d.trace.Hit(); !hit && code != 0 {
		d.t.Fatalf("exit %d: %s", code, out)
	}
	d.fs.Heal()
	return hit
}

// narrowStep is how many events lie between two kills when not all cases are wanted.
const narrowStep = 3

// rises runs a case with n rising until it says that nothing was hit.
func rises(t *testing.T, what string, one func(t *testing.T, n int) (hit bool)) {
	t.Helper()
	step, total := narrowStep, 0
	if wide() {
		step = 1
	}
	for n, again := 1, true; again; n += step {
		if n > 2000 {
			t.Fatal("it never survives")
		}
		t.Run(fmt.Sprintf("event-%d", n), func(t *testing.T) {
			if !mine(t) {
				return
			}
			if again = one(t, n); again {
				total++
			}
		})
	}
	count(t, what, total)
}

func inDir(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// durable wants that a backup's content was synced after its last write and before it got its name, and its name after that.
func (d *traced) durable() {
	d.t.Helper()
	var order []trace.Kind
	for _, e := range d.trace.Events() {
		if k := e.Kind; k == trace.Write || k == trace.Sync || k == trace.Rename || k == trace.Link || k == trace.DirSync {
			order = append(order, k)
		}
	}
	order = slices.Compact(order)
	if want := []trace.Kind{trace.Write, trace.Sync, trace.Rename, trace.DirSync}; !slices.Equal(order, want) {
		d.t.Errorf("a backup does %v, want %v", order, want)
	}
}

// wantBackup wants a file that can be restored.
func (d *traced) wantBackup(file string) {
	d.t.Helper()
	dir := filepath.Join(d.t.TempDir(), "state")
	if out, code := d.runs("journal", "restore", file, "--state-dir", dir, "--reason", "test"); code != 0 {
		d.t.Errorf("%s is no backup: exit %d: %s", file, code, out)
	}
}

// TestSweep1Backup kills a backup before each event at its target: under its name there is a sound file or none, and the next one is made.
func TestSweep1Backup(t *testing.T) {
	t.Parallel()
	if !mine(t) || !needFUSE(t) {
		return
	}
	state := sampleJournal(t)
	rises(t, "backups killed", func(t *testing.T, n int) bool {
		d := newTraced(t, t.TempDir())
		file := filepath.Join(d.fs.Dir, "backup.db")
		hit := d.killed(n, "journal", "backup", file, "--state-dir", state)
		if _, err := os.Stat(file); err == nil {
			d.wantBackup(file)
		} else if !hit {
			t.Fatal(err)
		}
		if !hit {
			d.durable()
			return false
		}
		if out, code := d.runs("journal", "backup", file+"2", "--state-dir", state); code != 0 {
			t.Errorf("the next backup: exit %d: %s", code, out)
		}
		return hit
	})
}

// TestSweep5Backup has the disk of the target fail at each event: an error that says so, and nothing left.
func TestSweep5Backup(t *testing.T) {
	t.Parallel()
	if !mine(t) || !needFUSE(t) {
		return
	}
	state := sampleJournal(t)
	for _, e := range []struct {
		name  string
		fault tracefs.Fault
	}{
		{"disk-full", tracefs.Fault{Match: writes, Err: syscall.ENOSPC, Once: true}},
		{"sync-fails", tracefs.Fault{Match: tracefs.Of(trace.Sync), Err: syscall.EIO, Once: true}},
	} {
		t.Run(e.name, func(t *testing.T) {
			rises(t, "backups with a disk error", func(t *testing.T, n int) bool {
				d := newTraced(t, t.TempDir())
				fault := e.fault
				fault.Nth = n
				d.fs.Fail(fault)
				out, code := d.runs("journal", "backup", filepath.Join(d.fs.Dir, "backup.db"), "--state-dir", state)
				if len(d.fs.Failed()) == 0 {
					if code != 0 {
						t.Errorf("exit %d: %s", code, out)
					}
					return false
				}
				if code != 1 || !strings.Contains(out, fault.Err.Error()) {
					t.Errorf("exit %d, want 1 with %q: %s", code, fault.Err, out)
				}
				if left := inDir(t, d.fs.Dir); len(left) > 0 {
					t.Errorf("left over: %v", left)
				}
				return true
			})
		})
	}
}

// TestSweep1Restore kills a restore before each event in the state directory: the former journal is in place as it was, which is refused once
// the marker is the backup's, or the backup is, and is accepted. Run again, it ends well.
func TestSweep1Restore(t *testing.T) {
	t.Parallel()
	if !mine(t) || !needFUSE(t) {
		return
	}
	state, file := sampleJournal(t), filepath.Join(t.TempDir(), "backup.db")
	d := &traced{t: t}
	if out, code := d.runs("journal", "backup", file, "--state-dir", state); code != 0 {
		t.Fatalf("backup: exit %d: %s", code, out)
	}
	for range 2 { // a verdict on something else, so to speak: two more changes
		if out, code := d.runs("pause", "--reason", "newer than the backup", "--state-dir", state); code != 0 {
			t.Fatalf("pause: exit %d: %s", code, out)
		}
	}
	db, err := os.ReadFile(filepath.Join(state, "journal.db"))
	if err != nil {
		t.Fatal(err)
	}
	rises(t, "restores killed", func(t *testing.T, n int) bool {
		d := newTraced(t, state)
		restore := []string{"journal", "restore", file, "--state-dir", d.fs.Dir, "--reason", "test", "--replace"}
		hit := d.killed(n, restore...)
		is, err := os.ReadFile(filepath.Join(d.fs.Dir, "journal.db"))
		if err != nil {
			t.Fatal(err)
		}
		_, code := d.runs("journal", "verify", "--state-dir", d.fs.Dir)
		audit, _ := d.runs("audit", "--state-dir", d.fs.Dir)
		accepted := strings.Contains(audit, "restored from")
		if former := bytes.Equal(is, db); code == 0 && !former && !accepted || code == 6 && !former || code != 0 && code != 6 {
			t.Errorf("verify: exit %d; the former journal is in place: %v; accepted: %v", code, former, accepted)
		}
		if !hit {
			return false
		}
		if out, code := d.runs(restore...); code != 0 {
			t.Fatalf("again: exit %d: %s", code, out)
		}
		if out, code := d.runs("journal", "verify", "--state-dir", d.fs.Dir); code != 0 {
			t.Errorf("verify: exit %d: %s", code, out)
		}
		return hit
	})
}

// TestSweep1Migration kills the opening of a journal of format 1 before each event: what is found next is the old journal or the new one,
// whole, and the old file is there until the first commit.
func TestSweep1Migration(t *testing.T) {
	t.Parallel()
	if !mine(t) || !needFUSE(t) {
		return
	}
	state := formerJournal(t)
	old, err := os.ReadFile(filepath.Join(state, "journal.db"))
	if err != nil {
		t.Fatal(err)
	}
	const kept = "journal.db.format-1"
	rises(t, "migrations killed", func(t *testing.T, n int) bool {
		d := newTraced(t, state)
		pause := []string{"pause", "--reason", "test", "--state-dir", d.fs.Dir}
		hit := d.killed(n, pause...)
		shown, code := d.runs("journal", "verify", "--state-dir", d.fs.Dir)
		if code != 0 {
			t.Fatalf("verify: exit %d: %s", code, shown)
		}
		if is, err := os.ReadFile(filepath.Join(d.fs.Dir, "journal.db")); err != nil || !strings.Contains(shown, "of format 2") && !bytes.Equal(is, old) {
			t.Errorf("the old journal was changed: %v, %s", err, shown)
		}
		if b, err := os.ReadFile(filepath.Join(d.fs.Dir, kept)); err == nil && !bytes.Equal(b, old) {
			t.Error("the kept file is not the old one")
		}
		if strings.Contains(shown, "of format 2 is sound: epoch 1,") { // migrated, and nothing committed since
			if _, err := os.Stat(filepath.Join(d.fs.Dir, kept)); err != nil {
				t.Errorf("the old file is gone before the first commit: %v", err)
			}
		}
		if !hit {
			return false
		}
		if out, code := d.runs(pause...); code != 0 {
			t.Fatalf("again: exit %d: %s", code, out)
		}
		if _, err := os.Stat(filepath.Join(d.fs.Dir, kept)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the old file is still there: %v", err)
		}
		return hit
	})
}

// TestSweep3PowerLossInMigration has the power fail at every moment of a migration and the first commit after it: each image opens, with every
// receipt of before.
func TestSweep3PowerLossInMigration(t *testing.T) {
	t.Parallel()
	if !mine(t) || !needFUSE(t) {
		return
	}
	state := formerJournal(t)
	before, err := requestsIn(filepath.Join(state, "journal.db"))
	if err != nil || len(before) < 2 {
		t.Fatalf("%d receipts, %v", len(before), err)
	}
	initial, err := powerloss.Load(state)
	if err != nil {
		t.Fatal(err)
	}
	d := newTraced(t, state)
	if out, code := d.runs("pause", "--reason", "test", "--state-dir", d.fs.Dir); code != 0 {
		t.Fatalf("exit %d: %s", code, out)
	}
	rec := recording{Initial: initial, Events: d.trace.Events(), Needs: slices.Collect(maps.Keys(before))}
	s := newImageSweep(t, rec)
	s.run(wide())
	s.sum()
	if os.Getenv(caseEnv) != "" {
		return
	}
	for i, e := range rec.Events { // the tooth: a new file that is not synced
		if e.Kind == trace.Sync && strings.HasPrefix(e.Path, ".journal-") {
			rec.Events[i] = trace.Event{N: e.N, Source: "nobody"}
		}
	}
	s = newImageSweep(t, rec)
	s.quiet = true
	if s.run(false); s.failed == 0 {
		t.Error("without the sync of the new file no image fails: the sweep sees nothing")
	}
}

// formerJournal is the state directory of format 1 that the journal's own tests keep.
func formerJournal(t *testing.T) string {
	t.Helper()
	dir, from := t.TempDir(), "../journal/testdata/format-1"
	out, err := exec.Command("sh", "-c", `gzip -dc "$1/journal.db.gz" >"$2/journal.db" && cp "$1/journal.marker" "$2"`, "sh", from, dir).CombinedOutput()
	if err != nil {
		t.Fatalf("unpack %s: %v: %s", from, err, out)
	}
	return dir
}
