package crashtests

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"provctl/internal/fleet"
)

// TestDrain has a worker drained while a configure runs: the node goes on to its restart, the one that waits is left, the worker exits
// with 75, and the next one takes what waits.
func TestDrain(t *testing.T) {
	t.Parallel()
	var hold firstNode
	s := newSite(t, options{
		nodes:  2,
		worker: fleet.WorkerOptions{Values: short(map[string]any{"workers": 1, "effect_ttl": "30s"})},
		hook:   holdFirst(&hold, "configure"),
	})
	if out, code := s.provctl("drain", "--state-dir", s.files.StateDir); code != 1 || !strings.Contains(out, "no worker runs") {
		t.Errorf("without a worker drain exits with %d: %s", code, out)
	}
	node, other := s.fleet.Nodes()[0], s.fleet.Nodes()[1]
	s.killNode(other) // a lane whose node is waited for goes on with the next one
	p := s.start()
	s.awaitFleet("the configure runs", func(st fleet.State) bool { return hold.name() == node && stillIn(st, node, "configure") })
	waited := make(chan string, 1)
	go func() {
		out, err := exec.CommandContext(s.ctx, program, "drain", "--json", "--operator", "night shift", "--state-dir", s.files.StateDir).CombinedOutput()
		if err != nil {
			out = append(out, err.Error()...)
		}
		waited <- string(out)
	}()
	s.awaitView("it says that it drains", func(v view) bool {
		return v.Worker != nil && strings.Contains(v.Worker.Gate, "draining") && strings.Contains(v.Worker.Gate, "(as night shift)")
	})
	if out, code := s.provctl("drain", "--no-wait", "--operator", "day shift", "--state-dir", s.files.StateDir); code != 0 || !strings.Contains(out, "its work at 1 node ") {
		t.Errorf("drain exits with %d: %s", code, out)
	}
	s.startNode(other)
	s.awaitView("the other one is queued", func(v view) bool { return v.Counts.Jobs["queued"] == 1 })
	s.fleet.Release(node, "configure")
	if code := s.exit(p); code != 75 {
		t.Errorf("a drained worker exits with %d", code)
	}
	if out := <-waited; !strings.Contains(out, `"ended":true`) && !strings.Contains(out, `"ended": true`) || !strings.Contains(out, "provctl.drain/1") {
		t.Errorf("the drain that waits says %s", out)
	}
	s.ran(node, map[string]int{"configure": 1, "restart": 1})
	if v := s.view(); v.Counts.Jobs["queued"] != 1 || v.Counts.Jobs["claimed"] != 0 {
		t.Errorf("after the drain the jobs are %v", v.Counts.Jobs)
	}
	s.start()
	s.awaitFleet("both are provisioned", func(st fleet.State) bool { return st.Count(joined) == 2 })
	s.endsFine(s.signal(syscall.SIGTERM), 20*time.Second)
	s.noneTwice()
}

// TestReadyIsToldAfterSettling runs the program with a notification socket of our own: with an effect that an earlier life left unknown, it is
// ready only once the node was looked at; without a broker it is ready after a while, says so, and settles later.
func TestReadyIsToldAfterSettling(t *testing.T) {
	t.Parallel()
	var hold firstNode
	s := newSite(t, options{
		nodes:  1,
		worker: fleet.WorkerOptions{Values: short(map[string]any{"effect_ttl": "30s"})},
		hook:   holdFirst(&hold, "configure"),
	})
	s.start()
	s.awaitFleet("the configure runs", func(st fleet.State) bool { return hold.name() != "" && stillIn(st, hold.name(), "configure") })
	s.kill()
	mark := s.logMark()
	said := notified(t, s)
	s.await("it is ready", func() bool { return said.has("READY=1") })
	said.inOrder(s, "STATUS=starting", "READY=1") // what comes in between may be over before anybody looks
	for _, before := range []string{"looking at unknown receipts", "ready"} {
		if !slices.ContainsFunc(s.logSince(mark), logs(before)) {
			t.Errorf("it was ready before it logged %q", before)
		}
	}
	if !said.has("1 node blocked, see provctl inspect") {
		t.Errorf("no status tells of the blocked node: %s", said)
	}
	s.fleet.Release(hold.name(), "configure")
	s.awaitFleet("it is provisioned", func(st fleet.State) bool { return st.Count(joined) == 1 })
	s.endsFine(s.signal(syscall.SIGTERM), 20*time.Second)
	said.inOrder(s, "READY=1", "STOPPING=1")
	if !said.has("EXTEND_TIMEOUT_USEC=") {
		t.Errorf("no more time was asked for: %s", said)
	}
}

// notices are what a program told its service manager.
type notices struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (n *notices) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all.String()
}

func (n *notices) has(text string) bool { return strings.Contains(n.String(), text) }

// inOrder waits until each text has come after the one before it: a program may have ended before its last word is read.
func (n *notices) inOrder(s *site, texts ...string) {
	s.t.Helper()
	s.await(fmt.Sprintf("its manager is told %q in this order", texts), func() bool {
		rest, ok := n.String(), true
		for _, text := range texts {
			if _, rest, ok = strings.Cut(rest, text); !ok {
				return false
			}
		}
		return true
	})
}

// notified starts the worker as a service manager does and hears what it says.
func notified(t *testing.T, s *site) *notices {
	t.Helper()
	dir, err := os.MkdirTemp("", "n") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	conn, err := (&net.ListenConfig{}).ListenPacket(context.Background(), "unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	n := &notices{}
	go func() {
		buf := make([]byte, 64<<10)
		for {
			k, _, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			n.mu.Lock()
			n.all.Write(append(buf[:k:k], '\n'))
			n.mu.Unlock()
		}
	}()
	s.start("NOTIFY_SOCKET=" + path)
	return n
}

// TestStartDuringAVerdict starts a worker while a command has its lock: it begins once the command has ended, for under a service manager an
// exit with 5 would be for good.
func TestStartDuringAVerdict(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{nodes: 1, worker: fleet.WorkerOptions{Values: short(nil)}})
	lock, err := os.OpenFile(filepath.Join(s.files.StateDir, "worker.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	p := s.start()
	if code := s.exit(p); code != 5 {
		t.Errorf("against a lock that nobody gives back the worker exits with %d", code)
	}
	said := notified(t, s) // it tells its manager before it takes the lock
	s.await("it starts", func() bool { return said.has("STATUS=starting") })
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	s.await("it is ready", func() bool { return said.has("READY=1") })
	s.endsFine(s.signal(syscall.SIGTERM), 20*time.Second)
}
