package worker

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"time"

	"provctl/journal"
	"provctl/receipt"
	"provctl/sequence"
)

// gauge is a Meter that remembers, and tells of each change.
type gauge struct {
	mu      sync.Mutex
	found   map[string]int
	cycles  []error
	changed chan struct{}
}

func newGauge() *gauge { return &gauge{found: map[string]int{}, changed: make(chan struct{}, 1)} }

func (g *gauge) Discovered(source string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.found[source]++
	wake(g.changed)
}

func (g *gauge) Cycle(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cycles = append(g.cycles, err)
	wake(g.changed)
}

// await waits until what was told makes the condition true.
func (g *gauge) await(ctx context.Context, t *testing.T, is func() bool) {
	t.Helper()
	for {
		g.mu.Lock()
		ok := is()
		g.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-g.changed:
		case <-ctx.Done():
			t.Fatalf("told: found %v, cycles %v", g.found, g.cycles)
		}
	}
}

// failing is a network whose discoveries fail after they found what they found.
type failing struct {
	*fakeNet
	err error
}

func (f failing) Discover(ctx context.Context, found func(receipt.NodeID)) error {
	return errors.Join(f.fakeNet.Discover(ctx, found), f.err)
}

// TestMeterIsToldOfNewWork: a node counts once, by what brought it, and not again while it is known.
func TestMeterIsToldOfNewWork(t *testing.T) {
	r, g := newRig(t), newGauge()
	broken := errors.New("the broker went away")
	net := failing{newFakeNet("a", "b"), broken}
	net.publish = func(*journal.Pending) (sequence.Outcome, error) {
		return sequence.Outcome{Event: receipt.Lost, Why: "lost"}, nil // the nodes stay known
	}
	w, _ := r.life(func(o *Options) { o.Meter, o.Interval, o.Log = g, time.Hour, slog.New(slog.DiscardHandler) }) // no job grows stale
	ctx, cancel := context.WithCancel(r.ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx, net) }()
	again := func(is func() bool) {
		g.await(r.ctx, t, func() bool { wake(w.wakeDiscover); return is() })
	}
	again(func() bool { return len(g.cycles) >= 3 && g.found["discovery"] == 2 })
	w.OnEvent(Happening{Node: "c", Seen: receipt.EventSeen{Type: "startup", Component: "provision_mode_server"}, At: time.Now()})
	g.await(r.ctx, t, func() bool { return g.found["event"] == 1 })
	w.OnEvent(Happening{Node: "c", Seen: receipt.EventSeen{Type: "startup", Component: "provision_mode_server"}, At: time.Now()})
	seen := -1
	again(func() bool {
		if seen < 0 {
			seen = len(g.cycles)
		}
		return len(g.cycles) >= seen+3
	})
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if want := map[string]int{"discovery": 2, "event": 1}; !maps.Equal(g.found, want) {
		t.Errorf("found %v, want %v", g.found, want)
	}
	for _, err := range g.cycles {
		if !errors.Is(err, broken) {
			t.Errorf("a cycle was told with %v", err)
		}
	}
}
