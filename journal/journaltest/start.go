package journaltest

import (
	"time"

	"provctl/journal"
	"provctl/receipt"
)

func testRecover(b *Bench) {
	policy := journal.RecoverPolicy{MaxRequeues: 2, StaleAfter: time.Minute}
	queued := b.Admit("queued", journal.Admitted).Job
	bare := b.Claimed("bare")
	wentOn := b.Claimed("went-on")
	b.Done(wentOn.ID, receipt.Gen25519, Life(1), receipt.ReplyApplied, journal.Next{})
	inFlight := b.Claimed("in-flight")
	b.Done(inFlight.ID, receipt.Gen25519, Life(1), receipt.ReplyApplied, journal.Next{})
	p := b.Begun(inFlight.ID, receipt.Configure, Life(1))
	blocked := b.Unknown("blocked", receipt.Restart)
	b.Reopen()

	fresh := b.Claimed("fresh") // of this term: left alone
	got, err := b.Store.Recover(b.Ctx(), policy)
	b.ok(err)
	if len(got.Items) != 3 || got.Items[0].Did != journal.Requeued || got.Items[1].Did != journal.WentOn || got.Items[2].Did != journal.MadeUnknown {
		b.T.Fatalf("recovery is %+v", got)
	}
	b.Job(queued.ID, receipt.Queued, 0)
	if j := b.Job(bare.ID, receipt.Queued, 0); j.Requeues != 1 {
		b.T.Errorf("job is %+v", j)
	}
	if j := b.Job(wentOn.ID, receipt.Queued, 0); j.Requeues != 0 {
		b.T.Errorf("job is %+v", j)
	}
	b.Job(inFlight.ID, receipt.Blocked, 0)
	b.Job(blocked.Job, receipt.Blocked, 0)
	b.Job(fresh.ID, receipt.Claimed, 0)
	r := got.Items[2].Receipt
	if r == nil || r.ID != p.Receipt().ID || r.Status != receipt.Unknown || got.Count(journal.MadeUnknown) != 1 {
		b.T.Errorf("recovered receipt is %+v", r)
	}
	again, err := b.Store.Recover(b.Ctx(), policy)
	b.ok(err)
	b.same(again, journal.Recovery{})
	b.Reopen()
	if stored, err := b.Store.Receipt(r.ID); err != nil || stored.Status != receipt.Unknown {
		b.T.Errorf("receipt is %+v, %v", stored, err)
	}
}

func testExhausted(b *Bench) {
	job := b.Admit("n1", journal.Admitted).Job
	for i, want := range []journal.RecoverAction{journal.Requeued, journal.Requeued, journal.Exhausted} {
		claimed, err := b.Store.Claim(b.Ctx(), job.ID)
		b.ok(err)
		if claimed.Claims != i+1 {
			b.T.Errorf("claim %d is number %d", i+1, claimed.Claims)
		}
		b.Reopen()
		policy := journal.RecoverPolicy{MaxRequeues: 2, StaleAfter: time.Minute}
		got, err := b.Store.Recover(b.Ctx(), policy)
		b.ok(err)
		if got.Count(want) != 1 || len(got.Items) != 1 {
			b.T.Fatalf("recovery %d is %+v, want %s", i, got, want)
		}
		b.Reopen()
		b.Clock.Add(time.Hour) // however long it takes until the next start: the job, and its count, stay
		if got, err = b.Store.Recover(b.Ctx(), policy); err != nil || len(got.Items) != 0 {
			b.T.Fatalf("recovery %d an hour later is %+v, %v", i, got, err)
		}
	}
	b.Job(job.ID, receipt.Ended, receipt.Exhausted)
	b.Admit("n1", journal.Out)
}

func testStale(b *Bench) {
	old := b.Admit("old", journal.Admitted).Job
	waits := b.Claimed("waits")
	_, err := b.Store.Move(b.Ctx(), waits.ID, journal.Next{Event: receipt.Requeue, NotBefore: b.Clock.Now().Add(2 * time.Minute)})
	b.ok(err)
	b.Clock.Add(2 * time.Minute)
	young := b.Admit("young", journal.Admitted).Job
	got, err := b.Store.Recover(b.Ctx(), journal.RecoverPolicy{StaleAfter: time.Minute})
	b.ok(err)
	if len(got.Items) != 1 || got.Items[0].Did != journal.Staled || got.Items[0].Job.ID != old.ID {
		b.T.Fatalf("recovery is %+v", got)
	}
	b.Job(old.ID, receipt.Ended, receipt.Stale)
	b.Job(young.ID, receipt.Queued, 0)
	b.Job(waits.ID, receipt.Queued, 0)
	b.Admit("old", journal.Admitted)
}

func testPrune(b *Bench) {
	done := func(node receipt.NodeID, i receipt.Incarnation, result receipt.Result) receipt.Job {
		b.T.Helper()
		job := b.Claimed(node)
		b.Done(job.ID, receipt.Configure, i, receipt.ReplyRefused, journal.Next{Event: receipt.End, Result: result})
		return job
	}
	gone := done("gone", Life(1), receipt.Provisioned)
	former := done("busy", Life(1), receipt.Superseded)
	current := done("busy", Life(2), receipt.FailedJob)
	out := done("out", Life(1), receipt.Exhausted)
	blocked := b.Unknown("blocked", receipt.Restart)
	decided := b.Unknown("decided", receipt.Restart)
	b.Clock.Add(2 * time.Minute)
	_, err := b.decide(decided, receipt.VerdictApplied)
	b.ok(err)
	b.Clock.Add(24 * time.Hour)
	recent := done("busy", Life(2), receipt.FailedJob)

	before := b.Clock.Now().Add(-time.Hour)
	n, err := b.Store.Prune(b.Ctx(), before)
	b.ok(err)
	// gone and decided: job, receipt, node each; former: job and receipt.
	if n != 8 {
		b.T.Errorf("%d records pruned, want 8", n)
	}
	for _, id := range []receipt.JobID{gone.ID, former.ID, decided.Job} {
		_, err := b.Store.Job(id)
		b.is(err, journal.ErrNotFound)
	}
	for _, id := range []receipt.JobID{current.ID, out.ID, blocked.Job, recent.ID} {
		_, err := b.Store.Job(id)
		b.ok(err)
	}
	for _, node := range []receipt.NodeID{"gone", "decided"} {
		_, err := b.Store.Node(node)
		b.is(err, journal.ErrNotFound)
	}
	if h, err := b.Store.History("busy", Life(2)); err != nil || len(h.Receipts) != 2 {
		b.T.Errorf("history is %+v, %v", h, err)
	}
	n, err = b.Store.Prune(b.Ctx(), before)
	b.ok(err)
	if n != 0 {
		b.T.Errorf("a second prune found %d more", n)
	}
	b.Reopen()
	// Many at once need several transactions.
	var sightings []journal.Sighting
	for i := range 450 {
		sightings = append(sightings, journal.Sighting{Node: receipt.NodeID("many-" + string(rune('a'+i%26)) + string(rune('a'+i/26)))})
	}
	admitted, err := b.Store.Admit(b.Ctx(), sightings, len(sightings))
	b.ok(err)
	for _, a := range admitted {
		_, err := b.Store.Move(b.Ctx(), a.Job.ID, journal.Next{Event: receipt.End, Result: receipt.Stale})
		b.ok(err)
	}
	b.Clock.Add(48 * time.Hour)
	b.Admit("present", journal.Admitted)
	n, err = b.Store.Prune(b.Ctx(), b.Clock.Now().Add(-time.Hour))
	b.ok(err)
	// 450 jobs and nodes, and what is left of busy: 2 jobs, 2 receipts, 1 node.
	if n != 905 {
		b.T.Errorf("%d records pruned, want 905", n)
	}
	b.Reopen()
}

func testSnapshot(b *Bench) {
	b.Admit("queued", journal.Admitted)
	b.Claimed("claimed")
	r := b.Unknown("blocked", receipt.Restart)
	b.Done(b.Claimed("held").ID, receipt.Restart, Life(1), receipt.ReplyApplied,
		journal.Next{Event: receipt.End, Result: receipt.Provisioned, HoldUntil: b.Clock.Now().Add(time.Minute)})
	_, err := b.Store.Move(b.Ctx(), b.Claimed("out").ID, journal.Next{Event: receipt.End, Result: receipt.Exhausted})
	b.ok(err)
	s, err := b.Store.Snapshot()
	b.ok(err)
	b.same(s.Info, b.Store.Info())
	b.same(s.Open, []receipt.Receipt{r})
	b.same(s.ByJob, map[receipt.JobStatus]int{receipt.Queued: 1, receipt.Claimed: 1, receipt.Blocked: 1, receipt.Ended: 2})
	b.same(s.ByResult, map[receipt.Result]int{receipt.Provisioned: 1, receipt.Exhausted: 1})
	b.same(s.ByStatus, map[receipt.Status]int{receipt.Unknown: 1, receipt.Applied: 1})
	if len(s.Jobs) != 3 || len(s.Nodes) != 2 || s.Nodes[0].ID != "held" || s.Nodes[1].ID != "out" || !s.Taken.Equal(b.Clock.Now()) {
		b.T.Errorf("snapshot is %+v", s)
	}
}
