package choria

import (
	"context"
	"sync"

	"provctl/receipt"
)

// nodeLocks serialise requests to one node: its request channel is 10 deep and one mutex serialises its actions, so a second
// request could only wait there, unseen, while its TTL runs.
type nodeLocks struct {
	mu   sync.Mutex
	held map[receipt.NodeID]*nodeLock
}

type nodeLock struct {
	slot chan struct{} // holds one token while somebody has the node
	refs int           // holder and waiters
}

// lock waits for the node. It gives the function that frees it, to be called once, or the reason why it did not get it.
func (l *nodeLocks) lock(ctx context.Context, stop <-chan struct{}, node receipt.NodeID) (func(), error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = make(map[receipt.NodeID]*nodeLock)
	}
	n := l.held[node]
	if n == nil {
		n = &nodeLock{slot: make(chan struct{}, 1)}
		l.held[node] = n
	}
	n.refs++
	l.mu.Unlock()

	select {
	case n.slot <- struct{}{}:
		return sync.OnceFunc(func() { <-n.slot; l.forget(node, n) }), nil
	case <-ctx.Done():
		l.forget(node, n)
		return nil, ctx.Err()
	case <-stop:
		l.forget(node, n)
		return nil, ErrClosed
	}
}

func (l *nodeLocks) forget(node receipt.NodeID, n *nodeLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.refs--; n.refs == 0 {
		delete(l.held, node)
	}
}
