package choria

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"provctl/receipt"
)

const (
	discoveryWindow  = 2 * time.Second
	discoveryLongest = 60 * time.Second
	discoveryQueue   = 16384
	discoveryMost    = 100_000 // nodes taken in one round
)

// Discover broadcasts to every node that has the provision agent and calls found once for each that answers, on the calling
// goroutine. It ends when nobody has answered for the window (0 means 2 s), after 60 s or 100,000 nodes at the latest, and
// gives the number found. Answers with an impossible identity or to another request are counted and dropped.
func (e *Engine) Discover(ctx context.Context, window time.Duration, found func(receipt.NodeID)) (int, error) {
	if window <= 0 {
		window = discoveryWindow
	}
	nc, err := e.conn()
	if err != nil {
		return 0, fmt.Errorf("discover nodes: %w", err)
	}
	inbox := nc.NewInbox()
	m, err := e.broadcast(ctx, inbox)
	if err != nil {
		return 0, fmt.Errorf("discover nodes: %w", err)
	}
	in := make(chan *nats.Msg, discoveryQueue)
	sub, err := nc.ChanSubscribe(inbox, in)
	if err != nil {
		return 0, fmt.Errorf("discover nodes: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	ordinal := e.counts.next()
	if err := publish(nc, m); err != nil {
		return 0, fmt.Errorf("discover nodes: %w", err)
	}
	read := func(msg *nats.Msg) (receipt.NodeID, bool) { return e.pong(msg, m.id) }
	return e.collect(ctx, in, window, read, func(node receipt.NodeID) {
		e.counts.answered(node, ordinal) // once per broadcast, however often it is answered
		found(node)
	}, func(node receipt.NodeID) { e.twin(node, m.id) })
}

// collect calls found once for each node that read accepts, and twice once for each in whose name more than one answer came.
func (e *Engine) collect(ctx context.Context, in <-chan *nats.Msg, window time.Duration, read func(*nats.Msg) (receipt.NodeID, bool), found, twice func(receipt.NodeID)) (int, error) {
	seen := make(map[receipt.NodeID]int)
	end := time.NewTimer(discoveryLongest)
	defer end.Stop()
	quiet := time.NewTimer(window)
	defer quiet.Stop()
	for len(seen) < discoveryMost {
		select {
		case m := <-in:
			if isNobody(m) {
				return len(seen), nil
			}
			quiet.Reset(window)
			switch node, ok := read(m); {
			case !ok:
			case seen[node] == 0:
				seen[node] = 1
				found(node)
			case seen[node] == 1:
				seen[node] = 2
				twice(node)
			}
		case <-quiet.C:
			return len(seen), nil
		case <-end.C:
			e.log.Warn("nodes still answered the discovery after its longest time", "found", len(seen))
			return len(seen), nil
		case <-ctx.Done():
			return len(seen), fmt.Errorf("discover nodes: %w", ctx.Err())
		case <-e.closing:
			return len(seen), fmt.Errorf("discover nodes: %w", ErrClosed)
		}
	}
	e.log.Warn("more nodes answered the discovery than are taken at once", "found", len(seen))
	return len(seen), nil
}

// pong reads an answer to a discovery broadcast.
func (e *Engine) pong(m *nats.Msg, id receipt.RequestID) (receipt.NodeID, bool) {
	env, err := e.open(m.Data)
	if err != nil {
		e.stats.garbage.Add(1)
		e.log.Warn("dropping a message that is no discovery reply", "error", clean(err.Error()))
		return "", false
	}
	node, err := receipt.ParseNodeID(env.sender)
	if err != nil {
		e.stats.badIdentity.Add(1)
		e.log.Warn("skipping a node whose identity cannot be addressed", "error", clean(err.Error()))
		return "", false
	}
	return node, e.ours(env, id, node, "discovery")
}
