package reconcile

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"provctl/fence"
	"provctl/internal/control"
	"provctl/internal/crashpoint"
	"provctl/journal"
	"provctl/receipt"
)

// desk is where decisions are recorded: the running worker, or the journal under our own lock.
type desk interface {
	decide(ctx context.Context, d journal.Decision, operator string) (receipt.Receipt, error)
	atOnce() int // decisions
	admit(ctx context.Context, n receipt.NodeID, operator, reason string) (receipt.Job, error)
	release(ctx context.Context, n receipt.NodeID, operator, reason string) (receipt.Node, error)
	pause(ctx context.Context, operator, reason string) (journal.Pause, error)
	resume(ctx context.Context, operator string) (*journal.Pause, error)
	close() error
}

// tries and between bridge the moments in which a worker starts or ends, or another reconcile is at work: the lock is held and
// nobody answers on the socket.
const (
	tries   = 30
	between = 100 * time.Millisecond
)

// withDesk runs one decision at whichever desk there is. An error in giving the desk up counts only if all else went well.
func withDesk[T any](ctx context.Context, dir string, do func(desk) (T, error)) (T, error) {
	var zero T
	var err error
	for n := range tries {
		var d desk
		if d, err = openDesk(ctx, dir, n == 0); err == nil {
			out, err := do(d)
			if errors.Is(err, control.ErrHung) && !errors.Is(err, fence.ErrHeld) {
				return zero, hungWhile(err)
			}
			if closing := d.close(); err == nil && closing != nil {
				return out, fmt.Errorf("it is recorded, but closing failed: %w", closing)
			}
			return out, err
		}
		if !errors.Is(err, fence.ErrHeld) || errors.Is(err, control.ErrHung) {
			return zero, err
		}
		if err := pauseFor(ctx, between); err != nil {
			return zero, err
		}
	}
	return zero, err
}

func openDesk(ctx context.Context, dir string, first bool) (desk, error) {
	c, err := control.Dial(dir)
	if err == nil {
		_, err = c.Live(ctx) // a worker that hangs is found out before anything is asked of it
	}
	switch {
	case err == nil:
		return atWorker{c}, nil
	case errors.Is(err, control.ErrHung):
		return nil, fmt.Errorf("%w: %w", fence.ErrHeld, err)
	case !errors.Is(err, control.ErrNoWorker):
		return nil, err
	}
	// Reading first gives a missing or damaged journal its own message, and leaves no lock file where there is none.
	if first {
		if _, err := journal.Read(dir); err != nil && !errors.Is(err, journal.ErrBusy) {
			return nil, err
		}
	}
	return openFile(ctx, dir)
}

// atWorker lets the running worker decide.
type atWorker struct{ c *control.Client }

func (a atWorker) decide(ctx context.Context, d journal.Decision, operator string) (receipt.Receipt, error) {
	return a.c.Decide(ctx, d, operator)
}

func (a atWorker) admit(ctx context.Context, n receipt.NodeID, operator, reason string) (receipt.Job, error) {
	return a.c.AdmitByHand(ctx, n, operator, reason)
}

func (a atWorker) release(ctx context.Context, n receipt.NodeID, operator, reason string) (receipt.Node, error) {
	return a.c.Release(ctx, n, operator, reason)
}

func (a atWorker) pause(ctx context.Context, operator, reason string) (journal.Pause, error) {
	return a.c.Pause(ctx, operator, reason)
}

func (a atWorker) resume(ctx context.Context, operator string) (*journal.Pause, error) {
	return a.c.Resume(ctx, operator)
}

func (atWorker) atOnce() int { return atOnceAtWorker }

func (atWorker) close() error { return nil }

// atFile is the journal under our own lock.
type atFile struct {
	lock *fence.Lock
	j    *journal.Journal
	was  map[receipt.ReceiptID]receipt.Receipt // open receipts before our own Recover
}

// openFile does what a worker's start does as far as the journal alone allows. Queued jobs are left alone however old they
// are: whether they are stale is for the worker to say.
func openFile(ctx context.Context, dir string) (_ desk, err error) {
	a := &atFile{was: map[receipt.ReceiptID]receipt.Receipt{}}
	if a.lock, err = fence.Acquire(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.close())
		}
	}()
	if a.j, err = journal.Open(dir, journal.Options{}); err != nil {
		return nil, err
	}
	before, err := a.j.OpenReceipts()
	if err != nil {
		return nil, err
	}
	for _, r := range before {
		a.was[r.ID] = r
	}
	if _, err = a.j.RaiseEpoch(); err != nil {
		return nil, err
	}
	// That a node has killed the worker too often is for the worker to say: its limit is in a configuration not read here.
	_, err = a.j.Recover(ctx, journal.RecoverPolicy{MaxRequeues: math.MaxInt})
	return a, err
}

func (a *atFile) decide(ctx context.Context, d journal.Decision, operator string) (receipt.Receipt, error) {
	by, err := control.Me(operator)
	if err != nil {
		return receipt.Receipt{}, err
	}
	d.By = by
	// A receipt that a dead worker left pending was shown as such, and became unknown only by our own Recover, which learned
	// nothing: what was seen still holds.
	if w, ok := a.was[d.Receipt]; ok && w.Status == receipt.Pending && w.Version == d.Seen {
		now, err := a.j.Receipt(d.Receipt)
		if err != nil {
			return receipt.Receipt{}, err
		}
		d.Seen = now.Version
	}
	r, err := a.j.Decide(ctx, d)
	crashpoint.Here(crashpoint.VerdictFiled)
	return r, err
}

func (a *atFile) admit(ctx context.Context, n receipt.NodeID, operator, reason string) (receipt.Job, error) {
	by, err := control.Me(operator)
	if err != nil {
		return receipt.Job{}, err
	}
	return a.j.AdmitByHand(ctx, n, by, reason)
}

func (a *atFile) release(ctx context.Context, n receipt.NodeID, operator, reason string) (receipt.Node, error) {
	by, err := control.Me(operator)
	if err != nil {
		return receipt.Node{}, err
	}
	return a.j.Release(ctx, n, by, reason)
}

func (a *atFile) pause(ctx context.Context, operator, reason string) (journal.Pause, error) {
	by, err := control.Me(operator)
	if err != nil {
		return journal.Pause{}, err
	}
	return a.j.SetPause(ctx, by, reason)
}

func (a *atFile) resume(ctx context.Context, operator string) (*journal.Pause, error) {
	by, err := control.Me(operator)
	if err != nil {
		return nil, err
	}
	return a.j.Resume(ctx, by)
}

func (*atFile) atOnce() int { return atOnceOurselves }

func (a *atFile) close() error {
	var errs []error
	if a.j != nil {
		errs = append(errs, a.j.Close())
	}
	return errors.Join(append(errs, a.lock.Release())...)
}
