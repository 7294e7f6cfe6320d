package receipt_test

import (
	"testing"
	"time"

	"provctl/receipt"
)

// TestEventsTellOfTheirOwnEffect: an event that says that an effect was done is a word on that kind of effect alone. It may be late
// news of the effect before, and must then neither prove this one nor keep the counter from proving that it never arrived.
func TestEventsTellOfTheirOwnEffect(t *testing.T) {
	tells := map[receipt.Action]string{receipt.Configure: "provisioned", receipt.ReleaseUpdate: "upgraded"}
	for _, a := range receipt.Actions() {
		for _, kind := range []string{"provisioned", "upgraded", "startup", "shutdown"} {
			r := counted(event(early, kind), stats(late, first, 41, 1), connections(late, 1, time.Time{}))
			r.Action = a
			own := tells[a] == kind
			if p, ok := receipt.ByCounter(r, receipt.History{}, late); ok == own {
				t.Errorf("%s with event %s: the counter proves %s, %t", a, kind, p.Event, ok)
			}
			if p, ok := receipt.ByProvisionedEvent(r, receipt.History{}, late); ok != (own && a == receipt.Configure) {
				t.Errorf("%s with event %s: the event proves %s, %t", a, kind, p.Event, ok)
			}
		}
	}
}
