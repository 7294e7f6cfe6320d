package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"provctl/fence"
	"provctl/internal/control"
	"provctl/journal"
	"provctl/receipt"
)

// Code says in one word what became of an item, for programs. Values are part of the output's schema.
type Code string

// The codes.
const (
	Recorded     Code = "recorded"
	WouldRecord  Code = "would-record"  // of a dry run
	Changed      Code = "changed"       // since it was seen, or settled already
	BeforeTime   Code = "before-time"   // its horizon has not passed
	MayStillRun  Code = "may-still-run" // the node has not shown that it is idle
	InFlight     Code = "in-flight"     // the worker waits for it
	Contradicted Code = "contradicted"
	NotFound     Code = "not-found"
	Invalid      Code = "invalid"
	NotTried     Code = "not-tried" // it ended before this one's turn
	NotKnown     Code = "not-known" // the worker gave no answer: it may be recorded, and the same again is safe
	Failed       Code = "failed"
)

// codes pairs errors with their codes, the first that fits counting.
var codes = []struct {
	err  error
	code Code
}{
	{receipt.ErrStale, Changed},
	{receipt.ErrBeforeHorizon, BeforeTime},
	{journal.ErrMayStillRun, MayStillRun},
	{journal.ErrInFlight, InFlight},
	{journal.ErrContradicted, Contradicted},
	{journal.ErrNotFound, NotFound},
	{receipt.ErrInvalid, Invalid},
	{control.ErrHung, NotKnown},
	{control.ErrUnavailable, NotKnown}, // as when the worker ended before it had answered
}

// Result is what became of one item.
type Result struct {
	Item    Item
	Was, Is receipt.Status  // Is is 0 unless it was, or would be, recorded
	Receipt receipt.Receipt // as recorded; zero otherwise
	Code    Code
	Err     error // nil if it was, or would be, recorded
}

func (i Item) result(err error) Result {
	out := Result{Item: i, Was: i.Found.Status, Code: Failed, Err: err}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			out.Code = c.code
			break
		}
	}
	return out
}

// Predict says what DecideAll would do with an item at that moment. It writes nothing.
func (s Sight) Predict(i Item) Result {
	if err := s.Refusal(i); err != nil {
		return i.result(err)
	}
	is, err := receipt.Unknown.Apply(i.Verdict.Event())
	if err != nil {
		return i.result(err)
	}
	return Result{Item: i, Was: i.Found.Status, Is: is, Code: WouldRecord}
}

// atOnce is how many verdicts are under way at a time, for the journal to commit together: under our own lock many, at a worker half of
// what it serves.
const (
	atOnceOurselves = 256
	atOnceAtWorker  = 8
)

// DecideAll records the verdicts, each on the version that was seen, and calls each for every item, in order except that those that Wait
// holds up come last. What it reports as recorded is durable. A refused item does not stop the others. It goes through one worker, or
// takes the lock once. The error is what ended it early: every item whose turn had not come is reported as NotTried then. Errors:
// fence.ErrHeld (a worker holds the directory and does not answer), receipt.ErrDamaged, the context's.
func DecideAll(ctx context.Context, dir string, items []Item, wait Wait, each func(Result)) error {
	for _, i := range items {
		if err := i.Check(); err != nil {
			return err
		}
	}
	if wait.Till != nil {
		return waitAndDecide(ctx, dir, items, wait, each)
	}
	return decideNow(ctx, dir, items, each)
}

func decideNow(ctx context.Context, dir string, items []Item, each func(Result)) error {
	if len(items) == 0 {
		return nil
	}
	tried := 0
	_, err := withDesk(ctx, dir, func(d desk) (struct{}, error) {
		var err error
		tried, err = decideAt(ctx, d, items, each)
		return struct{}{}, err
	})
	if err != nil {
		notTried(items[tried:], err, each)
	}
	return err
}

// decideAt gives the verdicts at a desk until one shows that none of the others can be given. It returns how many it tried.
func decideAt(ctx context.Context, d desk, items []Item, each func(Result)) (tried int, err error) {
	for tried < len(items) {
		if err := ctx.Err(); err != nil {
			return tried, context.Cause(ctx)
		}
		some := items[tried:min(tried+d.atOnce(), len(items))]
		results := make([]Result, len(some))
		var wg sync.WaitGroup
		for n, i := range some {
			wg.Go(func() { results[n] = decideOne(ctx, d, i) })
		}
		wg.Wait()
		for _, r := range results {
			each(r)
			if err == nil && hopeless(r.Err) {
				err = r.Err
			}
		}
		if tried += len(some); err != nil {
			return tried, err
		}
	}
	return tried, nil
}

func decideOne(ctx context.Context, d desk, i Item) Result {
	if i.Found.ID == "" {
		return i.result(i.nothing())
	}
	if i.standsAlready() {
		return i.result(i.already())
	}
	// One that has begun is not given up: whether it was recorded would not be known. What it waits for is bounded.
	ctx = context.WithoutCancel(ctx)
	give := func() (receipt.Receipt, error) {
		return d.decide(ctx, journal.Decision{
			Receipt: i.Found.ID, Seen: i.Seen, Verdict: i.Verdict, Reason: i.Reason, Evidence: i.Evidence, Contradict: i.Contradict,
		}, i.Operator)
	}
	r, err := give()
	for n := 0; n < tries && errors.Is(err, control.ErrOverloaded); n++ {
		_ = pauseFor(ctx, between)
		r, err = give()
	}
	if err != nil {
		if errors.Is(err, control.ErrHung) {
			err = hungWhile(err)
		}
		return i.result(err)
	}
	return Result{Item: i, Was: i.Found.Status, Is: r.Status, Receipt: r, Code: Recorded}
}

func hungWhile(err error) error {
	return fmt.Errorf("%w: %w; whether it was recorded is not known, and doing the same again is safe", fence.ErrHeld, err)
}

// hopeless errors are not about the item: the others would fail alike, and some would take their time to.
func hopeless(err error) bool {
	for _, e := range []error{
		control.ErrHung, control.ErrNoWorker, control.ErrUnavailable, control.ErrDenied, control.ErrProtocol, receipt.ErrDamaged, receipt.ErrFenced,
		journal.ErrStopped, journal.ErrClosed, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func notTried(items []Item, why error, each func(Result)) {
	for _, i := range items {
		each(Result{Item: i, Was: i.Found.Status, Code: NotTried, Err: fmt.Errorf("receipt %s: not tried: %w", i.Found.ID, why)})
	}
}

// Wait has verdicts wait that come too early. Its zero value waits for nothing.
type Wait struct {
	// Till, if set, has DecideAll wait: it is called before each wait with how many still do and when the next look is, and tells people.
	Till func(waiting int, next time.Time)
}
