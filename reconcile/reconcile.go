package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"provctl/inspect"
	"provctl/internal/control"
	"provctl/journal"
	"provctl/receipt"
)

// ErrAmbiguous is returned when a prefix names more than one receipt.
var ErrAmbiguous = errors.New("ambiguous")

// fullID is the length of a receipt's id: a ULID.
const fullID = 26

// Request is a verdict as an operator gives it.
type Request struct {
	Receipt  string // its id, or a prefix of at least inspect.MinPrefix characters that names one open receipt
	Verdict  receipt.Verdict
	Reason   string
	Operator string      // a name claimed beside the user's own; may be empty
	Seen     receipt.Seq // the version that was decided on; 0: the present one, which Show gets
	// Show, if set, is called with the receipt as it is before the verdict is given.
	Show func(receipt.Receipt)
}

// Check refuses what could never be recorded; the error is receipt.ErrInvalid.
func (q Request) Check() error {
	if err := checkTexts(q.Operator, q.Reason); err != nil {
		return err
	}
	if !slices.Contains(receipt.Verdicts(), q.Verdict) {
		return fmt.Errorf("verdict: %w: it must be applied, not-applied or abandon", receipt.ErrInvalid)
	}
	if n := len(q.Receipt); n < inspect.MinPrefix || n > fullID || strings.ContainsFunc(q.Receipt, notULID) {
		return fmt.Errorf("receipt %.40q: %w: give its id as 'provctl inspect' shows it, or at least its first %d characters", q.Receipt, receipt.ErrInvalid, inspect.MinPrefix)
	}
	return nil
}

func notULID(r rune) bool {
	return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
}

// Decide records the verdict; when it returns without an error that is durable. Errors: receipt.ErrStale (the receipt changed
// since it was seen, or is settled: nothing was written), receipt.ErrBeforeHorizon (*journal.BeforeHorizonError says how long
// is left), journal.ErrInFlight, journal.ErrMayStillRun, journal.ErrNotFound, ErrAmbiguous, fence.ErrHeld (a worker holds the directory and does not
// answer), receipt.ErrDamaged.
func Decide(ctx context.Context, dir string, q Request) (receipt.Receipt, error) {
	if err := q.Check(); err != nil {
		return receipt.Receipt{}, err
	}
	return withDesk(ctx, dir, func(d desk) (receipt.Receipt, error) { return decide(ctx, d, q) })
}

func decide(ctx context.Context, d desk, q Request) (receipt.Receipt, error) {
	open, err := d.open(ctx)
	if err != nil {
		return receipt.Receipt{}, err
	}
	r, err := find(open, strings.ToUpper(q.Receipt))
	if err != nil {
		return receipt.Receipt{}, err
	}
	if r.ID == "" { // not open: the journal says what became of it
		r.ID = receipt.ReceiptID(strings.ToUpper(q.Receipt))
	} else if q.Show != nil {
		q.Show(r)
	}
	seen := q.Seen
	if seen == 0 {
		seen = r.Version
	}
	return d.decide(ctx, journal.Decision{Receipt: r.ID, Seen: seen, Verdict: q.Verdict, Reason: q.Reason}, q.Operator)
}

// find resolves an id or a prefix among the open receipts. A whole id that is not among them gives an empty receipt.
func find(open []receipt.Receipt, name string) (receipt.Receipt, error) {
	var hits []receipt.Receipt
	for _, r := range open {
		if strings.HasPrefix(string(r.ID), name) {
			hits = append(hits, r)
		}
	}
	switch {
	case len(hits) == 1:
		return hits[0], nil
	case len(hits) > 1:
		return receipt.Receipt{}, fmt.Errorf("receipt %s: %w: it begins the ids of %d open receipts (%s, …): give more characters", name, ErrAmbiguous, len(hits), hits[0].ID)
	case len(name) == fullID:
		return receipt.Receipt{}, nil
	}
	return receipt.Receipt{}, fmt.Errorf("receipt %s: %w among the open ones: 'provctl inspect' lists them", name, journal.ErrNotFound)
}

// Admit queues a node now, though it is held or out, and forgives what failed or was abandoned before. When it returns without
// an error that is durable. Errors: journal.ErrBlocked while the node has an open receipt; else as Decide.
func Admit(ctx context.Context, dir, node, operator, reason string) (receipt.Job, error) {
	id, err := receipt.ParseNodeID(node)
	if err != nil {
		return receipt.Job{}, err
	}
	if err := checkTexts(operator, reason); err != nil {
		return receipt.Job{}, err
	}
	return withDesk(ctx, dir, func(d desk) (receipt.Job, error) { return d.admit(ctx, id, operator, reason) })
}

// Pause has the worker begin no effect and no helper until Resume, after a restart too; it needs no running worker. A pause that holds
// already is kept and returned. When it returns without an error that is durable. Errors as for Decide.
func Pause(ctx context.Context, dir, operator, reason string) (journal.Pause, error) {
	if err := checkTexts(operator, reason); err != nil {
		return journal.Pause{}, err
	}
	return withDesk(ctx, dir, func(d desk) (journal.Pause, error) { return d.pause(ctx, operator, reason) })
}

// Resume ends a pause and returns it, nil if there was none. Errors as for Decide.
func Resume(ctx context.Context, dir, operator string) (*journal.Pause, error) {
	if err := checkOperator(operator); err != nil {
		return nil, err
	}
	return withDesk(ctx, dir, func(d desk) (*journal.Pause, error) { return d.resume(ctx, operator) })
}

func checkTexts(operator, reason string) error {
	if err := control.CheckText("reason", reason, control.MaxReason); err != nil {
		return err
	}
	return checkOperator(operator)
}

func checkOperator(operator string) error {
	if operator == "" {
		return nil
	}
	return control.CheckText("operator", operator, control.MaxOperator)
}
