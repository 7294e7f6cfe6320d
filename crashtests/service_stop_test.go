package crashtests

import (
	"strings"
	"testing"

	"provctl/internal/fleet"
)

// TestSweep9Start follows a start: no broker, so the worker waits and has systemd wait beyond TimeoutStartSec; then a node that is blocked by what
// an earlier life left, of which the status tells while the other node is provisioned.
func TestSweep9Start(t *testing.T) {
	t.Parallel()
	if !wide() || !wanted(t.Name()) {
		return
	}
	var hold firstNode
	s := newService(t, options{
		nodes: 2, worker: fleet.WorkerOptions{Values: map[string]any{"effect_ttl": "30s"}}, hook: holdFirst(&hold, "configure"),
	}, hasty+"TimeoutStartSec=8s\n")
	if s == nil {
		return
	}
	s.fleet.StopBroker()
	s.systemctl("start", "--no-block")
	s.awaitUnit("it waits for the broker", func(v unitView) bool { return v.Active == "activating" && v.Status == "waiting for the broker" })
	const age = `test $(($(date +%s) - $(date +%s -d "$(systemctl show --value -p ExecMainStartTimestamp provctl.service)"))) -gt 11`
	s.await("it is older than systemd waits by itself", func() bool {
		_, code := s.in("sh", "-c", age)
		return code == 0
	})
	if v := s.show(); v.Active != "activating" || v.Restarts != 0 {
		t.Errorf("without a broker the unit is %+v", v)
	}
	if err := s.fleet.StartBroker(s.ctx); err != nil {
		t.Fatal(err)
	}
	s.awaitUnit("it is ready", active)
	s.awaitFleet("the configure runs", func(st fleet.State) bool { return stillIn(st, hold.name(), "configure") })
	s.shoot("KILL")
	s.awaitUnit("it is ready and blocked", func(v unitView) bool {
		return active(v) && v.Restarts == 1 && strings.Contains(v.Status, "1 node blocked, see provctl inspect")
	})
	s.awaitFleet("the other node is provisioned", func(st fleet.State) bool { return st.Count(joined) == 1 })
	if v := s.show(); !strings.Contains(v.Status, "1 node blocked") {
		t.Errorf("the status is %q although a node is blocked", v.Status)
	}
	if out, code := s.asService("provctl", "inspect", "--state-dir", unitState); code != 3 {
		t.Errorf("inspect by the service's account exits with %d: %s", code, out)
	}
	s.fleet.Release(fleet.Any, fleet.Any)
	s.finished()
	s.awaitUnit("nothing is blocked", func(v unitView) bool { return active(v) && !strings.Contains(v.Status, "blocked") })
}

// TestSweep9Stop stops and restarts the service while an effect runs: the reply is waited for, even beyond a TimeoutStopSec that a site made too
// short. A worker that is suspended cannot end in order; it is killed in the end, and then nothing runs twice either.
func TestSweep9Stop(t *testing.T) {
	t.Parallel()
	if !wide() || !wanted(t.Name()) {
		return
	}
	t.Run("stop", func(t *testing.T) { t.Parallel(); stopsInOrder(t, "stop") })
	t.Run("restart", func(t *testing.T) { t.Parallel(); stopsInOrder(t, "restart") })
	t.Run("suspended", func(t *testing.T) { t.Parallel(); stopsSuspended(t) })
}

func stopsInOrder(t *testing.T, command string) {
	var hold firstNode
	s := newService(t, options{
		nodes: 2, worker: fleet.WorkerOptions{Values: map[string]any{"effect_ttl": "60s", "stop_timeout": "45s"}}, hook: holdFirst(&hold, "configure"),
	}, "[Service]\nTimeoutStopSec=6s\n")
	if s == nil {
		return
	}
	s.systemctl("start")
	s.awaitFleet("the configure runs", func(st fleet.State) bool { return stillIn(st, hold.name(), "configure") })
	pid := s.show().MainPID
	s.systemctl(command, "--no-block")
	s.awaitUnit("it stops", func(v unitView) bool {
		return v.Active == "deactivating" && strings.Contains(v.Status, "stopping, 1 effect in flight")
	})
	const age = `test $(($(cut -d. -f1 /proc/uptime) - $(systemctl show --value -p StateChangeTimestampMonotonic provctl.service) / 1000000)) -gt 8`
	s.await("it has stopped for longer than systemd waits by itself", func() bool {
		_, code := s.in("sh", "-c", age)
		return code == 0
	})
	if v := s.show(); v.MainPID != pid {
		t.Errorf("it was not waited for the effect: %+v", v)
	}
	s.fleet.Release(fleet.Any, fleet.Any)
	if command == "stop" {
		if v := s.awaitUnit("it has stopped", func(v unitView) bool { return v.Active == "inactive" }); v.Result != "success" || v.Exit != 0 || v.Restarts != 0 {
			t.Errorf("after the stop the unit is %+v", v)
		}
		s.systemctl("start")
	}
	s.awaitUnit("another worker is ready", func(v unitView) bool { return active(v) && v.MainPID != pid })
	if v := s.view(); v.Counts.Receipts["unknown"] != 0 {
		t.Errorf("a stop in order left receipts unknown: %v", v.Counts.Receipts)
	}
	s.finished()
	s.ran(hold.name(), map[string]int{"configure": 1, "restart": 1})
}

func stopsSuspended(t *testing.T) {
	var hold firstNode
	s := newService(t, options{nodes: 1, hook: holdFirst(&hold, "configure")}, "[Service]\nTimeoutStopSec=2s\nWatchdogSec=0\n")
	if s == nil {
		return
	}
	s.systemctl("start")
	s.awaitFleet("the configure runs", func(st fleet.State) bool { return stillIn(st, hold.name(), "configure") })
	// A debugger holds it as a stopped disk does: no signal but the last one ends it.
	s.in("sh", "-c", "kill -STOP "+"$(systemctl show --value -p MainPID "+unit+")")
	s.in("sh", "-c", "systemctl stop "+unit)
	if v := s.show(); v.Active == "active" {
		t.Errorf("after the stop the unit is %+v", v)
	}
	s.fleet.Release(fleet.Any, fleet.Any)
	s.systemctl("start")
	s.finished()
}

// TestSweep9Drain has the worker drained while effects run and another program installed: systemd starts that one.
func TestSweep9Drain(t *testing.T) {
	t.Parallel()
	if !wide() || !wanted(t.Name()) {
		return
	}
	var hold firstNode
	s := newService(t, options{
		nodes: 2, worker: fleet.WorkerOptions{Values: map[string]any{"effect_ttl": "60s"}}, hook: holdFirst(&hold, "configure"),
	}, hasty)
	if s == nil {
		return
	}
	s.systemctl("start")
	s.awaitFleet("the configure runs", func(st fleet.State) bool { return stillIn(st, hold.name(), "configure") })
	pid := s.show().MainPID
	if err := s.m.InstallProgram(program); err != nil {
		t.Fatal(err)
	}
	if out, code := s.asService("provctl", "drain", "--no-wait", "--state-dir", unitState); code != 0 {
		t.Fatalf("drain exits with %d: %s", code, out)
	}
	s.awaitUnit("it says that it drains", func(v unitView) bool { return strings.Contains(v.Status, "draining") })
	s.fleet.Release(fleet.Any, fleet.Any)
	v := s.awaitUnit("the next program is ready", func(v unitView) bool { return active(v) && v.MainPID != pid })
	if v.Restarts != 1 {
		t.Errorf("after the drain the unit is %+v", v)
	}
	program, _ := s.in("readlink", "/proc/"+strings.TrimSpace(s.value("MainPID"))+"/exe")
	if strings.TrimSpace(program) != "/usr/bin/provctl" {
		t.Errorf("the worker runs %s", program)
	}
	s.finished()
	s.ran(hold.name(), map[string]int{"jwt": 1, "configure": 1, "restart": 1})
}

// value is one property of the unit.
func (s *serviceSite) value(property string) string {
	s.t.Helper()
	p, err := s.m.Show(s.ctx, unit, property)
	if err != nil {
		s.t.Fatal(err)
	}
	return p[property]
}
