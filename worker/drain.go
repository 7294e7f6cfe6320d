package worker

import (
	"errors"
	"os"

	"provctl/internal/control"
)

// ErrDrained is returned by Run when Drain ended it. Nothing went wrong: whoever supervises the program is to start it again.
var ErrDrained = errors.New("drained: all work at hand has ended")

// Drain has the worker claim no more jobs and end once those at work have ended: each to its last step, where a stop ends them after the
// effect in flight. What waits stays queued in the journal. Nothing of it is durable: a worker that is started again works. It does not wait.
func (w *Worker) Drain(by string) control.Draining {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.draining == "" {
		w.draining = by
		w.log.Info("draining: no more work is taken, and the worker ends once what is at work has ended", "by", by, "at_work", len(w.busy))
		w.drainedLocked()
	}
	return control.Draining{PID: os.Getpid(), Busy: len(w.busy)}
}

// drainedLocked ends a draining worker when nothing is at work. w.mu is held.
func (w *Worker) drainedLocked() {
	if w.draining == "" || len(w.busy) > 0 || w.over {
		return
	}
	w.over = true
	close(w.drained)
}

// drainer is who had the worker drain; "" if nobody did.
func (w *Worker) drainer() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.draining
}
