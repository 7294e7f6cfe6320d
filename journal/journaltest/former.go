package journaltest

import (
	"time"

	"provctl/journal"
	"provctl/receipt"
)

// testExhaustedOut: a node whose record knows a former life ends the worker again and again before any effect. It stays out for the
// life that its job met, which is the first one seen afterwards; the former life has no part in it.
func testExhaustedOut(b *Bench) {
	former, now, next := Life(1), Life(2), Life(3)
	b.Done(b.Claimed("n1").ID, receipt.Restart, former, receipt.ReplyApplied, journal.Next{Event: receipt.End, Result: receipt.Provisioned})
	b.Clock.Add(time.Hour)
	job := b.Admit("n1", journal.Admitted).Job
	for _, want := range []journal.RecoverAction{journal.Requeued, journal.Exhausted} {
		_, err := b.Store.Claim(b.Ctx(), job.ID)
		b.ok(err)
		b.Reopen()
		got, err := b.Store.Recover(b.Ctx(), journal.RecoverPolicy{MaxRequeues: 1, Hold: time.Minute})
		b.ok(err)
		if len(got.Items) != 1 || got.Items[0].Did != want {
			b.T.Fatalf("recovery is %+v, want one %s", got, want)
		}
	}
	if n := b.Node("n1"); n.Out != receipt.Exhausted || n.OutOf.Known() {
		b.T.Errorf("node is %+v, out of a life that nobody met", n)
	}
	b.Clock.Add(time.Hour) // no hold any more
	for range 2 {
		b.ok(b.Store.Return(b.Ctx(), "n1", now))
		b.Admit("n1", journal.Out)
		b.Reopen()
	}
	if n := b.Node("n1"); n.OutOf != now {
		b.T.Errorf("node is %+v, want out of %s", n, now)
	}
	b.ok(b.Store.Return(b.Ctx(), "n1", next))
	again := b.Admit("n1", journal.Admitted).Job

	// A job that met a life goes out of that one.
	_, err := b.Store.Claim(b.Ctx(), again.ID)
	b.ok(err)
	b.Done(again.ID, receipt.Configure, next, receipt.ReplyFailed, journal.Next{Event: receipt.End, Result: receipt.Exhausted})
	if n := b.Node("n1"); n.Out != receipt.Exhausted || n.OutOf != next {
		b.T.Errorf("node is %+v, want out of %s", n, next)
	}
	b.ok(b.Store.Return(b.Ctx(), "n1", next))
	b.Admit("n1", journal.Out)
}

// testFormerBaseline: of two looks that began at one baseline, the first moves it, and the effect is dispatched before the second
// answer. That answer's sum happens to agree with the new baseline; it proves nothing, whichever way it is noted. The same answer
// counted from the new baseline gives the effect away, and one that shows none is a proof.
func testFormerBaseline(b *Bench) {
	past := func(e receipt.Evidence, at receipt.BaseID) receipt.Evidence {
		e.Stats.Base = at
		return e
	}
	for node, ran := range map[receipt.NodeID]bool{"ran": true, "never-arrived": false} {
		r := b.Unknown(node, receipt.Configure)
		old := r.Baseline.ID()
		base := receipt.Baseline{Validated: 6, Epoch: b.Term, Ordinal: 20}
		got, err := b.Store.Note(b.Ctx(), r.ID, []receipt.Evidence{past(b.SawLife(Life(1), 6, 1), old)}, &base)
		b.ok(err)
		b.same(*got.Baseline, base)
		b.Clock.Add(TTL + Skew + time.Second)
		alone := receipt.Evidence{Kind: receipt.SawConnections, Source: "broker", At: b.Clock.Now(), Connections: &receipt.ConnectionsSeen{Live: 1}}
		// The baseline's own request and this one, as counted from the old baseline: 8-6 is 2 as well.
		second := []receipt.Evidence{past(b.SawLife(Life(1), 8, 2), old), alone}
		for _, with := range []*receipt.Baseline{nil, {Validated: 8, Epoch: b.Term, Ordinal: 21}} {
			got, err = b.Store.Note(b.Ctx(), r.ID, second, with)
			b.ok(err)
			b.same(*got.Baseline, base)
			got, proof, err := b.Store.Prove(b.Ctx(), r.ID)
			b.ok(err)
			if proof != nil || got.Status != receipt.Unknown {
				b.T.Fatalf("%s: a count from a former baseline proves %+v", node, proof)
			}
		}
		validated := int64(8) // the second look and this one
		if ran {
			validated++
		}
		_, err = b.Store.Note(b.Ctx(), r.ID, []receipt.Evidence{past(b.SawLife(Life(1), validated, 2), base.ID())}, nil)
		b.ok(err)
		got, proof, err := b.Store.Prove(b.Ctx(), r.ID)
		b.ok(err)
		if (proof == nil) != ran || (got.Status == receipt.Unknown) != ran {
			b.T.Errorf("%s: a count from the baseline proves %+v", node, proof)
		}
		b.Reopen()
	}
}
