package lightnode

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"provctl/internal/fleet"
)

// nodeArgument makes the test binary the process of a real node.
const nodeArgument = "fleet-node"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == nodeArgument {
		fmt.Fprintln(os.Stderr, fleet.NodeMain(os.Args[2:]))
		os.Exit(1)
	}
	os.Exit(run(m))
}

// built is where the program under test is built, if a test needs it.
var built string

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "provctl-light-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	built = dir
	return m.Run()
}

func deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// broker starts a fleet with that many real nodes.
func broker(t testing.TB, real int, change func(*fleet.Options)) *fleet.Fleet {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := fleet.Options{
		Dir: t.TempDir(), Nodes: real, NodeCommand: []string{executable, nodeArgument},
		Names: func(i int) string { return fmt.Sprintf("real-%d.example.net", i) },
	}
	if change != nil {
		change(&o)
	}
	f, err := fleet.Start(deadline(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// light starts that many light nodes.
func light(t testing.TB, f *fleet.Fleet, count int, change func(*Options)) *Nodes {
	t.Helper()
	o := Options{Dir: t.TempDir(), Broker: f, Log: t.Output()}
	for i := range count {
		o.Names = append(o.Names, fmt.Sprintf("light-%d.example.net", i+1))
	}
	if change != nil {
		change(&o)
	}
	n, err := Start(deadline(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}
