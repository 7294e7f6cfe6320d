package model

import "provctl/receipt"

// This file is the operator: verdicts through the running worker, or on the journal without one, and nodes admitted by hand.

// decide has the running worker record a verdict: journal.(*Journal).Decide.
func (n *next) decide(v int) bool {
	for w := range n.Workers {
		if n.listens(w) {
			return n.verdict(receipt.Verdict(v))
		}
	}
	return false
}

// decideOffline takes the free lock, begins a term, recovers, and decides: package reconcile.
func (n *next) decideOffline(v int) bool {
	if n.Lock != 0 || n.Open == 0 || !n.open().honest(receipt.Verdict(v)) {
		return false
	}
	n.recoverJob(n.raiseEpoch())
	return n.verdict(receipt.Verdict(v))
}

func (n *next) verdict(v receipt.Verdict) bool {
	o := n.open()
	if o == nil || o.Status != receipt.Unknown || !horizon.Passed(now(o.Phase)) && !n.m.has(EarlyVerdicts) {
		return false
	}
	if v == receipt.VerdictNotApplied && n.receipt(int(n.Open)-1).MayStillRun() && !n.m.has(NotIdle) {
		return false // journal.ErrMayStillRun
	}
	if !o.honest(v) || v == receipt.VerdictFinish && o.Action != receipt.Configure || !take(&n.Left.Verdicts) {
		return false
	}
	i := int(n.Open) - 1
	n.onVerdict(i)
	o.Revoked, o.Said, o.Idle = true, v, !n.receipt(i).MayStillRun()
	step, result := afterVerdict(o.Action, v)
	if v == receipt.VerdictFinish {
		n.Job.Finish = uint8(i + 1)
	}
	n.resolve(i, v.Event(), step, result, 0)
	return true
}

// afterVerdict is what becomes of the job then: journal.(*stage).afterVerdict.
func afterVerdict(a receipt.Action, v receipt.Verdict) (receipt.JobEvent, receipt.Result) {
	switch v {
	case receipt.VerdictApplied:
		return afterApplied(a)
	case receipt.VerdictAbandon:
		return receipt.End, receipt.GivenUp
	default:
		return receipt.Resume, 0
	}
}

// supersede takes the verdict on the last effect back for another one: journal.(*stage).withdraw and reconclude.
func (n *next) supersede(v int) bool {
	verdict, i := receipt.Verdict(v), n.used()-1
	if i < 0 || n.Open != 0 || n.Job.Status == receipt.Claimed || !n.listens(0) && !n.listens(1) {
		return false
	}
	o := &n.Ops[i]
	if o.Said == 0 || o.Said == verdict || !o.honest(verdict) || verdict == receipt.VerdictNotApplied && !o.Idle ||
		verdict == receipt.VerdictFinish && (o.Action != receipt.Configure || o.Over) || !take(&n.Left.Verdicts) {
		return false
	}
	if int(n.Job.Finish) == i+1 {
		n.Job.Finish = 0
	}
	if !n.settle(i, receipt.Withdrawn) {
		return false // something else than a verdict had the last word
	}
	n.must(n.settle(i, verdict.Event()), IllegalMove)
	n.Out, n.OutOf, o.Said = false, 0, verdict
	step, result := afterVerdict(o.Action, verdict)
	active := n.Job.Status == receipt.Queued
	switch {
	case step == receipt.End && active:
		n.jobStep(step, result)
	case step == receipt.End:
		n.Out, n.OutOf = result.StaysOut(), o.Inc
	default:
		n.Job.Status, n.Job.Inc = receipt.Queued, o.Inc
	}
	if verdict == receipt.VerdictFinish {
		n.Job.Finish = uint8(i + 1)
	}
	return true
}

// admit takes a node that is held or out, and forgives what failed, was abandoned, or was outlived: journal.(*Journal).AdmitByHand.
// From then on repeating that is what the operator asked for.
func (n *next) admit(w int) bool {
	if !n.listens(w) || n.Open != 0 || n.Node.Mode != Answers || n.Job.Status != receipt.Ended {
		return false
	}
	if !take(&n.Left.Verdicts) || !take(&n.Left.Jobs) {
		return false
	}
	n.Out, n.OutOf, n.Job, n.Forgave = false, 0, Job{Status: receipt.Queued}, uint8(n.used()+1)
	n.Node.Restarted = n.Node.Restarted && n.Node.Splay
	for i := range n.used() {
		if o := n.Ops[i]; o.Action == receipt.Configure && o.Status == receipt.Abandoned {
			n.Node.Configured = false
		}
	}
	return true
}

// honest reports whether an operator who looked at the node would say so.
func (o *Op) honest(v receipt.Verdict) bool {
	switch v {
	case receipt.VerdictApplied:
		return o.Ran > 0 && o.Did == receipt.ReplyApplied
	case receipt.VerdictNotApplied:
		return o.Ran == 0 || o.Did == receipt.ReplyRefused
	default:
		return true
	}
}
