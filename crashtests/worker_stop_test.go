package crashtests

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"provctl/internal/fleet"
)

// TestStopping sends SIGTERM and SIGINT at every kind of moment. What a stop leaves must be just what the next life goes on
// from: nothing twice, nothing forgotten.
func TestStopping(t *testing.T) {
	t.Parallel()
	var hold, second firstNode
	s := newSite(t, options{
		nodes:  4,
		worker: fleet.WorkerOptions{Values: short(map[string]any{"effect_ttl": "30s", "stop_timeout": "25s", "helper_timeout": "60s"})},
		hook: func(_ *site, c fleet.Call) fleet.Fault {
			if c.Action == "configure" && c.Phase == fleet.PhaseBegin && (hold.take(c.Node) || hold.name() != c.Node && second.take(c.Node)) {
				return fleet.Fault{Kind: fleet.Hold}
			}
			return fleet.Fault{}
		},
	})
	nodes := s.fleet.Nodes()
	for _, n := range nodes[1:] {
		s.killNode(n)
	}
	s.stopInFlight(nodes[0], nodes[1])
	s.startNode(nodes[1]) // it was killed again: see stopInFlight
	s.stopTimedOut(nodes[1])
	s.startNode(nodes[2])
	s.stopWithHelper(nodes[2])
	s.startNode(nodes[3])
	s.stopWithoutBroker()
	s.start()
	s.awaitFleet("every node is provisioned", func(st fleet.State) bool { return st.Count(joined) == 4 })
	s.await("nothing is open", func() bool { return len(s.inspect().Items) == 0 })
	s.endsFine(s.signal(syscall.SIGTERM), 10*time.Second)
	s.noneTwice()
	for _, n := range nodes {
		s.ran(n, map[string]int{"gen25519": 1, "configure": 1, "restart": 1})
	}
}

func (s *site) killNode(name string) {
	s.t.Helper()
	if err := s.fleet.KillNode(name); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) startNode(name string) {
	s.t.Helper()
	if err := s.fleet.StartNode(s.ctx, name); err != nil {
		s.t.Fatal(err)
	}
}

// stopInFlight stops while a configure runs and lets it end within stop_timeout: it is settled by its reply, however many
// signals come, and no node is taken meanwhile.
func (s *site) stopInFlight(node, other string) {
	s.t.Helper()
	s.start()
	s.awaitFleet("the configure runs", func(st fleet.State) bool { return stillIn(st, node, "configure") })
	p := s.signal(syscall.SIGTERM)
	s.awaitView("the worker is stopping", func(v view) bool { return v.Worker != nil && v.Worker.State == "stopping" })
	s.startNode(other) // its startup event must find nobody who takes it
	before := s.view()
	if i, ok := before.of(node); !ok || i.Status != "pending" {
		s.t.Errorf("while stopping the receipt in flight is shown as %+v", i)
	}
	s.signal(syscall.SIGTERM, syscall.SIGINT, syscall.SIGTERM)
	s.awaitLog(0, "the further signals are noted", logs("already stopping"))
	after := s.view()
	if len(after.Items) != 1 || after.Items[0].item.Version != before.Items[0].item.Version || after.Items[0].Status != "pending" {
		s.t.Errorf("further signals changed the receipt: %+v, then %+v", before.Items, after.Items)
	}
	s.fleet.Release(node, "configure")
	s.endsFine(p, 10*time.Second)
	v := s.view()
	if len(v.Items) != 0 || v.Counts.Receipts["applied"] != 2 || v.Counts.Receipts["unknown"] != 0 || v.Counts.Jobs["queued"] != 1 {
		s.t.Errorf("after the stop: items %+v, receipts %v, jobs %v", v.Items, v.Counts.Receipts, v.Counts.Jobs)
	}
	s.ran(node, map[string]int{"configure": 1, "restart": 0})
	s.ran(other, map[string]int{"jwt": 0})
	s.killNode(other)
	s.start()
	s.awaitFleet("the next life goes on with the restart", func(st fleet.State) bool { return joined(st.Nodes[node]) })
	s.endsFine(s.signal(syscall.SIGINT), 10*time.Second)
	s.ran(node, map[string]int{"jwt": 2, "configure": 1, "restart": 1})
}

// stopTimedOut stops while a configure runs that outlives stop_timeout: it is recorded as unknown.
func (s *site) stopTimedOut(node string) {
	s.t.Helper()
	s.reconfigure(fleet.WorkerOptions{Values: short(map[string]any{"effect_ttl": "30s", "stop_timeout": "1s", "helper_timeout": "60s"})})
	s.start()
	s.awaitFleet("the configure runs", func(st fleet.State) bool { return stillIn(st, node, "configure") })
	s.endsFine(s.signal(syscall.SIGTERM, syscall.SIGTERM, syscall.SIGTERM), 10*time.Second)
	v := s.view()
	if i, ok := v.of(node); !ok || i.Status != "unknown" || !strings.Contains(i.Why, "stopped before a reply came") || v.Counts.Jobs["blocked"] != 1 {
		s.t.Errorf("after the stop: items %+v, jobs %v", v.Items, v.Counts.Jobs)
	}
	mark := s.logMark()
	s.start()
	s.awaitLog(mark, "the next life listens", logs("looking at unknown receipts"))
	s.fleet.Release(node, "configure")
	s.awaitFleet("the late reply settles it", func(st fleet.State) bool { return joined(st.Nodes[node]) })
	s.endsFine(s.signal(syscall.SIGTERM), 10*time.Second)
}

// stopWithHelper stops while a helper runs: the helper is ended, the job given back, and the key is not made again.
func (s *site) stopWithHelper(node string) {
	s.t.Helper()
	runs := s.gateHelper(node)
	s.start()
	release := runs()
	s.endsFine(s.signal(syscall.SIGINT), 10*time.Second)
	if v := s.view(); len(v.Items) != 0 || v.Counts.Jobs["queued"] != 1 || v.Counts.Jobs["claimed"] != 0 {
		s.t.Errorf("after the stop: items %+v, jobs %v", v.Items, v.Counts.Jobs)
	}
	s.ran(node, map[string]int{"gen25519": 1, "configure": 0})
	release()
	s.start()
	s.awaitFleet("the next life goes on", func(st fleet.State) bool { return joined(st.Nodes[node]) })
	s.endsFine(s.signal(syscall.SIGTERM), 10*time.Second)
}

// stopWithoutBroker stops a worker that has not reached its broker, which waits and can be inspected.
func (s *site) stopWithoutBroker() {
	s.t.Helper()
	s.fleet.StopBroker()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		mark := s.logMark()
		s.start()
		s.awaitLog(mark, "it tries to connect", logs("could not connect"))
		if v := s.view(); v.Worker == nil || v.Worker.Connected || v.Worker.State != "settling" || v.Worker.Gate == "" {
			s.t.Errorf("without a broker the worker is shown as %+v", v.Worker)
		}
		s.endsFine(s.signal(sig), 10*time.Second)
	}
	if err := s.fleet.StartBroker(s.ctx); err != nil {
		s.t.Fatal(err)
	}
}
