package crashtests

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"provctl/internal/fleet"
)

// BenchmarkRecovery provisions a fleet of 50 nodes with 4 lanes, once undisturbed and once with the worker killed at a random effect
// and started again at once, and reports the seconds until all nodes are done that are not blocked on a configure nobody
// heard of. effect_ttl is 5 s: a key generation in flight at the kill is repeated only when its request has expired.
// SEED=n replays a kill.
func BenchmarkRecovery(b *testing.B) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			b.Fatal(err)
		}
	}
	b.Logf("SEED=%d", seed)
	pick := rand.New(rand.NewPCG(seed, 0))
	const nodes, effects = 50, 150
	var calm, killed, blocked float64
	for b.Loop() {
		t, _ := provisionAll(b, nodes, -1)
		calm += t
		t, n := provisionAll(b, nodes, pick.IntN(effects))
		killed, blocked = killed+t, blocked+float64(n)
	}
	b.ReportMetric(calm/float64(b.N), "s-undisturbed")
	b.ReportMetric(killed/float64(b.N), "s-killed-once")
	b.ReportMetric(blocked/float64(b.N), "nodes-blocked")
	b.ReportMetric(0, "ns/op")
}

// provisionAll returns the seconds until every node is done or truly blocked, and how many are. The worker is killed when the
// effect of that number, counted from 0, has reached its node; -1 for never.
func provisionAll(b *testing.B, nodes, killAt int) (float64, int) {
	b.Helper()
	var mu sync.Mutex
	count := 0
	kills := make(chan struct{}, 1)
	s := newSite(b, options{
		nodes: nodes, worker: fleet.WorkerOptions{Values: short(map[string]any{"workers": 4, "interval": "5s", "effect_ttl": "5s", "loglevel": "info"})},
		hook: func(s *site, c fleet.Call) fleet.Fault {
			mu.Lock()
			defer mu.Unlock()
			if c.Phase == fleet.PhaseBegin && fleet.IsEffect(c.Action) {
				if count == killAt {
					s.kill()
					kills <- struct{}{}
				}
				count++
			}
			return fleet.Fault{}
		},
	})
	began := time.Now()
	s.start()
	if killAt >= 0 {
		<-kills
		s.start()
	}
	blocked := 0
	for done := 0; done+blocked < nodes; {
		ctx, cancel := context.WithTimeout(s.ctx, time.Second)
		_ = s.fleet.Wait(ctx, func(st fleet.State) bool { done = st.Count(joined); return done == nodes })
		cancel()
		if s.ctx.Err() != nil {
			b.Fatal("the fleet does not get done")
		}
		blocked = 0
		if done < nodes && killAt >= 0 {
			blocked = s.ambiguous()
		}
	}
	took := time.Since(began).Seconds()
	s.noneTwice()
	s.kill()
	s.fleet.Close()
	return took, blocked
}

// ambiguous counts the configures that only a verdict can settle.
func (s *site) ambiguous() int {
	s.t.Helper()
	n := 0
	for _, i := range s.inspect().Items {
		if i.Action == "configure" && i.Status == "unknown" && i.HorizonLeft == 0 {
			n++
		}
	}
	return n
}
