package main

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"provctl/fence"
	"provctl/internal/agent"
	"provctl/internal/choria"
	"provctl/internal/fleet"
	"provctl/journal"
	"provctl/receipt"
)

// BenchmarkEffect makes one effect after the other on a real node, the way a pass does, and reports where the time goes: the
// receipt's commit, publish to reply, and the settle. Key generation is the effect, since a node may be asked for it again.
func BenchmarkEffect(b *testing.B) {
	ctx := b.Context()
	dir := b.TempDir()
	program := filepath.Join(dir, "provctl")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, out)
	}
	f, err := fleet.Start(ctx, fleet.Options{Dir: filepath.Join(dir, "fleet"), Nodes: 1, NodeCommand: []string{program, nodeCommandName}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(f.Close)
	files, err := f.WriteWorkerFiles(filepath.Join(dir, "worker"), fleet.WorkerOptions{})
	if err != nil {
		b.Fatal(err)
	}
	e := newEffects(b, files)
	node := receipt.NodeID(f.Nodes()[0])
	var begin, wire, settle time.Duration
	for i := 0; b.Loop(); i++ {
		if i%50 == 0 {
			e.admit(ctx, node) // an incarnation may have a hundred receipts until somebody looks at it
		}
		t := e.once(ctx, node)
		begin, wire, settle = begin+t[0], wire+t[1], settle+t[2]
	}
	for name, d := range map[string]time.Duration{"commit-µs": begin, "publish-to-reply-µs": wire, "settle-µs": settle} {
		b.ReportMetric(float64(d.Microseconds())/float64(b.N), name)
	}
}

// effects is what a worker holds, without the worker.
type effects struct {
	b      *testing.B
	j      *journal.Journal
	engine *choria.Engine
	guard  *fence.Fence
	token  string
	job    receipt.JobID
}

func newEffects(b *testing.B, files fleet.WorkerFiles) *effects {
	b.Helper()
	must := func(err error) {
		if err != nil {
			b.Helper()
			b.Fatal(err)
		}
	}
	_, err := journal.Init(files.StateDir)
	must(err)
	lock, err := fence.Acquire(files.StateDir)
	must(err)
	b.Cleanup(func() { _ = lock.Release() })
	j, err := journal.Open(files.StateDir, journal.Options{})
	must(err)
	b.Cleanup(func() { _ = j.Close() })
	epoch, err := j.RaiseEpoch()
	must(err)
	engine, err := choria.New(choria.Options{
		ConfigFile: files.ChoriaConfig, Password: files.Password, TTL: time.Minute, Skew: 10 * time.Second, Epoch: epoch,
		Log: slog.New(slog.DiscardHandler),
	})
	must(err)
	b.Cleanup(engine.Close)
	must(engine.Connect(b.Context()))
	return &effects{b: b, j: j, engine: engine, token: files.Token, guard: fence.New(fence.Checks{
		Lock: lock, Journal: j.Current, Revoked: j.Revoked, MinLeft: 11 * time.Second, Epoch: epoch,
	})}
}

func (e *effects) admit(ctx context.Context, node receipt.NodeID) {
	e.b.Helper()
	if e.job != "" {
		if _, err := e.j.Move(ctx, e.job, journal.Next{Event: receipt.End, Result: receipt.Deferred}); err != nil {
			e.b.Fatal(err)
		}
	}
	job, err := e.j.AdmitByHand(ctx, node, "benchmark", "the next fifty")
	if err != nil {
		e.b.Fatal(err)
	}
	if job, err = e.j.Claim(ctx, job.ID); err != nil {
		e.b.Fatal(err)
	}
	e.job = job.ID
}

// once makes one effect and returns how long its commit, its way to the node and back, and its settle took.
func (e *effects) once(ctx context.Context, node receipt.NodeID) (took [3]time.Duration) {
	e.b.Helper()
	stats, err := e.engine.Stats(ctx, node)
	if err != nil {
		e.b.Fatal(err)
	}
	base := e.engine.BaselineOf(node, stats)
	prepared, err := e.engine.Prepare(node, receipt.Gen25519, agent.Gen25519{Token: e.token, Nonce: fmt.Sprintf("%032d", e.b.N)})
	if err != nil {
		e.b.Fatal(err)
	}
	at := time.Now()
	pending, err := e.j.Begin(ctx, journal.Intent{
		Job: e.job, Action: receipt.Gen25519, Incarnation: stats.Incarnation, Request: prepared.Request, RequestTime: prepared.Time,
		Horizon: prepared.Horizon, Digest: prepared.Digest, Baseline: &base,
	})
	if err != nil {
		e.b.Fatal(err)
	}
	took[0], at = time.Since(at), time.Now()
	call, err := e.engine.Publish(ctx, pending, e.guard, prepared)
	if err != nil {
		e.b.Fatal(err)
	}
	<-call.Done()
	took[1], at = time.Since(at), time.Now()
	outcome := call.Outcome()
	if outcome.Event != receipt.ReplyApplied {
		e.b.Fatalf("%s: %s", outcome.Event, outcome.Why)
	}
	if _, err := e.j.Settle(ctx, pending, journal.Settlement{Event: outcome.Event, Why: outcome.Why, By: "reply"}); err != nil {
		e.b.Fatal(err)
	}
	took[2] = time.Since(at)
	return took
}
