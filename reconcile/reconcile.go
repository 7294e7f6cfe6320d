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

var (
	// ErrAmbiguous is returned when a prefix names more than one receipt.
	ErrAmbiguous = errors.New("ambiguous")
	// ErrTwice is returned when two requests name the same receipt.
	ErrTwice = errors.New("named twice")
)

// fullID is the length of a receipt's id: a ULID.
const fullID = 26

// Request is a verdict as an operator gives it.
type Request struct {
	Receipt  string // its id, or a prefix of at least inspect.MinPrefix characters that names one open receipt
	Verdict  receipt.Verdict
	Reason   string
	Operator string      // a name claimed beside the user's own; may be empty
	Seen     receipt.Seq // the version that was decided on; 0: the one that Resolve finds

	Evidence   string // what the operator saw beyond what the receipt holds; may be empty
	Contradict bool   // give it although evidence says otherwise, which is put on record
}

// Check refuses what could never be recorded; the error is receipt.ErrInvalid.
func (q Request) Check() error {
	if err := checkTexts(q.Operator, q.Reason); err != nil {
		return err
	}
	if q.Evidence != "" {
		if err := control.CheckText("evidence", q.Evidence, control.MaxReason); err != nil {
			return err
		}
	}
	if !slices.Contains(receipt.Verdicts(), q.Verdict) {
		return fmt.Errorf("verdict: %w: it must be applied, not-applied, abandon or finish", receipt.ErrInvalid)
	}
	if n := len(q.Receipt); n < inspect.MinPrefix || n > fullID || strings.ContainsFunc(q.Receipt, notULID) {
		return fmt.Errorf("receipt %.40q: %w: give its id as 'provctl inspect' shows it, or at least its first %d characters", q.Receipt, receipt.ErrInvalid, inspect.MinPrefix)
	}
	return nil
}

func notULID(r rune) bool {
	return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
}

// Admit queues a node now, though it is held or out, and forgives what failed or was abandoned before. When it returns without
// an error that is durable. Errors: journal.ErrBlocked while the node has an open receipt; else as DecideAll.
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

// Release ends a node's hold and forgives nothing. When it returns without an error that is durable. Errors: journal.ErrNotFound,
// journal.ErrNotHeld; else as DecideAll.
func Release(ctx context.Context, dir, node, operator, reason string) (receipt.Node, error) {
	id, err := receipt.ParseNodeID(node)
	if err != nil {
		return receipt.Node{}, err
	}
	if err := checkTexts(operator, reason); err != nil {
		return receipt.Node{}, err
	}
	return withDesk(ctx, dir, func(d desk) (receipt.Node, error) { return d.release(ctx, id, operator, reason) })
}

// Pause has the worker begin no effect and no helper until Resume, after a restart too; it needs no running worker. A pause that holds
// already is kept and returned. When it returns without an error that is durable. Errors as for DecideAll.
func Pause(ctx context.Context, dir, operator, reason string) (journal.Pause, error) {
	if err := checkTexts(operator, reason); err != nil {
		return journal.Pause{}, err
	}
	return withDesk(ctx, dir, func(d desk) (journal.Pause, error) { return d.pause(ctx, operator, reason) })
}

// Resume ends a pause and returns it, nil if there was none. Errors as for DecideAll.
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
