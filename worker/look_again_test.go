package worker

import (
	"slices"
	"testing"
	"time"

	"provctl/receipt"
)

// TestWhatComesUpDuringALookIsLookedAtNext: an event or a reply that arrives while its node is being looked at must not wait for the
// timer, since that look may not have seen it.
func TestWhatComesUpDuringALookIsLookedAtNext(t *testing.T) {
	r := newRig(t)
	w, _ := r.life(nil)
	w.net = newFakeNet("n")
	w.watches["R"] = &watch{node: "n", horizon: receipt.HorizonOf(time.Now(), time.Hour, 0), next: time.Now(), one: make(chan struct{}, 1)}
	for _, during := range []struct {
		do    func()
		again bool
	}{{func() {}, false}, {func() { w.lookSoon("n") }, true}} {
		w.watches["R"].next = time.Now()
		if due, _ := w.due(); !slices.Equal(due, []receipt.ReceiptID{"R"}) {
			t.Fatalf("due: %v", due)
		}
		during.do()
		w.look(r.ctx, "R")
		if due, _ := w.due(); (len(due) == 1) != during.again {
			t.Errorf("after the look due: %v", due)
		}
		w.watches["R"].looking = false
	}
}

// TestLookThatLastsBeyondItsMomentIsFollowedByAnother: at a moment that lets a rule conclude the node is looked at anew, even if a look
// that began before it ends after it.
func TestLookThatLastsBeyondItsMomentIsFollowedByAnother(t *testing.T) {
	r := newRig(t)
	now := time.Now()
	w, _ := r.life(func(o *Options) {
		o.Now = func() time.Time {
			now = now.Add(2 * time.Second)
			return now
		}
	})
	w.net = newFakeNet("n")
	began := now.Add(2 * time.Second)
	w.watches["R"] = &watch{node: "n", horizon: receipt.HorizonOf(began, time.Second, 0), one: make(chan struct{}, 1)}
	w.look(r.ctx, "R")
	if next := w.watches["R"].next; next.After(began.Add(2 * time.Second)) {
		t.Errorf("the next look is %s after the first began, not soon after the horizon", next.Sub(began))
	}
}
