package model

import "provctl/receipt"

// This file mirrors package sequence: one pass of a worker over the node, step by step.

// claim takes the job: journal.(*Journal).Claim.
func (n *next) claim(w int) bool {
	if n.Workers[w].PC != Idle || n.Workers[w].Orphan || n.Job.Status != receipt.Queued {
		return false
	}
	if n.write(w) {
		n.jobStep(receipt.Claim, 0)
		n.Job.Epoch, n.Job.Begun = n.Workers[w].Epoch, false
		n.Workers[w].PC = Claimed
	}
	return true
}

// meet learns the incarnation: sequence.(*pass).meet.
func (n *next) meet(w int) bool {
	if n.Workers[w].PC != Claimed || n.Node.Mode != Answers {
		return false
	}
	if n.Job.Inc != 0 && n.Job.Inc != n.Node.Inc {
		n.asks(w)
		n.move(w, receipt.End, receipt.Superseded)
		return true
	}
	n.asks(w)
	n.Workers[w].PC, n.Workers[w].Inc, n.Workers[w].Base = Met, n.Node.Inc, Meter{}
	return true
}

// introduce asks for the node's token, under its action mutex, and knows then what comes next: sequence.(*pass).introduce and
// provision.
func (n *next) introduce(w int) bool {
	me := &n.Workers[w]
	if me.PC != Met || n.Node.Mode != Answers || n.busy() && !n.m.has(NoBarrier) {
		return false
	}
	n.asks(w)
	h := n.history(me.Inc)
	if n.m.has(KeepKeyRule) {
		h.Receipts = nil
	}
	me.PC, me.Act = Ready, receipt.Gen25519
	if h.Done(receipt.ReleaseUpdate) != nil { // awaitUpgrade
		if n.Node.Due {
			n.move(w, receipt.Requeue, 0)
		} else {
			n.move(w, receipt.End, receipt.FailedJob)
		}
		return true
	}
	if h.Done(receipt.Configure) != nil || h.Finishing() != nil {
		me.Act = receipt.Restart
	} else if r := h.Done(receipt.Gen25519); r != nil && r.Key != nil {
		me.Act, me.Key = n.advised(), n.Ops[r.Seq-1].Key
	}
	if !me.Act.Repeatable() { // it gets a baseline of its own
		me.Base = Meter{}
	}
	return true
}

// advised is the effect that the helper asks for, who is shown the node's version.
func (n *next) advised() receipt.Action {
	switch {
	case n.m.Bounds.Shutdown:
		return receipt.Shutdown
	case n.m.Bounds.Upgrade && !n.Node.Latest:
		return receipt.ReleaseUpdate
	default:
		return receipt.Configure
	}
}

// busy reports whether the node's action mutex is taken, or waited for.
func (n *next) busy() bool {
	for i := range n.used() {
		if n.Ops[i].Wire == Accepted {
			return true
		}
	}
	return n.Node.Splay
}

// look asks the node once more right before an effect that may not repeat: sequence.(*pass).look.
func (n *next) look(w int) bool {
	me := &n.Workers[w]
	if me.PC != Ready || me.Act.Repeatable() || n.Node.Mode != Answers {
		return false
	}
	n.asks(w)
	if me.Inc != n.Node.Inc && !n.m.has(NoLook) {
		n.move(w, receipt.End, receipt.Superseded)
		return true
	}
	me.PC, me.Base = Looked, Meter{}
	return true
}

// miss ends a pass whose node does not answer: sequence.(*pass).fail.
func (n *next) miss(w int) bool {
	pc := n.Workers[w].PC
	if n.Node.Mode == Answers || pc != Claimed && pc != Met && (pc != Ready || n.Workers[w].Act.Repeatable()) {
		return false
	}
	n.move(w, receipt.End, receipt.Left)
	return true
}

// ready reports whether an effect can be begun now, and there is room to remember it.
func (n *next) ready(w int) bool {
	me := &n.Workers[w]
	return (me.PC == Looked || me.PC == Ready && me.Act.Repeatable()) && n.used() < maxOps
}

// begin signs the request, whose time begins, and makes its receipt durable: journal.(*Journal).Begin.
func (n *next) begin(w int) bool {
	if !n.ready(w) {
		return false
	}
	me := &n.Workers[w]
	if me.Orphan {
		n.newOp(w, 0)
		return true
	}
	if !n.write(w) || !n.mine(w) {
		return true
	}
	if n.Open != 0 || !n.mayBegin(w) { // receipt.ErrRepeat
		n.move(w, receipt.End, receipt.Exhausted)
		return true
	}
	if n.m.has(LateReceipt) {
		n.newOp(w, 0)
		return true
	}
	n.record(w)
	return true
}

func (n *next) newOp(w int, s receipt.Status) int {
	me := &n.Workers[w]
	i := n.used()
	n.Ops[i] = Op{Action: me.Act, Status: s, Epoch: me.Epoch, Inc: me.Inc, Moved: me.Moved}
	if me.Act == receipt.Configure {
		n.Ops[i].Key = me.Key
	}
	me.PC, me.Op, me.Moved = Begun, uint8(i+1), false
	return i
}

func (n *next) record(w int) {
	n.must(n.Open == 0, TwoOpen)
	n.onBegin(n.Workers[w].Act, n.Workers[w].Inc)
	for i := range n.used() { // what came before a later effect is not taken back
		n.Ops[i].Said = 0
	}
	base := n.Workers[w].Base
	i := n.newOp(w, receipt.Pending)
	n.Open, n.Meter, n.Node.Closed = uint8(i+1), base, false
	n.Job.Inc, n.Job.Begun = n.Workers[w].Inc, true
}

// beginFails is a commit that returns an error, after which the worker stops: what was to be recorded is not.
func (n *next) beginFails(w int) bool {
	if !n.ready(w) || n.Workers[w].Orphan || n.Workers[w].Epoch != n.Epoch || !take(&n.Left.Disk) {
		return false
	}
	if n.m.has(IgnoreDisk) {
		n.newOp(w, 0)
		return true
	}
	n.giveUp(w)
	return true
}

// beginFailsRecorded is a commit that returns an error although it is on the disk.
func (n *next) beginFailsRecorded(w int) bool {
	if !n.ready(w) || n.Workers[w].Orphan || n.Workers[w].Epoch != n.Epoch || n.Open != 0 || !n.mayBegin(w) || !take(&n.Left.Disk) {
		return false
	}
	n.record(w)
	n.giveUp(w)
	return true
}

// fence checks that the worker may still publish: fence.(*Fence).Check. If only the time ran out the request is made anew, else
// the worker ends; either way the receipt settles as not sent.
func (n *next) fence(w int) bool {
	me := &n.Workers[w]
	if me.PC != Begun {
		return false
	}
	o := &n.Ops[me.Op-1]
	owner := int(n.Lock) == w+1
	lapsed := !owner && !n.m.has(NoFenceLock) || me.Orphan && !n.m.has(NoFenceJournal) ||
		me.Epoch != n.Epoch && !n.m.has(NoFenceEpoch) || o.Revoked && !n.m.has(NoFenceToken)
	expired := horizon.Passed(now(o.Phase)) && !n.m.has(NoFenceTime)
	if !lapsed && !expired {
		n.must(owner, LostLock)
		me.PC = Fenced
		return true
	}
	me.PC, me.Event = Heard, receipt.NeverSent
	n.settleEffect(w)
	if lapsed {
		n.giveUp(w)
	}
	return true
}

// publish sends the request. If the node is not there the broker says so at once.
func (n *next) publish(w int) bool {
	me := &n.Workers[w]
	if me.PC != Fenced {
		return false
	}
	i := int(me.Op) - 1
	o := &n.Ops[i]
	n.onPublish(i)
	me.PC, o.Wire = Waiting, Flying
	switch {
	case n.Node.Mode != Answers:
		o.Wire, me.PC, me.Event = Over, Heard, receipt.NeverSent
	case o.Phase != Fresh && !n.m.has(NoTTL):
		o.Wire = Over // the node drops it
	}
	if n.m.has(LateReceipt) && o.Status == 0 {
		o.Status, n.Open = receipt.Pending, me.Op
	}
	return true
}

// giveUpWaiting ends the wait at the horizon: internal/choria lastLook.
func (n *next) giveUpWaiting(w int) bool {
	me := &n.Workers[w]
	if me.PC != Waiting || n.Ops[me.Op-1].Phase == Fresh && !n.m.has(Unacknowledged) {
		return false
	}
	me.PC, me.Event = Heard, receipt.Lost
	if n.m.has(RetryUnknown) || n.m.has(Unacknowledged) {
		me.Event = receipt.NeverSent
	}
	return true
}

// settles records the outcome: sequence.(*pass).settle.
func (n *next) settles(w int) bool {
	if n.Workers[w].PC != Heard {
		return false
	}
	n.settleEffect(w)
	return true
}

// told is what the outcome of a restart tells of a configure: sequence.(*pass).told.
func (n *next) told(o *Op, e receipt.Event) receipt.Event {
	if o.Action != receipt.Restart || n.Job.Finish == 0 {
		return 0
	}
	return receipt.ToldByRestart(e, o.reply().Text)
}

// settleEffect settles the effect under way and takes the job's next step: journal.(*Journal).Settle and sequence.(*pass).next.
func (n *next) settleEffect(w int) {
	me := &n.Workers[w]
	i := int(me.Op) - 1
	o := &n.Ops[i]
	if me.Event == receipt.ReplyFailed && n.m.has(RefusedAnyway) {
		me.Event = receipt.ReplyRefused
	}
	goesOn := me.Event == receipt.ReplyApplied && !o.leaves() && o.Action != receipt.ReleaseUpdate
	if !me.Orphan && o.Status != 0 {
		if !n.write(w) {
			return
		}
		revoked := o.Revoked && !n.m.has(SettleRevoked)
		if revoked || o.Epoch != me.Epoch || !n.settle(i, me.Event) {
			n.giveUp(w)
			return
		}
		if o.Action == receipt.Gen25519 && goesOn {
			o.Key = o.Made
		}
		if !n.mine(w) {
			return
		}
		switch {
		case me.Event == receipt.Lost:
			n.jobStep(receipt.Block, 0)
		case me.Event == receipt.NeverSent:
			n.jobStep(receipt.Requeue, 0)
		case n.told(o, me.Event) == receipt.ProvedNotDone:
			n.jobStepTold(receipt.Requeue, 0, receipt.ProvedNotDone)
		case me.Event != receipt.ReplyApplied:
			n.jobStep(receipt.End, receipt.FailedJob)
		case !goesOn:
			n.jobStep(afterApplied(o.Action))
		}
	}
	if !goesOn {
		me.PC = Idle
		return
	}
	me.Act = receipt.Restart
	if o.Action == receipt.Gen25519 {
		me.Act, me.Key = n.advised(), o.Made
	}
	me.PC, me.Op, me.Event, me.Base = Ready, 0, 0, Meter{}
}
