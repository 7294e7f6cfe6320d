package journal_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"provctl/internal/roottest"
	"provctl/journal"
	"provctl/journal/journaltest"
	"provctl/receipt"
)

// opened is a journal in its first term.
func opened(t testing.TB, dir string, o journal.Options) *journal.Journal {
	t.Helper()
	_, err := journal.Init(dir)
	must(t, err)
	j, err := journal.Open(dir, o)
	must(t, err)
	t.Cleanup(func() { _ = j.Close() })
	_, err = j.RaiseEpoch()
	must(t, err)
	return j
}

func admit(t testing.TB, j *journal.Journal, nodes ...receipt.NodeID) error {
	t.Helper()
	var s []journal.Sighting
	for _, n := range nodes {
		s = append(s, journal.Sighting{Node: n})
	}
	_, err := j.Admit(t.Context(), s, len(s))
	return err
}

func TestCurrentNoticesASwap(t *testing.T) {
	t.Parallel()
	replace := func(t *testing.T, path string) {
		b, err := os.ReadFile(path)
		must(t, err)
		must(t, os.WriteFile(path+".copy", b, 0o600))
		must(t, os.Rename(path+".copy", path))
	}
	for what, harm := range map[string]func(t *testing.T, dir string){
		"journal removed":      func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "journal.db"))) },
		"journal copied over":  func(t *testing.T, dir string) { replace(t, filepath.Join(dir, "journal.db")) },
		"marker removed":       func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "journal.marker"))) },
		"marker copied over":   func(t *testing.T, dir string) { replace(t, filepath.Join(dir, "journal.marker")) },
		"marker torn":          func(t *testing.T, dir string) { must(t, os.Truncate(filepath.Join(dir, "journal.marker"), 1)) },
		"directory removed":    func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)) },
		"directory moved away": func(t *testing.T, dir string) { must(t, os.Rename(dir, dir+".away")) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "state")
			j := opened(t, dir, journal.Options{})
			must(t, j.Current())
			harm(t, dir)
			if err := j.Current(); !errors.Is(err, receipt.ErrFenced) {
				t.Errorf("Current = %v, want ErrFenced", err)
			}
		})
	}
}

func TestCurrentDuringCommits(t *testing.T) {
	t.Parallel()
	j := opened(t, t.TempDir(), journal.Options{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 100 {
			if err := admit(t, j, receipt.NodeID(fmt.Sprintf("n%d", i))); err != nil {
				t.Error(err)
			}
		}
	}()
	for {
		must(t, j.Current())
		select {
		case <-done:
			return
		default:
		}
	}
}

func TestFailuresStopTheJournal(t *testing.T) {
	t.Parallel()
	trouble := errors.New("trouble")
	for what, harm := range map[string]func(t *testing.T, j *journal.Journal){
		"before the commit": func(_ *testing.T, j *journal.Journal) {
			j.SetFault(func(p string) error { return map[string]error{"commit": trouble}[p] })
		},
		"marker": func(_ *testing.T, j *journal.Journal) {
			j.SetFault(func(p string) error { return map[string]error{"marker": trouble}[p] })
		},
		"panic": func(_ *testing.T, j *journal.Journal) {
			j.SetFault(func(string) error { panic(trouble) })
		},
		"descriptor gone": func(t *testing.T, j *journal.Journal) { must(t, j.CloseFile()) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			j := opened(t, dir, journal.Options{})
			must(t, admit(t, j, "before"))
			harm(t, j)
			err := admit(t, j, "during")
			var stopped *journal.StoppedError
			if !errors.Is(err, journal.ErrStopped) || !errors.As(err, &stopped) || stopped.Cause == nil {
				t.Fatalf("write = %v, want ErrStopped with its cause", err)
			}
			j.SetFault(nil)
			if err := admit(t, j, "after"); !errors.Is(err, journal.ErrStopped) {
				t.Errorf("a write after it = %v", err)
			}
			if err := j.Failed(); !errors.Is(err, journal.ErrStopped) {
				t.Errorf("Failed = %v", err)
			}
			if err := j.Current(); !errors.Is(err, receipt.ErrFenced) || !errors.Is(err, journal.ErrStopped) {
				t.Errorf("Current = %v", err)
			}
			if _, err := j.Node("before"); err != nil && what != "panic" {
				t.Errorf("reads must go on: %v", err)
			}
			_ = j.Close()
			again, err := journal.Open(dir, journal.Options{})
			must(t, err)
			defer func() { must(t, again.Close()) }()
			if _, err := again.Node("before"); err != nil {
				t.Errorf("what was acknowledged is lost: %v", err)
			}
			if _, err := again.Node("after"); !errors.Is(err, journal.ErrNotFound) {
				t.Errorf("what came after the failure is there: %v", err)
			}
		})
	}
}

// TestFullDisk fills a file system of one megabyte; without the right to mount one it says so, and in CI it fails.
// TestFailuresStopTheJournal covers other failed writes.
func TestFullDisk(t *testing.T) {
	if roottest.Missing(t, "a full disk; other failed writes are") {
		return
	}
	dir := t.TempDir()
	roottest.Tmpfs(t, dir, "size=1m")
	state := filepath.Join(dir, "state")
	j := opened(t, state, journal.Options{})
	acknowledged := 0
	var err error
	for i := 0; err == nil && i < 2000; i++ {
		var nodes []receipt.NodeID
		for k := range 50 {
			nodes = append(nodes, receipt.NodeID(fmt.Sprintf("n-%d-%d", i, k)))
		}
		if err = admit(t, j, nodes...); err == nil {
			acknowledged += len(nodes)
		}
	}
	if !errors.Is(err, journal.ErrStopped) {
		t.Fatalf("after %d nodes: %v, want ErrStopped", acknowledged, err)
	}
	t.Logf("stopped after %d nodes: %v", acknowledged, err)
	_ = j.Close()
	must(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=64m"))
	again, err := journal.Open(state, journal.Options{})
	must(t, err)
	queued, err := again.QueuedJobs()
	must(t, err)
	if len(queued) < acknowledged {
		t.Errorf("%d jobs are left of %d acknowledged", len(queued), acknowledged)
	}
	_, err = again.RaiseEpoch()
	must(t, err)
	must(t, admit(t, again, "space-is-back"))
	must(t, again.Close())
}

func TestReadBesideAWorkerAndAfter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := opened(t, dir, journal.Options{})
	must(t, admit(t, j, "n1"))
	if _, err := journal.Read(dir); !errors.Is(err, journal.ErrBusy) {
		t.Errorf("Read beside a worker = %v, want ErrBusy", err)
	}
	live, err := j.Snapshot()
	must(t, err)
	must(t, j.Close())
	must(t, j.Close())
	before := stat(t, dir)
	s, err := journal.Read(dir)
	must(t, err)
	if s.Info != live.Info || len(s.Jobs) != 1 {
		t.Errorf("Read = %+v, the worker said %+v", s, live)
	}
	if after := stat(t, dir); !slices.Equal(before, after) {
		t.Errorf("reading changed %v to %v", before, after)
	}
	for _, err := range []error{admit(t, j, "n2"), j.Current(), func() error { _, err := j.Node("n1"); return err }()} {
		if !errors.Is(err, journal.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

func stat(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var out []string
	for _, e := range entries {
		info, err := e.Info()
		must(t, err)
		out = append(out, fmt.Sprint(e.Name(), info.Size(), info.ModTime(), info.Mode()))
	}
	return out
}

// TestTruncatedUnderTheWorker cuts the file that the worker has mapped: a fault in memory, which must not end the process.
func TestTruncatedUnderTheWorker(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := opened(t, dir, journal.Options{})
	for i := range 50 {
		must(t, admit(t, j, receipt.NodeID(fmt.Sprintf("n%d", i))))
	}
	must(t, os.Truncate(filepath.Join(dir, "journal.db"), 4096))
	if _, err := j.QueuedJobs(); !errors.Is(err, receipt.ErrDamaged) {
		t.Errorf("read = %v, want ErrDamaged", err)
	}
	if err := admit(t, j, "n-more"); !errors.Is(err, journal.ErrStopped) {
		t.Errorf("write = %v, want ErrStopped", err)
	}
	if !j.Revoked("any") {
		t.Error("what cannot be read must count as revoked")
	}
	must(t, j.Close())
	if _, err := journal.Open(dir, journal.Options{}); !errors.Is(err, receipt.ErrDamaged) {
		t.Errorf("Open = %v", err)
	}
}

func TestCompaction(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	clock := journaltest.NewClock()
	j := opened(t, dir, journal.Options{Now: clock.Now})
	for round := range 20 {
		var nodes []receipt.NodeID
		for i := range 300 {
			nodes = append(nodes, receipt.NodeID(fmt.Sprintf("node-%d-%d.example.net", round, i)))
		}
		must(t, admit(t, j, nodes...))
	}
	queued, err := j.QueuedJobs()
	must(t, err)
	var all sync.WaitGroup
	for lane := range 8 {
		all.Go(func() {
			for i := lane; i < len(queued)-5; i += 8 {
				if _, err := j.Move(t.Context(), queued[i].ID, journal.Next{Event: receipt.End, Result: receipt.Stale}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	clock.Add(time.Hour)
	n, err := j.Prune(t.Context(), clock.Now())
	must(t, err)
	want, err := j.Snapshot()
	must(t, err)
	must(t, j.Close())
	big, err := os.Stat(filepath.Join(dir, "journal.db"))
	must(t, err)
	j, err = journal.Open(dir, journal.Options{Now: clock.Now})
	must(t, err)
	small, err := os.Stat(filepath.Join(dir, "journal.db"))
	must(t, err)
	got, err := j.Snapshot()
	must(t, err)
	t.Logf("pruned %d records; %d bytes became %d", n, big.Size(), small.Size())
	if small.Size() > big.Size()/4 || got.Info != want.Info || len(got.Jobs) != 5 {
		t.Errorf("%d bytes became %d; %+v became %+v", big.Size(), small.Size(), want.Info, got.Info)
	}
	_, err = j.RaiseEpoch()
	must(t, err)
	must(t, j.Current())
	must(t, j.Close())
	must(t, journal.Verify(filepath.Join(dir, "journal.db")))
}

func TestConcurrentLanes(t *testing.T) {
	t.Parallel()
	b := journaltest.NewBench(t, factory())
	var applied atomic.Int64
	var all sync.WaitGroup
	jobs := make([]receipt.Job, 8)
	for i := range jobs {
		jobs[i] = b.Claimed(receipt.NodeID(fmt.Sprintf("n%d", i)))
	}
	for i, job := range jobs {
		in := b.Intent(job.ID, receipt.Gen25519, journaltest.Life(1))
		all.Go(func() {
			for range 20 {
				p, err := b.Store.Begin(t.Context(), in)
				if err != nil {
					t.Error(err)
					return
				}
				b.Store.NoteSoon(p.Receipt().ID, b.SawLife(journaltest.Life(1), 1, 1))
				if _, err := b.Store.Settle(t.Context(), p, journal.Settlement{Event: receipt.ReplyRefused}); err != nil {
					t.Error(err)
					return
				}
				applied.Add(1)
			}
		})
		all.Go(func() {
			for range 20 {
				if _, err := b.Store.Snapshot(); err != nil {
					t.Error(err)
				}
				if h, err := b.Store.History(jobs[i].Node, journaltest.Life(1)); err != nil || len(h.Receipts) > 20 {
					t.Error(len(h.Receipts), err)
				}
			}
		})
	}
	all.Wait()
	if applied.Load() != 160 {
		t.Errorf("%d effects", applied.Load())
	}
	b.Reopen()
}
