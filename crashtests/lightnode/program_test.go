package lightnode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"provctl/internal/fleet"
)

// program builds the binary under test, once.
var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(built, "provctl")
	if out, err := exec.Command("go", "build", "-o", path, "provctl/cmd/provctl").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program under test: %w\n%s", err, out)
	}
	return path, nil
})

// provisionAll runs the real program from a fresh journal until done holds, and returns how long that took and what it printed.
func provisionAll(t testing.TB, f *fleet.Fleet, n *Nodes, opts fleet.WorkerOptions, done func(fleet.State) bool) (time.Duration, string) {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	files, err := f.WriteWorkerFiles(t.TempDir(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(path, "init", "--state-dir", files.StateDir).CombinedOutput(); err != nil {
		t.Fatalf("init: %v: %s", err, out)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "worker.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(path, "run", "--config", files.Config, "--choria-config", files.ChoriaConfig)
	cmd.Stdout, cmd.Stderr = log, log
	began := time.Now()
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	err = n.Wait(deadline(t), done)
	took := time.Since(began)
	_ = cmd.Process.Kill()
	var exit *exec.ExitError
	if ended := cmd.Wait(); ended != nil && !errors.As(ended, &exit) {
		t.Error(ended)
	}
	text, read := os.ReadFile(log.Name())
	if err != nil || read != nil {
		t.Fatalf("%v, %v\n%s", err, read, text)
	}
	return took, string(text)
}

// values are those of a quick worker.
var values = map[string]any{"workers": 4, "interval": "2s", "effect_ttl": "3s", "clock_skew": "1s", "loglevel": "info"}

func provisioned(s fleet.State) bool {
	return s.Count(func(n fleet.NodeState) bool { return n.Joined && n.Mode == fleet.Provisioned }) == len(s.Nodes)
}

// TestProgramProvisions runs the real program against light nodes of both kinds of fleet, twice with a Reset between.
func TestProgramProvisions(t *testing.T) {
	for name, change := range map[string]func(*fleet.Options){
		"tokens":       nil,
		"certificates": func(o *fleet.Options) { o.X509 = true },
	} {
		t.Run(name, func(t *testing.T) {
			f := broker(t, 0, change)
			n := light(t, f, 5, nil)
			settings := maps.Clone(values)
			if name == "certificates" {
				settings["effect_ttl"] = "30s" // the least of protocol 1
			}
			for round := range 2 {
				took, log := provisionAll(t, f, n, fleet.WorkerOptions{Values: settings, OwnKey: round == 1}, provisioned)
				t.Logf("5 nodes took %s", took)
				audit, err := n.Audit()
				if err != nil {
					t.Fatal(err)
				}
				if len(audit.Twice) != 0 || audit.Effects != 5*3 || len(audit.Provisioned) != 5 || audit.Incarnations != 10 {
					t.Errorf("audit %+v\n%s", audit, log)
				}
				if err = n.Reset(deadline(t)); err != nil {
					t.Fatal(err)
				}
				entries, err := n.Entries()
				if err != nil || len(entries) != 2*5 {
					t.Errorf("after a reset there are %d entries (%v), want a boot and a join of each node", len(entries), err)
				}
			}
		})
	}
}

// BenchmarkStart connects 50 nodes.
func BenchmarkStart(b *testing.B) {
	f := broker(b, 0, nil)
	for b.Loop() {
		light(b, f, 50, nil).Close()
	}
}

// BenchmarkReset renews 10 nodes whose connections stand.
func BenchmarkReset(b *testing.B) {
	f := broker(b, 0, nil)
	n := light(b, f, 10, nil)
	for b.Loop() {
		if err := n.Reset(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkResetAfterLeaving renews 10 nodes that have no connection any more.
func BenchmarkResetAfterLeaving(b *testing.B) {
	f := broker(b, 0, nil)
	n := light(b, f, 10, nil)
	for b.Loop() {
		b.StopTimer()
		for _, name := range n.Names() {
			if err := n.Kill(name); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		if err := n.Reset(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkProvision is one run of the real program, from its start to the last node's.
func BenchmarkProvision(b *testing.B) {
	for _, nodes := range []int{1, 10, 50} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			f := broker(b, 0, nil)
			n := light(b, f, nodes, nil)
			var total time.Duration
			for b.Loop() {
				took, _ := provisionAll(b, f, n, fleet.WorkerOptions{Values: values}, provisioned)
				total += took
				if err := n.Reset(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(total.Seconds()/float64(b.N), "s/run")
		})
	}
}
