package model

import "provctl/receipt"

// This file is the network between worker and node, and the passing of time.

// loseRequest drops a request on its way.
func (n *next) loseRequest(i int) bool {
	if n.Ops[i].Wire != Flying || !take(&n.Left.Lost) {
		return false
	}
	n.Ops[i].Wire = Over
	return true
}

// loseReply drops a reply on its way.
func (n *next) loseReply(i int) bool {
	if !n.Ops[i].Answer || !take(&n.Left.Lost) {
		return false
	}
	n.Ops[i].Answer = false
	return true
}

// replyArrives brings a reply to all who listen: the worker that waits for it, and those that hold its receipt unknown. If nobody
// listens it is gone. A node's events come before its reply, on the same connection.
func (n *next) replyArrives(i int) bool {
	o := &n.Ops[i]
	if !o.Answer || o.Event {
		return false
	}
	o.Answer = false
	for w := range n.Workers {
		me := &n.Workers[w]
		if me.PC == Waiting && int(me.Op) == i+1 {
			me.PC, me.Event = Heard, o.answer()
		} else if o.Status == receipt.Unknown && n.listens(w) && int(n.Open) == i+1 {
			n.note(Obs{Kind: receipt.SawReply, Phase: o.Phase, Means: o.answer(), Keeps: o.keeps()}) // worker.(*Worker).OnLate
		} else if o.denied() && n.listens(w) && o.Epoch == me.Epoch { // the term that sent it still knows its request
			o.Heard = o.answer()
		}
	}
	return true
}

// eventArrives brings the node's provisioned or upgraded event, which is evidence on whatever receipt of it is open then, or else on
// the last one that was taken for not begun: worker.(*Worker).OnEvent and receiptOf.
func (n *next) eventArrives(i int) bool {
	o := &n.Ops[i]
	if !o.Event {
		return false
	}
	o.Event = false
	seen := Obs{Kind: receipt.SawEvent, Latest: o.Action == receipt.ReleaseUpdate}
	for w := range n.Workers {
		switch {
		case !n.listens(w):
		case n.Open != 0:
			seen.Phase = n.open().Phase
			n.note(seen)
		default:
			n.tell(seen)
		}
	}
	return true
}

// tell notes an event on the last receipt that was taken for not begun and is of the event's action.
func (n *next) tell(seen Obs) {
	last := n.used() - 1
	for i := last; i >= 0; i-- {
		if o := &n.Ops[i]; o.denied() && o.Inc == n.Ops[last].Inc && seen.evidence(0).Event.Tells(o.Action) {
			o.Told = true
			return
		}
	}
}

// listens reports whether a worker's notes reach the journal.
func (n *next) listens(w int) bool {
	me := n.Workers[w]
	return me.current() && !me.Orphan && me.Epoch == n.Epoch
}

// timePasses takes a request, and so every one before it, to its next phase. Where the horizon passes before all is over, somebody
// is slow: the worker, the network, or the node.
func (n *next) timePasses(i int) bool {
	o := &n.Ops[i]
	if o.Phase == o.last() || !n.inUse(i) {
		return false
	}
	phase := o.Phase + 1
	for k := range i + 1 {
		o := &n.Ops[k]
		if o.Phase == Fresh && (o.Wire != Over || o.Answer) && !take(&n.Left.Slow) {
			return false
		}
		o.Phase = max(o.Phase, min(phase, o.last()))
		if o.Phase != Fresh && o.Wire == Flying && !n.m.has(NoTTL) {
			o.Wire = Over // the node will drop it
		}
	}
	return true
}
