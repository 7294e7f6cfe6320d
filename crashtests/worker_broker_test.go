package crashtests

import (
	"sync"
	"testing"

	"provctl/internal/fleet"
)

// TestBrokerStopsInMidRun takes the broker away while effects are in flight and gives it back when all that was in flight has
// expired: nothing from before runs late, and the work goes on at once, without a node being held for it.
func TestBrokerStopsInMidRun(t *testing.T) {
	t.Parallel()
	cut := make(chan struct{})
	var once sync.Once
	s := newSite(t, options{
		nodes: 6, worker: fleet.WorkerOptions{Values: short(map[string]any{"workers": 2, "interval": "1s"})},
		hook: func(s *site, c fleet.Call) fleet.Fault {
			if c.Action == "configure" && c.Phase == fleet.PhaseBegin {
				once.Do(func() {
					s.fleet.StopBroker()
					close(cut)
				})
			}
			return fleet.Fault{}
		},
	})
	s.start()
	select {
	case <-cut:
	case <-s.ctx.Done():
		t.Fatal("configure was never reached")
	}
	s.awaitView("the worker takes no work and says why", func(v view) bool {
		return v.Worker != nil && !v.Worker.Connected && v.Worker.Gate == "the broker is not connected"
	})
	s.awaitView("all that was in flight has expired", func(v view) bool {
		for _, i := range v.Items {
			if i.HorizonLeft > 0 {
				return false
			}
		}
		return true
	})
	if err := s.fleet.StartBroker(s.ctx); err != nil {
		t.Fatal(err)
	}
	// A node that reconnects before the worker may answer and publish its event when nobody listens: then only its own file tells.
	s.await("every node is provisioned", func() bool {
		if s.fleet.State().Count(joined) == 6 {
			return true
		}
		for _, i := range s.inspect().Items {
			if i.Action == "configure" && i.Status == "unknown" && i.HorizonLeft == 0 && s.wroteConfig(i.Node, i.Request) {
				s.decide(i, "applied")
			}
		}
		return false
	})
	s.await("nothing is open", func() bool { return len(s.inspect().Items) == 0 })
	s.noneTwice()
	s.noneLate()
	if r := s.view().Counts.Results; r["failed"] != 0 {
		t.Errorf("nodes were blamed for the broker: %v", r)
	}
}

// noneLate checks by the nodes' logs that each effect had been begun by the worker, and ran before its horizon.
func (s *site) noneLate() {
	s.t.Helper()
	horizons := s.horizons()
	entries, err := s.fleet.Entries()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range entries {
		if e.Phase != fleet.PhaseBegin || !e.Effect {
			continue
		}
		h, ok := horizons[e.RequestID]
		switch {
		case !ok:
			s.t.Errorf("%s ran %s in request %s, which the worker does not know", e.Node, e.Action, e.RequestID)
		case e.Time.After(h):
			s.t.Errorf("%s ran %s in request %s %s after its horizon", e.Node, e.Action, e.RequestID, e.Time.Sub(h))
		}
	}
}
