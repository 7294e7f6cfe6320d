package crashtests

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"provctl/internal/fleet"
)

// twin is another worker of the same fleet, with files, a state directory and a journal of its own, as on another host.
func (s *site) twin(o fleet.WorkerOptions) *site {
	s.t.Helper()
	dir := s.t.TempDir()
	t := &site{t: s.t, ctx: s.ctx, fleet: s.fleet, log: filepath.Join(dir, "worker.log")}
	var err error
	if t.files, err = s.fleet.WriteWorkerFiles(filepath.Join(dir, "worker"), o); err != nil {
		s.t.Fatal(err)
	}
	if out, code := t.provctl("init", "--state-dir", t.files.StateDir); code != 0 {
		s.t.Fatalf("init: exit %d: %s", code, out)
	}
	s.t.Cleanup(func() {
		t.kill()
		if s.t.Failed() {
			s.t.Logf("the other worker's log ends with:\n%s", t.tail(60))
		}
	})
	return t
}

// electing is a worker that takes part in the election.
func electing(more map[string]any) fleet.WorkerOptions {
	values := map[string]any{"leader_election": true}
	for k, v := range more {
		values[k] = v
	}
	return fleet.WorkerOptions{Values: short(values)}
}

// withStreams gives the broker an election whose keys live for a short time.
func withStreams(o *fleet.Options) { o.Streams, o.ElectionTTL = true, 8*time.Second }

func (s *site) leads() bool {
	v, err := s.tryView()
	return err == nil && v.Worker != nil && v.Worker.State == "running" && !strings.Contains(v.Worker.Gate, "standing by")
}

// effectsOf counts the receipts that a worker wrote, whatever became of them.
func (s *site) effectsOf() int {
	n := 0
	for _, count := range s.view().Counts.Receipts {
		n += count
	}
	return n
}

// TestLeadersTakeTurns: of two workers one provisions. When it stops in order, the other one goes on at once; when that is killed, the
// first one again takes over once the key has expired and a horizon has passed. Nothing runs twice.
func TestLeadersTakeTurns(t *testing.T) {
	t.Parallel()
	a := newSite(t, options{nodes: 3, worker: electing(nil), fleet: withStreams})
	b := a.twin(electing(nil))
	again, late := a.fleet.Nodes()[0], a.fleet.Nodes()[2]
	if err := a.fleet.KillNode(late); err != nil {
		t.Fatal(err)
	}
	a.start()
	a.await("the first worker leads", a.leads)
	b.start()
	a.awaitFleet("the nodes are provisioned", func(st fleet.State) bool { return st.Count(joined) == 2 })
	b.await("the second worker stands by", func() bool {
		v, err := b.tryView()
		return err == nil && v.Worker != nil && strings.Contains(v.Worker.Gate, "standing by: another worker leads")
	})
	if n := b.effectsOf(); n != 0 {
		t.Errorf("the worker that does not lead wrote %d receipts", n)
	}
	if code := a.stop(); code != 0 {
		t.Errorf("the leader's exit code is %d", code)
	}
	b.await("the second worker leads", b.leads)
	a.wipe(again)
	a.awaitFleet("a reinstalled node is provisioned by the second worker", func(st fleet.State) bool {
		return st.Nodes[again].Ends["configure"] == 2 && joined(st.Nodes[again])
	})

	b.kill()
	a.start()
	if err := a.fleet.StartNode(a.ctx, late); err != nil {
		t.Fatal(err)
	}
	a.awaitFleet("a new node is provisioned by the first worker", func(st fleet.State) bool { return joined(st.Nodes[late]) })
	a.await("the first worker leads", a.leads)
	if code := a.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	a.noneTwice()
}

// TestSuspendedLeaderSendsNothing: a leader is suspended while its first effect is under way. The other worker provisions the fleet
// meanwhile. When the former leader wakes it takes note of the reply and sends nothing more.
func TestSuspendedLeaderSendsNothing(t *testing.T) {
	t.Parallel()
	var once sync.Once
	suspended := make(chan string, 1)
	var a *site
	a = newSite(t, options{nodes: 2, worker: electing(nil), fleet: withStreams, hook: func(_ *site, c fleet.Call) fleet.Fault {
		if c.Phase == fleet.PhaseEnd && c.Action == "gen25519" {
			once.Do(func() {
				a.mu.Lock()
				p := a.worker
				a.mu.Unlock()
				if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
					t.Error(err)
				}
				suspended <- c.Node
			})
		}
		return fleet.Fault{}
	}})
	b := a.twin(electing(nil))
	a.start()
	first := <-suspended
	before := len(a.requestsOf("configure"))
	b.start()
	a.awaitFleet("the other worker provisions the fleet", func(st fleet.State) bool { return st.Count(joined) == 2 })
	if err := a.worker.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	a.await("the former leader knows that it does not lead", func() bool {
		v, err := a.tryView()
		return err == nil && v.Worker != nil && strings.Contains(v.Worker.Gate, "standing by") && len(v.Items) == 0
	})
	for _, s := range []*site{a, b} {
		if code := s.stop(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	if got := a.view().Counts.Receipts; got["applied"]+got["moot"]+got["not-applied"] != got["applied"] || got["unknown"] != 0 || before != 0 {
		t.Errorf("the former leader's receipts are %v after %s woke it", got, first)
	}
	for _, n := range a.fleet.Nodes() {
		a.ran(n, map[string]int{"configure": 1, "restart": 1})
	}
	a.noneTwice()
}

// TestElectionWithoutStreams: a broker without streams makes a worker that says so and waits, and not one that leads alone.
func TestElectionWithoutStreams(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{nodes: 1, worker: electing(nil)})
	s.start()
	s.await("the worker says what is wrong", func() bool {
		v, err := s.tryView()
		return err == nil && v.Worker != nil && strings.Contains(v.Worker.Gate, "no election yet") && s.logged("the election failed, trying again")
	})
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if n := s.begins(s.fleet.Nodes()[0], "jwt"); n != 0 {
		t.Errorf("a worker without an election asked %d times for a token", n)
	}
}

// TestPauseOfARunningWorker: the effect in flight ends, nothing is begun on any node while it is paused, also by a worker that is started
// meanwhile, and all goes on afterwards.
func TestPauseOfARunningWorker(t *testing.T) {
	t.Parallel()
	var once sync.Once
	var s *site
	s = newSite(t, options{nodes: 3, worker: fleet.WorkerOptions{Values: short(map[string]any{"workers": 2})}, hook: func(_ *site, c fleet.Call) fleet.Fault {
		if c.Phase == fleet.PhaseBegin && c.Action == "configure" {
			once.Do(func() {
				if out, code := s.provctl("pause", "--reason", "look at it", "--state-dir", s.files.StateDir); code != 0 {
					t.Errorf("pause: exit %d: %s", code, out)
				}
			})
		}
		return fleet.Fault{}
	}})
	s.start()
	s.await("the pause is shown and nothing is in flight", func() bool {
		v, err := s.tryView()
		return err == nil && v.Worker != nil && strings.Contains(v.Worker.Gate, "look at it") && len(v.Items) == 0 && v.Worker.Busy == 0 && v.Worker.Parked == 0
	})
	s.kill()
	s.start()
	s.await("the next worker is paused too", func() bool {
		v, err := s.tryView()
		return err == nil && v.Worker != nil && v.Worker.State == "running" && strings.Contains(v.Worker.Gate, "look at it")
	})
	if n := len(s.requestsOf("restart")); n != 0 {
		t.Errorf("%d restarts ran in a pause", n)
	}
	if out, code := s.provctl("resume", "--state-dir", s.files.StateDir); code != 0 {
		t.Fatalf("resume: exit %d: %s", code, out)
	}
	s.awaitFleet("all nodes are provisioned", func(st fleet.State) bool { return st.Count(joined) == 3 })
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.noneTwice()
	for _, n := range s.fleet.Nodes() {
		s.ran(n, map[string]int{"configure": 1, "restart": 1})
	}
}

// requestsOf lists the requests of an action that ran on any node.
func (s *site) requestsOf(action string) []string {
	s.t.Helper()
	entries, err := s.fleet.Entries()
	if err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if e.Phase == fleet.PhaseBegin && e.Action == action && !slices.Contains(out, e.RequestID) {
			out = append(out, e.RequestID)
		}
	}
	return out
}
