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
	if n.Lock != 0 || n.Open == 0 || !n.honest(receipt.Verdict(v)) {
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
	if !n.honest(v) || !take(&n.Left.Verdicts) {
		return false
	}
	i := int(n.Open) - 1
	n.onVerdict(i)
	o.Revoked = true
	step, result := receipt.Resume, receipt.Result(0)
	switch v {
	case receipt.VerdictApplied:
		step, result = afterApplied(o.Action)
	case receipt.VerdictAbandon:
		step, result = receipt.End, receipt.GivenUp
	}
	n.resolve(i, v.Event(), step, result)
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
func (n *next) honest(v receipt.Verdict) bool {
	o := n.open()
	if o == nil {
		return false
	}
	switch v {
	case receipt.VerdictApplied:
		return o.Ran > 0 && o.Did == receipt.ReplyApplied
	case receipt.VerdictNotApplied:
		return o.Ran == 0 || o.Did == receipt.ReplyRefused
	default:
		return true
	}
}
