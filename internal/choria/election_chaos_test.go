package choria

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// rough is a candidate whose connection can be disturbed.
type rough struct {
	*candidate
	proxy *proxy
}

func (r *rough) holds() bool { return r.State().Role != Standby }

// disturb does something that happens to workers.
func (r *rough) disturb(what int) {
	switch what {
	case 0:
		r.resign()
		r.run()
	case 1:
		r.proxy.cut()
	case 2:
		r.proxy.release()
		r.proxy.keepBack()
	default:
		r.proxy.release()
	}
}

// TestAtMostOneHoldsTheKey stops, cuts and silences three candidates at random while it samples them.
func TestAtMostOneHoldsTheKey(t *testing.T) {
	t.Parallel()
	f := streamsBroker(t, 600*time.Millisecond)
	var all []*rough
	for i := range 3 {
		e, p := behind(t, f)
		all = append(all, &rough{campaign(t, e, fmt.Sprintf("worker %d", i)), p})
	}
	seed := uint64(time.Now().UnixNano())
	dice := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	wins, holder := 0, -1
	next := time.Now()
	until(t, "five changes of the holder", func() bool {
		for i, r := range all {
			if !r.holds() {
				continue
			}
			for j, other := range all {
				if i != j && other.holds() && r.holds() {
					t.Fatalf("workers %d and %d both hold the key after %d changes: %+v, %+v", i, j, wins, r.State(), other.State())
				}
			}
			if holder != i {
				wins, holder = wins+1, i
			}
		}
		if now := time.Now(); now.After(next) {
			next = now.Add(time.Duration(dice.IntN(400)) * time.Millisecond)
			all[dice.IntN(len(all))].disturb(dice.IntN(5))
		}
		return wins >= 5
	})
}
