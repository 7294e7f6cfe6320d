package choria

import (
	"sync"
	"sync/atomic"

	"provctl/receipt"
)

const (
	// answersKept is how many answered requests are remembered per node; what falls out is not counted, which is safe.
	answersKept = 32
	// nodesKept bounds the nodes with a memory: identities come from outside.
	nodesKept = 1 << 16
)

// answered is one request of ours to a node, other than an effect, that the node answered. Both ordinals come from one clock:
// published was taken before the request left, back after its answer arrived.
type answered struct{ published, back uint64 }

// history is what is remembered of a node's answers. An answer at or before lost may have been forgotten.
type history struct {
	ring []answered
	lost uint64
}

func (h *history) add(a answered) {
	if len(h.ring) >= answersKept {
		h.lost = max(h.lost, h.ring[0].back)
		h.ring = append(h.ring[:0], h.ring[1:]...)
	}
	h.ring = append(h.ring, a)
}

// known counts the requests that the node surely validated after it gave the baseline and up to and with the probe: the probe
// itself, and those published after the baseline's answer and answered before the probe was published. The baseline's ordinal
// may be that of its publish or of its answer: a publish is looked up. Doubt always leads to a smaller number.
func (h *history) known(base, probe uint64) int64 {
	if h == nil {
		h = &history{}
	}
	since := base
	for _, a := range h.ring {
		if a.published == base {
			since = a.back
		}
	}
	if since >= probe {
		return 0
	}
	since = max(since, h.lost)
	n := int64(1)
	for _, a := range h.ring {
		if a.published > since && a.back < probe {
			n++
		}
	}
	return n
}

// counter is the process-wide clock of ordinals and the answers of every node.
type counter struct {
	clock atomic.Uint64
	mu    sync.Mutex
	nodes map[receipt.NodeID]*history
	lost  uint64 // whole histories were forgotten at this ordinal
}

func (c *counter) init() { c.nodes = make(map[receipt.NodeID]*history) }

func (c *counter) next() uint64 { return c.clock.Add(1) }

// answered notes an answer that has just arrived and gives its ordinal.
func (c *counter) answered(node receipt.NodeID, published uint64) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	back := c.next()
	h := c.nodes[node]
	if h == nil {
		if len(c.nodes) >= nodesKept {
			for old := range c.nodes {
				delete(c.nodes, old)
				break
			}
			c.lost = back
		}
		h = &history{lost: c.lost}
		c.nodes[node] = h
	}
	h.add(answered{published, back})
	return back
}

// BaselineOf makes a receipt's baseline of an answer of Stats. Its ordinal is that of the answer's arrival, so that a request
// which overlapped it, and may be in its count already, is not counted again.
func (e *Engine) BaselineOf(node receipt.NodeID, s receipt.StatsSeen) receipt.Baseline {
	b := receipt.Baseline{Validated: s.Validated, Epoch: s.Epoch, Ordinal: e.counts.clock.Load()}
	e.counts.mu.Lock()
	defer e.counts.mu.Unlock()
	if h := e.counts.nodes[node]; h != nil {
		for _, a := range h.ring {
			if a.published == s.Ordinal {
				b.Ordinal = a.back
			}
		}
	}
	return b
}

// KnownSince counts, of the requests that the node validated between a baseline and a later probe, those that were surely ours
// and no effects; the probe itself is one. It may be too small, never too large. A probe of another term than the present
// gives at most 1.
func (e *Engine) KnownSince(node receipt.NodeID, b receipt.Baseline, probe receipt.StatsSeen) int64 {
	now := receipt.Epoch(e.epoch.Load())
	base := b.Ordinal
	switch {
	case b.Epoch > probe.Epoch:
		return 0
	case probe.Epoch != now:
		if b.Epoch == probe.Epoch && b.Ordinal >= probe.Ordinal {
			return 0
		}
		return 1
	case b.Epoch < now:
		base = 0 // all of this term came after it
	}
	e.counts.mu.Lock()
	defer e.counts.mu.Unlock()
	h := e.counts.nodes[node]
	if h == nil && e.counts.lost > 0 {
		h = &history{lost: e.counts.lost}
	}
	return h.known(base, probe.Ordinal)
}
