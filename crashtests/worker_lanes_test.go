package crashtests

import (
	"strings"
	"sync"
	"testing"

	"provctl/internal/fleet"
)

// TestSlowNodesOccupyNoLane has one lane only. One node is suspended in the middle of a fact, the next one does not answer its
// configure: the others are provisioned meanwhile, and then so are these two.
func TestSlowNodesOccupyNoLane(t *testing.T) {
	t.Parallel()
	var suspended, silent firstNode
	s := newSite(t, options{
		nodes: 5, worker: fleet.WorkerOptions{Values: short(map[string]any{"effect_ttl": "60s", "clock_skew": "10s"})},
		hook: func(s *site, c fleet.Call) fleet.Fault {
			switch {
			case c.Phase != fleet.PhaseBegin:
			case c.Action == "jwt" && suspended.take(c.Node):
				if err := s.fleet.SuspendNode(c.Node); err != nil {
					s.t.Errorf("suspend %s: %v", c.Node, err)
				}
			case c.Action == "configure" && silent.take(c.Node):
				return fleet.Fault{Kind: fleet.Hold}
			}
			return fleet.Fault{}
		},
	})
	s.start()
	s.awaitFleet("three nodes are provisioned", func(st fleet.State) bool { return st.Count(joined) == 3 })
	v := s.awaitView("the two slow nodes wait without a lane", func(v view) bool {
		return v.Worker != nil && v.Worker.Parked == 2 && v.Worker.Busy <= 1 && v.Counts.Jobs["claimed"] == 2
	})
	if v.Worker.Lanes != 1 {
		t.Errorf("it has %d lanes", v.Worker.Lanes)
	}
	if i, ok := v.of(silent.name()); !ok || i.Status != "pending" {
		t.Errorf("the late configure is shown as %+v", i)
	}
	if err := s.fleet.ResumeNode(suspended.name()); err != nil {
		t.Fatal(err)
	}
	s.awaitFleet("the suspended node goes on", func(st fleet.State) bool { return joined(st.Nodes[suspended.name()]) })
	s.fleet.Release(silent.name(), "configure")
	s.awaitFleet("the late reply counts", func(st fleet.State) bool { return st.Count(joined) == 5 })
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.noneTwice()
	for _, n := range s.fleet.Nodes() {
		s.ran(n, map[string]int{"configure": 1, "restart": 1})
	}
}

// TestOnUnknownFleetStopsEveryEffect makes one effect unknown while other nodes are in mid-cycle: they are given back without an
// effect, nothing is taken, and a verdict sets all of it going again.
func TestOnUnknownFleetStopsEveryEffect(t *testing.T) {
	t.Parallel()
	var lost firstNode
	blocked := make(chan struct{})
	open := sync.OnceFunc(func() { close(blocked) })
	t.Cleanup(open)
	s := newSite(t, options{
		nodes: 3, worker: fleet.WorkerOptions{Values: short(map[string]any{"workers": 3, "on_unknown": "fleet", "evidence": "manual"})},
		hook: func(_ *site, c fleet.Call) fleet.Fault {
			switch {
			case c.Phase != fleet.PhaseBegin:
			case c.Action == "jwt" && !lost.take(c.Node) && lost.name() != c.Node:
				<-blocked
			case c.Action == "configure" && lost.name() == c.Node:
				return fleet.Fault{Kind: fleet.Drop}
			}
			return fleet.Fault{}
		},
	})
	s.start()
	s.awaitView("one effect is unknown and two passes are in their first step", func(v view) bool {
		return len(v.Items) == 1 && v.Items[0].Status == "unknown" && v.Counts.Jobs["claimed"] == 2
	})
	open()
	v := s.awaitView("the two jobs are given back", func(v view) bool {
		return v.Counts.Jobs["queued"] == 2 && v.Worker != nil && v.Worker.Queue == 2
	})
	if !strings.Contains(v.Worker.Gate, "on_unknown is fleet") {
		t.Errorf("the gate is not shown: %+v", v.Worker)
	}
	for _, n := range s.fleet.Nodes() {
		if n != lost.name() {
			s.ran(n, map[string]int{"gen25519": 0, "configure": 0})
		}
	}
	s.resolve(lost.name(), "applied")
	s.awaitFleet("every node is provisioned", func(st fleet.State) bool { return st.Count(joined) == 3 })
	s.noneTwice()
	for _, n := range s.fleet.Nodes() {
		s.ran(n, map[string]int{"gen25519": 1, "configure": 1, "restart": 1})
	}
}

// TestMaxUnknownStopsNewClaims counts unknown and overdue effects together, and manual evidence proposes without settling.
func TestMaxUnknownStopsNewClaims(t *testing.T) {
	t.Parallel()
	var lost, late firstNode
	s := newSite(t, options{
		nodes: 3,
		worker: fleet.WorkerOptions{Values: short(map[string]any{
			"max_unknown": 2, "evidence": "manual", "effect_ttl": "25s",
		})},
		hook: func(s *site, c fleet.Call) fleet.Fault {
			switch {
			case c.Action != "configure" || c.Phase != fleet.PhaseBegin:
			case lost.take(c.Node):
				s.kill() // unknown at the next start, and not at the horizon
				return fleet.Fault{Kind: fleet.Hold}
			case late.take(c.Node):
				return fleet.Fault{Kind: fleet.Hold}
			}
			return fleet.Fault{}
		},
	})
	third := s.fleet.Nodes()[2]
	s.killNode(third)
	p := s.start()
	select {
	case <-p.done:
	case <-s.ctx.Done():
		t.Fatal("configure was never reached")
	}
	s.start()
	s.awaitFleet("the late configure runs", func(st fleet.State) bool { return stillIn(st, late.name(), "configure") })
	v := s.awaitView("one is unknown, one is overdue, and the gate is closed", func(v view) bool {
		return v.Worker != nil && strings.Contains(v.Worker.Gate, "max_unknown is 2")
	})
	if !strings.Contains(v.Worker.Gate, "1 effects are unknown and 1 overdue") || v.Worker.Parked != 1 {
		t.Errorf("the gate is shown as %+v", v.Worker)
	}
	s.startNode(third)
	s.awaitView("a new node waits", func(v view) bool { return v.Worker.Queue == 1 && v.Counts.Jobs["queued"] == 1 })
	s.ran(third, map[string]int{"jwt": 0})
	s.fleet.Release(late.name(), "configure")
	s.awaitFleet("one less opens the gate", func(st fleet.State) bool { return joined(st.Nodes[third]) && joined(st.Nodes[late.name()]) })
	s.manualEvidence(lost.name())
}

// manualEvidence lets a late reply come in: it is proposed, and only a person settles by it.
func (s *site) manualEvidence(node string) {
	s.t.Helper()
	s.fleet.Release(node, "configure")
	v := s.awaitView("the late reply makes a proposal", func(v view) bool { return len(v.Items) == 1 && v.Items[0].Proposed != nil })
	if p := v.Items[0].Proposed; p.Verdict != "applied" {
		s.t.Errorf("proposed: %+v", p)
	}
	if out, code := s.provctl("inspect", v.Items[0].Receipt, "--probe", "--state-dir", s.files.StateDir); code != 3 || !strings.Contains(out, "proposed") {
		s.t.Errorf("inspect --probe of a blocked receipt: exit %d: %s", code, out)
	}
	s.resolve(node, "applied") // it is still unknown past the horizon, or this fails
	s.awaitFleet("every node is provisioned", func(st fleet.State) bool { return st.Count(joined) == 3 })
	s.noneTwice()
	for _, n := range s.fleet.Nodes() {
		s.ran(n, map[string]int{"gen25519": 1, "configure": 1, "restart": 1})
	}
}
