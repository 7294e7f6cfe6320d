package crashtests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	bolt "go.etcd.io/bbolt"

	"provctl/crashtests/powerloss"
	"provctl/crashtests/trace"
	"provctl/crashtests/tracefs"
	"provctl/journal"
	"provctl/journal/journaltest"
)

// The test binary is the child of some sweeps: what it runs is named in its environment.
const (
	compactEnv = "PROVCTL_TEST_COMPACT" // a directory
	damageEnv  = "PROVCTL_TEST_DAMAGE"  // a directory, a shard and how many there are
)

func init() {
	var err error
	switch {
	case os.Getenv(compactEnv) != "":
		err = compactOnce(os.Getenv(compactEnv))
	case os.Getenv(damageEnv) != "":
		err = damageShard(os.Getenv(damageEnv))
	default:
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// sampleJournal makes a closed journal with some of everything in it.
func sampleJournal(t *testing.T) (dir string) {
	t.Helper()
	dir = fastDir(t)
	var j *journal.Journal
	b := journaltest.NewBench(t, journaltest.Factory{
		Create: func(string) error { _, err := journal.Init(dir); return err },
		Open: func(_ string, o journal.Options) (journaltest.Store, error) {
			var err error
			j, err = journal.Open(dir, o)
			return j, err
		},
		Verify: func(string) error { return journal.Verify(filepath.Join(dir, "journal.db")) },
	})
	b.Fill()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestSweep3PowerLossInCompaction does for a journal that is rewritten at its opening what TestSweep3PowerLoss does for one that
// is written to: every receipt of before must be in every image.
func TestSweep3PowerLossInCompaction(t *testing.T) {
	sweepImages(t, recordCompaction)
}

// TestSweep3PowerLossAfterKilledCompaction kills at the events of such an opening, opens again, and has the power fail then.
func TestSweep3PowerLossAfterKilledCompaction(t *testing.T) {
	t.Parallel()
	if !mine(t) || !needFUSE(t) {
		return
	}
	// The narrow sweep takes the place between the rename and the sync of the directory.
	first, last := renamedAt(recordCompaction(t))+1, 0
	if last = first; wide() {
		first, last = 3, 1000
	}
	for n, again := first, true; again && n <= last; n++ {
		t.Run(fmt.Sprintf("event-%d", n), func(t *testing.T) {
			if !mine(t) {
				return
			}
			c := newCompaction(t)
			c.fs.KillAt(n, c.kill)
			out, err := c.open()
			if again = c.trace.Hit(); !again {
				if err != nil {
					t.Errorf("%v: %s", err, out)
				}
				return
			}
			c.fs.Heal()
			from := c.trace.Len() - 1
			if out, err := c.open(); err != nil {
				t.Fatalf("after the kill: %v: %s", err, out)
			}
			rec := c.recording()
			rec.Events[n-1] = trace.Event{N: n, Source: "killed"} // it was refused
			rec.From = from
			s := newImageSweep(t, rec)
			s.run(false)
			s.sum()
		})
	}
}

// compaction is a journal that is rewritten at its next opening, on a file system that traces.
type compaction struct {
	t       *testing.T
	fs      *tracefs.FS
	trace   *trace.Trace
	initial powerloss.Image
	mu      sync.Mutex
	child   *exec.Cmd
}

func newCompaction(t *testing.T) *compaction {
	t.Helper()
	backing := sampleJournal(t)
	c := &compaction{t: t, trace: trace.New()}
	change(t, filepath.Join(backing, "journal.db"), func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("ballast"))
		if err != nil {
			return err
		}
		return b.Put([]byte("x"), make([]byte, 2<<20))
	})
	change(t, filepath.Join(backing, "journal.db"), func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte("ballast")) })
	var err error
	if c.initial, err = powerloss.Load(backing); err != nil {
		t.Fatal(err)
	}
	if c.fs, err = tracefs.Mount(backing, t.TempDir(), c.trace); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.fs.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// open has a child open the journal as a worker does, and write a little.
func (c *compaction) open() (said string, err error) {
	var out strings.Builder
	cmd := exec.CommandContext(c.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), compactEnv+"="+c.fs.Dir)
	cmd.Stdout, cmd.Stderr = &out, &out
	c.mu.Lock()
	c.child, err = cmd, cmd.Start()
	c.mu.Unlock()
	if err == nil {
		err = cmd.Wait()
	}
	return out.String(), err
}

func (c *compaction) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.child.Process.Kill()
}

// recording is what happened, with the receipts of before as the ones that must be found.
func (c *compaction) recording() recording {
	c.t.Helper()
	rec := recording{Initial: c.initial, Events: c.trace.Events()}
	dir := c.t.TempDir()
	if err := c.initial.Write(dir); err != nil {
		c.t.Fatal(err)
	}
	before, err := requestsIn(filepath.Join(dir, "journal.db"))
	if err != nil || len(before) < 11 {
		c.t.Fatalf("%d receipts, %v", len(before), err)
	}
	for request := range before {
		rec.Needs = append(rec.Needs, request)
	}
	return rec
}

func recordCompaction(t *testing.T) recording {
	t.Helper()
	c := newCompaction(t)
	if out, err := c.open(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	rec := c.recording()
	if renamedAt(rec) == 0 {
		t.Fatal("the journal was not compacted")
	}
	return rec
}

// renamedAt is the event at which a rewritten journal takes the old one's place; 0 if none does.
func renamedAt(rec recording) int {
	for _, e := range rec.Events {
		if e.Kind == trace.Rename && strings.HasPrefix(e.Path, ".journal-") && e.To == "journal.db" {
			return e.N
		}
	}
	return 0
}

// compactOnce opens a journal as a worker does, and writes a little.
func compactOnce(dir string) error {
	j, err := journal.Open(dir, journal.Options{})
	if err != nil {
		return err
	}
	for range 2 {
		if _, err := j.RaiseEpoch(); err != nil {
			return err
		}
	}
	return j.Close()
}
