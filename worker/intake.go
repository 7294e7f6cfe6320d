package worker

import (
	"context"
	"errors"
	"time"

	"provctl/internal/crashpoint"
	"provctl/journal"
	"provctl/receipt"
)

// Sight notes that a node in provisioning mode was seen. It never blocks; sightings of one node before they are admitted count
// once. Before the worker has settled it is ignored: the first discovery comes after.
func (w *Worker) Sight(node receipt.NodeID, source string, at time.Time) {
	if !w.intaking.Load() || w.Permit() != nil {
		return
	}
	w.mu.Lock()
	if w.busy[node] != nil || w.queue.has(node) {
		// Known already: nothing for the journal to write. Many nodes may wait, and each is seen once an interval.
		w.queue.sighted(node, at)
		w.mu.Unlock()
		return
	}
	// Anybody with a provisioning token can publish events under any name; discovery finds who really answers.
	room := maxWaiting
	if source == "event" {
		room = maxByEvent - w.queue.len()
	}
	if len(w.seen) < room {
		w.seen[node] = journal.Sighting{Node: node, Source: source, At: at}
	}
	w.mu.Unlock()
	wake(w.wakeIntake)
}

// intake admits what was sighted, all that waits in one transaction.
func (w *Worker) intake(ctx context.Context) {
	defer w.pulses.intake.rest()
	for {
		w.pulses.intake.rest()
		select {
		case <-ctx.Done():
			return
		case <-w.wakeIntake:
		}
		w.pulses.intake.work(w.o.Now())
		w.mu.Lock()
		batch := make([]journal.Sighting, 0, len(w.seen))
		for _, s := range w.seen {
			batch = append(batch, s)
		}
		clear(w.seen)
		room := maxWaiting - w.queue.len()
		w.mu.Unlock()
		if len(batch) == 0 {
			continue
		}
		admissions, err := w.j.Admit(ctx, batch, room)
		if err != nil {
			if ctx.Err() == nil {
				w.giveUp(err)
			}
			return
		}
		crashpoint.Here(crashpoint.Admitted)
		for _, a := range admissions {
			w.admitted(ctx, a)
		}
	}
}

func (w *Worker) admitted(ctx context.Context, a journal.Admission) {
	now := w.o.Now()
	switch a.State {
	case journal.Admitted:
		w.o.Meter.Discovered(a.Job.Source)
		w.log.Debug("admitted", "node", a.Node, "job", a.Job.ID, "source", a.Job.Source)
		w.mu.Lock()
		w.queue.push(entryOf(a.Job, now))
		w.mu.Unlock()
		wake(w.wakeLanes)
	case journal.Known:
		w.mu.Lock()
		w.queue.sighted(a.Node, now)
		if a.Job.Status == receipt.Queued && w.busy[a.Node] == nil && !w.queue.has(a.Node) {
			// Nothing should lead here; if something does, the node must not wait for the next start.
			w.queue.push(entryOf(a.Job, now))
		}
		w.mu.Unlock()
		wake(w.wakeLanes)
	case journal.BlockedNode:
		w.lookSoon(a.Node)
	case journal.Out:
		w.lookAtOut(ctx, a)
	}
}

// lookAtOut starts a look at a node that is kept out, unless one is under way or too many are.
func (w *Worker) lookAtOut(ctx context.Context, a journal.Admission) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.outLooks[a.Node] || len(w.outLooks) >= looksAtOnce {
		return // it is seen again
	}
	w.outLooks[a.Node] = true
	w.running.Go(func() {
		defer func() {
			w.mu.Lock()
			delete(w.outLooks, a.Node)
			w.mu.Unlock()
		}()
		defer w.guard("a look at node " + string(a.Node))
		w.checkOut(ctx, a)
	})
}

// checkOut looks whether a node that is kept out came back as another incarnation; then it is new work.
func (w *Worker) checkOut(ctx context.Context, a journal.Admission) {
	ctx, cancel := context.WithTimeout(ctx, factTimeout)
	defer cancel()
	stats, _, err := w.net.Stats(ctx, a.Node)
	if err != nil || stats.Incarnation == a.NodeRecord.OutOf {
		return
	}
	if err := w.j.Return(ctx, a.Node, stats.Incarnation); err != nil {
		if !errors.Is(err, receipt.ErrStale) && ctx.Err() == nil {
			w.giveUp(err)
		}
		return
	}
	if !a.NodeRecord.OutOf.Known() {
		return // nobody had seen the one it went out with: from now on this one counts as it
	}
	w.log.Info("a node that was kept out came back as another incarnation", "node", a.Node, "incarnation", stats.Incarnation)
	w.Sight(a.Node, "event", w.o.Now())
}

// discover asks the fleet at once, then every interval and whenever the worker may act again. A worker that may not act leaves the
// fleet alone.
func (w *Worker) discover(ctx context.Context) {
	ticker := time.NewTicker(w.o.Interval)
	defer ticker.Stop()
	defer w.pulses.discover.rest()
	for {
		w.pulses.discover.work(w.o.Now())
		if w.ours() != nil {
			return
		}
		if w.net.Connected() && w.Permit() == nil {
			found := 0
			err := w.net.Discover(ctx, func(node receipt.NodeID) {
				found++
				w.Sight(node, "discovery", w.o.Now())
			})
			if ctx.Err() != nil {
				return
			}
			w.o.Meter.Cycle(err)
			if err != nil {
				w.log.Warn("discovery failed; the next one comes with the interval", "error", err, "interval", w.o.Interval)
			}
			w.log.Debug("discovered", "nodes", found)
		}
		w.pulses.discover.rest()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-w.wakeDiscover:
		}
	}
}

// keepHouse prunes ended work and forgets requests whose replies no longer matter.
func (w *Worker) keepHouse(ctx context.Context) {
	ticker := time.NewTicker(pruneEvery)
	defer ticker.Stop()
	for {
		n, err := w.j.Prune(ctx, w.o.Now().Add(-w.o.Retention))
		if err != nil && ctx.Err() == nil {
			w.giveUp(err)
			return
		}
		if n > 0 {
			w.log.Info("pruned ended work", "records", n, "older_than", w.o.Retention)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		w.mu.Lock()
		for id, s := range w.requests {
			if s.horizon.Add(pruneEvery).Before(w.o.Now()) && w.watches[s.receipt] == nil {
				delete(w.requests, id)
			}
		}
		w.mu.Unlock()
	}
}
