package fleet

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestBrokerStopsAndComesBack(t *testing.T) {
	f := startFleet(t, testOptions(t, 2))
	c := newTestClient(t, f, "provisioning")
	node := f.Nodes()[0]
	c.provision(node, "jwt", nil)
	url := f.BrokerURL()
	f.StopBroker()
	if err := f.Wait(deadline(t), func(s State) bool {
		return !s.Broker && s.Count(func(n NodeState) bool { return n.Connected }) == 0
	}); err != nil {
		t.Fatal(err)
	}
	if err := f.StartBroker(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if err := f.StartBroker(deadline(t)); !errors.Is(err, ErrBrokerRunning) {
		t.Errorf("a second start: %v", err)
	}
	if err := f.Wait(deadline(t), func(s State) bool {
		return s.Broker && s.Count(func(n NodeState) bool { return n.Connected }) == 2
	}); err != nil {
		t.Fatal(err)
	}
	if f.BrokerURL() != url {
		t.Errorf("the broker moved from %s to %s", url, f.BrokerURL())
	}
	newTestClient(t, f, "provisioning").provision(node, "jwt", nil)
	if s := f.State().Nodes[node]; s.Boots != 1 || !s.Joined {
		t.Errorf("%+v; the node must not have restarted", s)
	}
}

func TestNodeIsKilledAndStartsAgain(t *testing.T) {
	f := startFleet(t, testOptions(t, 1))
	c := newTestClient(t, f, "provisioning")
	node := f.Nodes()[0]
	c.provision(node, "jwt", nil)
	before := f.State().Nodes[node]
	if err := f.StartNode(deadline(t), node); !errors.Is(err, ErrNodeRunning) {
		t.Errorf("starting a running node: %v", err)
	}
	if err := f.KillNode(node); err != nil {
		t.Fatal(err)
	}
	if err := f.KillNode(node); !errors.Is(err, ErrNodeStopped) {
		t.Errorf("killing a dead node: %v", err)
	}
	if s := f.State().Nodes[node]; s.Alive || s.Connected || s.Joined || s.Exit != "signal: killed" {
		t.Errorf("after the kill: %+v", s)
	}
	if err := f.StartNode(deadline(t), node); err != nil {
		t.Fatal(err)
	}
	after := f.State().Nodes[node]
	if after.PID == before.PID || after.Boots != 2 || after.Mode != Provisioning {
		t.Errorf("after the start: %+v", after)
	}
	c.provision(node, "jwt", nil)
	checkBoots(t, f, node, "boot provisioning", "joined provisioning", "boot provisioning", "joined provisioning")
	if entries, err := f.Entries(); err != nil || len(entries) != 10 {
		t.Errorf("%d entries, %v; the log of the killed process must stay", len(entries), err)
	}
}

func TestSuspendedNodeAnswersLater(t *testing.T) {
	f := startFleet(t, testOptions(t, 1))
	c := newTestClient(t, f, "provisioning")
	node := f.Nodes()[0]
	if err := f.SuspendNode(node); err != nil {
		t.Fatal(err)
	}
	request := c.call(node, "jwt", nil)
	if got := phases(t, f, node, "jwt"); got != nil {
		t.Errorf("a suspended node logged %q", got)
	}
	request.none()
	if err := f.ResumeNode(node); err != nil {
		t.Fatal(err)
	}
	if reply := request.next(deadline(t)); reply.Code != 0 {
		t.Errorf("%+v", reply)
	}
}

func TestShutdownStaysDown(t *testing.T) {
	f := startFleet(t, testOptions(t, 1))
	c := newTestClient(t, f, "provisioning")
	node := f.Nodes()[0]
	c.provision(node, "shutdown", nil)
	if s := await(t, f, node, func(s NodeState) bool { return !s.Alive }); s.Exit != "exit status 0" {
		t.Errorf("exit %q", s.Exit)
	}
}

func TestRequestsInTheSplayAreHeld(t *testing.T) {
	opts := testOptions(t, 1)
	opts.Splay = 5 * time.Second
	f := startFleet(t, opts)
	c := newTestClient(t, f, "provisioning")
	node := f.Nodes()[0]
	configure(t, c, node)
	c.provision(node, "restart", map[string]any{"splay": 1})
	queued := c.call(node, "configure", nil)
	c.ok(node, "rpcutil", "ping", map[string]any{})
	s := await(t, f, node, isProvisioned)
	queued.none()
	if got := phases(t, f, node, "configure"); got[len(got)-1] != "received" {
		t.Errorf("log of configure: %q; a request in the splay must not run", got)
	}
	if s.Begins["configure"] != 1 || s.Requests["rpcutil.ping"] != 1 {
		t.Errorf("begins %v requests %v", s.Begins, s.Requests)
	}
}

func TestCloseLeavesNoProcess(t *testing.T) {
	f := startFleet(t, testOptions(t, 2))
	if err := f.SuspendNode(f.Nodes()[0]); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, s := range f.State().Nodes {
		pids = append(pids, s.PID)
	}
	f.Close()
	f.Close()
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d: %v, want none", pid, err)
		}
	}
	if err := f.Wait(t.Context(), func(State) bool { return false }); !errors.Is(err, ErrClosed) {
		t.Errorf("Wait after Close: %v", err)
	}
	if err := f.StartNode(t.Context(), f.Nodes()[0]); !errors.Is(err, ErrClosed) {
		t.Errorf("StartNode after Close: %v", err)
	}
	if _, err := f.Log(f.Nodes()[0]); err != nil {
		t.Errorf("the log after Close: %v", err)
	}
}

func TestNodeDiesWithItsControlChannel(t *testing.T) {
	f := startFleet(t, testOptions(t, 1))
	node := f.Nodes()[0]
	f.dropConnections()
	if s := await(t, f, node, func(s NodeState) bool { return !s.Alive }); s.Exit != "exit status 1" {
		t.Errorf("exit %q", s.Exit)
	}
}

func TestStartRefuses(t *testing.T) {
	used := t.TempDir()
	if err := os.Mkdir(filepath.Join(used, "nodes"), 0o700); err != nil {
		t.Fatal(err)
	}
	good := testOptions(t, 2)
	for name, change := range map[string]func(*Options){
		"no directory":         func(o *Options) { o.Dir = "" },
		"no command":           func(o *Options) { o.NodeCommand = nil },
		"unknown command":      func(o *Options) { o.NodeCommand = []string{"/nonexistent/node"} },
		"negative nodes":       func(o *Options) { o.Nodes = -1 },
		"negative splay":       func(o *Options) { o.Splay = -1 },
		"a name twice":         func(o *Options) { o.Names = func(int) string { return "a.example.net" } },
		"a name with a slash":  func(o *Options) { o.Names = func(i int) string { return "a/" + strconv.Itoa(i) } },
		"a name with a dotdot": func(o *Options) { o.Names = func(int) string { return ".." } },
	} {
		t.Run(name, func(t *testing.T) {
			opts := good
			change(&opts)
			if f, err := Start(t.Context(), opts); !errors.Is(err, ErrOptions) {
				t.Errorf("%v, want ErrOptions", err)
				if f != nil {
					f.Close()
				}
			}
		})
	}
	t.Run("a used directory", func(t *testing.T) {
		opts := good
		opts.Dir = used
		if _, err := Start(t.Context(), opts); !errors.Is(err, os.ErrExist) {
			t.Errorf("%v, want one that says the directory is used", err)
		}
	})
	t.Run("a node that cannot boot", func(t *testing.T) {
		opts := good
		opts.NodeCommand = []string{"/bin/false"}
		if _, err := Start(deadline(t), opts); !errors.Is(err, ErrNodeStopped) || !strings.Contains(err.Error(), "node.log") {
			t.Errorf("%v, want one that names the node's log", err)
		}
	})
	if _, err := startFleet(t, testOptions(t, 0)).NodeDir("nobody"); !errors.Is(err, ErrUnknownNode) {
		t.Errorf("NodeDir of nobody: %v", err)
	}
}

func TestNodeMainRefuses(t *testing.T) {
	for _, args := range [][]string{{}, {"--dir", t.TempDir()}, {"--unknown"}, {"--dir", t.TempDir(), "--socket", "/nonexistent"}} {
		if err := NodeMain(args); err == nil {
			t.Errorf("NodeMain(%q) has no error", args)
		}
	}
}
