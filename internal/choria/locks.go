package choria

import (
	"context"
	"fmt"
	"sync"
	"time"

	"provctl/receipt"
)

// nodeLocks serialise requests to one node: its request channel is 10 deep and one mutex serialises its actions, so a second
// request could only wait there, unseen, while its TTL runs.
type nodeLocks struct {
	mu   sync.Mutex
	held map[receipt.NodeID]*nodeLock
}

type nodeLock struct {
	slot   chan struct{} // holds one token while somebody has the node
	refs   int           // holder and waiters
	effect bool          // the holder is an effect; nodeLocks.mu guards it
}

// turn says what a node is wanted for.
type turn struct {
	effect   bool          // it may last until the horizon
	hasty    bool          // do not wait for an effect
	patience time.Duration // the longest wait; 0 is as long as the context
}

// lock waits for the node. It gives the function that frees it, to be called once, or the reason why it did not get it: ErrBusy
// if that is only impatience.
func (l *nodeLocks) lock(ctx context.Context, stop <-chan struct{}, node receipt.NodeID, t turn) (func(), error) {
	n, err := l.join(node, t)
	if err != nil {
		return nil, err
	}
	var over <-chan time.Time
	if t.patience > 0 {
		timer := time.NewTimer(t.patience)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case n.slot <- struct{}{}:
		l.mark(n, t.effect)
		return sync.OnceFunc(func() { l.mark(n, false); <-n.slot; l.forget(node, n) }), nil
	case <-over:
		err = fmt.Errorf("%w: another request was under way for all of %s", ErrBusy, t.patience)
	case <-ctx.Done():
		err = ctx.Err()
	case <-stop:
		err = ErrClosed
	}
	l.forget(node, n)
	return nil, err
}

// join counts the caller among those who have or want the node.
func (l *nodeLocks) join(node receipt.NodeID, t turn) (*nodeLock, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = make(map[receipt.NodeID]*nodeLock)
	}
	n := l.held[node]
	if n == nil {
		n = &nodeLock{slot: make(chan struct{}, 1)}
		l.held[node] = n
	}
	if t.hasty && n.effect {
		return nil, fmt.Errorf("%w: an effect is in flight", ErrBusy)
	}
	n.refs++
	return n, nil
}

func (l *nodeLocks) mark(n *nodeLock, effect bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n.effect = effect
}

func (l *nodeLocks) forget(node receipt.NodeID, n *nodeLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.refs--; n.refs == 0 {
		delete(l.held, node)
	}
}
