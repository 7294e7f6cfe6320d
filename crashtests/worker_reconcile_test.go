package crashtests

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"provctl/internal/fleet"
)

// TestVerdicts blocks six nodes and decides on three through the running worker and on three without one: each verdict does
// the same either way.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{
		nodes: 6,
		worker: fleet.WorkerOptions{Values: short(map[string]any{
			"workers": 6, "evidence": "manual", "effect_ttl": "20s", "interval": "1s", "max_unknown": 100,
		})},
	})
	n := s.fleet.Nodes()
	for i, node := range n {
		f := fleet.Fault{Kind: fleet.Drop} // it runs, and nobody hears of it
		if i%3 == 1 {
			f = fleet.Fault{Kind: fleet.Hold, Detached: true} // it never runs
		}
		s.fleet.SetFault(node, "configure", f)
	}
	s.start()
	s.awaitFleet("every configure is under way", func(st fleet.State) bool {
		return st.Count(func(n fleet.NodeState) bool { return n.Begins["configure"] == 1 }) == 6
	})
	s.tooEarly(n[0], "the worker waits") // pending: its reply may still come
	s.kill()
	s.tooEarly(n[0], "can still be accepted for another")
	s.start()
	s.awaitView("all six are unknown", func(v view) bool { return v.Worker != nil && v.Counts.Receipts["unknown"] == 6 })
	s.tooEarly(n[0], "can still be accepted for another")
	s.awaitView("every horizon is over", func(v view) bool {
		for _, i := range v.Items {
			if i.HorizonLeft > 0 {
				return false
			}
		}
		return len(v.Items) == 6
	})
	s.fleet.Release(fleet.Any, fleet.Any)
	s.wrongVersion(n[0])
	s.resolve(n[0], "applied")
	s.resolve(n[1], "not-applied")
	s.resolve(n[2], "abandon")
	s.awaitFleet("what was decided goes on", func(st fleet.State) bool { return joined(st.Nodes[n[0]]) && joined(st.Nodes[n[1]]) })
	s.endsFine(s.signal(syscall.SIGTERM), 20*time.Second)
	s.wrongVersion(n[3])
	s.resolve(n[3], "applied")
	s.resolve(n[4], "not-applied")
	s.resolve(n[5], "abandon")
	mark := s.logMark()
	s.start()
	s.awaitFleet("what was decided goes on", func(st fleet.State) bool { return st.Count(joined) == 4 })
	s.awaitLog(mark, "the two that stay out are seen", func(l logLine) bool { return l.Msg == "discovered" && l.Nodes == 2 })
	s.awaitLog(s.logMark(), "... and once more", func(l logLine) bool { return l.Msg == "discovered" })
	s.afterVerdicts(n)
}

// afterVerdicts checks what became of the six nodes.
func (s *site) afterVerdicts(n []string) {
	s.t.Helper()
	s.noneTwice()
	for _, node := range []string{n[0], n[1], n[3], n[4]} {
		s.ran(node, map[string]int{"gen25519": 1, "configure": 1, "restart": 1})
	}
	v := s.view()
	for _, node := range []string{n[2], n[5]} {
		s.ran(node, map[string]int{"gen25519": 1, "configure": 1, "restart": 0})
		if state, why := v.out(node); state != "out" || !strings.Contains(why, "abandoned") {
			s.t.Errorf("%s was abandoned and is %q: %s", node, state, why)
		}
	}
	want := map[string]int{"provisioned": 4, "abandoned": 2}
	for result, k := range want {
		if v.Counts.Results[result] != k {
			s.t.Errorf("results %v, want %v", v.Counts.Results, want)
		}
	}
	if v.Counts.Receipts["not-applied"] != 2 || v.Counts.Receipts["abandoned"] != 2 || len(v.Items) != 0 {
		s.t.Errorf("receipts %v", v.Counts.Receipts)
	}
}

// tooEarly wants a verdict refused with the reason and the time left, and nothing changed by it.
func (s *site) tooEarly(node, reason string) {
	s.t.Helper()
	s.await("the verdict is refused", func() bool {
		i, _ := s.view().of(node)
		out, code := s.verdict(i, "not-applied")
		if code == 4 { // evidence came in between
			return false
		}
		if code != 1 || !strings.Contains(out, reason) {
			s.t.Errorf("a verdict before the horizon: exit %d: %s", code, out)
		}
		return true
	})
	if i, ok := s.view().of(node); !ok || i.Status != "unknown" && i.Status != "pending" {
		s.t.Errorf("a refused verdict changed the receipt to %+v", i)
	}
}

// wrongVersion wants a verdict on what is not the present state refused with exit code 4.
func (s *site) wrongVersion(node string) {
	s.t.Helper()
	i, _ := s.view().of(node)
	i.Version--
	if out, code := s.verdict(i, "applied"); code != 4 {
		s.t.Errorf("a verdict on another version: exit %d: %s", code, out)
	}
	if after, ok := s.view().of(node); !ok || after.Status != "unknown" {
		s.t.Errorf("a refused verdict changed the receipt to %+v", after)
	}
}
