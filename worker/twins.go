package worker

import (
	"fmt"
	"time"

	"provctl/receipt"
	"provctl/sequence"
)

// twinsKept bounds how many nodes are remembered to have had a twin.
const twinsKept = 1000

// OnTwin is to be called when two servers answered one question under a node's name. Each of them gets every request, so a pass at that node
// begins no further effect, and a look at its receipt concludes nothing. It does not wait for the journal.
func (w *Worker) OnTwin(node receipt.NodeID) {
	now := w.o.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	concerned := w.busy[node] != nil
	for _, watch := range w.watches {
		concerned = concerned || watch.node == node
	}
	if !concerned {
		return // whoever deals with it next asks again
	}
	if len(w.twins) >= twinsKept {
		clear(w.twins)
	}
	w.twins[node] = now
}

// alone returns an error if the node has had a twin since then.
func (w *Worker) alone(node receipt.NodeID, since time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, ok := w.twins[node]; ok && !at.Before(since) {
		return fmt.Errorf("%w: give each an identity of its own; meanwhile nothing is begun there, for both would do it", sequence.ErrTwin)
	}
	return nil
}
