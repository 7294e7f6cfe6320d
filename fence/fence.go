package fence

import (
	"errors"
	"fmt"
	"time"

	"provctl/receipt"
)

// defaultMinLeft is how much of a request's time must be left to publish it.
const defaultMinLeft = time.Second

// Checks are what an effect must pass. A missing one that is not optional refuses every effect.
type Checks struct {
	Lock    *Lock
	Journal func() error             // the open journal is still the one at its path, in our epoch
	Revoked func(receipt.Token) bool // a verdict revoked the token
	Permit  func() error             // optional: nobody paused the worker, and its leadership has not lapsed
	Now     func() time.Time         // optional: time.Now
	MinLeft time.Duration            // until the horizon; 0: one second
	Epoch   receipt.Epoch            // of this worker's term
}

// Fence checks, right before an effect is published, that this process may still publish it. The zero value and a nil Fence
// refuse everything.
type Fence struct{ c Checks }

// New makes a fence of its checks.
func New(c Checks) *Fence {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.MinLeft <= 0 {
		c.MinLeft = defaultMinLeft
	}
	return &Fence{c: c}
}

// Check returns nil if the receipt's effect may be published now, and otherwise an error that is receipt.ErrFenced and says
// which check failed; if only the request's time ran out it is receipt.ErrExpired too. The time left is checked last, since the others take time.
func (f *Fence) Check(r receipt.Receipt) error {
	if f == nil || f.c.Journal == nil || f.c.Revoked == nil {
		return fmt.Errorf("%w: this fence lacks a check", receipt.ErrFenced)
	}
	refuse := func(check string, err error) error {
		if errors.Is(err, receipt.ErrFenced) {
			return fmt.Errorf("%s of %s, %s: %w", r.Action, r.Node, check, err)
		}
		return fmt.Errorf("%s of %s: %w, %s: %w", r.Action, r.Node, receipt.ErrFenced, check, err)
	}
	if r.Status != receipt.Pending {
		return refuse("receipt", fmt.Errorf("%s is %s, not pending", r.ID, r.Status))
	}
	if r.Epoch == 0 || r.Epoch != f.c.Epoch {
		return refuse("epoch", fmt.Errorf("receipt %s is of epoch %d, this worker is %d", r.ID, r.Epoch, f.c.Epoch))
	}
	if err := f.c.Lock.Check(); err != nil {
		return refuse("worker lock", err)
	}
	if err := f.c.Journal(); err != nil {
		return refuse("journal", err)
	}
	if f.c.Revoked(r.Token) {
		return refuse("token", fmt.Errorf("receipt %s was decided by a verdict", r.ID))
	}
	if f.c.Permit != nil {
		if err := f.c.Permit(); err != nil {
			return refuse("permission", err)
		}
	}
	if left := r.Horizon.Left(f.c.Now()); left < f.c.MinLeft {
		return refuse("time", fmt.Errorf("%w: %s until its horizon, %s are needed", receipt.ErrExpired, left, f.c.MinLeft))
	}
	return nil
}
