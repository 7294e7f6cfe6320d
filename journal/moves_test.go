package journal_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"provctl/journal"
	"provctl/journal/journaltest"
	"provctl/receipt"
)

// observed collects what an observer is told.
type observed struct {
	mu  sync.Mutex
	all []journal.CommitStats
}

func (o *observed) add(s journal.CommitStats) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, s)
}

// last is what the observer was told of the newest commit, and forgets it.
func (o *observed) last(t *testing.T) journal.Moves {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.all) == 0 {
		t.Fatal("no commit was observed")
	}
	m := o.all[len(o.all)-1].Moves
	o.all = nil
	return m
}

func (o *observed) silent(t *testing.T, why string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.all) != 0 {
		t.Errorf("%s, and the observer was told %+v", why, o.all)
	}
}

func same(t *testing.T, what string, got, want journal.Moves) {
	t.Helper()
	if !slices.Equal(got.Settled, want.Settled) || got.Unknown != want.Unknown || !slices.Equal(got.Ended, want.Ended) {
		t.Errorf("%s: told %+v, want %+v", what, got, want)
	}
}

// TestObserverIsToldEachMoveOnce goes through the ways of a receipt and a job to their end, and through changes that are refused or
// cannot be written.
func TestObserverIsToldEachMoveOnce(t *testing.T) {
	t.Parallel()
	var o observed
	var j *journal.Journal
	f := factory()
	f.Open = func(dir string, options journal.Options) (_ journaltest.Store, err error) {
		options.Observe = o.add
		j, err = journal.Open(dir, options)
		return j, err
	}
	b := journaltest.NewBench(t, f)

	job := b.Claimed("n1")
	same(t, "a claim", o.last(t), journal.Moves{})
	b.Done(job.ID, receipt.Gen25519, journaltest.Life(1), receipt.ReplyApplied, journal.Next{})
	same(t, "a reply", o.last(t), journal.Moves{Settled: []journal.Settled{{By: "reply", Status: receipt.Applied}}})
	r := b.Done(job.ID, receipt.Configure, journaltest.Life(1), receipt.Lost, journal.Next{})
	same(t, "a lost reply", o.last(t), journal.Moves{Unknown: 1})

	if _, err := j.Decide(t.Context(), journal.Decision{Receipt: r.ID, Seen: r.Version + 1, Verdict: receipt.VerdictApplied, By: "me", Reason: "x"}); !errors.Is(err, receipt.ErrStale) {
		t.Fatalf("a stale verdict: %v", err)
	}
	o.silent(t, "a verdict was refused")

	_, err := j.Note(t.Context(), r.ID, []receipt.Evidence{b.SawReply(receipt.ReplyApplied, "Wrote 1 lines")}, nil)
	must(t, err)
	same(t, "evidence alone", o.last(t), journal.Moves{})
	_, proof, err := j.Prove(t.Context(), r.ID)
	must(t, err)
	if proof == nil {
		t.Fatal("the late reply proved nothing")
	}
	same(t, "a proof", o.last(t), journal.Moves{Settled: []journal.Settled{{By: "evidence: " + proof.Rule, Status: receipt.Applied}}})

	_, err = j.Claim(t.Context(), job.ID)
	must(t, err)
	r = b.Done(job.ID, receipt.Restart, journaltest.Life(1), receipt.Lost, journal.Next{})
	b.Clock.Add(journaltest.TTL + journaltest.Skew + time.Second)
	_, err = j.Decide(t.Context(), journal.Decision{Receipt: r.ID, Seen: r.Version, Verdict: receipt.VerdictApplied, By: "me", Reason: "looked"})
	must(t, err)
	same(t, "a verdict that ends the job", o.last(t), journal.Moves{
		Settled: []journal.Settled{{By: "verdict", Status: receipt.Applied}}, Ended: []receipt.Result{receipt.Provisioned},
	})

	job = b.Claimed("n2")
	o.last(t)
	j.SetFault(func(string) error { return errors.New("no space left on device") })
	if _, err := j.Move(t.Context(), job.ID, journal.Next{Event: receipt.End, Result: receipt.Deferred, Why: "later"}); !errors.Is(err, journal.ErrStopped) {
		t.Fatalf("a change that cannot be written: %v", err)
	}
	o.silent(t, "nothing was written")
}

// TestTallyIsTheLastAcknowledged counts what went back to the queue, over the lives of the journal.
func TestTallyIsTheLastAcknowledged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := opened(t, dir, journal.Options{})
	must(t, admit(t, j, "n1"))
	jobs, err := j.QueuedJobs()
	must(t, err)
	for n := range 2 {
		if got := j.Tally().Requeues; got != int64(n) {
			t.Errorf("%d requeues, want %d", got, n)
		}
		_, err = j.Claim(t.Context(), jobs[0].ID)
		must(t, err)
		_, err = j.Move(t.Context(), jobs[0].ID, journal.Next{Event: receipt.Requeue, Why: "again"})
		must(t, err)
	}
	must(t, j.Close())
	again, err := journal.Open(dir, journal.Options{})
	must(t, err)
	t.Cleanup(func() { _ = again.Close() })
	if got := again.Tally().Requeues; got != 2 {
		t.Errorf("after opening again: %d requeues, want 2", got)
	}
}
