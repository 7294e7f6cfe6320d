package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"provctl/internal/helper"
	"provctl/journal"
	"provctl/receipt"
	"provctl/sequence"
)

// fakeNet is a network of nodes that answer everything at once, unless a field says otherwise. Set the fields before the worker
// runs.
type fakeNet struct {
	nodes []receipt.NodeID
	jwt   func(receipt.NodeID) (string, error)
	// inventory, if set, is what every node answers.
	inventory string
	conns     func(receipt.NodeID) (receipt.ConnectionsSeen, error)
	publish   func(*journal.Pending) (sequence.Outcome, error)
	// unreached, if set, is closed once the broker is waited for, which never comes.
	unreached chan struct{}
	// pending, if set, keeps calls open until it is closed.
	pending chan struct{}

	mu       sync.Mutex
	away     bool
	requests int
	sent     map[receipt.NodeID][]receipt.Action
	changed  chan struct{}
}

func newFakeNet(nodes ...receipt.NodeID) *fakeNet {
	return &fakeNet{nodes: nodes, sent: map[receipt.NodeID][]receipt.Action{}, changed: make(chan struct{})}
}

func (f *fakeNet) cut()  { f.mu.Lock(); f.away = true; f.mu.Unlock() }
func (f *fakeNet) mend() { f.mu.Lock(); f.away = false; f.mu.Unlock() }

func (f *fakeNet) Connect(ctx context.Context) error {
	if f.unreached == nil {
		return nil
	}
	close(f.unreached)
	<-ctx.Done()
	return ctx.Err()
}

func (f *fakeNet) Connected() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.away
}

func (f *fakeNet) Discover(_ context.Context, found func(receipt.NodeID)) error {
	for _, n := range f.nodes {
		found(n)
	}
	return nil
}

func (f *fakeNet) Expect(receipt.Receipt) {}

func (f *fakeNet) Connections(_ context.Context, n receipt.NodeID, _ time.Time) (receipt.ConnectionsSeen, error) {
	if f.conns != nil {
		return f.conns(n)
	}
	return receipt.ConnectionsSeen{Live: 1}, nil
}

func (f *fakeNet) KnownSince(receipt.NodeID, receipt.Baseline, receipt.StatsSeen) int64 { return 0 }

func (f *fakeNet) Stats(context.Context, receipt.NodeID) (receipt.StatsSeen, receipt.Baseline, error) {
	return receipt.StatsSeen{Incarnation: receipt.Incarnation{PID: 7, Start: 1_700_000_000}, Validated: 10}, receipt.Baseline{Validated: 10}, nil
}

func (f *fakeNet) JWT(_ context.Context, n receipt.NodeID) (sequence.Introduction, error) {
	if f.jwt != nil {
		token, err := f.jwt(n)
		return sequence.Introduction{Token: token}, err
	}
	return sequence.Introduction{Token: "token"}, nil
}

func (f *fakeNet) Inventory(context.Context, receipt.NodeID) (json.RawMessage, error) {
	if f.inventory != "" {
		return json.RawMessage(f.inventory), nil
	}
	return json.RawMessage(`{}`), nil
}

func (f *fakeNet) Prepare(receipt.NodeID, receipt.Action, any) (sequence.Prepared, error) {
	f.mu.Lock()
	f.requests++
	id := receipt.RequestID(fmt.Sprintf("request-%d", f.requests))
	f.mu.Unlock()
	now := time.Now()
	return sequence.Prepared{
		Request: id, Time: now, Horizon: receipt.HorizonOf(now, time.Minute, time.Second), Digest: strings.Repeat("0", 64),
	}, nil
}

func (f *fakeNet) Publish(_ context.Context, p *journal.Pending, _ sequence.Prepared) (sequence.Call, error) {
	r := p.Receipt()
	out := sequence.Outcome{Event: receipt.ReplyApplied, Why: "the fake node did it"}
	if r.Action == receipt.Gen25519 {
		out = sequence.Outcome{Reply: &receipt.Reply{}, Data: json.RawMessage(`{}`)}
	}
	if f.publish != nil {
		o, err := f.publish(p)
		switch {
		case err != nil:
			return nil, err
		case o.Event != 0:
			out = o
		}
	}
	if err := p.MarkPublished(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.sent[r.Node] = append(f.sent[r.Node], r.Action)
	close(f.changed)
	f.changed = make(chan struct{})
	f.mu.Unlock()
	return newFakeCall(out, f.pending), nil
}

// effects are what was published to a node.
func (f *fakeNet) effects(n receipt.NodeID) []receipt.Action {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]receipt.Action(nil), f.sent[n]...)
}

// await waits until something that was published makes the condition true.
func (f *fakeNet) await(ctx context.Context, is func() bool) error {
	for {
		f.mu.Lock()
		changed := f.changed
		f.mu.Unlock()
		if is() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// fakeCall has its outcome when pending is closed, at once without one, or has lost it when it is given up.
type fakeCall struct {
	out        sequence.Outcome
	done, gone chan struct{}
}

func newFakeCall(out sequence.Outcome, pending <-chan struct{}) *fakeCall {
	c := &fakeCall{out, make(chan struct{}), make(chan struct{})}
	if pending == nil {
		close(c.done)
		return c
	}
	go func() {
		defer close(c.done)
		select {
		case <-pending:
		case <-c.gone:
			c.out = sequence.Outcome{Event: receipt.Lost, Why: "given up"}
		}
	}()
	return c
}

func (c *fakeCall) Done() <-chan struct{}     { return c.done }
func (c *fakeCall) Outcome() sequence.Outcome { return c.out }
func (c *fakeCall) GiveUp()                   { close(c.gone) }

// fakeAdvisor advises a configuration, unless it is a function that does something else.
type fakeAdvisor func() (*helper.Reply, error)

func (f fakeAdvisor) Ask(context.Context, receipt.Job, helper.Input) (*helper.Reply, error) {
	if f == nil {
		return helper.Decode([]byte(`{"configuration":{"plugin.choria.server.provision":"false"}}`))
	}
	return f()
}

type fakeCredentials struct{}

func (fakeCredentials) VerifyNode(string) (json.RawMessage, error) {
	return json.RawMessage(`{}`), nil
}

func (fakeCredentials) CheckCSR(receipt.NodeID, string) error { return nil }

func (fakeCredentials) CheckIssued(receipt.NodeID, string, *helper.Reply) error { return nil }

func (fakeCredentials) SealKey(string, string) (sealed, public string, err error) { return "", "", nil }

func (fakeCredentials) ReadKey(receipt.Action, json.RawMessage, string) (receipt.Key, error) {
	return receipt.Key{Public: strings.Repeat("a", 64), Directory: "/etc/choria", Signature: strings.Repeat("b", 128)}, nil
}

func (fakeCredentials) ServerJWT(receipt.NodeID, string, *helper.Reply) (string, error) {
	return "jwt", nil
}
