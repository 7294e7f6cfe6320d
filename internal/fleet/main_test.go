package fleet

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"
)

// nodeArgument makes the test binary a node's process.
const nodeArgument = "fleet-node"

// hostArgument makes the test binary the owner of a fleet that waits to be killed.
const hostArgument = "fleet-host"

// hostFleet starts two nodes, suspends one, prints their pids and blocks.
func hostFleet(dir string) {
	f, err := Start(context.Background(), Options{Dir: dir, Nodes: 2, NodeCommand: []string{os.Args[0], nodeArgument}})
	if err == nil {
		err = f.SuspendNode(f.Nodes()[0])
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	s := f.State()
	fmt.Println(s.Nodes[f.Nodes()[0]].PID, s.Nodes[f.Nodes()[1]].PID)
	select {}
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == nodeArgument {
		fmt.Fprintln(os.Stderr, NodeMain(os.Args[2:]))
		os.Exit(1)
	}
	if len(os.Args) > 2 && os.Args[1] == hostArgument {
		hostFleet(os.Args[2])
	}
	os.Exit(m.Run())
}

// deadline bounds whatever a test waits for.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// testOptions are those of a fleet of test processes.
func testOptions(t *testing.T, nodes int) Options {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Options{Dir: t.TempDir(), Nodes: nodes, NodeCommand: []string{executable, nodeArgument}, Log: t.Output()}
}

// startFleet starts a fleet that ends with the test.
func startFleet(t *testing.T, opts Options) *Fleet {
	t.Helper()
	f, err := Start(deadline(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.State())
			for _, name := range f.Nodes() {
				showLog(t, f, name)
			}
		}
	})
	return f
}

func showLog(t *testing.T, f *Fleet, name string) {
	t.Helper()
	entries, err := f.Log(name)
	for _, e := range entries {
		t.Logf("%s boot %d %s %s %s fault %q status %d %s", e.Node, e.Boot, e.Phase, e.Mode, e.Action, e.Fault, e.Status, e.Message)
	}
	if err != nil {
		t.Log(err)
	}
	if dir, err := f.NodeDir(name); err == nil {
		text, _ := os.ReadFile(dir + "/node.log")
		t.Logf("%s node.log:\n%s", name, text)
	}
}

// await waits for one node.
func await(t *testing.T, f *Fleet, node string, is func(NodeState) bool) NodeState {
	t.Helper()
	if err := f.Wait(deadline(t), func(s State) bool { return is(s.Nodes[node]) }); err != nil {
		t.Fatal(err)
	}
	return f.State().Nodes[node]
}

// entriesOf picks a node's entries of one action, as "phase" or "phase:status".
func phases(t *testing.T, f *Fleet, node, action string) []string {
	t.Helper()
	entries, err := f.Log(node)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		switch {
		case e.Action != action:
		case e.Status == NoStatus:
			out = append(out, string(e.Phase))
		default:
			out = append(out, fmt.Sprintf("%s:%d", e.Phase, e.Status))
		}
	}
	return out
}
