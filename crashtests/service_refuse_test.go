package crashtests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"provctl/internal/fleet"
)

// refusal is a state of the machine in which the worker does not come up.
type refusal struct {
	spoil    func(*testing.T, *serviceSite)
	code     int
	words    []string // of the unit's log: place and remedy
	restarts int      // the last one is refused: StartLimitBurst= counts the first start too
}

// unitRefusals are spoiled on one machine, one after the other; afterwards files are as they were.
var unitRefusals = map[string]refusal{
	"configuration unknown key": {
		spoil: func(t *testing.T, s *serviceSite) { s.spoil(unitConfig, "nonsense: 1\n") }, code: 78,
		words: []string{"provctl.yaml:", "nonsense", "unknown key"},
	},
	"configuration missing": {
		spoil: func(t *testing.T, s *serviceSite) { remove(t, s.m.Path(unitConfig)) }, code: 78,
		words: []string{"provctl.yaml", "does not exist"},
	},
	"choria configuration": {spoil: func(t *testing.T, s *serviceSite) {
		s.spoil("/etc/provctl/choria.conf", "plugin.security.choria.seed_file=/nowhere\n")
	}, code: 78, words: []string{"choria.conf", "/nowhere"}},
	"journal missing": {
		spoil: func(t *testing.T, s *serviceSite) { remove(t, s.m.Path(unitState+"/journal.db")) }, code: 6,
		words: []string{"journal missing", "journal.db", "provctl init"},
	},
	"journal damaged": {
		spoil: func(t *testing.T, s *serviceSite) { flip(t, s.m.Path(unitState+"/journal.db"), 0) }, code: 6,
		words: []string{"damaged", "journal.db"},
	},
	"lock is a directory": {spoil: func(t *testing.T, s *serviceSite) {
		_ = os.Remove(s.m.Path(unitState + "/worker.lock"))
		if err := os.Mkdir(s.m.Path(unitState+"/worker.lock"), 0o700); err != nil {
			t.Fatal(err)
		}
	}, code: 1, words: []string{"worker.lock", "Start request repeated too quickly"}, restarts: 5},
	"journal of another user": {
		spoil: func(t *testing.T, s *serviceSite) { s.own(s.m.Path(unitState+"/journal.db"), 0, 0o600) }, code: 1,
		words: []string{"journal.db", "permission denied"}, restarts: 5,
	},
}

// spoil appends to a file.
func (s *serviceSite) spoil(file, text string) {
	s.t.Helper()
	s.put(s.m.Path(file), read(s.t, s.m.Path(file))+text)
}

// TestSweep9Refused starts the unit on all that a worker refuses. What no restart can mend is tried once; the rest at most as often as the
// unit's limit says. Put right, the unit starts.
func TestSweep9Refused(t *testing.T) {
	t.Parallel()
	s := newService(t, options{}, "[Service]\nRestartSec=50ms\n")
	if s == nil {
		return
	}
	state, good := s.m.Path(unitState), filepath.Join(t.TempDir(), "good")
	copyDir(t, state, good)
	for name, c := range unitRefusals {
		t.Run(name, func(t *testing.T) {
			if !wanted(t.Name()) || quick() && c.restarts > 0 {
				return
			}
			s := s.under(t)
			c.spoil(t, s)
			before := contents(t, state)
			s.refuses(c)
			after := contents(t, state)
			delete(before, "worker.lock")
			delete(after, "worker.lock")
			if len(before) != len(after) || before["journal.db"] != after["journal.db"] {
				t.Error("a worker that refused to start changed the state directory")
			}
			s.restore(good)
			s.systemctl("reset-failed")
			s.systemctl("start")
			s.awaitUnit("put right it is ready", active)
			s.systemctl("stop")
		})
	}
}

// under is the same site for a test within the test.
func (s *serviceSite) under(t *testing.T) *serviceSite {
	return &serviceSite{site: &site{t: t, ctx: s.ctx, fleet: s.fleet, files: s.files, log: s.log}, m: s.m}
}

// refuses starts the unit and wants it to give up in that way.
func (s *serviceSite) refuses(c refusal) {
	s.t.Helper()
	since, _ := s.in("date", "+%s.%N")
	s.in("systemctl", "start", unit)
	v := s.awaitUnit("systemd gives up", func(v unitView) bool { return v.Active == "failed" })
	if v.Exit != c.code || v.Restarts != c.restarts {
		s.t.Errorf("the unit is %+v, want exit code %d after %d restarts", v, c.code, c.restarts)
	}
	s.await("the log tells why", func() bool {
		out, _ := s.in("journalctl", "-q", "-o", "cat", "-u", unit, "--since", "@"+strings.TrimSpace(since))
		write(s.t, s.log, out)
		for _, w := range c.words {
			if !strings.Contains(out, w) {
				return false
			}
		}
		return true
	})
	whole(s.t, "the log", read(s.t, s.log))
	s.silent(s.t, "the log", read(s.t, s.log))
	add("service refusals", 1)
}

// restore puts configuration and state back as they were.
func (s *serviceSite) restore(good string) {
	s.t.Helper()
	state := s.m.Path(unitState)
	if err := os.RemoveAll(filepath.Join(state, "worker.lock")); err != nil {
		s.t.Fatal(err)
	}
	copyDir(s.t, good, state)
	s.deploy()
}

// TestSweep9Twice has a second worker beside the unit, first by hand, then the unit beside one by hand.
func TestSweep9Twice(t *testing.T) {
	t.Parallel()
	s := newService(t, options{}, hasty)
	if s == nil {
		return
	}
	run := []string{"provctl", "run", "--config", unitConfig, "--choria-config", "/etc/provctl/choria.conf"}
	s.systemctl("start")
	v := s.show()
	s.systemctl("start") // does nothing
	out, code := s.asService(run...)
	says(t, out, code, 5, `worker\.lock`, "stop it first")
	if now := s.show(); now.MainPID != v.MainPID || !active(now) {
		t.Errorf("beside a second worker the unit is %+v, and was %+v", now, v)
	}
	s.systemctl("stop")
	if out, code := s.in(append([]string{"systemd-run", "--unit=byhand", "--uid=provctl", "--quiet"}, run...)...); code != 0 {
		t.Fatalf("run by hand: %d: %s", code, out)
	}
	s.await("the worker by hand is there", func() bool { return s.view().Worker != nil })
	s.refuses(refusal{code: 5, words: []string{"worker.lock", "stop it first"}})
	if out, code := s.in("systemctl", "stop", "byhand"); code != 0 {
		t.Fatalf("stop it: %d: %s", code, out)
	}
	s.systemctl("reset-failed")
	s.systemctl("start")
	s.awaitUnit("it is ready", active)
}

// TestSweep9Disk gives the unit a state directory that cannot be written, that belongs to somebody else, and that is full.
func TestSweep9Disk(t *testing.T) {
	t.Parallel()
	if !wide() || !wanted(t.Name()) {
		return
	}
	s := newService(t, options{nodes: 1}, "[Service]\nRestartSec=50ms\n")
	if s == nil {
		return
	}
	mount := func(args ...string) {
		t.Helper()
		if out, code := s.in(args...); code != 0 {
			t.Fatalf("%v: %s", args, out)
		}
	}
	if err := s.fleet.KillNode(s.fleet.Nodes()[0]); err != nil {
		t.Fatal(err)
	}
	mount("mount", "--bind", "-o", "ro", unitState, unitState)
	s.refuses(refusal{code: 1, words: []string{unitState, "read-only file system"}, restarts: 5})
	mount("umount", unitState)
	s.systemctl("reset-failed")

	// systemd gives the state directory to the unit's account.
	s.own(s.m.Path(unitState), 0, 0o700)
	s.systemctl("start")
	s.awaitUnit("it is ready", active)
	s.systemctl("stop")

	s.diskFull(mount)
}

// diskFull fills a small disk under a running worker. It ends before it sends what it could not note, says why, and goes on once there is
// space, which here is before systemd's next try.
func (s *serviceSite) diskFull(mount func(...string)) {
	s.t.Helper()
	s.install("[Service]\nRestartSec=20s\n")
	mount("systemctl", "daemon-reload")
	mount("cp", "-a", unitState, "/var/tmp/copy")
	mount("mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", unitState)
	mount("cp", "-a", "/var/tmp/copy/.", unitState)
	mount("chown", "provctl:provctl", unitState)
	s.systemctl("start")
	s.awaitUnit("it is ready", active)
	s.in("dd", "if=/dev/zero", "of="+unitState+"/filler", "bs=4k")
	node := s.fleet.Nodes()[0]
	s.startNode(node)
	s.await("the log tells of the disk", func() bool { return s.logged("no space left on device") && s.logged("start again") })
	s.ran(node, map[string]int{"configure": 0})
	mount("rm", unitState+"/filler")
	s.awaitFleet("the node is provisioned", func(st fleet.State) bool { return st.Count(joined) == 1 })
	if v := s.show(); !active(v) || v.Restarts != 1 {
		s.t.Errorf("after the disk was full the unit is %+v", v)
	}
	s.noneTwice()
	s.secretless()
}
