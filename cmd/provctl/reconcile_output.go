package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"provctl/inspect"
	"provctl/journal"
	"provctl/receipt"
	"provctl/reconcile"
)

// reconcileSchema names the form of a line of --json; see docs/reconcile-schema.json.
const reconcileSchema = "provctl.reconcile/1"

// outcome collects what becomes of the items, and says it as it comes.
type outcome struct {
	c     *cli.Context
	sight reconcile.Sight
	many  bool

	recorded, changed, refused, untried int

	first  error // that kept an item from being recorded, one that changed before all others
	failed error // of writing
	waits  bool  // a line of progress is on the terminal
}

// resultLine is one item as --json prints it.
type resultLine struct {
	Schema      string            `json:"schema"`
	Receipt     string            `json:"receipt"` // as given if nothing is known under it
	Node        receipt.NodeID    `json:"node,omitempty"`
	Action      receipt.Action    `json:"action,omitzero"`
	Verdict     receipt.Verdict   `json:"verdict"`
	Seen        receipt.Seq       `json:"seen,omitzero"`
	Code        reconcile.Code    `json:"code"`
	Was         receipt.Status    `json:"was,omitzero"`
	Is          receipt.Status    `json:"is,omitzero"`
	Version     receipt.Seq       `json:"version,omitzero"` // after it
	Contradicts string            `json:"contradicts,omitempty"`
	Decision    *receipt.Decision `json:"decision,omitempty"` // as it is on record
	Error       string            `json:"error,omitempty"`
	Left        int64             `json:"left_seconds,omitzero"` // until the horizon
}

func (o *outcome) add(r reconcile.Result) {
	o.clear()
	switch {
	case r.Err == nil:
		o.recorded++
	case r.Code == reconcile.Changed:
		o.changed++
	case r.Code == reconcile.NotTried:
		o.untried++
	default:
		o.refused++
	}
	if r.Err != nil && (o.first == nil || r.Code == reconcile.Changed && !errors.Is(o.first, receipt.ErrStale)) {
		o.first = r.Err
	}
	var err error
	if o.c.Bool("json") {
		err = inspect.WriteJSONLine(o.c.App.Writer, o.line(r))
	} else if text := o.text(r); text != "" {
		_, err = fmt.Fprintln(o.c.App.Writer, inspect.Printable(text))
	}
	if err != nil && !quiet(err) && o.failed == nil { // what is recorded is, whoever reads of it
		o.failed = err
	}
	if r.Err != nil && r.Code != reconcile.NotTried && (!o.c.Bool("dry-run") || o.c.Bool("json")) {
		say(o.c.App.ErrWriter, r.Err)
	}
}

// text is an item's line on stdout; refusals have theirs on stderr, except in a dry run, which is about them.
func (o *outcome) text(r reconcile.Result) string {
	f := r.Item.Found
	what := fmt.Sprintf("receipt %s: %s on %s", receiptName(r.Item), f.Action, f.Node)
	switch {
	case r.Code == reconcile.Recorded:
		by := ""
		if n := len(r.Receipt.Decisions); n > 0 {
			by = r.Receipt.Decisions[n-1].By
		}
		return fmt.Sprintf("%s was %s and is %s now, recorded for %s", what, r.Was, r.Is, by)
	case r.Code == reconcile.WouldRecord:
		return fmt.Sprintf("%s is %s and would be %s: %s", what, r.Was, r.Is, then[r.Item.Verdict])
	case o.c.Bool("dry-run"):
		if f.Status == 0 {
			what = "receipt " + receiptName(r.Item)
		}
		return fmt.Sprintf("%s would be refused: %s", what, strings.TrimPrefix(r.Err.Error(), "receipt "+receiptName(r.Item)+": "))
	}
	return ""
}

func (o *outcome) line(r reconcile.Result) resultLine {
	f := r.Item.Found
	l := resultLine{
		Schema: reconcileSchema, Receipt: receiptName(r.Item), Node: f.Node, Action: f.Action, Verdict: r.Item.Verdict, Seen: r.Item.Seen,
		Code: r.Code, Was: r.Was, Is: r.Is, Version: r.Receipt.Version, Contradicts: o.sight.Contradiction(r.Item),
	}
	if n := len(r.Receipt.Decisions); n > 0 {
		l.Decision = &r.Receipt.Decisions[n-1]
	}
	if r.Err != nil {
		l.Error = r.Err.Error()
	}
	var early *journal.BeforeHorizonError
	if errors.As(r.Err, &early) {
		l.Left = int64(math.Ceil(early.Left.Seconds()))
	}
	return l
}

// end sums up and gives the error that decides the exit code; what is on stderr already is not said again.
func (o *outcome) end(err error) error {
	o.clear()
	if o.many {
		did := "recorded"
		if o.c.Bool("dry-run") {
			did = "would be recorded"
		}
		sum := fmt.Sprintf("%d %s, %d changed, %d refused", o.recorded, did, o.changed, o.refused)
		if o.untried > 0 {
			sum += fmt.Sprintf(", %d not tried", o.untried)
		}
		fmt.Fprintln(o.c.App.ErrWriter, sum)
	}
	switch {
	case o.untried > 0 && err != nil && o.changed > 0:
		say(o.c.App.ErrWriter, err)
		return told{o.first}
	case o.untried > 0 && err != nil:
		return err
	case o.first != nil && (o.changed > 0 || err == nil):
		return told{o.first}
	case o.first != nil: // it stopped at one that has been said
		return told{err}
	case err != nil:
		return err
	default:
		return o.failed
	}
}

// wait is what --wait asks for. On a terminal a line says what is waited for.
func (o *outcome) wait() reconcile.Wait {
	if !o.c.Bool("wait") {
		return reconcile.Wait{}
	}
	return reconcile.Wait{Till: func(n int, next time.Time) {
		if isTerminal(o.c.App.ErrWriter) {
			o.waits = true
			fmt.Fprintf(o.c.App.ErrWriter, "\r\x1b[Kwaiting with %d, next at %s; Ctrl-C ends it", n, next.Local().Format("15:04:05"))
		}
	}}
}

// clear takes the line of progress away.
func (o *outcome) clear() {
	if o.waits {
		o.waits = false
		fmt.Fprint(o.c.App.ErrWriter, "\r\x1b[K")
	}
}

func waitingAtMost(c *cli.Context, ctx context.Context) (context.Context, context.CancelFunc) {
	if d := c.Duration("wait-at-most"); d > 0 {
		return context.WithTimeoutCause(ctx, d, errWaited)
	}
	return ctx, func() {}
}
