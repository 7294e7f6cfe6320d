package model

import "provctl/receipt"

// This file is the node: what it does with requests, and when it restarts. See go-choria's provision agent.

// accept has the node validate a request that reached it. One that is past its time is dropped; so is one whose node went away.
func (n *next) accept(i int) bool {
	o := &n.Ops[i]
	if o.Wire != Flying {
		return false
	}
	o.Wire = Over
	spared := o.Moved && n.m.assumes(SteadyWindow)
	if n.Node.Mode == Answers && (o.Phase == Fresh || n.m.has(NoTTL)) && !spared {
		o.Wire = Accepted
		n.strange()
	}
	return true
}

// runs reports whether an accepted request gets the node's action mutex now, and begins its execution.
func (n *next) runs(i int) bool {
	o := &n.Ops[i]
	if o.Wire != Accepted || n.Node.Splay {
		return false
	}
	n.onRun(i)
	bump(&o.Ran)
	o.Wire, o.Answer = Over, true
	return true
}

// runWell executes a request with success. A restart into a configuration that is not there is refused.
func (n *next) runWell(i int) bool {
	if !n.runs(i) {
		return false
	}
	o := &n.Ops[i]
	o.Did = receipt.ReplyApplied
	switch o.Action {
	case receipt.Gen25519:
		n.Node.Key++
		o.Made = n.Node.Key
	case receipt.Configure:
		n.Node.Conf, o.Event = o.Key, true
	case receipt.ReleaseUpdate:
		n.Node.Due, o.Event = true, true
	case receipt.Restart:
		if n.Node.Conf == 0 {
			o.Did = receipt.ReplyRefused
			return true
		}
		n.Node.Splay = true
	case receipt.Shutdown:
		n.Node.Splay, n.Node.Off = true, true
	}
	n.onDone(i)
	return true
}

// runRefused has the node reject a request before any change.
func (n *next) runRefused(i int) bool {
	if !take(&n.Left.Odd) || !n.runs(i) {
		return false
	}
	o := &n.Ops[i]
	o.Did, o.Lives = receipt.ReplyRefused, o.Action == receipt.Restart && n.Node.Conf != 0
	return true
}

// runHalf executes a request that fails after it changed something: the old key is gone, or certificates are written.
func (n *next) runHalf(i int) bool {
	if !take(&n.Left.Odd) || n.Ops[i].leaves() || !n.runs(i) {
		return false
	}
	o := &n.Ops[i]
	o.Did = receipt.ReplyFailed
	if o.Action == receipt.Gen25519 {
		n.Node.Key++
	}
	n.onDone(i)
	return true
}

// runLive executes a configure whose policies cannot be saved: it fails, and its configuration is live.
func (n *next) runLive(i int) bool {
	if !take(&n.Left.Odd) || n.Ops[i].Action != receipt.Configure || !n.runs(i) {
		return false
	}
	o := &n.Ops[i]
	o.Did, o.Lives, n.Node.Conf = receipt.ReplyFailed, true, o.Key
	n.onDone(i)
	return true
}

// dies ends the node's present life: what waited in it is gone.
func (n *next) dies() {
	for i := range n.used() {
		o := &n.Ops[i]
		if o.Wire == Accepted {
			o.Wire = Over
		}
		o.Event = false
	}
	n.Node = Node{
		Inc: n.Node.Inc + 1, Mode: Away, Off: n.Node.Off, Latest: n.Node.Latest || n.Node.Due,
		Key: n.Node.Key, Conf: n.Node.Conf, Closed: true,
	}
}

// leave executes a restart or a shutdown whose splay is over, or the restart after an upgrade.
func (n *next) leave(int) bool {
	if !n.Node.Splay && !n.Node.Due {
		return false
	}
	n.dies()
	return true
}

// execFails has a restart come to nothing when its splay is over; the node only logs that.
func (n *next) execFails(int) bool {
	if !n.Node.Splay && !n.Node.Due || n.Node.Off || !take(&n.Left.Odd) {
		return false
	}
	n.Node.Splay, n.Node.Due = false, false
	n.Node.Restarted = n.Node.Restarted && n.Forgave == 0 // an operator who admitted the node wanted it again
	return true
}

// restartItself has the node restart without being asked.
func (n *next) restartItself(int) bool {
	if n.Node.Mode != Answers || n.Node.Off || !take(&n.Left.Restarts) {
		return false
	}
	n.dies()
	n.window()
	return true
}

// window marks the effects that may not repeat and are between their worker's look and the end of their request's flight: the next
// life could take such a request, and the protocol cannot tell (docs/design.md, "What stays open").
func (n *next) window() {
	for i := range n.Workers {
		if w := &n.Workers[i]; w.PC == Looked {
			w.Moved = true
		}
	}
	for i := range n.used() {
		if o := &n.Ops[i]; !o.Action.Repeatable() && (o.Wire == Unsent || o.Wire == Flying) {
			o.Moved = true
		}
	}
}

// leaves reports whether an effect ends the node's present life.
func (o *Op) leaves() bool { return o.Action == receipt.Restart || o.Action == receipt.Shutdown }

// returns starts the node again: into its configuration if it has one, else in provisioning mode.
func (n *next) returns(int) bool {
	if n.Node.Mode != Away {
		return false
	}
	if n.Node.Off && !take(&n.Left.Restarts) {
		return false
	}
	n.Node.Mode, n.Node.Off = Answers, false
	if n.Node.Conf != 0 {
		n.Node.Mode = Gone
	}
	return true
}

// returnsAnyway starts a configured node in provisioning mode again: its new life did not hold.
func (n *next) returnsAnyway(int) bool {
	if n.Node.Mode != Away || n.Node.Conf == 0 || !take(&n.Left.Odd) {
		return false
	}
	n.Node.Mode, n.Node.Conf = Answers, 0
	return true
}

// strange counts a validated request that no term knows to be its own: an effect, or anybody else's.
func (n *next) strange() {
	if n.Open != 0 {
		bump(&n.Meter.Excess)
	}
	for w := range n.Workers {
		if n.Workers[w].hasBase() {
			bump(&n.Workers[w].Base.Excess)
		}
	}
}

// hasBase reports whether a worker counts from a look that its next receipt will have as its baseline.
func (w Worker) hasBase() bool {
	return w.PC == Met || w.PC == Ready && w.Act.Repeatable() || w.PC == Looked
}

// asks counts a fact that a worker asks of the node: known to its own term, strange to any other.
func (n *next) asks(w int) {
	if n.Open != 0 {
		if n.Workers[w].Epoch == n.Epoch {
			n.Meter.Asked = true
		} else {
			bump(&n.Meter.Excess)
		}
	}
	for o := range n.Workers {
		switch {
		case !n.Workers[o].hasBase():
		case o == w:
			n.Workers[o].Base.Asked = true
		default:
			bump(&n.Workers[o].Base.Excess)
		}
	}
}

// disturbs has somebody else's request reach the node.
func (n *next) disturbs(int) bool {
	if n.Node.Mode != Answers || n.Open == 0 || !take(&n.Left.Foreign) {
		return false
	}
	n.strange()
	return true
}

// take uses up one of a budget; false if nothing is left.
func take(left *uint8) bool {
	if *left == 0 {
		return false
	}
	*left--
	return true
}
