package journaltest

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"provctl/journal"
	"provctl/receipt"
)

func testPending(b *Bench) {
	job := b.Claimed("n1")
	p, err := b.Store.Begin(b.Ctx(), b.Intent(job.ID, receipt.Configure, Life(1)))
	b.ok(err)
	if p.Published() {
		b.T.Error("published before it was marked")
	}
	var marked atomic.Int32
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if p.MarkPublished() == nil {
				marked.Add(1)
			}
		})
	}
	all.Wait()
	if marked.Load() != 1 || !p.Published() {
		b.T.Errorf("published %d times", marked.Load())
	}
	b.is(p.MarkPublished(), receipt.ErrRepeat)

	var settled atomic.Int32
	for range 8 {
		all.Go(func() {
			if _, err := b.Store.Settle(b.Ctx(), p, journal.Settlement{Event: receipt.ReplyApplied}); err == nil {
				settled.Add(1)
			}
		})
	}
	all.Wait()
	if settled.Load() != 1 {
		b.T.Errorf("settled %d times", settled.Load())
	}
	_, err = b.Store.Settle(b.Ctx(), p, journal.Settlement{Event: receipt.Lost})
	b.is(err, receipt.ErrIllegalTransition)

	unsent, err := b.Store.Begin(b.Ctx(), b.Intent(job.ID, receipt.Restart, Life(1)))
	b.ok(err)
	_, err = b.Store.Settle(b.Ctx(), unsent, journal.Settlement{Event: receipt.NeverSent})
	b.ok(err)
	b.is(unsent.MarkPublished(), receipt.ErrRepeat)

	var none *journal.Pending
	for _, p := range []*journal.Pending{none, {}} {
		b.is(p.MarkPublished(), receipt.ErrFenced)
		_, err = b.Store.Settle(b.Ctx(), p, journal.Settlement{Event: receipt.ReplyApplied})
		b.is(err, receipt.ErrFenced)
	}
}

func testLost(b *Bench) {
	job := b.Claimed("n1")
	r := b.Done(job.ID, receipt.Configure, Life(1), receipt.Lost, journal.Next{Event: receipt.End, Result: receipt.Provisioned, Why: "must be ignored"})
	if r.Status != receipt.Unknown || !r.EndedAt.IsZero() || r.Settled != "" {
		b.T.Errorf("receipt is %+v", r)
	}
	b.Job(job.ID, receipt.Blocked, 0)
	if a := b.Admit("n1", journal.BlockedNode); a.NodeRecord.Open != r.ID {
		b.T.Errorf("admission is %+v", a)
	}
	_, err := b.Store.Move(b.Ctx(), job.ID, journal.Next{Event: receipt.End, Result: receipt.FailedJob})
	b.is(err, journal.ErrBlocked)
	_, err = b.Store.AdmitByHand(b.Ctx(), "n1", "me", "because")
	b.is(err, journal.ErrBlocked)
	_, err = b.Store.Claim(b.Ctx(), job.ID)
	b.is(err, receipt.ErrIllegalTransition)
	b.Reopen()
	got, err := b.Store.Recover(b.Ctx(), journal.RecoverPolicy{})
	b.ok(err)
	b.same(got, journal.Recovery{})
	open, err := b.Store.OpenReceipts()
	b.ok(err)
	b.same(open, []receipt.Receipt{r})
}

func testSettleRefused(b *Bench) {
	job := b.Claimed("n1")
	p := b.Begun(job.ID, receipt.Configure, Life(1))
	for _, st := range []journal.Settlement{
		{},
		{Event: receipt.ProvedApplied},
		{Event: receipt.SaidApplied},
		{Event: receipt.ReplyApplied, Next: journal.Next{Event: receipt.Block}},
		{Event: receipt.ReplyApplied, Next: journal.Next{Event: receipt.Resume}},
		{Event: receipt.ReplyApplied, Next: journal.Next{Event: receipt.Claim}},
	} {
		_, err := b.Store.Settle(b.Ctx(), p, st)
		b.is(err, receipt.ErrIllegalTransition)
	}
	for _, next := range []journal.Next{{Event: receipt.End}, {Result: receipt.Provisioned}, {Event: receipt.Requeue, Result: receipt.Stale}, {Event: receipt.End, Result: 77}} {
		_, err := b.Store.Settle(b.Ctx(), p, journal.Settlement{Event: receipt.ReplyApplied, Next: next})
		b.is(err, receipt.ErrInvalid)
	}
	if r, err := b.Store.Receipt(p.Receipt().ID); err != nil || r.Status != receipt.Pending {
		b.T.Fatalf("after refusals the receipt is %+v, %v", r, err)
	}
	// Words that cannot be stored as they are do not stand in the way of an outcome.
	r, err := b.Store.Settle(b.Ctx(), p, journal.Settlement{Event: receipt.ReplyFailed, Why: strings.Repeat("\xff\x00", 9000), By: "\xc3"})
	b.ok(err)
	if len(r.Why) > 1024 || r.Status != receipt.Failed {
		b.T.Errorf("receipt is %s with %d bytes of words", r.Status, len(r.Why))
	}
	// A worker that slept through another's term.
	late := b.Begun(job.ID, receipt.Restart, Life(1))
	b.raise()
	_, err = b.Store.Settle(b.Ctx(), late, journal.Settlement{Event: receipt.ReplyApplied})
	b.is(err, receipt.ErrFenced)
	b.is(late.MarkPublished(), receipt.ErrRepeat)
}

func testMove(b *Bench) {
	job := b.Claimed("n1")
	_, err := b.Store.Move(b.Ctx(), job.ID, journal.Next{})
	b.is(err, receipt.ErrIllegalTransition)
	later := b.Clock.Now().Add(time.Hour)
	moved, err := b.Store.Move(b.Ctx(), job.ID, journal.Next{Event: receipt.Requeue, Why: "node is locked", NotBefore: later})
	b.ok(err)
	if moved.Status != receipt.Queued || !moved.NotBefore.Equal(later) || moved.Why != "node is locked" {
		b.T.Errorf("job is %+v", moved)
	}
	b.same(b.Job(job.ID, receipt.Queued, 0), moved)
	again, err := b.Store.Claim(b.Ctx(), job.ID)
	b.ok(err)
	if again.Claims != 2 || again.Begun != 0 {
		b.T.Errorf("job is %+v", again)
	}
	b.raise()
	_, err = b.Store.Move(b.Ctx(), job.ID, journal.Next{Event: receipt.Requeue})
	b.is(err, receipt.ErrFenced)
	queued := b.Admit("n2", journal.Admitted).Job
	_, err = b.Store.Move(b.Ctx(), queued.ID, journal.Next{Event: receipt.End, Result: receipt.Stale, Why: "gone"})
	b.ok(err)
	_, err = b.Store.Move(b.Ctx(), queued.ID, journal.Next{Event: receipt.End, Result: receipt.Stale})
	b.is(err, receipt.ErrIllegalTransition)
}
