package receipt

import (
	"fmt"
	"slices"
)

const (
	// maxFailed is how many receipts of one action may end failed in one incarnation before the node is held as exhausted.
	maxFailed = 3
	// maxReceipts is how many receipts of any kind one incarnation may have: a node that refuses or loses everything for
	// hours needs a person, and its history must not grow without bound.
	maxReceipts = 100
)

// History is what one incarnation of a node has been through: every receipt of it, in sequence order.
type History struct {
	Receipts []Receipt
	// Forgiven is the sequence number of the operator's last "admit" of the node: receipts before it that failed or were
	// abandoned no longer stand in the way of the same action, nor do restarts and shutdowns that the node evidently
	// outlived. A configure that was applied still does, and so does any configure where keys are concerned.
	Forgiven Seq
}

// MayBegin decides whether an effect may get a new receipt. It is the whole of the rule "the same effect is never sent twice
// on a guess": nil, or ErrRepeat with the receipt that forbids it. The rule holds across jobs: a second job on the same
// incarnation inherits what the first did.
func (h History) MayBegin(a Action) error {
	failed, counted := 0, 0
	for _, r := range h.Receipts {
		forbid := func(why string) error {
			return fmt.Errorf("%s on %s: %w: receipt %s (%s, %s) %s", a, r.Node, ErrRepeat, r.ID, r.Action, r.Status, why)
		}
		if r.Seq >= h.Forgiven {
			counted++
		}
		switch {
		case r.Status.Open():
			return forbid("is open")
		case counted >= maxReceipts:
			return forbid(fmt.Sprintf("is number %d of this incarnation, and the node is still not provisioned", counted))
		case r.Action == ReleaseUpdate && r.Status == Applied:
			return forbid("replaced the server's program: this incarnation is about to end")
		case a.Repeatable() && r.Action == Configure:
			return forbid("exists for this incarnation, and new keys would break what it installed")
		case r.Action == a && r.contradicted():
			return forbid("was decided not to have begun, and since then the node says that it did")
		case a.Repeatable(), r.Action != a, r.Status.Harmless():
		case r.Seq < h.Forgiven && r.forgivable():
		case r.Status != Failed:
			return forbid("may have taken effect")
		default:
			if failed++; failed >= maxFailed {
				return forbid(fmt.Sprintf("is number %d that failed in this incarnation", failed))
			}
		}
	}
	return nil
}

// contradicted reports whether an observation that came after the verdict says that an effect which was taken for not begun did begin. A
// verdict can be overtaken: a request that the node accepted in time may have waited in it. What was known before is the operator's
// to weigh.
func (r Receipt) contradicted() bool {
	if r.Status != NotApplied || r.Action.Repeatable() {
		return false
	}
	decided := Seq(0)
	if n := len(r.Decisions); n > 0 {
		decided = r.Decisions[n-1].Seq
	}
	return slices.ContainsFunc(r.Evidence, func(e Evidence) bool {
		if e.Seq < decided {
			return false
		}
		switch e.Kind {
		case SawReply:
			return e.Reply.Means == ReplyApplied || e.Reply.Means == ReplyFailed
		case SawEvent:
			return e.Event.Tells(r.Action)
		default:
			return false
		}
	})
}

// MayStillRun reports whether an unknown effect may still be waiting in its node although its request has expired: the node was not seen
// as another incarnation, and no answer since the horizon shows that it has done all it accepted. To say not-applied then is a guess.
func (r Receipt) MayStillRun() bool {
	if r.Status != Unknown || r.Action.Repeatable() {
		return false
	}
	same := true
	for _, e := range r.Evidence {
		if e.Kind == SawStats {
			same = e.Stats.Incarnation == r.Incarnation
		}
	}
	return same && !r.ShownIdle()
}

// ShownIdle reports whether the node has shown, since the request can no longer be accepted, that it has done all that it accepted.
func (r Receipt) ShownIdle() bool {
	return slices.ContainsFunc(r.Evidence, func(e Evidence) bool {
		return e.Kind == SawIdle && e.Idle.Incarnation == r.Incarnation && r.Horizon.Passed(e.At)
	})
}

// forgivable reports whether an operator's admit lets the same action be sent again: the node answers in the same incarnation, so
// a restart or a shutdown did not happen, whatever was thought of it.
func (r Receipt) forgivable() bool {
	return r.Status == Failed || r.Status == Abandoned || r.Action == Restart || r.Action == Shutdown
}

// Done is the receipt of an action whose effect stands, or nil: the last one that took effect, unless a later one of the same
// action may have changed the node again. A key whose successor failed half way is no longer the node's key.
func (h History) Done(a Action) *Receipt {
	for i := len(h.Receipts) - 1; i >= 0; i-- {
		r := &h.Receipts[i]
		switch {
		case r.Action != a || r.Status.Harmless():
		case r.Status == Applied:
			return r
		default:
			return nil
		}
	}
	return nil
}

// Finishing is the configure whose fate the next restart is to tell, or nil.
func (h History) Finishing() *Receipt {
	for i := len(h.Receipts) - 1; i >= 0; i-- {
		if r := &h.Receipts[i]; r.Action == Configure {
			if r.Status == Finishing {
				return r
			}
			return nil
		}
	}
	return nil
}

// Found is what a restart's word on a finishing configure makes of it. That the node restarts proves that a configuration is there; it is
// that of this configure only if no other one of the incarnation may have left its own.
func (h History) Found(told Event) Event {
	if told != ProvedApplied {
		return told
	}
	for _, r := range h.Receipts {
		if r.Action == Configure && r.Status != Finishing && !r.Status.Harmless() {
			return ProvedMoot
		}
	}
	return told
}

// Tried reports whether an action of the incarnation was answered with something else than success.
func (h History) Tried(a Action) bool {
	for _, r := range h.Receipts {
		if r.Action == a && (r.Status == Failed || r.Status == Refused) {
			return true
		}
	}
	return false
}

// Doubtful reports whether a request of the incarnation may have been accepted and never answered: it may wait in the node still.
func (h History) Doubtful() bool {
	return slices.ContainsFunc(h.Receipts, func(r Receipt) bool {
		return r.Status == NotApplied || r.Status == Moot || r.Status == Abandoned || r.Status == Finishing
	})
}

// Configured reports whether any configure receipt exists for the incarnation, whatever became of it.
func (h History) Configured() bool {
	for _, r := range h.Receipts {
		if r.Action == Configure {
			return true
		}
	}
	return false
}

// maxUpgrades bounds the upgrades of a node to one version: a server whose version does not change by them would be upgraded for ever.
const maxUpgrades = 3

// UpgradeTries counts how often an upgrade of a node to a version may have been tried in vain. The receipts are all that are known of
// the node, in sequence order; an applied configure begins a new count, and so does the operator's admit.
func UpgradeTries(receipts []Receipt, target string, forgiven Seq) int {
	tries := 0
	for _, r := range receipts {
		switch {
		case r.Action == Configure && r.Status == Applied:
			tries = 0
		case r.Action == ReleaseUpdate && r.Seq >= forgiven && !r.Status.Harmless() && SameVersion(r.Target, target):
			tries++
		}
	}
	return tries
}

// MayUpgrade decides whether a node may be upgraded to a version once more: nil, or ErrRepeat.
func MayUpgrade(receipts []Receipt, target string, forgiven Seq) error {
	if n := UpgradeTries(receipts, target, forgiven); n >= maxUpgrades {
		return fmt.Errorf("%w: %d upgrades to %s changed nothing: see what the repository serves under this version and what the node's log says", ErrRepeat, n, target)
	}
	return nil
}
