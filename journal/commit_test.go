package journal_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"provctl/journal"
	"provctl/receipt"
)

func TestWaitingChangesShareACommit(t *testing.T) {
	t.Parallel()
	var sizes []int
	var mu sync.Mutex
	j := opened(t, t.TempDir(), journal.Options{Observe: func(s journal.CommitStats) {
		mu.Lock()
		defer mu.Unlock()
		sizes = append(sizes, s.Operations)
	}})
	entered, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	j.SetFault(func(p string) error {
		if p == "commit" {
			once.Do(func() { close(entered); <-release })
		}
		return nil
	})
	var all sync.WaitGroup
	all.Go(func() { must(t, admit(t, j, "first")) })
	<-entered
	// One of them is refused, one is withdrawn: neither harms the others.
	ctx, cancel := context.WithCancel(t.Context())
	var refused, withdrawn error
	all.Go(func() { _, refused = j.Claim(t.Context(), "nobody") })
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, withdrawn = j.Admit(ctx, []journal.Sighting{{Node: "withdrawn"}}, 1)
	}()
	for i := range 20 {
		all.Go(func() { must(t, admit(t, j, receipt.NodeID(fmt.Sprintf("n%d", i)))) })
	}
	waitUntil(t, func() bool { return j.Waiting() == 22 })
	cancel()
	<-gone
	close(release)
	all.Wait()
	if !errors.Is(refused, journal.ErrNotFound) || !errors.Is(withdrawn, context.Canceled) {
		t.Errorf("refused: %v; withdrawn: %v", refused, withdrawn)
	}
	if _, err := j.Node("withdrawn"); !errors.Is(err, journal.ErrNotFound) {
		t.Errorf("the withdrawn change was written: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []int{1, 1, 20}; !slices.Equal(sizes, want) { // the epoch, the first, all that waited
		t.Errorf("commits of %v changes, want %v", sizes, want)
	}
	if s := j.Stats(); s.Commits != 3 || s.Operations != 22 || s.MaxCommit <= 0 {
		t.Errorf("stats are %+v", s)
	}
}

// waitUntil polls a condition that has no event, until the test's deadline.
func waitUntil(t testing.TB, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !ok() {
		if ctx.Err() != nil {
			t.Fatal("waited for a minute")
		}
	}
}

func TestCommitOnceBegunIgnoresCancellation(t *testing.T) {
	t.Parallel()
	j := opened(t, t.TempDir(), journal.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	j.SetFault(func(string) error { cancel(); return nil })
	if _, err := j.Admit(ctx, []journal.Sighting{{Node: "n1"}}, 1); err != nil {
		t.Errorf("Admit = %v, although it was durable", err)
	}
	if _, err := j.Node("n1"); err != nil {
		t.Error(err)
	}
}
