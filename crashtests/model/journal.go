package model

import "provctl/receipt"

// This file mirrors package journal, transaction by transaction. Every function names the one it stands for.

// write reports whether the journal takes a worker's write: journal.(*Journal).admissible. A refused write ends the worker, as
// worker.(*Worker).giveUp does.
func (n *next) write(w int) bool {
	ours := n.Workers[w].Epoch == n.Epoch
	if !ours && !n.m.has(NoWriteEpoch) {
		n.giveUp(w)
		return false
	}
	n.must(ours, StaleWrite)
	return true
}

// mine reports whether a worker's term has claimed the job: journal.(*stage).mine. If not the worker ends.
func (n *next) mine(w int) bool {
	if n.Job.Status == receipt.Claimed && (n.Job.Epoch == n.Workers[w].Epoch || n.m.has(NoWriteEpoch)) {
		return true
	}
	n.giveUp(w)
	return false
}

// jobStep moves the job: journal.(*stage).step.
func (n *next) jobStep(e receipt.JobEvent, result receipt.Result) { n.jobStepTold(e, result, 0) }

// jobStepTold is jobStep with what a restart tells of the configure that it was to find out about.
func (n *next) jobStepTold(e receipt.JobEvent, result receipt.Result, told receipt.Event) {
	if n.Job.Finish != 0 {
		e, result = n.finish(e, result, told)
	}
	to, err := n.Job.Status.Apply(e)
	n.must(err == nil, IllegalMove)
	n.Job.Status = to
	if to == receipt.Ended {
		if result.StaysOut() {
			n.Out, n.OutOf = true, n.Job.Inc
		}
		n.Job = Job{Status: to}
		for i := range n.used() {
			n.Ops[i].Over = n.Ops[i].Said != 0
		}
	}
}

// finish settles the configure that a restart was to find out about, or makes it unknown again: journal.(*stage).tell.
func (n *next) finish(e receipt.JobEvent, result receipt.Result, told receipt.Event) (receipt.JobEvent, receipt.Result) {
	switch {
	case told != 0:
	case e != receipt.End:
		return e, result
	case result == receipt.Provisioned:
		told = receipt.ProvedApplied
	case result == receipt.Superseded || result == receipt.GivenUp:
		told = receipt.ProvedMoot
	default:
		told = receipt.Withdrawn
	}
	i := int(n.Job.Finish) - 1
	told = n.history(n.Ops[i].Inc).Found(told)
	n.Job.Finish = 0
	n.must(n.settle(i, told), IllegalMove)
	if told != receipt.Withdrawn {
		return e, result
	}
	n.must(n.Open == 0, TwoOpen)
	n.Open, n.Meter.Excess = uint8(i+1), 2 // its baseline is from before the restart
	return receipt.Block, 0
}

// settle moves a receipt: journal.(*stage).settle.
func (n *next) settle(i int, e receipt.Event) bool {
	o := &n.Ops[i]
	to, err := o.Status.Apply(e)
	if err != nil && n.m.has(SettleOverwrite) {
		to, err = receipt.Pending.Apply(e)
	}
	if err != nil {
		return false
	}
	n.must(o.Status.Open() || o.Status == receipt.Finishing || o.Said != 0 && e == receipt.Withdrawn, OutcomeChanged)
	was := o.Status
	o.Status = to
	if !to.Open() {
		if int(n.Open) == i+1 {
			n.Open = 0
		}
		n.onOutcome(i, e, was)
	}
	return true
}

// mayBegin asks receipt.History.MayBegin and receipt.MayUpgrade: journal.(*stage).begin.
func (n *next) mayBegin(w int) bool {
	if n.Workers[w].Act == receipt.ReleaseUpdate && receipt.MayUpgrade(n.known(), target, 0) != nil {
		return false
	}
	h := n.history(n.Workers[w].Inc)
	if n.m.has(KeepKeyRule) || n.m.has(ForgetHistory) {
		kept := h.Receipts[:0]
		for _, r := range h.Receipts {
			if r.Status.Open() || n.m.has(KeepKeyRule) && r.Action != receipt.Configure {
				kept = append(kept, r)
			}
		}
		h.Receipts = kept
	}
	if n.m.has(NoContradiction) {
		for k := range h.Receipts {
			h.Receipts[k].Evidence = nil
		}
	}
	return h.MayBegin(n.Workers[w].Act) == nil
}

// move requeues or ends the job of a pass: journal.(*Journal).Move, called by worker.(*Worker).move.
func (n *next) move(w int, e receipt.JobEvent, result receipt.Result) {
	if !n.Workers[w].Orphan {
		if !n.write(w) || !n.mine(w) {
			return
		}
		if n.Open != 0 { // journal.ErrBlocked
			n.giveUp(w)
			return
		}
		n.jobStep(e, result)
	}
	n.Workers[w].PC = Idle
}

// resolve settles an unknown receipt and moves its job: journal.(*stage).resolve.
func (n *next) resolve(i int, e receipt.Event, step receipt.JobEvent, result receipt.Result, told receipt.Event) {
	n.must(n.settle(i, e), IllegalMove)
	n.jobStepTold(step, result, told)
}

// afterApplied is what becomes of the job then: journal.(*stage).afterApplied.
func afterApplied(a receipt.Action) (receipt.JobEvent, receipt.Result) {
	switch a {
	case receipt.Restart:
		return receipt.End, receipt.Provisioned
	case receipt.Shutdown:
		return receipt.End, receipt.ShutDown
	case receipt.ReleaseUpdate:
		return receipt.End, receipt.Upgraded
	default:
		return receipt.Resume, 0
	}
}

// afterProof is what becomes of the job then: journal.(*stage).afterProof.
func afterProof(r receipt.Receipt, p receipt.Proof) (receipt.JobEvent, receipt.Result, receipt.Event) {
	a := r.Action
	switch {
	case p.Rule == receipt.RuleNewStart && (a != receipt.ReleaseUpdate || p.Event != receipt.ProvedApplied):
		return receipt.End, receipt.Superseded, 0
	case p.Event == receipt.ProvedApplied:
		step, result := afterApplied(a)
		return step, result, 0
	case p.Rule == receipt.RuleLeft:
		return receipt.End, receipt.Left, receipt.ProvedMoot
	default:
		return receipt.Resume, 0, r.Tells()
	}
}

// raiseEpoch begins a term: journal.(*Journal).RaiseEpoch. What the former term asked of the node the new one does not know.
func (n *next) raiseEpoch() uint8 {
	was := n.Epoch
	if !n.m.has(SameEpoch) || was == 0 {
		n.Epoch++
	}
	n.must(n.Epoch > was, EpochBack)
	if n.Meter.Asked {
		n.Meter.Asked = false
		bump(&n.Meter.Excess)
	}
	return n.Epoch
}

// maxRequeues is the default of the configuration's max_requeues.
const maxRequeues = 2

// recoverJob settles what an earlier term left: journal.(*Journal).Recover.
func (n *next) recoverJob(term uint8) {
	if n.Job.Status != receipt.Claimed || n.Job.Epoch == term || n.m.has(DropJob) {
		return
	}
	switch {
	case n.Open != 0 && n.m.has(RequeueOpen):
		n.settle(int(n.Open)-1, receipt.NeverSent)
		n.jobStep(receipt.Requeue, 0)
	case n.Open != 0:
		n.must(n.settle(int(n.Open)-1, receipt.Lost), IllegalMove)
		n.jobStep(receipt.Block, 0)
	case n.Job.Begun:
		n.jobStep(receipt.Requeue, 0)
	default:
		if n.Job.Requeues++; n.Job.Requeues <= maxRequeues {
			n.jobStep(receipt.Requeue, 0)
		} else {
			n.jobStep(receipt.End, receipt.Exhausted)
		}
	}
}

// note adds an observation to the open receipt by the real receipt.Note, and keeps what it kept.
func (n *next) note(o Obs) {
	r := n.receipt(int(n.Open) - 1)
	if !r.Note(o.evidence(len(n.Seen) + 1)) {
		return
	}
	var kept [maxSeen]Obs
	last := len(r.Evidence) - 1
	for k, e := range r.Evidence[:last] {
		kept[k] = n.Seen[e.Seq-1]
	}
	kept[last] = o
	n.Seen = kept
}

func bump(count *uint8) { *count = min(*count+1, 2) }
