package choria

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"provctl/receipt"
)

const (
	muxQueue   = 8192             // messages read from the connection and not yet handed on
	waiterKeep = 8                // messages to one request that are kept until its waiter looks
	twinFor    = time.Minute      // a second answer to a fact is listened for that long
	lateFor    = 15 * time.Minute // replies are listened for that long after the horizon
	sweepEvery = time.Minute
)

// mux hands what arrives under the engine's inbox to whoever waits for that request id. It never decodes for a waiter and
// never blocks on one.
type mux struct {
	in       chan *nats.Msg
	barriers chan chan struct{}

	mu      sync.Mutex
	waiting map[receipt.RequestID]*waiter
	watched map[receipt.RequestID]*watch
	swept   time.Time
}

// waiter is a request in flight.
type waiter struct{ got chan *nats.Msg }

// watch is a request that nobody waits for any more, but to which a reply is still news: an effect, or a fact that was answered.
type watch struct {
	node    receipt.NodeID
	action  receipt.Action
	fact    string // its agent; empty for an effect
	until   time.Time
	replied bool
}

func (m *mux) init() {
	m.in = make(chan *nats.Msg, muxQueue)
	m.barriers = make(chan chan struct{})
	m.waiting = make(map[receipt.RequestID]*waiter)
	m.watched = make(map[receipt.RequestID]*watch)
}

// runMux is the one reader of the inbox.
func (e *Engine) runMux() {
	for {
		select {
		case m := <-e.mux.in:
			e.route(m)
		case done := <-e.mux.barriers:
			for range len(e.mux.in) {
				e.route(<-e.mux.in)
			}
			close(done)
		case <-e.closing:
			return
		}
	}
}

func (e *Engine) route(m *nats.Msg) {
	id := receipt.RequestID(strings.TrimPrefix(m.Subject, e.inbox+"."))
	e.mux.mu.Lock()
	w := e.mux.waiting[id]
	if w != nil {
		// under the lock, so that retire can tell what came before it from what came after
		select {
		case w.got <- m:
		default:
			e.stats.overflow.Add(1)
		}
	}
	e.mux.mu.Unlock()
	if w == nil {
		e.late(id, m)
	}
}

// expect registers a waiter before its request leaves.
func (e *Engine) expect(id receipt.RequestID) *waiter {
	w := &waiter{got: make(chan *nats.Msg, waiterKeep)}
	e.mux.mu.Lock()
	defer e.mux.mu.Unlock()
	e.mux.waiting[id] = w
	return w
}

// retire ends a waiter; what it has not looked at is returned. With a watch, later messages are news.
func (e *Engine) retire(id receipt.RequestID, next *watch) []*nats.Msg {
	e.mux.mu.Lock()
	defer e.mux.mu.Unlock()
	w := e.mux.waiting[id]
	delete(e.mux.waiting, id)
	if next != nil {
		e.sweep()
		e.mux.watched[id] = next
	}
	var rest []*nats.Msg
	for w != nil {
		select {
		case m := <-w.got:
			rest = append(rest, m)
			continue
		default:
		}
		break
	}
	return rest
}

// sweep forgets watches that have run out. The lock is held.
func (e *Engine) sweep() {
	now := e.opt.Now()
	if now.Sub(e.mux.swept) < sweepEvery {
		return
	}
	e.mux.swept = now
	for id, w := range e.mux.watched {
		if now.After(w.until) {
			delete(e.mux.watched, id)
		}
	}
}

// roundTrip returns once everything that the broker had for us when it was called has been routed. It reports false if the
// connection is down or the time is up.
func (e *Engine) roundTrip(ctx context.Context) bool {
	nc, err := e.conn()
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, e.opt.FlushTimeout)
	defer cancel()
	if nc.FlushWithContext(ctx) != nil {
		return false
	}
	done := make(chan struct{})
	select {
	case e.mux.barriers <- done:
		<-done
		return true
	case <-ctx.Done():
	case <-e.closing:
	}
	return false
}
