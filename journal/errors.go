package journal

import (
	"errors"
	"fmt"
	"time"

	"provctl/receipt"
)

var (
	// ErrExists is returned when Init finds a journal, or what is left of one.
	ErrExists = errors.New("a journal exists already")
	// ErrMissing is returned when there is no journal where one should be. It is a kind of receipt.ErrDamaged: a journal that
	// has gone is never replaced by a blank one.
	ErrMissing = fmt.Errorf("journal missing: %w", receipt.ErrDamaged)
	// ErrNewer is returned for a journal that a newer program wrote. It is a kind of receipt.ErrDamaged: this program cannot go on with it,
	// and must not replace it.
	ErrNewer = fmt.Errorf("journal of a newer format: %w", receipt.ErrDamaged)
	// ErrBusy is returned when another process holds the journal file.
	ErrBusy = errors.New("journal in use by another process")
	// ErrStopped is returned for every write after one that failed: whether that one was recorded is not known until the
	// journal is opened again.
	ErrStopped = errors.New("journal stopped")
	// ErrClosed is returned for every call after Close.
	ErrClosed = errors.New("journal closed")
	// ErrNotFound is returned for a job, receipt or node that the journal does not know.
	ErrNotFound = errors.New("not found")
	// ErrInFlight is returned when a verdict is given on a receipt whose effect the worker is still waiting for.
	ErrInFlight = errors.New("the effect is still in flight")
	// ErrMayStillRun is returned when a verdict says not-applied of an effect that may still be waiting in its node.
	ErrMayStillRun = errors.New("the node may still have it to do")
	// ErrContradicted is returned when evidence says otherwise than a verdict, and nobody insists on it.
	ErrContradicted = errors.New("evidence contradicts this verdict")
	// ErrNotHeld is returned for the release of a node that no hold keeps.
	ErrNotHeld = errors.New("the node is not held")
	// ErrBlocked is returned when a node's open receipt forbids what was asked.
	ErrBlocked = errors.New("node blocked by an open receipt")
)

// BeforeHorizonError is returned for a verdict that comes before the request's horizon. It is receipt.ErrBeforeHorizon.
type BeforeHorizonError struct {
	Receipt receipt.ReceiptID
	Left    time.Duration // until the verdict will be taken
}

// Error says how long is left.
func (e *BeforeHorizonError) Error() string {
	return fmt.Sprintf("receipt %s: %s for another %s: give the verdict after that", e.Receipt, receipt.ErrBeforeHorizon, e.Left.Round(time.Second))
}

// Unwrap makes it receipt.ErrBeforeHorizon.
func (e *BeforeHorizonError) Unwrap() error { return receipt.ErrBeforeHorizon }

// StoppedError is what every write returns after one that failed. It is ErrStopped and wraps the cause.
type StoppedError struct {
	Path  string
	Cause error
}

// Error names the journal, the cause and the remedy.
func (e *StoppedError) Error() string {
	return fmt.Sprintf("%s %s: the last change may or may not be recorded; remove the cause and start again: %s", ErrStopped, e.Path, e.Cause)
}

// Unwrap makes it ErrStopped and its cause.
func (e *StoppedError) Unwrap() []error { return []error{ErrStopped, e.Cause} }
