package crashtests

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"provctl/internal/fleet"
)

// boundary is a place in the cycle at which the worker dies: when the action's request has reached the node and nothing ran,
// or when it ran and its reply has not left.
type boundary struct {
	action string
	phase  fleet.Phase
}

func (b boundary) String() string { return b.action + "/" + string(b.phase) }

var boundaries = []boundary{
	{"jwt", fleet.PhaseBegin},
	{"jwt", fleet.PhaseEnd},
	{"gen25519", fleet.PhaseBegin},
	{"gen25519", fleet.PhaseEnd},
	{"configure", fleet.PhaseBegin},
	{"configure", fleet.PhaseEnd},
	{"restart", fleet.PhaseBegin},
	{"restart", fleet.PhaseEnd},
}

// TestKilledAtEachStepBoundary gives each boundary a node of its own.
func TestKilledAtEachStepBoundary(t *testing.T) {
	s := killedAtEach(t, boundaries, options{worker: fleet.WorkerOptions{Values: short(nil)}})
	s.done(map[string]int{"configure": 1, "restart": 1})
}

// killedAtEach kills the worker once at each boundary, every time on another node, until what is left is truly ambiguous, and has that
// decided on. With one lane nothing else is in flight at a kill, so what may be blocked afterwards is known exactly: a configure whose
// reply and event nobody heard.
func killedAtEach(t *testing.T, boundaries []boundary, o options) *site {
	t.Helper()
	var mu sync.Mutex
	hit := map[boundary]string{} // by node
	kills := make(chan boundary, len(boundaries))
	o.nodes = len(boundaries)
	o.hook = func(s *site, c fleet.Call) fleet.Fault {
		b := boundary{c.Action, c.Phase}
		mu.Lock()
		mine := hit[b] == "" && slices.Contains(boundaries, b)
		for _, node := range hit {
			mine = mine && node != c.Node // one kill per node
		}
		if mine {
			hit[b] = c.Node
		}
		mu.Unlock()
		if mine {
			s.kill()
			kills <- b
		}
		return fleet.Fault{}
	}
	s := newSite(t, o)
	s.start()
	for range boundaries {
		select {
		case b := <-kills:
			t.Logf("killed at %s", b)
			s.start()
		case <-s.ctx.Done():
			t.Fatalf("not every boundary was reached: %v", hit)
		}
	}
	ambiguous := map[string]bool{}
	for _, b := range boundaries {
		if b.action == "configure" {
			ambiguous[hit[b]] = true
		}
	}
	needless := func(i item) bool { return !ambiguous[i.Node] || i.Action != "configure" || i.Status != "unknown" }
	s.await("nothing is open but what is truly ambiguous", func() bool {
		return s.fleet.State().Count(joined) >= len(boundaries)-len(ambiguous) && !slices.ContainsFunc(s.inspect().Items, needless)
	})
	s.reconcileByHand()
	s.awaitFleet("every node is provisioned", func(st fleet.State) bool { return st.Count(joined) == len(boundaries) })
	return s
}

// done wants every node to be provisioned by exactly these actions, nothing open, and nothing done twice.
func (s *site) done(want map[string]int) {
	s.t.Helper()
	s.await("nothing is open", func() bool { return len(s.inspect().Items) == 0 })
	if code := s.stop(); code != 0 {
		s.t.Errorf("the worker stopped with exit code %d", code)
	}
	s.noneTwice()
	for _, node := range s.fleet.Nodes() {
		s.ran(node, want)
	}
}

// reconcileByHand decides on what is left unknown past its horizon, from the node's own files.
func (s *site) reconcileByHand() {
	s.t.Helper()
	s.await("nothing is open", func() bool {
		items := s.inspect().Items
		for _, item := range items {
			if item.HorizonLeft > 0 || item.Status != "unknown" {
				continue
			}
			verdict := "not-applied"
			if s.wroteConfig(item.Node, item.Request) {
				verdict = "applied"
			}
			s.decide(item, verdict)
		}
		return len(items) == 0
	})
}

// decide gives a verdict on exactly what was shown. It may be too late, if evidence was quicker, or too early for a node that has not
// shown that it is idle.
func (s *site) decide(i item, verdict string) (taken bool) {
	s.t.Helper()
	out, code := s.verdict(i, verdict)
	if code != 0 && code != 4 && !strings.Contains(out, "the node may still have it to do") {
		s.t.Fatalf("reconcile %s: exit %d: %s", i.Receipt, code, out)
	}
	return code == 0
}

// TestOneReplyLostOfEachEffect loses one reply of every effect and looks at the wire: no request is made again on a guess.
func TestOneReplyLostOfEachEffect(t *testing.T) {
	actions := []string{"gen25519", "configure", "restart", "shutdown"}
	names := []string{"node-001.example.net", "node-002.example.net", "node-003.example.net", "node-004.example.net"}
	s := newSite(t, options{
		nodes:  len(actions),
		worker: fleet.WorkerOptions{Values: short(map[string]any{"workers": 4, "effect_ttl": "10s"}), Shutdown: names[3:]},
	})
	for i, a := range actions {
		s.fleet.SetFault(names[i], a, fleet.Fault{Kind: fleet.Drop})
	}
	s.start()
	s.awaitFleet("three nodes are provisioned and one is down", func(st fleet.State) bool {
		return st.Count(joined) == 3 && !st.Nodes[names[3]].Alive
	})
	s.await("evidence has settled everything", func() bool { return len(s.inspect().Items) == 0 })
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.noneTwice()
	for i, want := range []map[string]int{
		{"gen25519": 2, "configure": 1, "restart": 1}, // keys may be made again once the first request has expired
		{"gen25519": 1, "configure": 1, "restart": 1},
		{"gen25519": 1, "configure": 1, "restart": 1},
		{"gen25519": 1, "configure": 0, "restart": 0, "shutdown": 1},
	} {
		for a, n := range want {
			if got := s.begins(names[i], a); got != n {
				t.Errorf("%s: %s ran %d times, want %d", names[i], a, got, n)
			}
		}
	}
}

// TestLateReplyIsHeardByTheNextWorker kills the worker while a configure runs and lets the node answer when the next worker
// listens: the reply settles the receipt, nobody has to be asked.
func TestLateReplyIsHeardByTheNextWorker(t *testing.T) {
	killed := make(chan struct{})
	var once sync.Once
	s := newSite(t, options{
		nodes: 1, worker: fleet.WorkerOptions{Values: short(map[string]any{"effect_ttl": "20s"})},
		hook: func(s *site, c fleet.Call) fleet.Fault {
			if c.Action == "configure" && c.Phase == fleet.PhaseBegin {
				once.Do(func() {
					s.kill()
					close(killed)
				})
				return fleet.Fault{Kind: fleet.Hold}
			}
			return fleet.Fault{}
		},
	})
	s.start()
	select {
	case <-killed:
	case <-s.ctx.Done():
		t.Fatal("configure was never reached")
	}
	s.start()
	s.await("the new worker shows the receipt as unknown", func() bool {
		items := s.inspect().Items
		return len(items) == 1 && items[0].Status == "unknown"
	})
	s.await("the new worker is connected", func() bool { return s.logged("looking at unknown receipts") })
	s.fleet.Release(fleet.Any, fleet.Any)
	s.awaitFleet("the node is provisioned", func(st fleet.State) bool { return st.Count(joined) == 1 })
	s.noneTwice()
	if n := s.begins(s.fleet.Nodes()[0], "configure"); n != 1 {
		t.Errorf("configured %d times", n)
	}
}

// TestRequestHeldBackBeyondItsHorizonNeverRuns holds a configure back on its way, kills the worker, and delivers the request
// after its horizon: the node drops it, and what a verdict allowed to be done meanwhile is not done twice.
func TestRequestHeldBackBeyondItsHorizonNeverRuns(t *testing.T) {
	killed := make(chan struct{})
	var once sync.Once
	s := newSite(t, options{
		nodes: 1, worker: fleet.WorkerOptions{Values: short(nil)},
		hook: func(s *site, c fleet.Call) fleet.Fault {
			if c.Phase != fleet.PhaseBegin {
				return fleet.Fault{}
			}
			var f fleet.Fault
			switch c.Action {
			case "configure":
				once.Do(func() {
					s.kill()
					close(killed)
					f = fleet.Fault{Kind: fleet.Hold, Detached: true}
				})
			case "restart":
				f = fleet.Fault{Kind: fleet.Hold} // a node that restarts forgets what has not reached it
			}
			return f
		},
	})
	s.start()
	select {
	case <-killed:
	case <-s.ctx.Done():
		t.Fatal("configure was never reached")
	}
	s.start()
	s.reconcileByHand() // the node has no configuration: not-applied
	node := s.fleet.Nodes()[0]
	s.awaitFleet("its restart runs", func(st fleet.State) bool { return stillIn(st, node, "restart") })
	if n := s.fleet.Release(node, "configure"); n != 1 {
		t.Errorf("%d requests were held back", n)
	}
	s.await("the node drops the old request", func() bool { return s.entries(node, "configure", fleet.PhaseExpired) == 1 })
	s.fleet.Release(node, "restart")
	s.awaitFleet("the node is provisioned", func(st fleet.State) bool { return st.Count(joined) == 1 })
	s.noneTwice()
}
