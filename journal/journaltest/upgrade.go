package journaltest

import (
	"time"

	"provctl/journal"
	"provctl/receipt"
)

// testUpgrades: over all its incarnations a node is upgraded to one version three times at most, unless the operator admits it.
func testUpgrades(b *Bench) {
	end := journal.Next{Event: receipt.End, Result: receipt.Upgraded}
	b.Done(b.Claimed("n10").ID, receipt.ReleaseUpdate, Life(1), receipt.ReplyApplied, end) // another node's are no business of it
	for i := range int64(3) {
		b.ok(b.Store.MayUpgrade("n1", "1.2.3"))
		job := b.Claimed("n1")
		b.Done(job.ID, receipt.ReleaseUpdate, Life(i), receipt.ReplyApplied, end)
		if _, err := b.Store.Job(job.ID); err != nil {
			b.T.Fatal(err)
		}
		b.Reopen()
	}
	b.is(b.Store.MayUpgrade("n1", "1.2.3"), receipt.ErrRepeat)
	b.is(b.Store.MayUpgrade("n1", "1.2.3-1"), receipt.ErrRepeat)
	b.ok(b.Store.MayUpgrade("n1", "1.2.4"))
	b.ok(b.Store.MayUpgrade("n10", "1.2.3"))
	b.ok(b.Store.MayUpgrade("n2", "1.2.3"))
	b.is(b.Store.MayUpgrade("n2", "no version"), receipt.ErrInvalid)

	job := b.Claimed("n1")
	_, err := b.Store.Begin(b.Ctx(), b.Intent(job.ID, receipt.ReleaseUpdate, Life(3)))
	b.is(err, receipt.ErrRepeat)
	without := b.Intent(job.ID, receipt.ReleaseUpdate, Life(3))
	without.Target = ""
	_, err = b.Store.Begin(b.Ctx(), without)
	b.is(err, receipt.ErrInvalid)
	other := b.Intent(job.ID, receipt.Configure, Life(3))
	other.Target = "1.2.3"
	_, err = b.Store.Begin(b.Ctx(), other)
	b.is(err, receipt.ErrInvalid)
	_, err = b.Store.AdmitByHand(b.Ctx(), "n1", "me", "the repository is mended")
	b.ok(err)
	b.ok(b.Store.MayUpgrade("n1", "1.2.3"))
}

// testUpgradeProved: an upgrade that evidence or an operator finds applied ends its job as upgraded, without a hold.
func testUpgradeProved(b *Bench) {
	prove := func(node receipt.NodeID, e receipt.Evidence) {
		b.T.Helper()
		job := b.Claimed(node)
		r := b.Done(job.ID, receipt.ReleaseUpdate, Life(1), receipt.Lost, journal.Next{})
		b.Clock.Add(TTL + Skew + time.Second)
		e.At = b.Clock.Now()
		_, err := b.Store.Note(b.Ctx(), r.ID, []receipt.Evidence{e}, nil)
		b.ok(err)
		settled, proof, err := b.Store.Prove(b.Ctx(), r.ID)
		b.ok(err)
		if proof == nil || settled.Status != receipt.Applied {
			b.T.Errorf("%s: %s, proof %+v", node, settled.Status, proof)
		}
		b.upgraded(node, job.ID)
	}
	prove("n1", receipt.Evidence{Kind: receipt.SawEvent, Source: "event", Event: &receipt.EventSeen{Type: "upgraded", Version: "1.2.3"}})
	prove("n2", receipt.Evidence{Kind: receipt.SawStats, Source: "node", Stats: &receipt.StatsSeen{Incarnation: Life(2), Validated: 1, Version: "1.2.3"}})

	job := b.Claimed("n3")
	r := b.Done(job.ID, receipt.ReleaseUpdate, Life(1), receipt.Lost, journal.Next{})
	b.Clock.Add(2 * time.Minute)
	_, err := b.Store.Decide(b.Ctx(), journal.Decision{Receipt: r.ID, Seen: r.Version, Verdict: receipt.VerdictApplied, By: "me", Reason: "it runs 1.2.3"})
	b.ok(err)
	b.upgraded("n3", job.ID)

	// A late word that the server's program may be gone keeps the node out, as one in time does: nothing more is to be sent to it.
	job = b.Claimed("n4")
	r = b.Done(job.ID, receipt.ReleaseUpdate, Life(1), receipt.Lost, journal.Next{})
	_, err = b.Store.Note(b.Ctx(), r.ID, []receipt.Evidence{{Kind: receipt.SawReply, Source: "late reply", At: b.Clock.Now(), Reply: &receipt.ReplySeen{
		Code: 1, Text: "Update to version 1.2.3 failed: rollback also failed, " + receipt.UpgradeBroken, Means: receipt.ReplyFailed,
	}}}, nil)
	b.ok(err)
	b.Clock.Add(TTL + Skew + time.Second)
	settled, proof, err := b.Store.Prove(b.Ctx(), r.ID)
	b.ok(err)
	n, err := b.Store.Node("n4")
	b.ok(err)
	if proof == nil || settled.Status != receipt.Failed || n.Out != receipt.Exhausted {
		b.T.Errorf("after a late word of a broken server: %s, proof %+v, node %+v", settled.Status, proof, n)
	}
}

func (b *Bench) upgraded(node receipt.NodeID, id receipt.JobID) {
	b.T.Helper()
	job, err := b.Store.Job(id)
	b.ok(err)
	n, err := b.Store.Node(node)
	b.ok(err)
	if job.Result != receipt.Upgraded || !n.HeldUntil.IsZero() || n.Out != 0 {
		b.T.Errorf("%s: job ended as %s, node %+v", node, job.Result, n)
	}
}

// testPause: a pause outlives its worker, is kept by a second one, and ends once.
func testPause(b *Bench) {
	paused := func(want bool) {
		b.T.Helper()
		s, err := b.Store.Snapshot()
		b.ok(err)
		if got := s.Info.Pause != nil; got != want {
			b.T.Errorf("paused is %t, want %t", got, want)
		}
	}
	_, err := b.Store.SetPause(b.Ctx(), "me", " ")
	b.is(err, receipt.ErrInvalid)
	paused(false)
	first, err := b.Store.SetPause(b.Ctx(), "me", "maintenance")
	b.ok(err)
	if first.By != "me" || first.Reason != "maintenance" || !first.At.Equal(b.Clock.Now()) {
		b.T.Errorf("paused: %+v", first)
	}
	b.Clock.Add(time.Hour)
	again, err := b.Store.SetPause(b.Ctx(), "you", "another reason")
	b.ok(err)
	if again != first {
		b.T.Errorf("the second pause is %+v, the first was %+v", again, first)
	}
	b.Reopen()
	paused(true)
	was, err := b.Store.Resume(b.Ctx(), "me")
	b.ok(err)
	if was == nil || *was != first {
		b.T.Errorf("resumed %+v", was)
	}
	paused(false)
	was, err = b.Store.Resume(b.Ctx(), "me")
	b.ok(err)
	if was != nil {
		b.T.Errorf("resumed twice: %+v", was)
	}
	b.Reopen()
	paused(false)
}
