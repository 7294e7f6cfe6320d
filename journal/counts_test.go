package journal_test

import (
	"errors"
	"path/filepath"
	"reflect"
	"sync"
	"testing"

	"provctl/journal"
	"provctl/receipt"
)

// TestUncounted opens a journal whose writer kept no totals: readers count what is there, the next term keeps the totals on.
func TestUncounted(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	dir := t.TempDir()
	path := s.copyTo(t, dir, s.db)
	must(t, journal.Meddle(path, "totals lost"))
	must(t, journal.Verify(path))
	got, err := journal.Read(dir)
	must(t, err)
	if !reflect.DeepEqual(got.ByResult, map[receipt.Result]int{receipt.Provisioned: 10}) || !reflect.DeepEqual(got.ByStatus, s.snapshot.ByStatus) {
		t.Errorf("results %v, receipts %v", got.ByResult, got.ByStatus)
	}
	j, err := journal.Open(dir, journal.Options{})
	must(t, err)
	_, err = j.RaiseEpoch()
	must(t, err)
	must(t, admit(t, j, "one-more"))
	queued, err := j.QueuedJobs()
	must(t, err)
	_, err = j.Move(t.Context(), queued[len(queued)-1].ID, journal.Next{Event: receipt.End, Result: receipt.Stale})
	must(t, err)
	got, err = j.Snapshot()
	must(t, err)
	if !reflect.DeepEqual(got.ByResult, map[receipt.Result]int{receipt.Provisioned: 10, receipt.Stale: 1}) {
		t.Errorf("results %v", got.ByResult)
	}
	must(t, j.Close())
	must(t, journal.Verify(filepath.Join(dir, "journal.db")))
}

// TestRefusedChangesCountNothing: the end of a job that is refused leaves no trace in the totals, not even for the changes that
// are committed together with it.
func TestRefusedChangesCountNothing(t *testing.T) {
	t.Parallel()
	j := opened(t, t.TempDir(), journal.Options{})
	must(t, admit(t, j, "n1", "n2"))
	queued, err := j.QueuedJobs()
	must(t, err)
	entered, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	j.SetFault(func(string) error {
		once.Do(func() { close(entered); <-release })
		return nil
	})
	var all sync.WaitGroup
	all.Go(func() { must(t, admit(t, j, "n3")) })
	<-entered
	var refused, ended error
	all.Go(func() {
		_, refused = j.Move(t.Context(), queued[0].ID, journal.Next{Event: receipt.End, Result: 77})
	})
	waitUntil(t, func() bool { return j.Waiting() == 1 })
	all.Go(func() {
		_, ended = j.Move(t.Context(), queued[1].ID, journal.Next{Event: receipt.End, Result: receipt.Stale})
	})
	waitUntil(t, func() bool { return j.Waiting() == 2 })
	close(release)
	all.Wait()
	must(t, ended)
	if !errors.Is(refused, receipt.ErrInvalid) {
		t.Errorf("a job ended with a result that there is not: %v", refused)
	}
	s, err := j.Snapshot()
	must(t, err)
	if !reflect.DeepEqual(s.ByResult, map[receipt.Result]int{receipt.Stale: 1}) {
		t.Errorf("results %v", s.ByResult)
	}
}
