package worker

import (
	"fmt"
	"sync/atomic"
	"time"

	"provctl/receipt"
)

// What may take so long at most before the worker counts as stuck. Neither is a promise to anybody: both are far above what a healthy
// worker takes, even on a slow disk.
const (
	maxTurn = 2 * time.Minute // a loop between two waits, or a commit
	maxStep = 5 * time.Minute // a pass between two of its steps, besides what it may wait for in it
)

// pulse tells since when a loop is at work. Its zero value rests.
type pulse struct{ since atomic.Pointer[time.Time] }

func (p *pulse) work(now time.Time) { p.since.Store(&now) }
func (p *pulse) rest()              { p.since.Store(nil) }

func (p *pulse) stuck(now time.Time) (time.Duration, bool) {
	since := p.since.Load()
	if since == nil {
		return 0, false
	}
	d := now.Sub(*since)
	return d, d > maxTurn
}

// pulses are those of the worker's loops. Housekeeping has none: it may prune for long, and waits for nothing but commits.
type pulses struct{ dispatch, intake, discover, watch pulse }

// pass is a job at work.
type pass struct {
	job receipt.JobID
	due time.Time // by then it must have made its next step; zero: it waits for a lane

	twin bool // two servers have answered it
}

// stepped notes that a pass makes progress; its next step may wait until a moment, or as long as any may.
func (w *Worker) stepped(node receipt.NodeID, until time.Time) {
	due := w.o.Now().Add(maxStep + w.o.AdviceTime)
	if until.After(due) {
		due = until
	}
	w.setDue(node, due)
}

// waits notes that a pass waits for others.
func (w *Worker) waits(node receipt.NodeID) { w.setDue(node, time.Time{}) }

func (w *Worker) setDue(node receipt.NodeID, due time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.busy[node]; p != nil {
		p.due = due
	}
}

// Stalled returns nil while the worker makes progress. Its error says what does not: that is a defect, or a disk that does not answer.
// Waiting is progress: for a broker, a node's reply, a helper's time, leadership, an operator. It may block where the worker is
// stuck for good, which is an answer too.
func (w *Worker) Stalled() error {
	now := w.o.Now()
	if d, ok := w.j.Committing(); ok && d > maxTurn {
		return fmt.Errorf("a commit of the journal has taken %s: the disk does not answer", d.Round(time.Second))
	}
	for _, l := range []struct {
		name string
		*pulse
	}{
		{"dispatch", &w.pulses.dispatch},
		{"intake", &w.pulses.intake},
		{"discovery", &w.pulses.discover},
		{"the watch on unknown receipts", &w.pulses.watch},
	} {
		if d, ok := l.stuck(now); ok {
			return fmt.Errorf("%s has been in one turn for %s", l.name, d.Round(time.Second))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for node, p := range w.busy {
		if !p.due.IsZero() && now.After(p.due) {
			return fmt.Errorf("job %s of %s has made no step since before %s", p.job, node, p.due.UTC().Format(time.RFC3339))
		}
	}
	return nil
}
