package choria

import (
	"log/slog"
	"sync"
	"sync/atomic"
)

// notifyQueue is how many callbacks may wait.
const notifyQueue = 4096

// notifier runs callbacks one after the other, away from the intake of messages. It never blocks its caller.
type notifier struct {
	what    string
	log     *slog.Logger
	dropped *atomic.Int64
	queue   chan func()
	stop    <-chan struct{}
	once    sync.Once
}

func newNotifier(what string, log *slog.Logger, dropped *atomic.Int64, stop <-chan struct{}) *notifier {
	return &notifier{what: what, log: log, dropped: dropped, queue: make(chan func(), notifyQueue), stop: stop}
}

// start runs the callbacks until stop is closed. Only the first call counts.
func (n *notifier) start(wg *sync.WaitGroup) {
	n.once.Do(func() {
		wg.Go(func() {
			for {
				select {
				case f := <-n.queue:
					n.run(f)
				case <-n.stop:
					return
				}
			}
		})
	})
}

func (n *notifier) add(f func()) {
	select {
	case n.queue <- f:
	default:
		if c := n.dropped.Add(1); c == 1 || c%1000 == 0 {
			n.log.Warn("dropping what its receiver is too slow for", "what", n.what, "dropped", c)
		}
	}
}

func (n *notifier) run(f func()) {
	defer func() {
		if p := recover(); p != nil {
			n.log.Error("a receiver panicked", "what", n.what, "panic", p)
		}
	}()
	f()
}

// tally counts what is dropped or refused.
type tally struct {
	foreign, garbage, stray, overflow, badIdentity, eventsDropped, lateDropped, slow atomic.Int64
}

// Tally is a copy of the engine's counters of what was dropped or refused since it was made.
type Tally struct {
	Foreign       int64 // replies from another sender or with another request id
	Garbage       int64 // messages that could not be decoded
	Stray         int64 // replies that nobody waits for
	Overflow      int64 // further messages to one request beyond what is kept
	BadIdentity   int64 // identities that cannot be a node's
	EventsDropped int64 // lifecycle events that did not fit the queue
	LateDropped   int64 // late replies that did not fit the queue
	Slow          int64 // times the connection reported that we read too slowly
}

// Tally reads the counters.
func (e *Engine) Tally() Tally {
	s := &e.stats
	return Tally{
		Foreign: s.foreign.Load(), Garbage: s.garbage.Load(), Stray: s.stray.Load(), Overflow: s.overflow.Load(),
		BadIdentity: s.badIdentity.Load(), EventsDropped: s.eventsDropped.Load(), LateDropped: s.lateDropped.Load(), Slow: s.slow.Load(),
	}
}
