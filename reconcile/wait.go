package reconcile

import (
	"context"
	"errors"
	"slices"
	"time"

	"provctl/journal"
	"provctl/receipt"
)

// askAgain is how long a node that may still be at work is given before the next look, and no look is more than a tenth of the time.
const askAgain = time.Second

// waitAndDecide gives each verdict as soon as it can be taken: past the horizon, and for not-applied once the node has shown that it is
// idle, if a worker runs that asks it. No lock is held while it waits.
func waitAndDecide(ctx context.Context, dir string, items []Item, wait Wait, each func(Result)) error {
	for {
		began := time.Now()
		s, err := Look(ctx, dir)
		if err != nil {
			notTried(items, err, each)
			return err
		}
		items = s.follow(items)
		early := map[receipt.ReceiptID]bool{}
		next := time.Duration(1<<63 - 1)
		hold := func(id receipt.ReceiptID, err error) bool {
			left, ok := s.comesLater(err)
			if ok {
				early[id], next = true, min(next, max(left, 10*time.Since(began)))
			}
			return ok
		}
		ready := slices.DeleteFunc(slices.Clone(items), func(i Item) bool { return hold(i.Found.ID, s.Refusal(i)) })
		err = decideNow(ctx, dir, ready, func(r Result) {
			if r.Code == NotTried || !hold(r.Item.Found.ID, r.Err) {
				each(r)
			}
		})
		items = slices.DeleteFunc(items, func(i Item) bool { return !early[i.Found.ID] })
		if err == nil && len(items) > 0 {
			wait.Till(len(items), time.Now().Add(next))
			err = pauseFor(ctx, next)
		}
		if err != nil || len(items) == 0 {
			notTried(items, err, each)
			return err
		}
	}
}

// comesLater tells a refusal that time ends from others, and how long that may take.
func (s Sight) comesLater(err error) (time.Duration, bool) {
	var early *journal.BeforeHorizonError
	switch {
	case errors.As(err, &early):
		return max(early.Left, time.Millisecond), true
	case errors.Is(err, journal.ErrMayStillRun):
		return askAgain, s.Worker
	}
	return 0, false
}

// follow has items that wait go with their receipts, where what came since is only what they wait for. The others have changed.
func (s Sight) follow(items []Item) []Item {
	now := make(map[receipt.ReceiptID]receipt.Receipt, len(s.Open))
	for _, r := range s.Open {
		now[r.ID] = r
	}
	out := slices.Clone(items)
	for n, i := range out {
		r, open := now[i.Found.ID]
		switch {
		case i.Found.Status == 0 || i.Seen != i.Found.Version || r.Version == i.Found.Version:
		case open && onlyIdle(i.Found, r):
			out[n].Found, out[n].Seen = r, r.Version
		default:
			out[n].changed = true
		}
	}
	return out
}

// onlyIdle reports whether all that came to a blocked receipt is that its node, the same process as before, answered and showed itself
// idle. An operator who waits for that has decided with it in mind; whether it contradicts him is checked with the verdict.
func onlyIdle(was, is receipt.Receipt) bool {
	if was.Status != receipt.Unknown || is.Status != receipt.Unknown || len(was.Decisions) != len(is.Decisions) {
		return false
	}
	for _, e := range is.Evidence {
		idle := e.Kind == receipt.SawIdle && e.Idle.Incarnation == was.Incarnation
		stats := e.Kind == receipt.SawStats && e.Stats.Incarnation == was.Incarnation
		if e.Seq > was.Version && !idle && !stats {
			return false
		}
	}
	return true
}
