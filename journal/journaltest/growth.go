package journaltest

import (
	"fmt"
	"time"

	"provctl/journal"
	"provctl/receipt"
)

// deferred ends a job without a receipt.
func (b *Bench) deferred(node receipt.NodeID) receipt.Job {
	b.T.Helper()
	job, err := b.Store.Move(b.Ctx(), b.Claimed(node).ID, journal.Next{Event: receipt.End, Result: receipt.Deferred, Why: "later"})
	b.ok(err)
	return job
}

// testGrowth: a node that is put off for ever leaves one job behind, and stays counted.
func testGrowth(b *Bench) {
	kept := b.Claimed("n1")
	b.Done(kept.ID, receipt.Gen25519, Life(1), receipt.ReplyApplied, journal.Next{Event: receipt.End, Result: receipt.Deferred})
	var jobs []receipt.Job
	for i := range 20 {
		jobs = append(jobs, b.deferred("n1"), b.deferred("n10"))
		if i == 10 {
			b.Reopen()
		}
	}
	last := len(jobs) - 2
	for _, job := range jobs[:last] {
		_, err := b.Store.Job(job.ID)
		b.is(err, journal.ErrNotFound)
	}
	for _, job := range append(jobs[last:], kept) {
		b.Job(job.ID, receipt.Ended, receipt.Deferred)
	}
	_, err := b.Store.Claim(b.Ctx(), jobs[0].ID)
	b.is(err, journal.ErrNotFound)
	b.is(err, receipt.ErrStale) // whoever still had it in a queue drops it, as one that has ended
	if n := b.Node("n1"); n.LastResult != receipt.Deferred || !n.LastEnded.Equal(b.Clock.Now()) || len(n.Receipts) != 1 {
		b.T.Errorf("node is %+v", n)
	}
	counted := func() {
		b.T.Helper()
		s, err := b.Store.Snapshot()
		b.ok(err)
		b.same(s.ByJob, map[receipt.JobStatus]int{receipt.Ended: 41})
		b.same(s.ByResult, map[receipt.Result]int{receipt.Deferred: 41})
		b.same(s.ByStatus, map[receipt.Status]int{receipt.Applied: 1})
	}
	counted()
	// Evidence that comes late does not count a receipt twice.
	_, err = b.Store.Note(b.Ctx(), b.Node("n1").Receipts[0], []receipt.Evidence{b.SawReply(receipt.ReplyApplied, "again")}, nil)
	b.ok(err)
	b.Clock.Add(time.Hour)
	n, err := b.Store.Prune(b.Ctx(), b.Clock.Now())
	b.ok(err)
	if n != 6 { // three jobs, a receipt, two nodes
		b.T.Errorf("%d records pruned, want 6", n)
	}
	counted()
	b.Reopen()
	counted()
	_, err = b.Store.AdmitByHand(b.Ctx(), "n1", "me", "x")
	b.ok(err)
}

// testLives: a node that restarts for ever keeps the receipts of its newest incarnations only, each with all of them.
func testLives(b *Bench) {
	const lives, kept = 30, 20
	end := journal.Next{Event: receipt.End, Result: receipt.FailedJob}
	b.Done(b.Claimed("n10").ID, receipt.Configure, Life(1), receipt.ReplyRefused, end) // another node's are no business of it
	for i := range int64(lives) {
		job := b.Claimed("n1")
		b.Done(job.ID, receipt.Configure, Life(i+1), receipt.ReplyRefused, journal.Next{})
		b.Done(job.ID, receipt.Configure, Life(i+1), receipt.ReplyFailed, end)
		job = b.Claimed("n1")
		if i+2 == lives-kept { // begun in a life that goes, ended in one that stays
			b.Done(job.ID, receipt.ReleaseUpdate, Life(i+1), receipt.ReplyApplied, journal.Next{})
			b.Done(job.ID, receipt.Gen25519, Life(i+2), receipt.ReplyRefused, end)
			continue
		}
		b.Done(job.ID, receipt.Restart, Life(i+1), receipt.ReplyRefused, end)
	}
	b.Claimed("n1")
	b.Reopen()
	history := func(node receipt.NodeID, life int64, want int) {
		b.T.Helper()
		h, err := b.Store.History(node, Life(life))
		b.ok(err)
		if len(h.Receipts) != want {
			b.T.Errorf("%s has %d receipts of life %d, want %d", node, len(h.Receipts), life, want)
		}
	}
	for i := range int64(lives) {
		switch life := i + 1; {
		case life == lives-kept:
			history("n1", life, 4)
		case life == lives-kept-1: // its last job is needed by the next
			history("n1", life, 1)
		case life > lives-kept:
			history("n1", life, 3)
		default:
			history("n1", life, 0)
		}
	}
	history("n10", 1, 1)
	s, err := b.Store.Snapshot()
	b.ok(err)
	b.same(s.ByStatus, map[receipt.Status]int{receipt.Refused: 2*lives + 1, receipt.Failed: lives, receipt.Applied: 1})
	b.same(s.ByResult, map[receipt.Result]int{receipt.FailedJob: 2*lives + 1})
}

// testPruneByClock: a clock that is wrong makes nothing forgotten too early, and nothing stay for ever.
func testPruneByClock(b *Bench) {
	const month = 30 * 24 * time.Hour
	prune := func(want int) {
		b.T.Helper()
		n, err := b.Store.Prune(b.Ctx(), b.Clock.Now().Add(-month))
		b.ok(err)
		if n != want {
			b.T.Errorf("%d records pruned, want %d", n, want)
		}
	}
	ended := func(node string) receipt.Job {
		b.T.Helper()
		job := b.Claimed(receipt.NodeID(node))
		b.Done(job.ID, receipt.Configure, Life(1), receipt.ReplyApplied, journal.Next{Event: receipt.End, Result: receipt.Provisioned})
		return job
	}
	first := ended("first")
	b.Clock.Add(10 * 365 * 24 * time.Hour) // the clock leaps ahead
	prune(0)
	b.Reopen()
	got, err := b.Store.Recover(b.Ctx(), journal.RecoverPolicy{StaleAfter: time.Minute})
	b.ok(err)
	b.same(got, journal.Recovery{})
	prune(0)
	b.Job(first.ID, receipt.Ended, receipt.Provisioned)
	ahead := ended("ahead")
	b.Clock.Add(-10 * 365 * 24 * time.Hour) // and is set right before the next prune
	prune(0)
	b.Job(first.ID, receipt.Ended, receipt.Provisioned)
	for range 29 { // idle, but pruning: the clock is not taken for wrong
		b.Clock.Add(24 * time.Hour)
		prune(0)
	}
	present := ended("present")
	b.Clock.Add(2 * 24 * time.Hour)
	prune(3) // first
	b.Job(ahead.ID, receipt.Ended, receipt.Provisioned)
	for range 40 {
		b.Clock.Add(24 * time.Hour)
		_, err := b.Store.Prune(b.Ctx(), b.Clock.Now().Add(-month))
		b.ok(err)
	}
	// What was admitted after it is old by now, so it is too, years before its date.
	for _, job := range []receipt.Job{ahead, present} {
		_, err := b.Store.Job(job.ID)
		b.is(err, journal.ErrNotFound)
		_, err = b.Store.Node(job.Node)
		b.is(err, journal.ErrNotFound)
	}
	// Off for months, with a clock that is right: it takes a record of the present.
	for i := range 3 {
		ended(fmt.Sprintf("late-%d", i))
	}
	b.Clock.Add(3 * month)
	prune(0)
	b.Admit("now", journal.Admitted)
	prune(9)
	b.Reopen()
}
