package crashtests

import (
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"provctl/internal/fleet"
)

// TestSweep9Kills kills the service at random moments of random requests, which systemd answers with a new one each time.
func TestSweep9Kills(t *testing.T) {
	t.Parallel()
	seeds := 5
	if !wide() {
		seeds = 1
	}
	for n := 1; n <= seeds; n++ {
		name := seedOf(n)
		t.Run(name, func(t *testing.T) {
			if !wanted(t.Name()) {
				return
			}
			t.Parallel()
			serviceKilled(t, name)
		})
	}
}

// lottery decides, the same for each seed, at which moments of a run the service is killed.
type lottery struct {
	mu    sync.Mutex
	kills int
	seed  uint64
	seen  map[string]bool
}

// killsAtMost bounds a run; each is one start of the service.
const killsAtMost = 8

// draw tells whether this is a moment to kill at. It goes by what the moment is, not by when it comes: lanes race each other.
func (l *lottery) draw(c fleet.Call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	moment := c.Node + " " + c.Action + " " + string(c.Phase)
	if l.seen[moment] || l.kills == killsAtMost {
		return false
	}
	l.seen[moment] = true
	h := fnv.New64a()
	_, _ = h.Write([]byte(moment))
	if rand.New(rand.NewPCG(l.seed, h.Sum64())).IntN(3) > 0 {
		return false
	}
	l.kills++
	return true
}

func (l *lottery) drawn() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kills
}

func serviceKilled(t *testing.T, seed string) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(seed))
	draw := &lottery{seed: h.Sum64(), seen: map[string]bool{}}
	var s *serviceSite
	var booted sync.WaitGroup
	booted.Add(1)
	s = newService(t, options{
		// A job that was interrupted more often than max_requeues is held for a person, which is not what is tried here.
		nodes: 4, worker: fleet.WorkerOptions{Values: map[string]any{"workers": 2, "max_requeues": killsAtMost}},
		hook: func(_ *site, c fleet.Call) fleet.Fault {
			booted.Wait()
			if draw.draw(c) {
				// The worker may be dead already, of a kill at another node.
				_, _, _ = s.m.Run(s.ctx, "systemctl", "kill", "--kill-whom=main", "--signal=KILL", unit)
			}
			return fleet.Fault{}
		},
	}, hasty)
	booted.Done()
	if s == nil {
		return
	}
	s.systemctl("start", "--no-block")
	s.finished()
	v := s.awaitUnit("it is ready", active)
	kills := draw.drawn()
	if v.Restarts == 0 || v.Restarts > kills {
		t.Errorf("of %d kills systemd answered %d with a new worker", kills, v.Restarts)
	}
	t.Logf("%d kills, %d restarts", kills, v.Restarts)
	add("service kills", kills)
	for _, node := range s.fleet.Nodes() {
		s.ran(node, map[string]int{"configure": 1})
	}
}

// TestSweep9Power cuts the power of the whole machine while effects run, and boots it again. The kernel's boot id stays, as it does for a
// container: what the worker must know of an earlier boot it has from its own journal.
func TestSweep9Power(t *testing.T) {
	t.Parallel()
	for _, action := range []string{"gen25519", "configure", "restart"} {
		t.Run(action, func(t *testing.T) {
			if !wide() || !wanted(t.Name()) {
				return
			}
			t.Parallel()
			powerCut(t, action)
		})
	}
}

func powerCut(t *testing.T, action string) {
	var hold firstNode
	s := newService(t, options{nodes: 2, hook: holdFirst(&hold, action)}, "")
	if s == nil {
		return
	}
	if err := s.m.Enable(unit); err != nil {
		t.Fatal(err)
	}
	s.systemctl("start")
	s.awaitFleet("the effect runs", func(st fleet.State) bool { return stillIn(st, hold.name(), action) })
	if err := s.m.Cut(); err != nil {
		t.Fatal(err)
	}
	s.fleet.Release(fleet.Any, fleet.Any) // nobody hears the reply
	s.boot()
	s.awaitUnit("the unit is back without anybody's help", active)
	s.finished()
}

// TestSweep9Watchdog suspends the worker while an effect runs: it no longer says that it is alive, and systemd replaces it.
func TestSweep9Watchdog(t *testing.T) {
	t.Parallel()
	if !wide() || !wanted(t.Name()) {
		return
	}
	var hold firstNode
	s := newService(t, options{nodes: 2, hook: holdFirst(&hold, "configure")}, hasty+"WatchdogSec=8s\nTimeoutAbortSec=2s\n")
	if s == nil {
		return
	}
	s.systemctl("start")
	s.awaitFleet("the configure runs", func(st fleet.State) bool { return stillIn(st, hold.name(), "configure") })
	before := s.show()
	s.shoot("STOP")
	s.awaitUnit("another worker is ready", func(v unitView) bool { return active(v) && v.MainPID != before.MainPID })
	s.fleet.Release(fleet.Any, fleet.Any)
	if !s.logged("Watchdog timeout") {
		t.Errorf("systemd does not say that it was the watchdog")
	}
	s.finished()
	if v := s.show(); v.Restarts != 1 {
		t.Errorf("the watchdog restarted the worker %d times", v.Restarts)
	}
}

// TestSweep9Helper kills the worker while a helper program advises on a node, then the helper of the next worker. Of the first nothing is left;
// the second is one failed attempt.
func TestSweep9Helper(t *testing.T) {
	t.Parallel()
	if !wide() || !wanted(t.Name()) {
		return
	}
	s := newService(t, options{nodes: 1, worker: fleet.WorkerOptions{Values: map[string]any{"helper_timeout": "60s"}}}, hasty)
	if s == nil {
		return
	}
	const script, gate = "/etc/provctl/helper.sh", "/etc/provctl/gate"
	write(t, s.m.Path(gate), "")
	s.put(s.m.Path(script), strings.Replace(read(t, s.m.Path(script)), "set -eu\n", "set -eu\nwhile [ -e "+gate+" ]; do sleep 0.1; done\n", 1))
	helper := func() string {
		var pid string
		s.await("the helper runs", func() bool {
			out, code := s.in("pgrep", "-o", "-u", "provctl", "-f", script)
			pid = strings.TrimSpace(out)
			return code == 0
		})
		return pid
	}
	s.systemctl("start")
	first, before := helper(), s.show()
	s.shoot("KILL")
	after := s.awaitUnit("another worker is ready", func(v unitView) bool { return active(v) && v.MainPID != before.MainPID })
	if _, code := s.in("kill", "-0", first); code == 0 {
		t.Error("the helper has outlived its worker")
	}
	if out, code := s.in("kill", "-KILL", helper()); code != 0 {
		t.Fatalf("kill the helper: %d: %s", code, out)
	}
	s.await("the log tells of it", func() bool { return s.logged("killed by signal") })
	if v := s.show(); v.MainPID != after.MainPID || !active(v) {
		t.Errorf("without its helper the unit is %+v", v)
	}
	remove(t, s.m.Path(gate))
	node := s.fleet.Nodes()[0]
	if out, code := s.asService("provctl", "admit", node, "--reason", "the helper was killed", "--state-dir", unitState); code != 0 {
		t.Fatalf("admit: %d: %s", code, out)
	}
	s.finished()
	s.ran(node, map[string]int{"configure": 1, "restart": 1})
}
