package receipt

import "fmt"

// maxFailed is how many receipts of one action may end failed in one incarnation before the node is held as exhausted.
const maxFailed = 3

// History is what one incarnation of a node has been through: every receipt of it, in sequence order.
type History struct {
	Receipts []Receipt
	// Forgiven is the sequence number of the operator's last "admit" of the node: receipts before it that failed or were
	// abandoned no longer stand in the way of the same action.
	Forgiven Seq
}

// MayBegin decides whether an effect may get a new receipt. It is the whole of the rule "the same effect is never sent twice
// on a guess": nil, or ErrRepeat with the receipt that forbids it. The rule holds across jobs: a second job on the same
// incarnation inherits what the first did.
func (h History) MayBegin(a Action) error {
	failed := 0
	for _, r := range h.Receipts {
		forbid := func(why string) error {
			return fmt.Errorf("%s on %s: %w: receipt %s (%s, %s) %s", a, r.Node, ErrRepeat, r.ID, r.Action, r.Status, why)
		}
		switch {
		case r.Status.Open():
			return forbid("is open")
		case a.Repeatable() && r.Action == Configure:
			return forbid("exists for this incarnation, and new keys would break what it installed")
		case a.Repeatable(), r.Action != a, r.Status.Harmless():
		case r.Seq < h.Forgiven && (r.Status == Failed || r.Status == Abandoned):
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

// Configured reports whether any configure receipt exists for the incarnation, whatever became of it.
func (h History) Configured() bool {
	for _, r := range h.Receipts {
		if r.Action == Configure {
			return true
		}
	}
	return false
}
