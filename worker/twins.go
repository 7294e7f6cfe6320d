package worker

import (
	"fmt"
	"time"

	"provctl/receipt"
	"provctl/sequence"
)

// OnTwin is to be called when two servers answered one question under a node's name. Each of them gets every request, so a pass that is at
// that node begins no further effect, and a look at its receipt concludes nothing. It does not wait for the journal. Where nobody is at the
// node it does nothing: whoever comes next asks again.
func (w *Worker) OnTwin(node receipt.NodeID) {
	now := w.o.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.busy[node]; p != nil {
		p.twin = true
	}
	for _, watch := range w.watches {
		if watch.node == node {
			watch.twin = now
		}
	}
}

// alone returns an error if a pass is at the node and two servers have answered it there.
func (w *Worker) alone(node receipt.NodeID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.busy[node]; p != nil && p.twin {
		return fmt.Errorf("%w: give each an identity of its own; meanwhile nothing is begun there, for both would do it", sequence.ErrTwin)
	}
	return nil
}

// aloneSince reports whether no two servers have answered since then where a receipt is watched.
func (w *Worker) aloneSince(id receipt.ReceiptID, since time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	watch := w.watches[id]
	return watch == nil || watch.twin.Before(since)
}
