package journaltest

import (
	"time"

	"provctl/journal"
	"provctl/receipt"
)

// finishing is a configure that the verdict finish was given on, and its job claimed again.
func (b *Bench) finishing(node receipt.NodeID) (receipt.Receipt, receipt.Job) {
	b.T.Helper()
	r := b.Unknown(node, receipt.Configure)
	_, err := b.decide(r, receipt.VerdictFinish)
	b.is(err, receipt.ErrBeforeHorizon)
	b.Clock.Add(TTL + Skew + time.Second)
	r, err = b.decide(r, receipt.VerdictFinish)
	b.ok(err)
	if r.Status != receipt.Finishing || b.Node(node).Open != "" {
		b.T.Fatalf("after the verdict it is %+v", r)
	}
	if job := b.Job(r.Job, receipt.Queued, 0); job.Finish != r.ID {
		b.T.Fatalf("the job does not know what it is to find out: %+v", job)
	}
	job, err := b.Store.Claim(b.Ctx(), r.Job)
	b.ok(err)
	return r, job
}

func (b *Bench) status(id receipt.ReceiptID, want receipt.Status) receipt.Receipt {
	b.T.Helper()
	r, err := b.Store.Receipt(id)
	b.ok(err)
	if r.Status != want {
		b.T.Errorf("receipt %s of %s is %s (%s), want %s", id, r.Node, r.Status, r.Why, want)
	}
	return r
}

// testFinish: what a restart tells of an unknown configure that it was sent to find out about.
func testFinish(b *Bench) {
	failed := journal.Next{Event: receipt.End, Result: receipt.FailedJob, Why: "it failed"}
	requeue := func(told receipt.Event) journal.Next {
		return journal.Next{Event: receipt.Requeue, Why: "as told", Told: told}
	}
	for _, tc := range []struct {
		node   receipt.NodeID
		event  receipt.Event
		next   journal.Next
		config receipt.Status
		job    receipt.JobStatus
		result receipt.Result
	}{
		{"accepted", receipt.ReplyApplied, journal.Next{Event: receipt.End, Result: receipt.Provisioned}, receipt.Applied, receipt.Ended, receipt.Provisioned},
		{"accepts-and-says-so", receipt.ReplyApplied, journal.Next{Event: receipt.End, Result: receipt.Provisioned, Told: receipt.ProvedApplied}, receipt.Applied, receipt.Ended, receipt.Provisioned},
		{"keeps-provisioning", receipt.ReplyRefused, requeue(receipt.ProvedNotDone), receipt.NotApplied, receipt.Queued, 0},
		{"unparsable", receipt.ReplyRefused, requeue(receipt.ProvedFailed), receipt.Failed, receipt.Queued, 0},
		{"refused-otherwise", receipt.ReplyRefused, failed, receipt.Unknown, receipt.Blocked, 0},
		{"absent", receipt.NeverSent, journal.Next{Event: receipt.End, Result: receipt.Left, Why: "nobody answers"}, receipt.Unknown, receipt.Blocked, 0},
		{"failed", receipt.ReplyFailed, failed, receipt.Unknown, receipt.Blocked, 0},
		{"not-sent", receipt.NeverSent, requeue(0), receipt.Finishing, receipt.Queued, 0},
		{"lost", receipt.Lost, journal.Next{}, receipt.Finishing, receipt.Blocked, 0},
	} {
		config, job := b.finishing(tc.node)
		_, err := b.Store.Begin(b.Ctx(), b.Intent(job.ID, receipt.Configure, config.Incarnation))
		b.is(err, receipt.ErrRepeat) // while its fate is being found out it is not sent again
		restart := b.Done(job.ID, receipt.Restart, config.Incarnation, tc.event, tc.next)
		got := b.status(config.ID, tc.config)
		b.Job(job.ID, tc.job, tc.result)
		if open := b.Node(tc.node).Open; (open != "") != (tc.job == receipt.Blocked) {
			b.T.Errorf("%s: %q is open", tc.node, open)
		}
		if tc.config == receipt.Unknown && (b.Node(tc.node).Open != got.ID || got.Settled != "" || !b.Store.Revoked(got.Token)) {
			b.T.Errorf("%s: %+v", tc.node, got)
		}
		again, err := b.decide(config, receipt.VerdictAbandon)
		b.is(err, receipt.ErrStale)
		if again.ID != "" || restart.ID == config.ID {
			b.T.Errorf("a verdict on what was seen before: %+v", again)
		}
		b.Reopen()
	}
	for node, want := range map[receipt.NodeID]error{"keeps-provisioning": nil, "unparsable": nil, "not-sent": receipt.ErrRepeat} {
		job, err := b.Store.Claim(b.Ctx(), b.Node(node).Job)
		b.ok(err)
		_, err = b.Store.Begin(b.Ctx(), b.Intent(job.ID, receipt.Configure, Life(1)))
		b.is(err, want)
	}
	// One that was decided on once more after nothing was found out.
	r, err := b.Store.Receipt(b.Node("failed").Open)
	b.ok(err)
	r, err = b.decide(r, receipt.VerdictApplied)
	b.ok(err)
	b.Job(r.Job, receipt.Queued, 0)
	if len(r.Decisions) != 2 || r.Decisions[1].Supersedes != 0 {
		b.T.Errorf("decisions %+v", r.Decisions)
	}
}

// testFinishUnknown: the restart that was to find out may itself become unknown.
func testFinishUnknown(b *Bench) {
	for _, tc := range []struct {
		node   receipt.NodeID
		settle func(restart receipt.Receipt) error
		config receipt.Status
		job    receipt.JobStatus
		result receipt.Result
	}{
		{"comes-back", b.seen(func(receipt.Receipt) receipt.Evidence { return b.SawLife(Life(2), 3, 0) }), receipt.Moot, receipt.Ended, receipt.Superseded},
		{"late-refusal", b.seen(func(receipt.Receipt) receipt.Evidence {
			return b.SawReply(receipt.ReplyRefused, "Configuration x"+receipt.RestartKeepsProvisioning)
		}), receipt.NotApplied, receipt.Queued, 0},
		{"late-acceptance", b.seen(func(receipt.Receipt) receipt.Evidence { return b.SawReply(receipt.ReplyApplied, "Restarting") }), receipt.Applied, receipt.Ended, receipt.Provisioned},
		{"leaves", func(r receipt.Receipt) error {
			b.Clock.Add(receipt.LeaveSplay + time.Second)
			gone := receipt.Evidence{Kind: receipt.SawConnections, Source: "broker", At: b.Clock.Now(), Connections: &receipt.ConnectionsSeen{LastClosed: r.RequestTime.Add(time.Second)}}
			return b.seen(func(receipt.Receipt) receipt.Evidence { return gone })(r)
		}, receipt.Moot, receipt.Ended, receipt.Left},
		{"said-applied", b.said(receipt.VerdictApplied), receipt.Applied, receipt.Ended, receipt.Provisioned},
		{"said-not-applied", b.said(receipt.VerdictNotApplied), receipt.Finishing, receipt.Queued, 0},
		{"given-up", b.said(receipt.VerdictAbandon), receipt.Moot, receipt.Ended, receipt.GivenUp},
	} {
		config, job := b.finishing(tc.node)
		restart := b.Done(job.ID, receipt.Restart, config.Incarnation, receipt.Lost, journal.Next{})
		b.Clock.Add(TTL + Skew + time.Second)
		b.ok(tc.settle(restart))
		b.status(config.ID, tc.config)
		b.Job(job.ID, tc.job, tc.result)
		b.Reopen()
	}
}

// seen notes evidence and has the rules conclude from it.
func (b *Bench) seen(what func(receipt.Receipt) receipt.Evidence) func(receipt.Receipt) error {
	return func(r receipt.Receipt) error {
		if _, err := b.Store.Note(b.Ctx(), r.ID, []receipt.Evidence{what(r)}, nil); err != nil {
			return err
		}
		_, proof, err := b.Store.Prove(b.Ctx(), r.ID)
		if proof == nil {
			b.T.Errorf("%s: nothing is proved", r.Node)
		}
		return err
	}
}

func (b *Bench) said(v receipt.Verdict) func(receipt.Receipt) error {
	return func(r receipt.Receipt) error {
		_, err := b.decide(b.shownIdle(r), v)
		return err
	}
}

// testFinishMisplaced: only a configure can be found out about.
func testFinishMisplaced(b *Bench) {
	r := b.Unknown("n1", receipt.Restart)
	b.Clock.Add(TTL + Skew + time.Second)
	_, err := b.decide(r, receipt.VerdictFinish)
	b.is(err, receipt.ErrInvalid)
	b.status(r.ID, receipt.Unknown)
}
