package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"provctl/internal/crashpoint"
	"provctl/journal"
	"provctl/receipt"
	"provctl/sequence"
)

// dispatch gives waiting jobs to free lanes until ctx ends. It takes a lane only once a job may run: a pass that comes back
// from a long wait needs one too.
func (w *Worker) dispatch(ctx context.Context) {
	for w.awaitJob(ctx) {
		select {
		case w.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		w.pulses.dispatch.work(w.o.Now())
		e, ok := w.take()
		w.pulses.dispatch.rest()
		if !ok {
			<-w.slots
			continue
		}
		w.running.Go(func() { w.work(e) })
	}
}

// take removes the next job from the queue, if one may run.
func (w *Worker) take() (entry, bool) {
	if w.gate() != "" {
		return entry{}, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.o.Now()
	e, ok, _ := w.queue.next(now)
	if ok = ok && w.draining == ""; ok {
		w.queue.remove(e.node)
		w.busy[e.node] = &pass{job: e.job, due: now.Add(maxStep)}
	}
	return e, ok
}

// awaitJob waits until a job may run; false when ctx ends.
func (w *Worker) awaitJob(ctx context.Context) bool {
	for ctx.Err() == nil {
		wait := time.Second // the gate opens with the connection, which wakes nobody
		if w.gate() == "" {
			w.mu.Lock()
			_, ok, left := w.queue.next(w.o.Now())
			w.mu.Unlock()
			if ok {
				return true
			}
			if left > 0 {
				wait = min(wait, left)
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-w.wakeLanes:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return false
}

// gate says why no new work is taken; "" if it is.
func (w *Worker) gate() string {
	unknown, overdue, parked := w.Unknown(), int(w.overdue.Load()), int(w.parked.Load())
	standby, drainer := w.Permit(), w.drainer()
	switch {
	case w.stopping.Load():
		return "the worker is stopping"
	case drainer != "":
		return "the worker is draining, as " + drainer + " asked: it ends once what is at work has ended"
	case standby != nil:
		return standby.Error()
	case !w.net.Connected():
		return "the broker is not connected"
	case w.o.FleetBlocks && unknown > 0:
		return fmt.Sprintf("on_unknown is fleet and %d effects are unknown", unknown)
	case unknown+overdue >= w.o.MaxUnknown:
		return fmt.Sprintf("%d effects are unknown and %d overdue, and max_unknown is %d: many at once mean a common cause", unknown, overdue, w.o.MaxUnknown)
	case parked >= maxParked:
		return fmt.Sprintf("%d nodes do not answer", parked)
	default:
		return ""
	}
}

// maxParked bounds the passes that wait for slow nodes without a lane.
const maxParked = 1000

// work makes one pass over one job.
func (w *Worker) work(e entry) {
	l := &lane{w: w, node: e.node, links: w.reconnects.Load()}
	defer func() {
		l.giveAway()
		wake(w.wakeLanes)
	}()
	defer w.guard(fmt.Sprintf("job %s of node %s", e.job, e.node))
	ctx := context.WithoutCancel(w.effects)
	if !e.lasting && w.o.Now().Sub(e.seen) > 2*w.o.Interval {
		w.move(ctx, e, journal.Next{Event: receipt.End, Result: receipt.Stale, Why: "not seen for two intervals while it waited"})
		return
	}
	job, err := w.j.Claim(ctx, e.job)
	if err != nil {
		w.release(e)
		if !errors.Is(err, receipt.ErrStale) && !errors.Is(err, receipt.ErrIllegalTransition) {
			w.giveUp(fmt.Errorf("claim job %s of %s: %w", e.job, e.node, err))
		}
		return
	}
	crashpoint.Here(crashpoint.Claimed)
	next, err := w.cycle.Run(w.facts, w.effects, l, job)
	if err != nil {
		w.release(e)
		w.giveUp(fmt.Errorf("job %s of %s: %w", e.job, e.node, err))
		return
	}
	w.move(ctx, e, next)
}

// move records what becomes of a job, if a settlement has not done so, and follows it.
func (w *Worker) move(ctx context.Context, e entry, next journal.Next) {
	var job receipt.Job
	var err error
	if next.Event != 0 {
		job, err = w.j.Move(ctx, e.job, next)
	} else {
		job, err = w.j.Job(e.job)
	}
	crashpoint.Here(crashpoint.JobMoved)
	w.release(e)
	if err == nil {
		err = w.follow(job)
	}
	if err != nil {
		w.giveUp(fmt.Errorf("job %s of %s: %w", e.job, e.node, err))
	}
}

func (w *Worker) release(e entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.busy, e.node)
	w.drainedLocked()
}

// follow acts on where a job stands now: it waits again, its receipt is watched, or its node may be taken anew.
func (w *Worker) follow(job receipt.Job) error {
	now := w.o.Now()
	switch job.Status {
	case receipt.Queued:
		w.mu.Lock()
		if w.busy[job.Node] == nil { // else a pass has just taken it, and follows it itself
			w.queue.push(entryOf(job, now))
		}
		w.mu.Unlock()
		wake(w.wakeLanes)
	case receipt.Blocked:
		node, err := w.j.Node(job.Node)
		if err != nil || node.Open == "" { // a verdict came first, and was followed
			return err
		}
		r, err := w.j.Receipt(node.Open)
		if err != nil {
			return err
		}
		w.watchFor(r)
	case receipt.Ended:
		w.log.Info("job ended", "node", job.Node, "job", job.ID, "result", job.Result, "why", job.Why)
		switch job.Result {
		case receipt.Superseded:
			w.Sight(job.Node, "event", now)
		case receipt.Upgraded: // its startup event comes first, unless it is lost
			time.AfterFunc(restartTime, func() { w.Sight(job.Node, "event", w.o.Now()) })
		}
	}
	return nil
}

// lane is a pass's permission to be busy.
type lane struct {
	w     *Worker
	node  receipt.NodeID
	links int64 // reconnects before the pass
	away  bool  // given to others
}

// Park implements sequence.Lane.
func (l *lane) Park(ctx context.Context, done <-chan struct{}) { l.wait(ctx, done, nil, false) }

// Await implements sequence.Lane. An upgrade takes as long as its download: that is no doubt.
func (l *lane) Await(ctx context.Context, done <-chan struct{}, r receipt.Receipt) error {
	hint := make(chan struct{})
	l.w.mu.Lock()
	l.w.hints[r.ID] = sync.OnceFunc(func() { close(hint) })
	l.w.mu.Unlock()
	defer func() {
		l.w.mu.Lock()
		delete(l.w.hints, r.ID)
		l.w.mu.Unlock()
	}()
	now := l.w.o.Now() // by whose monotonic clock the effect is waited for; a horizon has none
	l.w.stepped(l.node, now.Add(r.Horizon.Sub(now)+maxStep))
	l.wait(ctx, done, hint, r.Action != receipt.ReleaseUpdate)
	select {
	case <-done:
		return nil
	default:
	}
	if ctx.Err() != nil {
		return errors.New("the worker stopped before a reply came")
	}
	return errors.New("an event says that it is done, and no reply came with it")
}

// wait returns when done or hint is closed or ctx ends.
func (l *lane) wait(ctx context.Context, done, hint <-chan struct{}, doubt bool) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
		return
	case <-hint:
		return
	case <-ctx.Done():
		return
	case <-timer.C:
	}
	l.giveAway()
	l.w.parked.Add(1)
	defer l.w.parked.Add(-1)
	if doubt {
		l.w.overdue.Add(1)
		defer l.w.overdue.Add(-1)
	}
	wake(l.w.wakeLanes)
	select {
	case <-done:
	case <-hint:
	case <-ctx.Done():
	}
}

// Retake implements sequence.Lane.
func (l *lane) Retake() {
	if l.away {
		l.w.waits(l.node)
		l.w.slots <- struct{}{}
		l.away = false
		l.w.stepped(l.node, time.Time{})
	}
}

// giveAway lets another pass have the lane.
func (l *lane) giveAway() {
	if !l.away {
		<-l.w.slots
		l.away = true
	}
}

// Gate implements sequence.Lane.
func (l *lane) Gate() error {
	l.w.stepped(l.node, time.Time{})
	if err := l.w.mayAct(); err != nil {
		return err
	}
	return l.w.alone(l.node)
}

// mayAct returns nil while effects may be begun and published.
func (w *Worker) mayAct() error {
	if err := w.ours(); err != nil {
		return err
	}
	standby := w.Permit()
	switch {
	case w.stopping.Load():
		return errors.New("the worker is stopping")
	case standby != nil:
		return standby
	case !w.net.Connected():
		return errors.New("the broker is not connected")
	case w.o.FleetBlocks && w.Unknown() > 0:
		return errors.New("on_unknown is fleet and an effect is unknown")
	default:
		return nil
	}
}

// Disturbed implements sequence.Lane.
func (l *lane) Disturbed() error {
	if l.w.reconnects.Load() == l.links && l.w.net.Connected() {
		return nil
	}
	return errors.New("the connection to the broker broke meanwhile")
}

// recorder remembers which receipt a request belongs to before it is published, so that a late reply finds it, and looks a last time
// whether the worker may still act: it may have given up, or the fleet been blocked, since the pass looked.
type recorder struct {
	Network
	w *Worker
}

func (r recorder) Publish(ctx context.Context, p *journal.Pending, prepared sequence.Prepared) (sequence.Call, error) {
	err := r.w.mayAct()
	if err == nil {
		err = r.w.alone(p.Receipt().Node)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", sequence.ErrNotSent, err)
	}
	r.w.remember(p.Receipt())
	r.w.stepped(p.Receipt().Node, time.Time{})
	return r.Network.Publish(ctx, p, prepared)
}

func (w *Worker) remember(r receipt.Receipt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests[r.Request] = sent{receipt: r.ID, action: r.Action, horizon: r.Horizon}
}
