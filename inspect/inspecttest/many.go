package inspecttest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"provctl/journal"
	"provctl/receipt"
)

// atOnce is how many nodes Many works on at a time: their commits are made together.
const atOnce = 256

// Many makes nodes in bulk: some that were provisioned and are left alone no more, and some whose configure is unknown, an hour ago.
func (b *Book) Many(done, blocked int) {
	b.t.Helper()
	all := done + blocked
	jobs := make([]receipt.JobID, 0, all)
	for len(jobs) < all {
		var seen []journal.Sighting
		for i := len(jobs); i < min(all, len(jobs)+1000); i++ {
			seen = append(seen, journal.Sighting{Node: receipt.NodeID(fmt.Sprintf("n%06d.example.net", i)), Source: "discovery", At: b.now})
		}
		admitted, err := b.Admit(context.Background(), seen, len(seen))
		b.must(err)
		for _, a := range admitted {
			jobs = append(jobs, a.Job.ID)
		}
	}
	work := make(chan int)
	failed := make(chan error, atOnce)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			var err error
			for i := range work {
				if err == nil {
					err = b.one(jobs[i], i, i < done)
				}
			}
			failed <- err
		})
	}
	for i := range all {
		work <- i
	}
	close(work)
	wg.Wait()
	for range atOnce {
		b.must(<-failed)
	}
}

// one brings a queued job to its end, or to an unknown configure. Its node shows that it is idle.
func (b *Book) one(id receipt.JobID, i int, done bool) error {
	ctx := context.Background()
	j, err := b.Claim(ctx, id)
	if err != nil {
		return err
	}
	in := b.intent(j, receipt.Configure, time.Hour, fmt.Sprintf("%032x", i))
	p, err := b.Begin(ctx, in)
	if err != nil {
		return err
	}
	if done {
		_, err = b.Settle(ctx, p, journal.Settlement{Event: receipt.ReplyApplied, Why: "the node answered", By: "reply", Next: journal.Next{
			Event: receipt.End, Result: receipt.Provisioned, Why: "its restart was accepted", HoldUntil: b.now.Add(-time.Minute),
		}})
		return err
	}
	r, err := b.Settle(ctx, p, journal.Settlement{Event: receipt.Lost, Why: "no reply until the horizon", By: "horizon"})
	if err == nil {
		_, err = b.Note(ctx, r.ID, []receipt.Evidence{
			{Kind: receipt.SawIdle, Source: "node", At: b.now, Idle: &receipt.IdleSeen{Incarnation: r.Incarnation}},
			{Kind: receipt.SawStats, Source: "node", At: b.now, Stats: &receipt.StatsSeen{Incarnation: r.Incarnation, Validated: 9, Known: 2, Base: r.Baseline.ID()}},
			{Kind: receipt.SawConnections, Source: "broker", At: b.now, Connections: &receipt.ConnectionsSeen{Live: 1}},
		}, nil)
	}
	return err
}

// Done makes a node that was configured and provisioned.
func (b *Book) Done(node receipt.NodeID) receipt.Receipt {
	b.t.Helper()
	r, err := b.Settle(context.Background(), b.Pending(node, receipt.Configure, time.Minute), journal.Settlement{
		Event: receipt.ReplyApplied, Why: `the node answered "Wrote 12 lines"`, By: "reply", Next: journal.Next{Event: receipt.End, Result: receipt.Provisioned, Why: "its restart was accepted"},
	})
	b.must(err)
	return r
}

// Decided makes a node whose unknown receipt got a verdict.
func (b *Book) Decided(node receipt.NodeID, a receipt.Action, v receipt.Verdict) receipt.Receipt {
	b.t.Helper()
	r := b.Unknown(node, a, time.Hour)
	r, err := b.Decide(context.Background(), journal.Decision{Receipt: r.ID, Seen: r.Version, Verdict: v, By: "alice", Reason: "its log says so"})
	b.must(err)
	return r
}
