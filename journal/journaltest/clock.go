package journaltest

import (
	"strings"
	"time"

	"provctl/journal"
	"provctl/receipt"
)

const decade = 10 * 365 * 24 * time.Hour

// testHeldByClock: a hold lasts as long as was asked for, whatever the clock does meanwhile.
func testHeldByClock(b *Bench) {
	hold := func(node receipt.NodeID) {
		b.T.Helper()
		_, err := b.Store.Move(b.Ctx(), b.Claimed(node).ID, journal.Next{Event: receipt.End, Result: receipt.Deferred, HoldUntil: b.Clock.Now().Add(time.Hour)})
		b.ok(err)
	}
	shown := func(want int) {
		b.T.Helper()
		s, err := b.Store.Snapshot()
		b.ok(err)
		if len(s.Nodes) != want {
			b.T.Errorf("%d nodes are shown as held, want %d: %+v", len(s.Nodes), want, s.Nodes)
		}
	}
	hold("n1")
	b.Clock.Add(-30 * time.Second) // a small correction
	b.Admit("n1", journal.Held)
	shown(1)
	b.Clock.Add(-decade)
	shown(0)
	b.Admit("n1", journal.Admitted)
	hold("n2")
	b.Clock.Add(59 * time.Minute)
	b.Admit("n2", journal.Held)
	b.Clock.Add(2 * time.Minute)
	b.Admit("n2", journal.Admitted)
}

// testRedate: what a worker with a clock ahead of time left behind can be settled once the clock is right.
func testRedate(b *Bench) {
	unknown := b.Unknown("unknown", receipt.Configure)
	b.Clock.Add(TTL / 2)
	_, err := b.Store.Note(b.Ctx(), unknown.ID, []receipt.Evidence{b.SawLife(Life(1), 6, 1), b.alone()}, nil)
	b.ok(err)
	pending := b.Begun(b.Claimed("pending").ID, receipt.Restart, Life(1)).Receipt()
	queued := b.Claimed("queued")
	_, err = b.Store.Move(b.Ctx(), queued.ID, journal.Next{Event: receipt.Requeue, NotBefore: b.Clock.Now().Add(time.Second)})
	b.ok(err)
	b.Clock.Add(-decade)
	b.Reopen()
	now := b.Clock.Now()
	got, err := b.Store.Recover(b.Ctx(), journal.RecoverPolicy{StaleAfter: 2 * time.Minute})
	b.ok(err)
	if len(got.Items) != 2 || got.Items[0].Did != journal.Redated || got.Items[1].Did != journal.MadeUnknown {
		b.T.Fatalf("recovery is %+v", got)
	}
	for i, id := range []receipt.ReceiptID{unknown.ID, pending.ID} {
		r, err := b.Store.Receipt(id)
		b.ok(err)
		if !r.Horizon.Equal(now.Add(TTL+Skew)) || !r.RequestTime.Equal(now) || r.Status != receipt.Unknown || !strings.Contains(r.Why, "set back") {
			b.T.Errorf("receipt is %+v", r)
		}
		b.same(*got.Items[i].Receipt, r)
		if !strings.Contains(got.Items[i].Why, "ahead of the clock") {
			b.T.Errorf("why: %s", got.Items[i].Why)
		}
	}
	if r := *got.Items[0].Receipt; r.Version <= unknown.Version {
		b.T.Errorf("a receipt that changed is still at version %d", r.Version)
	}
	if job := b.Job(queued.ID, receipt.Queued, 0); job.Seen.After(now) || job.NotBefore.After(now.Add(2*time.Minute)) {
		b.T.Errorf("job is %+v", job)
	}

	// The horizon counts from this start: neither at once, nor again at the next one.
	_, err = b.decide(*got.Items[1].Receipt, receipt.VerdictApplied)
	b.is(err, receipt.ErrBeforeHorizon)
	b.Clock.Add(TTL + Skew + time.Second)
	b.Reopen()
	again, err := b.Store.Recover(b.Ctx(), journal.RecoverPolicy{})
	b.ok(err)
	b.same(again, journal.Recovery{})
	_, err = b.decide(b.shownIdle(*got.Items[1].Receipt), receipt.VerdictNotApplied)
	b.ok(err)

	// What was seen by the wrong clock was seen before the horizon. Only what is seen now proves that nothing came.
	_, proof, err := b.Store.Prove(b.Ctx(), unknown.ID)
	b.ok(err)
	if proof != nil {
		b.T.Fatalf("proof %+v of what was seen while the request could still arrive", proof)
	}
	stats := b.SawLife(Life(1), 7, 2)
	stats.Stats.Base = unknown.Baseline.ID()
	_, err = b.Store.Note(b.Ctx(), unknown.ID, []receipt.Evidence{stats, b.alone()}, nil)
	b.ok(err)
	r, proof, err := b.Store.Prove(b.Ctx(), unknown.ID)
	b.ok(err)
	if proof == nil || r.Status != receipt.NotApplied {
		b.T.Errorf("receipt is %s by %+v", r.Status, proof)
	}
}

// alone is what the broker says of a name that one process has.
func (b *Bench) alone() receipt.Evidence {
	return receipt.Evidence{Kind: receipt.SawConnections, Source: "broker", At: b.Clock.Now(), Connections: &receipt.ConnectionsSeen{Live: 1}}
}

// testSeenByClock: a sighting from a clock ahead of time does not stand in the way of later ones, and a small step of the clock
// changes no receipt of this term.
func testSeenByClock(b *Bench) {
	job := b.Admit("n1", journal.Admitted).Job
	mine := b.Unknown("n2", receipt.Restart)
	b.Clock.Add(-time.Hour)
	b.Admit("n1", journal.Known)
	if got := b.Job(job.ID, receipt.Queued, 0); !got.Seen.Equal(b.Clock.Now()) {
		b.T.Errorf("seen %s, it is %s", got.Seen, b.Clock.Now())
	}
	_, err := b.Store.Recover(b.Ctx(), journal.RecoverPolicy{})
	b.ok(err)
	r, err := b.Store.Receipt(mine.ID)
	b.ok(err)
	b.same(r, mine)
}
