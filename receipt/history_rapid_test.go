package receipt_test

import (
	"testing"

	"pgregory.net/rapid"

	"provctl/receipt"
)

// life is a node that obeys: it takes only what MayBegin lets through, and remembers by itself what may have happened to it.
type life struct {
	h      receipt.History
	seq    receipt.Seq
	mayBe  map[receipt.Action]int // how often each effect may have taken effect, failures aside, since it was last forgiven
	failed map[receipt.Action]int // how often each failed, perhaps half way, since it was last forgiven
	config bool                   // a configure was ever begun

	upgraded bool // the server was replaced: nothing more may begin
}

func (l *life) open() *receipt.Receipt {
	for i := range l.h.Receipts {
		if l.h.Receipts[i].Status.Open() {
			return &l.h.Receipts[i]
		}
	}
	return nil
}

// recent counts the receipts since the last admit.
func (l *life) recent() int {
	n := 0
	for _, r := range l.h.Receipts {
		if r.Seq >= l.h.Forgiven {
			n++
		}
	}
	return n
}

func (l *life) begin(t *rapid.T, a receipt.Action) {
	key := a == receipt.Gen25519 || a == receipt.GenCSR
	if recent := l.recent(); recent >= 100 { // a hundred receipts are enough for any incarnation
		if err := l.h.MayBegin(a); err == nil {
			t.Fatalf("%s allowed after %d receipts", a, recent)
		}
		return
	}
	open, before := l.open(), l.mayBe[a]
	err := l.h.MayBegin(a)
	switch {
	case l.upgraded && err == nil:
		t.Fatalf("%s allowed although the server was replaced", a)
	case l.upgraded:
		return
	case err == nil && open != nil:
		t.Fatalf("%s allowed while %s of %s is open", a, open.ID, open.Action)
	case err == nil && key && l.config:
		t.Fatalf("%s allowed although a configure was begun", a)
	case err == nil && !key && before > 0:
		t.Fatalf("%s allowed although it may have taken effect %d times: %v", a, before, l.h)
	case err == nil && !key && l.failed[a] >= 3:
		t.Fatalf("%s allowed after %d failures", a, l.failed[a])
	case err != nil && open == nil && !(key && l.config) && (key || before == 0 && l.failed[a] < 3):
		t.Fatalf("%s refused without a reason: %v", a, err)
	case err != nil:
		return
	}
	l.seq++
	r := sample(a, receipt.Pending)
	r.Seq, r.Version = l.seq, l.seq
	l.h.Receipts = append(l.h.Receipts, r)
	l.config = l.config || a == receipt.Configure
}

func (l *life) move(t *rapid.T, e receipt.Event) {
	r := l.open()
	if r == nil && len(l.h.Receipts) > 0 { // a verdict is taken back, or a restart tells: of the last receipt alone
		r = &l.h.Receipts[len(l.h.Receipts)-1]
	}
	if r == nil || r.Seq < l.h.Forgiven {
		return
	}
	to, err := r.Status.Apply(e)
	if err != nil {
		return
	}
	switch r.Status {
	case receipt.Applied, receipt.Abandoned, receipt.Finishing:
		l.mayBe[r.Action]--
		l.upgraded = l.upgraded && r.Action != receipt.ReleaseUpdate
	}
	l.seq++
	r.Status, r.Version = to, l.seq
	switch to {
	case receipt.Applied, receipt.Moot, receipt.Abandoned, receipt.Finishing:
		l.mayBe[r.Action]++
		l.upgraded = l.upgraded || r.Action == receipt.ReleaseUpdate && to == receipt.Applied
	case receipt.Failed:
		l.failed[r.Action]++
	case receipt.Refused, receipt.NotSent, receipt.NotApplied, receipt.Unknown:
	default:
		t.Fatalf("%s leads to %s", e, to)
	}
}

// admit is an operator's "admit": abandoned and failed receipts before it no longer count, nor do restarts and shutdowns that
// the incarnation outlived; all others do.
func (l *life) admit() {
	if l.open() != nil {
		return
	}
	l.seq++
	l.h.Forgiven = l.seq
	clear(l.failed)
	clear(l.mayBe)
	for _, r := range l.h.Receipts {
		outlived := r.Action == receipt.Restart || r.Action == receipt.Shutdown
		if !outlived && (r.Status == receipt.Applied || r.Status == receipt.Moot || r.Status == receipt.Finishing) {
			l.mayBe[r.Action]++
		}
	}
}

// TestNothingIsRepeatedOnAGuess walks random lives of one incarnation.
func TestNothingIsRepeatedOnAGuess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &life{mayBe: map[receipt.Action]int{}, failed: map[receipt.Action]int{}}
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) { l.begin(t, rapid.SampledFrom(receipt.Actions()).Draw(t, "action")) },
			"move":  func(t *rapid.T) { l.move(t, rapid.SampledFrom(receipt.Events()).Draw(t, "event")) },
			"admit": func(t *rapid.T) {
				if rapid.IntRange(0, 4).Draw(t, "rarely") == 0 {
					l.admit()
				}
			},
			"": func(t *rapid.T) {
				open := 0
				for _, r := range l.h.Receipts {
					if r.Status.Open() {
						open++
					}
				}
				if open > 1 {
					t.Fatalf("%d open receipts", open)
				}
			},
		})
	})
}
