package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"provctl/fence"
	"provctl/internal/choria"
	"provctl/internal/config"
	"provctl/internal/fleet"
	"provctl/internal/wiring"
	"provctl/journal"
	"provctl/receipt"
	"provctl/sequence"
	"provctl/worker"
)

const nodeArgument = "fleet-node"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == nodeArgument {
		fmt.Fprintln(os.Stderr, fleet.NodeMain(os.Args[2:]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// lossy is the real network, but for the first configure of each node: its receipt counts as published, and nothing leaves. That
// is what a worker leaves that dies between the two, at a point where no process outside could stop it.
type lossy struct {
	wiring.Network

	mu   sync.Mutex
	lost map[receipt.NodeID]receipt.Receipt
}

func (l *lossy) Publish(ctx context.Context, p *journal.Pending, prepared sequence.Prepared) (sequence.Call, error) {
	if r := p.Receipt(); r.Action == receipt.Configure {
		l.mu.Lock()
		_, again := l.lost[r.Node]
		if !again {
			l.lost[r.Node] = r
		}
		l.mu.Unlock()
		if !again {
			return nobody{}, p.MarkPublished()
		}
	}
	return l.Network.Publish(ctx, p, prepared)
}

// nobody is a call whose caller has gone.
type nobody struct{}

func (nobody) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

func (nobody) GiveUp() {}

func (nobody) Outcome() sequence.Outcome {
	return sequence.Outcome{Event: receipt.Lost, Why: "nobody waits any more"}
}

// TestCounterProvesThatNothingRan loses the configure of every node on the way out, in the midst of discoveries and looks that
// the nodes count too. Past the horizon the counters show that no node ever got it, and it is sent again: once.
func TestCounterProvesThatNothingRan(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	t.Cleanup(cancel)
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := fleet.Start(ctx, fleet.Options{Dir: t.TempDir() + "/fleet", Nodes: 3, NodeCommand: []string{executable, nodeArgument}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	w, j, net := newLossyWorker(t, f)
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(run, net) }()
	err = f.Wait(ctx, func(s fleet.State) bool {
		return s.Count(func(n fleet.NodeState) bool { return n.Mode == fleet.Provisioned && n.Joined }) == 3
	})
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		t.Fatal(err)
	}
	for _, node := range f.Nodes() {
		proved(t, f, j, net.lost[receipt.NodeID(node)], node)
	}
	audit, err := f.Audit()
	if err != nil || len(audit.Twice) > 0 {
		t.Errorf("ran twice: %v, %v", audit.Twice, err)
	}
}

func newLossyWorker(t *testing.T, f *fleet.Fleet) (*worker.Worker, *journal.Journal, *lossy) {
	t.Helper()
	files, err := f.WriteWorkerFiles(t.TempDir()+"/worker", fleet.WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = journal.Init(files.StateDir); err != nil {
		t.Fatal(err)
	}
	lock, err := fence.Acquire(files.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Release() })
	j, err := journal.Open(files.StateDir, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	epoch, err := j.RaiseEpoch()
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	var w *worker.Worker
	engine, err := choria.New(choria.Options{
		ConfigFile: files.ChoriaConfig, Password: files.Password, TTL: 10 * time.Second, Skew: time.Second, Epoch: epoch, Log: log, Now: time.Now,
		OnReconnect: func() { w.OnReconnect() },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	cfg, _, err := config.Load(files.Config)
	if err != nil {
		t.Fatal(err)
	}
	identities, err := wiring.NewIdentities(cfg, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	w = worker.New(worker.Options{
		Journal: j, Advisor: wiring.Advisor{Command: cfg.Helper}, Credentials: identities, Flow: wiring.FlowOf(cfg), Token: files.Token, Lanes: 2, Interval: 10 * time.Second, StopTimeout: 10 * time.Second,
		Hold: time.Minute, Retention: time.Hour, MaxUnknown: 10, Component: "provision_mode_server", Epoch: epoch, Now: time.Now, Log: log,
	})
	guard := fence.New(fence.Checks{Lock: lock, Journal: j.Current, Revoked: j.Revoked, Now: time.Now, Epoch: epoch})
	return w, j, &lossy{Network: wiring.Network{Engine: engine, Guard: guard, Token: files.Token, Window: time.Second}, lost: map[receipt.NodeID]receipt.Receipt{}}
}

// proved checks what became of a node's lost configure.
func proved(t *testing.T, f *fleet.Fleet, j *journal.Journal, lost receipt.Receipt, node string) {
	t.Helper()
	r, err := j.Receipt(lost.ID)
	if err != nil {
		t.Fatalf("the lost configure of %s: %v", node, err)
	}
	if r.Status != receipt.NotApplied || r.Settled != "evidence: counter" || !r.EndedAt.After(r.Horizon.Time) {
		t.Errorf("the lost configure of %s is %s, settled by %q at %s with horizon %s: %v", node, r.Status, r.Settled, r.EndedAt, r.Horizon, r.Evidence)
	}
	job, err := j.Job(r.Job)
	if err != nil || job.Result != receipt.Provisioned || job.Claims != 2 {
		t.Errorf("its job ended %s after %d claims, %v", job.Result, job.Claims, err)
	}
	entries, err := f.Log(node)
	if err != nil {
		t.Fatal(err)
	}
	configured := 0
	for _, e := range entries {
		if e.RequestID == string(r.Request) {
			t.Errorf("%s has seen the request that never left: %+v", node, e)
		}
		if e.Phase == fleet.PhaseBegin && e.Action == "configure" {
			configured++
		}
	}
	if configured != 1 {
		t.Errorf("%s was configured %d times", node, configured)
	}
}
