package journaltest

import (
	"errors"
	"strings"
	"time"

	"provctl/journal"
	"provctl/receipt"
)

func testProofs(b *Bench) {
	past := TTL + Skew + 11*time.Second
	for _, tc := range []struct {
		node   receipt.NodeID
		action receipt.Action
		see    func() []receipt.Evidence
		status receipt.Status
		rule   string
		job    receipt.JobStatus
		result receipt.Result
		held   bool
	}{
		{"none", receipt.Configure, func() []receipt.Evidence { return nil }, receipt.Unknown, "", receipt.Blocked, 0, false},
		{"reply", receipt.Configure, func() []receipt.Evidence { return []receipt.Evidence{b.SawReply(receipt.ReplyApplied, "Wrote")} }, receipt.Applied, "late-reply", receipt.Queued, 0, false},
		{"refused", receipt.Restart, func() []receipt.Evidence { return []receipt.Evidence{b.SawReply(receipt.ReplyRefused, "no")} }, receipt.Refused, "late-reply", receipt.Queued, 0, false},
		{"restart", receipt.Restart, func() []receipt.Evidence { return []receipt.Evidence{b.SawLife(Life(2), 1, 0)} }, receipt.Applied, "new-start", receipt.Ended, receipt.Superseded, false},
		{"shutdown", receipt.Shutdown, func() []receipt.Evidence { return []receipt.Evidence{b.SawReply(receipt.ReplyApplied, "bye")} }, receipt.Applied, "late-reply", receipt.Ended, receipt.ShutDown, true},
		{"moot", receipt.Configure, func() []receipt.Evidence { return []receipt.Evidence{b.SawLife(Life(2), 1, 0)} }, receipt.Moot, "new-start", receipt.Ended, receipt.Superseded, false},
		{"repeatable", receipt.Gen25519, func() []receipt.Evidence { return nil }, receipt.Moot, "repeatable", receipt.Queued, 0, false},
		{"left", receipt.Shutdown, func() []receipt.Evidence {
			return []receipt.Evidence{{Kind: receipt.SawConnections, Source: "broker", At: b.Clock.Now(), Connections: &receipt.ConnectionsSeen{LastClosed: b.Clock.Now()}}}
		}, receipt.Moot, "left", receipt.Ended, receipt.Left, true},
	} {
		r := b.Unknown(tc.node, tc.action)
		seq := b.Store.Info().Seq
		_, proof, err := b.Store.Prove(b.Ctx(), r.ID)
		b.ok(err)
		if proof != nil || b.Store.Info().Seq != seq {
			b.T.Fatalf("%s: proof %+v without evidence", tc.node, proof)
		}
		b.Clock.Add(past)
		_, err = b.Store.Note(b.Ctx(), r.ID, tc.see(), nil)
		b.ok(err)
		got, proof, err := b.Store.Prove(b.Ctx(), r.ID)
		b.ok(err)
		rule := ""
		if proof != nil {
			rule = proof.Rule
		}
		if got.Status != tc.status || rule != tc.rule || (rule != "" && !strings.Contains(got.Settled, rule)) {
			b.T.Errorf("%s: %s by %q (%s), want %s by %q", tc.node, got.Status, rule, got.Settled, tc.status, tc.rule)
		}
		job := b.Job(r.Job, tc.job, tc.result)
		n := b.Node(tc.node)
		if n.HeldUntil.After(b.Clock.Now()) != tc.held || (job.Status == receipt.Queued && !job.Seen.Equal(b.Clock.Now())) {
			b.T.Errorf("%s: node %+v, job %+v", tc.node, n, job)
		}
		if tc.rule == "" {
			continue
		}
		again, proof, err := b.Store.Prove(b.Ctx(), r.ID) // nothing to prove any more
		b.ok(err)
		b.same(again, got)
		if proof != nil || n.Open != "" {
			b.T.Errorf("%s: second proof %+v, open %q", tc.node, proof, n.Open)
		}
	}
	b.Reopen()
}

func testEvidence(b *Bench) {
	r := b.Unknown("n1", receipt.Configure)
	note := func(base *receipt.Baseline, seen ...receipt.Evidence) receipt.Receipt {
		b.T.Helper()
		got, err := b.Store.Note(b.Ctx(), r.ID, seen, base)
		b.ok(err)
		return got
	}
	first := note(nil, b.SawLife(Life(1), 7, 1))
	if first.Version <= r.Version || len(first.Evidence) != 1 || first.Evidence[0].Seq != first.Version {
		b.T.Errorf("receipt is %+v", first)
	}
	// The same answer a little later is kept, but is no news.
	b.Clock.Add(time.Second)
	second := note(nil, b.SawLife(Life(1), 8, 2))
	if second.Version != first.Version || second.Evidence[0].Stats.Validated != 8 {
		b.T.Errorf("receipt is %+v", second)
	}
	// An answer that turns what the counter says is news.
	third := note(nil, b.SawLife(Life(1), 8, 3))
	if third.Version == second.Version {
		b.T.Error("the counter's proof is no news?")
	}
	// The baseline moves along with an answer that shows the request was not dispatched yet, and with no other.
	base := &receipt.Baseline{Validated: 9, Epoch: 1, Ordinal: 2}
	moved := note(base, b.SawLife(Life(1), 9, 4))
	if moved.Baseline.Validated != 9 {
		b.T.Errorf("receipt is %+v", moved)
	}
	seq := b.Store.Info().Seq
	if same := note(base); same.Baseline.Validated != 9 || b.Store.Info().Seq != seq {
		b.T.Error("a change without content was written")
	}
	from := func(at receipt.BaseID, e receipt.Evidence) receipt.Evidence {
		e.Stats.Base = at
		return e
	}
	late := from(base.ID(), b.SawLife(Life(1), 10, 1))
	late.At = r.Horizon.Add(time.Second)
	for why, e := range map[string]receipt.Evidence{
		"the effect may be in the count":        from(base.ID(), b.SawLife(Life(1), 11, 1)),
		"another incarnation answered":          from(base.ID(), b.SawLife(Life(2), 10, 1)),
		"it was asked after the horizon":        late,
		"it is another answer's":                from(base.ID(), b.SawLife(Life(1), 12, 3)),
		"it was counted from a former baseline": b.SawLife(Life(1), 10, 1),
	} {
		if got := note(&receipt.Baseline{Validated: 10, Epoch: 1, Ordinal: 3}, e); got.Baseline.ID() != base.ID() {
			b.T.Errorf("the baseline moved although %s", why)
		}
	}
	_, err := b.Store.Note(b.Ctx(), r.ID, []receipt.Evidence{{Kind: receipt.SawStats}}, nil)
	b.is(err, receipt.ErrInvalid)
	odd := note(nil, b.SawReply(receipt.ReplyFailed, "\xff"+strings.Repeat("é", 4000)))
	if text := odd.Evidence[len(odd.Evidence)-1].Reply.Text; len(text) > 1024 {
		b.T.Errorf("text of %d bytes", len(text))
	}
	// The end of a receipt does not end what is seen of it.
	settled, proof, err := b.Store.Prove(b.Ctx(), r.ID)
	b.ok(err)
	if proof == nil || settled.Status != receipt.Failed {
		b.T.Fatalf("receipt is %s", settled.Status)
	}
	b.Store.NoteSoon(r.ID, b.SawReply(receipt.ReplyApplied, "second"))
	after := note(nil, b.SawReply(receipt.ReplyApplied, "third"))
	if len(after.Evidence) != len(odd.Evidence)+2 || after.Status != receipt.Failed {
		b.T.Errorf("receipt is %+v", after)
	}
	b.Reopen()
}

func (b *Bench) decide(r receipt.Receipt, v receipt.Verdict) (receipt.Receipt, error) {
	return b.Store.Decide(b.Ctx(), journal.Decision{Receipt: r.ID, Seen: r.Version, Verdict: v, By: "me", Reason: "looked at it"})
}

// shownIdle has the node show that it has done all it accepted.
func (b *Bench) shownIdle(r receipt.Receipt) receipt.Receipt {
	b.T.Helper()
	r, err := b.Store.Note(b.Ctx(), r.ID, []receipt.Evidence{b.SawIdle(r.Incarnation)}, nil)
	b.ok(err)
	return r
}

func testVerdicts(b *Bench) {
	for _, tc := range []struct {
		node    receipt.NodeID
		action  receipt.Action
		verdict receipt.Verdict
		status  receipt.Status
		job     receipt.JobStatus
		result  receipt.Result
	}{
		{"a", receipt.Configure, receipt.VerdictApplied, receipt.Applied, receipt.Queued, 0},
		{"b", receipt.Restart, receipt.VerdictApplied, receipt.Applied, receipt.Ended, receipt.Provisioned},
		{"c", receipt.Shutdown, receipt.VerdictApplied, receipt.Applied, receipt.Ended, receipt.ShutDown},
		{"d", receipt.Configure, receipt.VerdictNotApplied, receipt.NotApplied, receipt.Queued, 0},
		{"e", receipt.Configure, receipt.VerdictAbandon, receipt.Abandoned, receipt.Ended, receipt.GivenUp},
	} {
		r := b.Unknown(tc.node, tc.action)
		b.Clock.Add(TTL + Skew + time.Millisecond)
		if b.Store.Revoked(r.Token) {
			b.T.Error("revoked before the verdict")
		}
		r = b.shownIdle(r)
		got, err := b.decide(r, tc.verdict)
		b.ok(err)
		b.Job(r.Job, tc.job, tc.result)
		if got.Status != tc.status || got.Settled != "verdict" || !b.Store.Revoked(r.Token) || b.Node(tc.node).Open != "" {
			b.T.Errorf("%s: receipt is %+v", tc.node, got)
		}
		b.same(got.Decisions, []receipt.Decision{{Verdict: tc.verdict, By: "me", Reason: "looked at it", At: b.Clock.Now(), Seq: got.Version, Seen: r.Version}})
		_, err = b.decide(got, tc.verdict)
		b.is(err, receipt.ErrStale)
		b.Reopen()
		if !b.Store.Revoked(r.Token) {
			b.T.Error("the tombstone is gone")
		}
	}
	// not-applied: the same effect may have a new receipt; applied: it may not.
	for node, want := range map[receipt.NodeID]error{"d": nil, "a": receipt.ErrRepeat} {
		job, err := b.Store.Claim(b.Ctx(), b.Node(node).Job)
		b.ok(err)
		_, err = b.Store.Begin(b.Ctx(), b.Intent(job.ID, receipt.Configure, Life(1)))
		b.is(err, want)
	}
	b.Admit("e", journal.Out)
}

func testVerdictRefused(b *Bench) {
	job := b.Claimed("n1")
	p := b.Begun(job.ID, receipt.Configure, Life(1))
	b.Clock.Add(2 * time.Minute)
	_, err := b.decide(p.Receipt(), receipt.VerdictApplied)
	b.is(err, journal.ErrInFlight)
	_, err = b.Store.Settle(b.Ctx(), p, journal.Settlement{Event: receipt.ReplyApplied})
	b.ok(err)
	_, err = b.decide(p.Receipt(), receipt.VerdictNotApplied)
	b.is(err, receipt.ErrStale)

	r := b.Unknown("n2", receipt.Configure)
	b.Clock.Add(TTL)
	for _, v := range receipt.Verdicts() {
		_, err = b.decide(r, v)
		b.is(err, receipt.ErrBeforeHorizon)
		var early *journal.BeforeHorizonError
		if !errors.As(err, &early) || early.Left != Skew {
			b.T.Errorf("error is %v", err)
		}
	}
	b.Clock.Add(Skew + time.Millisecond)
	for _, spoil := range []func(*journal.Decision){
		func(d *journal.Decision) { d.Reason = " \n" },
		func(d *journal.Decision) { d.By = "" },
		func(d *journal.Decision) { d.Verdict = 0 },
		func(d *journal.Decision) { d.Verdict = 9 },
	} {
		d := journal.Decision{Receipt: r.ID, Seen: r.Version, Verdict: receipt.VerdictApplied, By: "me", Reason: "x"}
		spoil(&d)
		_, err = b.Store.Decide(b.Ctx(), d)
		b.is(err, receipt.ErrInvalid)
	}
	_, err = b.Store.Note(b.Ctx(), r.ID, []receipt.Evidence{b.SawReply(receipt.ReplyFailed, "x")}, nil)
	b.ok(err)
	_, err = b.decide(r, receipt.VerdictApplied)
	b.is(err, receipt.ErrStale)
	if b.Store.Revoked(r.Token) {
		b.T.Error("a refused verdict revoked the token")
	}
	// A verdict that lost to another one.
	now, err := b.Store.Receipt(r.ID)
	b.ok(err)
	_, err = b.decide(now, receipt.VerdictAbandon)
	b.ok(err)
	_, err = b.decide(now, receipt.VerdictApplied)
	b.is(err, receipt.ErrStale)
}

func testOut(b *Bench) {
	r := b.Unknown("n1", receipt.Configure)
	b.Clock.Add(2 * time.Minute)
	_, err := b.decide(r, receipt.VerdictAbandon)
	b.ok(err)
	if n := b.Node("n1"); n.Out != receipt.GivenUp || n.OutOf != Life(1) {
		b.T.Errorf("node is %+v", n)
	}
	b.is(b.Store.Return(b.Ctx(), "n1", receipt.Incarnation{}), receipt.ErrInvalid)
	b.ok(b.Store.Return(b.Ctx(), "n1", Life(1)))
	b.Admit("n1", journal.Out)
	b.Reopen()
	b.ok(b.Store.Return(b.Ctx(), "n1", Life(2)))
	b.Admit("n1", journal.Admitted)
	b.ok(b.Store.Return(b.Ctx(), "n1", Life(2))) // not out: nothing to do

	// Exhausted before its incarnation was ever seen: the first one seen counts as it.
	_, err = b.Store.Move(b.Ctx(), b.Claimed("n2").ID, journal.Next{Event: receipt.End, Result: receipt.Exhausted})
	b.ok(err)
	b.ok(b.Store.Return(b.Ctx(), "n2", Life(5)))
	b.Admit("n2", journal.Out)
	b.ok(b.Store.Return(b.Ctx(), "n2", Life(6)))
	b.Admit("n2", journal.Admitted)
}

func testByHand(b *Bench) {
	_, err := b.Store.AdmitByHand(b.Ctx(), "n *", "me", "x")
	b.is(err, receipt.ErrInvalid)
	_, err = b.Store.AdmitByHand(b.Ctx(), "n1", "me", " ")
	b.is(err, receipt.ErrInvalid)
	fresh, err := b.Store.AdmitByHand(b.Ctx(), "never-seen", "me", "x")
	b.ok(err)
	if fresh.Source != "operator" || !strings.Contains(fresh.Why, "me") {
		b.T.Errorf("job is %+v", fresh)
	}
	same, err := b.Store.AdmitByHand(b.Ctx(), "never-seen", "me", "x")
	b.ok(err)
	if same.ID != fresh.ID {
		b.T.Error("a second job beside one that has not ended")
	}
	r := b.Unknown("n1", receipt.Configure)
	b.Clock.Add(2 * time.Minute)
	_, err = b.decide(r, receipt.VerdictAbandon)
	b.ok(err)
	job, err := b.Store.AdmitByHand(b.Ctx(), "n1", "me", "repaired it")
	b.ok(err)
	if n := b.Node("n1"); n.Out != 0 || n.Job != job.ID || n.Forgiven <= r.Seq {
		b.T.Errorf("node is %+v", n)
	}
	_, err = b.Store.Claim(b.Ctx(), job.ID)
	b.ok(err)
	b.Done(job.ID, receipt.Configure, Life(1), receipt.ReplyApplied, journal.Next{}) // the abandoned one is forgiven
}
