package crashtests

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"provctl/internal/fleet"
)

// TestNodeRestartsInMidCycle has a node come back as another process at two moments: between two effects, and with a configure
// unknown. Either way the old job ends and the new process is new work.
func TestNodeRestartsInMidCycle(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{nodes: 2, worker: fleet.WorkerOptions{Values: short(map[string]any{"effect_ttl": "8s", "helper_timeout": "60s"})}})
	between, unknown := s.fleet.Nodes()[0], s.fleet.Nodes()[1]
	s.killNode(unknown)
	runs := s.gateHelper(between)
	s.start()
	release := runs()
	s.killNode(between)
	s.startNode(between)
	release()
	s.awaitFleet("the first one is provisioned", func(st fleet.State) bool { return joined(st.Nodes[between]) })
	s.startNode(unknown)
	s.fleet.SetFault(unknown, "configure", fleet.Fault{Kind: fleet.DieBefore})
	s.awaitFleet("the node dies of its configure", func(st fleet.State) bool { return !st.Nodes[unknown].Alive })
	s.kill() // with a worker that waits for the reply nothing is unknown before the horizon
	s.startNode(unknown)
	s.start()
	s.awaitFleet("both are provisioned", func(st fleet.State) bool { return st.Count(joined) == 2 })
	s.await("nothing is open", func() bool { return len(s.inspect().Items) == 0 })
	s.endsFine(s.signal(syscall.SIGTERM), 20*time.Second)
	s.noneTwice()
	s.ran(between, map[string]int{"gen25519": 2, "configure": 1, "restart": 1}) // one key for each process
	s.ran(unknown, map[string]int{"gen25519": 2, "configure": 1, "restart": 1}) // the fatal one never began
	v := s.view()
	if v.Counts.Results["superseded"] != 2 || v.Counts.Results["provisioned"] != 2 || v.Counts.Receipts["moot"] != 1 {
		t.Errorf("results %v, receipts %v", v.Counts.Results, v.Counts.Receipts)
	}
	s.newAfterHorizon(unknown)
}

// newAfterHorizon checks that the third process of a node, the first being one that was never asked anything, got no effect before
// the request to the second one had expired.
func (s *site) newAfterHorizon(node string) {
	s.t.Helper()
	horizons := s.horizons()
	entries, err := s.fleet.Log(node)
	if err != nil {
		s.t.Fatal(err)
	}
	var old time.Time
	for _, e := range entries {
		switch {
		case e.Phase == fleet.PhaseReceived && e.Action == "configure" && e.Boot == 2:
			old = horizons[e.RequestID]
		case e.Phase == fleet.PhaseBegin && e.Effect && e.Boot == 3 && !e.Time.After(old):
			s.t.Errorf("%s ran at %s, before the horizon %s of the unknown configure", e.Action, e.Time, old)
		}
	}
	if old.IsZero() {
		s.t.Errorf("no configure reached the process of %s that died", node)
	}
}

// horizons are the horizons of all effects that the worker has begun, by request.
func (s *site) horizons() map[string]time.Time {
	s.t.Helper()
	out := map[string]time.Time{}
	for _, l := range s.logSince(0) {
		if l.Msg != "effect begins" {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, l.Horizon)
		if err != nil {
			s.t.Fatalf("the horizon of request %s: %v", l.Request, err)
		}
		out[l.Request] = at
	}
	return out
}

// TestHoldOutlivesTheWorker covers what only the hold keeps apart: a node that was just provisioned, and then wiped, is not
// taken by this life nor by the next two; one that the helper defers is asked again after the hold, with the key it has; one that
// is to be shut down is, once. Restarts and shutdowns take their real time here.
func TestHoldOutlivesTheWorker(t *testing.T) {
	t.Parallel()
	names := []string{"node-001.example.net", "node-002.example.net", "node-003.example.net", "node-004.example.net"}
	deferred, down, wiped, plain := names[0], names[1], names[2], names[3]
	s := newSite(t, options{nodes: 4, splay: true, worker: fleet.WorkerOptions{
		Values: short(map[string]any{"interval": "1s", "effect_ttl": "10s"}), Defer: names[:1], Shutdown: names[1:2],
	}})
	s.start()
	// One shutdown in ten has a splay of 0, which races its reply out of the node: then it ends as left.
	gone := func(r map[string]int) int { return r["shutdown"] + r["left"] }
	s.awaitView("all four have had their pass", func(v view) bool {
		return v.Counts.Results["provisioned"] == 2 && gone(v.Counts.Results) == 1 && v.Counts.Results["deferred"] == 1
	})
	s.kill() // two nodes are in their splay: they answer discovery, and no request
	s.start()
	s.awaitFleet("two are provisioned and one is down", func(st fleet.State) bool {
		return joined(st.Nodes[wiped]) && joined(st.Nodes[plain]) && !st.Nodes[down].Alive
	})
	s.wipe(wiped)
	mark := s.logMark()
	both := func(l logLine) bool { return l.Msg == "discovered" && l.Nodes == 2 }
	s.awaitLog(mark, "the wiped node is seen again", both)
	s.kill()
	mark = s.logMark()
	s.start()
	s.awaitLog(mark, "the next life sees it too", both)
	v := s.view()
	for _, n := range []string{deferred, wiped} {
		if state, _ := v.out(n); state != "held" {
			t.Errorf("%s is not shown as held: %+v", n, v.Nodes)
		}
	}
	for _, n := range names {
		s.ran(n, map[string]int{"jwt": 1})
	}
	s.ran(deferred, map[string]int{"gen25519": 1, "configure": 0})
	s.awaitFleet("the hold ends", func(st fleet.State) bool { return st.Nodes[deferred].Begins["jwt"] == 2 && joined(st.Nodes[wiped]) })
	s.awaitView("the helper defers again", func(v view) bool { return v.Counts.Results["deferred"] == 2 })
	s.endsFine(s.signal(syscall.SIGTERM), 20*time.Second)
	s.noneTwice()
	s.ran(deferred, map[string]int{"jwt": 2, "gen25519": 1, "configure": 0, "restart": 0, "shutdown": 0})
	s.ran(down, map[string]int{"jwt": 1, "gen25519": 1, "configure": 0, "restart": 0, "shutdown": 1})
	s.ran(wiped, map[string]int{"jwt": 2, "gen25519": 2, "configure": 2, "restart": 2})
	s.ran(plain, map[string]int{"jwt": 1, "gen25519": 1, "configure": 1, "restart": 1})
	if r := s.view().Counts.Results; r["provisioned"] != 3 || gone(r) != 1 || r["failed"] != 0 {
		t.Errorf("results %v", r)
	}
}

// wipe takes a provisioned node back into provisioning mode, as a reinstallation does.
func (s *site) wipe(node string) {
	s.t.Helper()
	s.killNode(node)
	dir, err := s.fleet.NodeDir(node)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range []string{"server.conf", "server.jwt", "server.seed"} {
		if err := os.Remove(filepath.Join(dir, f)); err != nil {
			s.t.Fatal(err)
		}
	}
	s.startNode(node)
}

// TestHelperThatKillsItsWorker is work that ends the worker every time: it is tried again so often and then kept out, until
// somebody admits it or its process is another.
func TestHelperThatKillsItsWorker(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{nodes: 2, worker: fleet.WorkerOptions{Values: short(map[string]any{"interval": "1s", "effect_ttl": "20s"})}})
	byHand, bySelf := s.fleet.Nodes()[0], s.fleet.Nodes()[1]
	mended := filepath.Join(filepath.Dir(s.files.Config), "mended")
	runs := filepath.Join(filepath.Dir(s.files.Config), "runs")
	s.wrapHelper("echo \"$identity\" >>'" + runs + "'\n[ -e '" + mended + "' ] || kill -9 $PPID\nanswer\n")
	for p, lives := s.start(), 1; ; lives++ {
		if lives > 20 {
			t.Fatal("the worker is killed for ever")
		}
		s.await("the worker dies or both nodes are out", func() bool {
			select {
			case <-p.done:
				return true
			default:
				return s.bothOut()
			}
		})
		if s.bothOut() {
			break
		}
		p = s.start()
	}
	b, err := os.ReadFile(runs)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range s.fleet.Nodes() {
		// The first claim ends with the key made, which counts as progress; then max_requeues (2) more and the last.
		if got := bytes.Count(b, []byte(n)); got != 4 {
			t.Errorf("the helper of %s was run %d times, want 4", n, got)
		}
		s.ran(n, map[string]int{"gen25519": 1, "configure": 0})
	}
	if err := os.WriteFile(mended, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := s.provctl("admit", byHand, "--reason", "the helper is mended", "--state-dir", s.files.StateDir); code != 0 {
		t.Fatalf("admit: exit %d: %s", code, out)
	}
	s.awaitFleet("it is taken again", func(st fleet.State) bool { return joined(st.Nodes[byHand]) })
	s.ran(bySelf, map[string]int{"configure": 0})
	s.killNode(bySelf)
	s.startNode(bySelf)
	s.awaitFleet("another process is taken by itself", func(st fleet.State) bool { return joined(st.Nodes[bySelf]) })
	s.noneTwice()
	s.ran(byHand, map[string]int{"gen25519": 1, "configure": 1, "restart": 1})
	s.ran(bySelf, map[string]int{"gen25519": 2, "configure": 1, "restart": 1})
}

// bothOut tells whether both nodes are exhausted and known to be kept out with a certain process.
func (s *site) bothOut() bool {
	v, err := s.tryView()
	if err != nil {
		return false
	}
	n := 0
	for _, node := range v.Nodes {
		if node.State == "out" && node.Result == "exhausted" && strings.Contains(node.Why, "while its server is pid") {
			n++
		}
	}
	return n == 2 && v.Worker != nil
}
