package choria

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"provctl/receipt"
)

// count is a Meter that remembers.
type count struct {
	mu            sync.Mutex
	asked, failed map[string]int
	times         []time.Duration
}

func newCount() *count { return &count{asked: map[string]int{}, failed: map[string]int{}} }

func (c *count) Asked(rpc string, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[rpc]++
	c.times = append(c.times, took)
}

func (c *count) Failed(rpc string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed[rpc]++
}

func (c *count) is(t *testing.T, asked, failed map[string]int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !maps.Equal(c.asked, asked) || !maps.Equal(c.failed, failed) {
		t.Errorf("asked %v, failed %v, want %v and %v", c.asked, c.failed, asked, failed)
	}
}

// TestMeterOfFacts: each try is measured, an error counts once.
func TestMeterOfFacts(t *testing.T) {
	const stats, jwt = "rpcutil#daemon_stats", "choria_provision#jwt"
	for _, tc := range []struct {
		name          string
		on            func(fakeRequest)
		ask           func(context.Context, *Engine, receipt.NodeID) error
		asked, failed map[string]int
	}{
		{"answered", func(r fakeRequest) { r.answer(0, "OK", `{"jwt":"e30.e30.e30"}`) }, askJWT, map[string]int{jwt: 1}, map[string]int{}},
		{"silent", func(fakeRequest) {}, askJWT, map[string]int{jwt: jwtTries}, map[string]int{jwt: 1}},
		{"refused", func(r fakeRequest) { r.answer(1, "no", `{}`) }, askJWT, map[string]int{jwt: 1}, map[string]int{jwt: 1}},
		{"useless", func(r fakeRequest) { r.answer(0, "OK", `{}`) }, askJWT, map[string]int{jwt: 1}, map[string]int{jwt: 1}},
		{"useless stats", nil, askStats, map[string]int{stats: 1}, map[string]int{stats: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCount()
			e := engine(t, broker(t), func(o *Options) {
				o.Meter = c
				if tc.name == "silent" {
					o.FactTimeout = 100 * time.Millisecond
				}
			})
			n := node(t, broker(t), tc.on)
			if tc.name == "useless stats" {
				n.mu.Lock()
				n.validated = 1 << 60 // more than a counter can be
				n.mu.Unlock()
			}
			if err := tc.ask(deadline(t), e, n.node()); (err == nil) != (len(tc.failed) == 0) {
				t.Errorf("asking gave %v", err)
			}
			c.is(t, tc.asked, tc.failed)
			if tc.name == "silent" && slices.Min(c.times) < 100*time.Millisecond {
				t.Errorf("tries without an answer took %v, want all of their time", c.times)
			}
		})
	}
}

func askJWT(ctx context.Context, e *Engine, n receipt.NodeID) error {
	_, err := e.JWT(ctx, n, "")
	return err
}

func askStats(ctx context.Context, e *Engine, n receipt.NodeID) error {
	_, err := e.Stats(ctx, n)
	return err
}

// TestMeterOfEffects: an effect is measured once it was published; what is no success is an error, sent or not.
func TestMeterOfEffects(t *testing.T) {
	const rpc = "choria_provision#restart"
	for _, tc := range []struct {
		name          string
		on            func(fakeRequest)
		guard         guard
		asked, failed int
	}{
		{"applied", func(r fakeRequest) { r.answer(0, "OK", restarting) }, open, 1, 0},
		{"refused", func(r fakeRequest) { r.answer(1, "Incorrect provision token supplied", "{}") }, open, 1, 1},
		{"lost", func(fakeRequest) {}, open, 1, 1},
		{"not sent", func(fakeRequest) {}, func(receipt.Receipt) error { return receipt.ErrFenced }, 0, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCount()
			e := engine(t, broker(t), func(o *Options) {
				o.Meter = c
				if tc.name == "lost" {
					o.TTL = time.Second
				}
			})
			pr := prepare(t, e, node(t, broker(t), tc.on).node())
			call, err := e.Publish(deadline(t), receiptFor(pr), tc.guard, pr)
			if err == nil {
				wait(t, call)
			} else if !errors.Is(err, receipt.ErrFenced) {
				t.Fatal(err)
			}
			want := func(n int) map[string]int { return map[string]int{rpc: n} }
			asked, failed := want(tc.asked), want(tc.failed)
			for _, m := range []map[string]int{asked, failed} {
				maps.DeleteFunc(m, func(_ string, n int) bool { return n == 0 })
			}
			c.is(t, asked, failed)
		})
	}
}
