package worker

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"provctl/journal"
	"provctl/receipt"
)

// storm is how many nodes ask at once.
const storm = 50_000

func names(n int) []receipt.NodeID {
	out := make([]receipt.NodeID, n)
	for i := range out {
		out[i] = receipt.NodeID(fmt.Sprintf("node-%06d.example.net", i))
	}
	return out
}

// waiting is a paused-by-the-broker worker whose intake runs: what it admits stays in the queue.
func waiting(tb testing.TB) *Worker {
	tb.Helper()
	dir := tb.TempDir()
	if _, err := journal.Init(dir); err != nil {
		tb.Fatal(err)
	}
	j, err := journal.Open(dir, journal.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	w, _ := idle(4)
	w.o.Journal, w.j = j, j
	if _, err := j.RaiseEpoch(); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.intake(ctx)
	}()
	tb.Cleanup(func() {
		cancel()
		<-done
		_ = j.Close()
	})
	w.intaking.Store(true)
	return w
}

// admitAll sights the nodes and waits until all of them wait for a lane.
func admitAll(tb testing.TB, w *Worker, nodes []receipt.NodeID) {
	tb.Helper()
	for _, n := range nodes {
		w.Sight(n, "discovery", time.Now())
	}
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !w.wait(nodes) {
		select {
		case <-tick.C:
		case err := <-w.fatal:
			tb.Fatal(err)
		case <-deadline:
			tb.Fatalf("%d of %d nodes wait", w.waiting(), len(nodes))
		}
	}
}

// wait tells whether all the nodes wait, and no sighting is left to admit.
func (w *Worker) wait(nodes []receipt.NodeID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.seen) == 0 && !slices.ContainsFunc(nodes, func(n receipt.NodeID) bool { return !w.queue.has(n) })
}

// BenchmarkStorm tells what 50,000 nodes cost that ask for the first time, and what they cost at each interval while they wait.
func BenchmarkStorm(b *testing.B) {
	nodes := names(storm)
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			w := waiting(b)
			admitAll(b, w, nodes)
		}
	})
	b.Run("again", func(b *testing.B) {
		w := waiting(b)
		admitAll(b, w, nodes)
		before := w.j.Stats().Commits
		for b.Loop() {
			for _, n := range nodes {
				w.Sight(n, "discovery", time.Now())
			}
		}
		b.ReportMetric(float64(w.j.Stats().Commits-before), "commits")
	})
}

// TestStorm: many nodes at once are admitted in few commits, events of made-up nodes beyond the bound are dropped, and seeing all of
// them again commits nothing.
func TestStorm(t *testing.T) {
	w := waiting(t)
	nodes := names(5_000)
	admitAll(t, w, nodes)
	if n := w.j.Stats().Commits; n > 500 {
		t.Errorf("%d commits for %d nodes", n, len(nodes))
	}
	before := w.j.Stats().Commits
	for _, n := range nodes {
		w.Sight(n, "discovery", time.Now())
		w.OnEvent(Happening{Node: n, Seen: receipt.EventSeen{Type: "startup", Component: w.o.Component}, At: time.Now()})
	}
	if n := w.j.Stats().Commits - before; n != 0 || len(w.seen) != 0 {
		t.Errorf("%d commits and %d sightings for nodes that wait already", n, len(w.seen))
	}
	for i := range 2 * maxByEvent {
		w.Sight(receipt.NodeID(fmt.Sprintf("forged-%d", i)), "event", time.Now())
	}
	admitAll(t, w, []receipt.NodeID{"real.example.net"})
	if n := w.waiting(); n > maxByEvent+len(nodes)+1 {
		t.Errorf("%d nodes wait after a flood of events", n)
	}
	if s, err := w.j.Snapshot(); err != nil || s.ByJob[receipt.Queued] != w.waiting() {
		t.Errorf("the journal has %d queued jobs, %d wait: %v", s.ByJob[receipt.Queued], w.waiting(), err)
	}
}
