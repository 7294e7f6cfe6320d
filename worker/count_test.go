package worker

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"provctl/journal"
	"provctl/receipt"
	"provctl/sequence"
)

// countNet is a fake network whose nodes count the requests that reach them, as real ones do. Its hooks are set before the worker
// runs; they may block.
type countNet struct {
	*fakeNet
	onStats     func(receipt.NodeID) error
	onInventory func(receipt.NodeID) error
	onPrepare   func(receipt.NodeID, receipt.Action)
	held        map[receipt.Action]chan struct{} // calls that stay open until the channel is closed
	ttl         time.Duration                    // of effects; 0 is a minute

	count       sync.Mutex
	incarnation receipt.Incarnation
	validated   int64
	dispatched  []int64 // effects that reached a node, as the counter then stood
}

var firstLife = receipt.Incarnation{PID: 7, Start: 1_700_000_000}

func newCountNet(nodes ...receipt.NodeID) *countNet {
	return &countNet{fakeNet: newFakeNet(nodes...), incarnation: firstLife}
}

// dispatch has an effect reach its node.
func (c *countNet) dispatch() {
	c.count.Lock()
	defer c.count.Unlock()
	c.validated++
	c.dispatched = append(c.dispatched, c.validated)
}

// comeBack makes the nodes run as another process.
func (c *countNet) comeBack(i receipt.Incarnation) {
	c.count.Lock()
	defer c.count.Unlock()
	c.incarnation = i
}

func (c *countNet) Stats(_ context.Context, n receipt.NodeID) (receipt.StatsSeen, receipt.Baseline, error) {
	if c.onStats != nil {
		if err := c.onStats(n); err != nil {
			return receipt.StatsSeen{}, receipt.Baseline{}, err
		}
	}
	c.count.Lock()
	defer c.count.Unlock()
	c.validated++
	return receipt.StatsSeen{Incarnation: c.incarnation, Validated: c.validated},
		receipt.Baseline{Validated: c.validated, Epoch: 1, Ordinal: uint64(c.validated)}, nil
}

func (c *countNet) KnownSince(_ receipt.NodeID, b receipt.Baseline, s receipt.StatsSeen) int64 {
	c.count.Lock()
	defer c.count.Unlock()
	known := s.Validated - b.Validated
	for _, at := range c.dispatched {
		if at > b.Validated && at <= s.Validated {
			known--
		}
	}
	return known
}

func (c *countNet) Inventory(ctx context.Context, n receipt.NodeID) (json.RawMessage, error) {
	if c.onInventory != nil {
		if err := c.onInventory(n); err != nil {
			return nil, err
		}
	}
	return c.fakeNet.Inventory(ctx, n)
}

func (c *countNet) Prepare(n receipt.NodeID, a receipt.Action, input any) (sequence.Prepared, error) {
	if c.onPrepare != nil {
		c.onPrepare(n, a)
	}
	p, err := c.fakeNet.Prepare(n, a, input)
	if c.ttl > 0 {
		p.Horizon = receipt.HorizonOf(p.Time, c.ttl, time.Second)
	}
	return p, err
}

func (c *countNet) Publish(ctx context.Context, p *journal.Pending, prepared sequence.Prepared) (sequence.Call, error) {
	call, err := c.fakeNet.Publish(ctx, p, prepared)
	if held := c.held[p.Receipt().Action]; err == nil && held != nil {
		return newFakeCall(call.Outcome(), held), nil
	}
	return call, err
}

// lose makes the first effect of a kind end without a reply.
func lose(a receipt.Action) func(*journal.Pending) (sequence.Outcome, error) {
	var once sync.Once
	return func(p *journal.Pending) (out sequence.Outcome, _ error) {
		if p.Receipt().Action == a {
			once.Do(func() { out = sequence.Outcome{Event: receipt.Lost, Why: "no reply came"} })
		}
		return out, nil
	}
}

// onLog calls a function with every message and its attributes.
type onLog struct {
	does func(message string, attrs map[string]string)
	with map[string]string
}

func (onLog) Enabled(context.Context, slog.Level) bool { return true }

func (h onLog) Handle(_ context.Context, r slog.Record) error {
	attrs := map[string]string{}
	for k, v := range h.with {
		attrs[k] = v
	}
	r.Attrs(func(a slog.Attr) bool { attrs[a.Key] = a.Value.String(); return true })
	h.does(r.Message, attrs)
	return nil
}

func (h onLog) WithAttrs(add []slog.Attr) slog.Handler {
	with := map[string]string{}
	for k, v := range h.with {
		with[k] = v
	}
	for _, a := range add {
		with[a.Key] = a.Value.String()
	}
	return onLog{h.does, with}
}

func (h onLog) WithGroup(string) slog.Handler { return h }

// start runs a worker; what it returns stops the worker and gives what Run returned.
func (r *rig) start(w *Worker, net Network) (stop func() error) {
	ctx, cancel := context.WithCancel(r.ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx, net) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// theOpen is the only open receipt.
func (r *rig) theOpen() receipt.Receipt {
	r.t.Helper()
	open, err := r.j.OpenReceipts()
	if err != nil || len(open) != 1 {
		r.t.Fatalf("open receipts: %+v, %v, want one", open, err)
	}
	return open[0]
}

// receipts are those of a node's present life, in order.
func (r *rig) receipts(n receipt.NodeID) []receipt.Receipt {
	r.t.Helper()
	h, err := r.j.History(n, firstLife)
	if err != nil {
		r.t.Fatal(err)
	}
	return h.Receipts
}

// node reads a node's record.
func (r *rig) node(n receipt.NodeID) receipt.Node {
	r.t.Helper()
	node, err := r.j.Node(n)
	if err != nil {
		r.t.Fatal(err)
	}
	return node
}

// job is the job that a node has now.
func (r *rig) job(n receipt.NodeID) receipt.Job {
	r.t.Helper()
	job, err := r.j.Job(r.node(n).Job)
	if err != nil {
		r.t.Fatal(err)
	}
	return job
}
