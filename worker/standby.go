package worker

import (
	"context"
	"fmt"
	"time"

	"provctl/journal"
	"provctl/receipt"
)

// Permit returns nil while this worker may begin and publish effects: nobody paused it, what an unknown worker sent before it can no longer
// arrive, and it leads. Its errors are
// receipt.ErrStandby. The fence asks it right before every publish.
func (w *Worker) Permit() error {
	if p := w.paused.Load(); p != nil {
		return fmt.Errorf("%w: paused by %s at %s: %s", receipt.ErrStandby, p.By, p.At.UTC().Format(time.RFC3339), p.Reason)
	}
	if left := w.quiet.Sub(w.o.Now()); left > 0 {
		return fmt.Errorf("%w: the journal was accepted though newer work is lost: nothing is sent for another %s", receipt.ErrStandby, left.Round(time.Second))
	}
	return w.leads()
}

func (w *Worker) leads() error {
	if w.o.Leadership == nil {
		return nil
	}
	return w.o.Leadership.Check()
}

// OnLeadership is to be called whenever leadership was won or lost, and when the wait after a win is over: a worker that may act looks at
// the fleet at once. It never blocks.
func (w *Worker) OnLeadership() { w.actAgain() }

func (w *Worker) actAgain() {
	if w.Permit() != nil {
		return
	}
	wake(w.wakeLanes)
	wake(w.wakeDiscover)
}

// Pause has the worker begin no effect and no helper, from now on and after a restart too, until Resume. What is in flight ends.
func (w *Worker) Pause(ctx context.Context, by, reason string) (journal.Pause, error) {
	w.pausing.Lock()
	defer w.pausing.Unlock()
	p, err := w.j.SetPause(ctx, by, reason)
	if err == nil {
		w.paused.Store(&p)
		w.log.Warn("paused: no effect is begun", "by", p.By, "reason", p.Reason, "hint", "provctl resume")
	}
	return p, err
}

// Resume ends a pause; the fleet is asked at once. It returns the pause that was; nil if there was none.
func (w *Worker) Resume(ctx context.Context, by string) (*journal.Pause, error) {
	w.pausing.Lock()
	defer w.pausing.Unlock()
	was, err := w.j.Resume(ctx, by)
	if err == nil && was != nil {
		w.paused.Store(nil)
		w.log.Info("resumed", "by", by, "paused_by", was.By, "for", w.o.Now().Sub(was.At).Round(time.Second))
		w.actAgain()
	}
	return was, err
}

// recallPause takes over what the journal says of a pause.
func (w *Worker) recallPause() {
	w.pausing.Lock()
	defer w.pausing.Unlock()
	if w.paused.Store(w.j.Info().Pause); w.paused.Load() != nil {
		w.log.Warn("the worker is paused and begins nothing", "why", w.Permit(), "hint", "provctl resume")
	}
}

// quietUntil is one horizon after a journal was accepted of which newer work is lost. By a clock that was set back since it is one horizon
// from now on.
func quietUntil(o Options) time.Time {
	accepted := o.Accepted
	if accepted.IsZero() {
		return accepted
	}
	if now := o.Now(); accepted.After(now) {
		accepted = now
	}
	return accepted.Add(o.Horizon)
}

// beQuiet takes up work when the quiet time is over.
func (w *Worker) beQuiet() {
	if left := w.quiet.Sub(w.o.Now()); left > 0 {
		w.log.Warn("the journal was accepted though newer work is lost: waiting until no request of before can arrive", "until", w.quiet.UTC())
		time.AfterFunc(left, w.quietOver)
	}
}

// quietOver is called when the time should be over. A clock that is slewed may still have some of it left.
func (w *Worker) quietOver() {
	if left := w.quiet.Sub(w.o.Now()); left > 0 {
		time.AfterFunc(left, w.quietOver)
		return
	}
	w.actAgain()
}

// ours returns nil while lock and journal are this worker's. One that has lost them gives up: another worker may be at work, and even
// a question can disturb that one, since jwt replaces the node's key for secrets. The fence asks again right before every publish.
func (w *Worker) ours() error {
	if w.o.Ours == nil {
		return nil
	}
	err := w.o.Ours()
	if err != nil {
		w.giveUp(fmt.Errorf("this worker was replaced: %w", err))
	}
	return err
}
