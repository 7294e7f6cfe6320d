package journaltest

import (
	"strings"
	"time"

	"provctl/journal"
	"provctl/receipt"
)

// testSupersede: a verdict can be taken back for another one while nothing came after it; both stay on record.
func testSupersede(b *Bench) {
	type end struct {
		status receipt.Status
		job    receipt.JobStatus // of the node's job; 0: it has none
		out    receipt.Result
	}
	ends := func(a receipt.Action, v receipt.Verdict) end {
		leaves := a == receipt.Restart
		switch {
		case v == receipt.VerdictApplied && leaves:
			return end{status: receipt.Applied}
		case v == receipt.VerdictApplied:
			return end{status: receipt.Applied, job: receipt.Queued}
		case v == receipt.VerdictNotApplied:
			return end{status: receipt.NotApplied, job: receipt.Queued}
		case v == receipt.VerdictFinish:
			return end{status: receipt.Finishing, job: receipt.Queued}
		default:
			return end{status: receipt.Abandoned, out: receipt.GivenUp}
		}
	}
	for _, a := range []receipt.Action{receipt.Configure, receipt.Restart} {
		for _, first := range receipt.Verdicts() {
			for _, second := range receipt.Verdicts() {
				if a == receipt.Restart && (first == receipt.VerdictFinish || second == receipt.VerdictFinish) {
					continue
				}
				node := receipt.NodeID(strings.Join([]string{a.String(), first.String(), second.String()}, "-"))
				r := b.Unknown(node, a)
				b.Clock.Add(TTL + Skew + time.Second)
				r, err := b.decide(b.shownIdle(r), first)
				b.ok(err)
				b.Reopen()
				if second == receipt.VerdictFinish && first == receipt.VerdictAbandon { // its job is over
					_, err := b.decide(r, second)
					b.is(err, receipt.ErrStale)
					continue
				}
				if first == second {
					_, err := b.decide(r, second)
					b.is(err, receipt.ErrStale)
					continue
				}
				stale := r
				r, err = b.decide(r, second)
				b.ok(err)
				want := ends(a, second)
				n := b.Node(node)
				if r.Status != want.status || n.Out != want.out || (n.Job != "") != (want.job != 0) || n.Open != "" {
					b.T.Errorf("%s: %s, node %+v, want %+v", node, r.Status, n, want)
				}
				if n.Job != "" {
					if job := b.Job(n.Job, want.job, 0); (job.Finish == r.ID) != (second == receipt.VerdictFinish) || job.Incarnation != r.Incarnation {
						b.T.Errorf("%s: job %+v", node, job)
					}
				}
				if d := r.Decisions; len(d) != 2 || d[0].Verdict != first || d[1].Verdict != second || d[1].Supersedes != d[0].Seq {
					b.T.Errorf("%s: decisions %+v", node, d)
				}
				_, err = b.decide(stale, first)
				b.is(err, receipt.ErrStale)
				b.Reopen()
			}
		}
	}
}

// testSupersedeTooLate: not while the worker goes by the verdict, and not once something was begun after it.
func testSupersedeTooLate(b *Bench) {
	r := b.Unknown("n1", receipt.Configure)
	b.Clock.Add(TTL + Skew + time.Second)
	r, err := b.decide(b.shownIdle(r), receipt.VerdictNotApplied)
	b.ok(err)
	job, err := b.Store.Claim(b.Ctx(), r.Job)
	b.ok(err)
	_, err = b.decide(r, receipt.VerdictApplied)
	b.is(err, journal.ErrInFlight)
	b.Done(job.ID, receipt.Configure, Life(1), receipt.NeverSent, journal.Next{Event: receipt.Requeue, Why: "not sent"})
	_, err = b.decide(r, receipt.VerdictApplied)
	b.is(err, receipt.ErrStale)

	// What was not settled by a verdict has none to take back.
	settled := b.Done(b.Claimed("n2").ID, receipt.Configure, Life(1), receipt.ReplyApplied, journal.Next{})
	_, err = b.decide(settled, receipt.VerdictNotApplied)
	b.is(err, receipt.ErrStale)
}

// testContradict: a verdict against the evidence needs to be insisted on, and is marked.
func testContradict(b *Bench) {
	r := b.Unknown("n1", receipt.Configure)
	r, err := b.Store.Note(b.Ctx(), r.ID, []receipt.Evidence{b.SawReply(receipt.ReplyApplied, "Wrote 3 lines")}, nil)
	b.ok(err)
	b.Clock.Add(TTL + Skew + time.Second)
	d := journal.Decision{Receipt: b.shownIdle(r).ID, Verdict: receipt.VerdictNotApplied, By: "me", Reason: "the file is gone", Evidence: "ls shows no file"}
	now, err := b.Store.Receipt(r.ID)
	b.ok(err)
	d.Seen = now.Version
	_, err = b.Store.Decide(b.Ctx(), d)
	b.is(err, journal.ErrContradicted)
	d.Contradict = true
	got, err := b.Store.Decide(b.Ctx(), d)
	b.ok(err)
	if last := got.Decisions[0]; last.Contradicts == "" || last.Evidence != d.Evidence {
		b.T.Errorf("decision %+v", last)
	}
	// Insisting where nothing contradicts marks nothing.
	other := b.Unknown("n2", receipt.Configure)
	b.Clock.Add(TTL + Skew + time.Second)
	other = b.shownIdle(other)
	got, err = b.Store.Decide(b.Ctx(), journal.Decision{Receipt: other.ID, Seen: other.Version, Verdict: receipt.VerdictApplied, By: "me", Reason: "seen", Contradict: true})
	b.ok(err)
	if got.Decisions[0].Contradicts != "" {
		b.T.Errorf("decision %+v", got.Decisions[0])
	}
}

// testAudit: every act of a person is on record, and neither pruning nor a new start takes one away.
func testAudit(b *Bench) {
	r := b.Unknown("n1", receipt.Configure)
	r, err := b.Store.Note(b.Ctx(), r.ID, []receipt.Evidence{b.SawReply(receipt.ReplyFailed, "\x1b[2Jhalf done")}, nil)
	b.ok(err)
	b.Clock.Add(TTL + Skew + time.Second)
	_, err = b.decide(r, receipt.VerdictAbandon)
	b.ok(err)
	_, err = b.Store.AdmitByHand(b.Ctx(), "n1", "me", "mended")
	b.ok(err)
	_, err = b.Store.SetPause(b.Ctx(), "me", "maintenance")
	b.ok(err)
	_, err = b.Store.SetPause(b.Ctx(), "you", "also") // changes nothing
	b.ok(err)
	_, err = b.Store.Resume(b.Ctx(), "you")
	b.ok(err)
	_, err = b.Store.Resume(b.Ctx(), " ")
	b.is(err, receipt.ErrInvalid)
	b.Clock.Add(1000 * time.Hour)
	b.Reopen()
	_, err = b.Store.Prune(b.Ctx(), b.Clock.Now().Add(-time.Hour))
	b.ok(err)
	acts, err := b.Store.Audit(0)
	b.ok(err)
	var did []string
	for i, a := range acts {
		did = append(did, string(a.Did)+" by "+a.By)
		if a.At.IsZero() || i > 0 && a.Seq <= acts[i-1].Seq {
			b.T.Errorf("act %+v", a)
		}
	}
	b.same(did, []string{"verdict by me", "admit by me", "pause by me", "resume by you"})
	first := acts[0]
	if first.Receipt != r.ID || first.Verdict != receipt.VerdictAbandon || first.Seen != r.Version || len(first.Saw) != 1 || first.Reason != "looked at it" ||
		!strings.Contains(first.Saw[0], "half done") || strings.Contains(first.Saw[0], "\x1b") || acts[3].Result == "" {
		b.T.Errorf("acts %+v", acts)
	}
	some, err := b.Store.Audit(acts[2].Seq)
	b.ok(err)
	b.same(some, acts[2:])
}

// testRelease ends holds and waits, and nothing else.
func testRelease(b *Bench) {
	_, err := b.Store.Release(b.Ctx(), "never-seen", "me", "x")
	b.is(err, journal.ErrNotFound)
	job := b.Claimed("n1")
	_, err = b.Store.Move(b.Ctx(), job.ID, journal.Next{Event: receipt.End, Result: receipt.Deferred, Why: "later", HoldUntil: b.Clock.Now().Add(time.Hour)})
	b.ok(err)
	b.Admit("n1", journal.Held)
	_, err = b.Store.Release(b.Ctx(), "n1", "me", " ")
	b.is(err, receipt.ErrInvalid)
	_, err = b.Store.Release(b.Ctx(), "n1", "me", "it is ready")
	b.ok(err)
	_, err = b.Store.Release(b.Ctx(), "n1", "me", "again")
	b.is(err, journal.ErrNotHeld)
	b.Admit("n1", journal.Admitted)

	waits := b.Claimed("n2")
	_, err = b.Store.Move(b.Ctx(), waits.ID, journal.Next{Event: receipt.Requeue, Why: "later", NotBefore: b.Clock.Now().Add(time.Hour)})
	b.ok(err)
	_, err = b.Store.Release(b.Ctx(), "n2", "me", "now")
	b.ok(err)
	if job := b.Job(waits.ID, receipt.Queued, 0); !job.NotBefore.IsZero() {
		b.T.Errorf("job %+v", job)
	}
	out := b.Unknown("n3", receipt.Configure)
	b.Clock.Add(TTL + Skew + time.Second)
	_, err = b.decide(out, receipt.VerdictAbandon)
	b.ok(err)
	_, err = b.Store.Release(b.Ctx(), "n3", "me", "let it in")
	b.is(err, journal.ErrNotHeld)
	acts, err := b.Store.Audit(0)
	b.ok(err)
	if len(acts) != 3 || acts[0].Did != journal.DidRelease || acts[0].Node != "n1" || acts[1].Node != "n2" {
		b.T.Errorf("acts %+v", acts)
	}
}

// testSupersedeNewWork: what is decided of one life of a node never becomes work on another. The node was admitted by hand, and nobody
// knows yet whether it has a new life.
func testSupersedeNewWork(b *Bench) {
	for _, v := range []receipt.Verdict{receipt.VerdictApplied, receipt.VerdictNotApplied} {
		node := receipt.NodeID("now-" + v.String())
		r := b.Unknown(node, receipt.Configure)
		b.Clock.Add(TTL + Skew + time.Second)
		r, err := b.decide(b.shownIdle(r), receipt.VerdictAbandon)
		b.ok(err)
		job, err := b.Store.AdmitByHand(b.Ctx(), node, "me", "again")
		b.ok(err)
		if job.Incarnation.Known() {
			b.T.Fatalf("a new job has %s", job.Incarnation)
		}
		r, err = b.decide(r, v)
		b.ok(err)
		if job := b.Job(job.ID, receipt.Queued, 0); job.Incarnation != r.Incarnation {
			b.T.Errorf("%s: the job is open to any life: %+v", v, job)
		}
		b.Reopen()
	}
}
