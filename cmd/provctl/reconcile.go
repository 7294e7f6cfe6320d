package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"provctl/inspect"
	"provctl/receipt"
	"provctl/reconcile"
)

func reconcileCommand() *cli.Command {
	return &cli.Command{
		Name:      "reconcile",
		Usage:     "records verdicts on blocked receipts",
		ArgsUsage: "[RECEIPT...|-]",
		Description: "Goes through the running worker, or takes the worker's lock for a moment. RECEIPT may be shortened to its first 6 characters;\n" +
			"'provctl inspect RECEIPT' shows what to look at first and what to type. With - it reads one JSON object a line from standard\n" +
			"input, with receipt and, if they differ from the flags, verdict, reason, evidence and seen.\n" +
			"One receipt with --verdict, --reason and --seen is recorded at once. Anything else is shown and asked for on a terminal, and\n" +
			"needs --yes elsewhere: of several receipts with their count, as in --yes=12. Each is decided on as it was shown: what changed\n" +
			"since is left alone. A former verdict can be taken back with --seen, while nothing later was begun for the node.\n" +
			"finish has the worker restart the node to find out what became of a configure.\n" +
			"Exit codes: 0 all recorded, 4 something changed since it was seen, 5 a worker holds the directory and does not answer,\n" +
			"6 the journal is damaged or missing, 2 usage, 1 other errors. What is not said to be recorded was not, unless the error says\n" +
			"that this is not known; giving the same verdict again with the same --seen is always safe.",
		Flags: append([]cli.Flag{
			stateDirFlag(),
			&cli.StringFlag{Name: "verdict", Usage: "`VERDICT`: applied (the job goes on), not-applied (it is queued again), abandon (it ends, the node stays out) or finish (of a configure: restart the node to find out)"},
			&cli.BoolFlag{Name: "finish", Usage: "the same as --verdict finish"},
			&cli.StringFlag{Name: "reason", Usage: "why, for the record: `TEXT` of one line"},
			&cli.StringFlag{Name: "evidence", Usage: "what was seen that the receipt does not hold, for the record: `TEXT` of one line"},
			&cli.BoolFlag{Name: "contradict-evidence", Usage: "give the verdict although evidence says otherwise, which is put on record"},
			&cli.StringFlag{Name: "seen", Usage: "of one receipt: the `VERSION` that was decided on, as inspect shows it"},
			&cli.BoolFlag{Name: "all", Usage: "every blocked receipt that --node, --effect, --since and --state choose"},
			&cli.BoolFlag{Name: "dry-run", Usage: "say what would happen to each receipt, and write nothing"},
			&cli.BoolFlag{Name: "wait", Usage: "wait with verdicts that come too early: for the horizon, and with a worker, before not-applied, until the node shows itself idle"},
			&cli.DurationFlag{Name: "wait-at-most", Usage: "with --wait: give up after `DURATION`"},
			&cli.GenericFlag{Name: "yes", Usage: "do not ask; of several receipts `COUNT` must be how many there are, as in --yes=12", Value: &confirmed{}},
			operatorFlag(),
			jsonFlag(),
		}, filterFlags()...),
		Action: reconcileAction,
	}
}

// confirmed is --yes, or --yes=COUNT.
type confirmed struct {
	given bool
	count int // 0: none was said
}

// Set reads the flag's value; without one the parser gives "true".
func (y *confirmed) Set(s string) error {
	if s == "true" {
		*y = confirmed{given: true}
		return nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n <= 0 {
		return errors.New("it must be the number of receipts, as in --yes=12")
	}
	*y = confirmed{given: true, count: n}
	return nil
}

// String is what the help shows as the default.
func (y *confirmed) String() string { return "" }

// IsBoolFlag has the parser take no argument for the value.
func (y *confirmed) IsBoolFlag() bool { return true }

func reconcileAction(c *cli.Context) error {
	if err := checkReconcileFlags(c); err != nil {
		return err
	}
	dir, err := stateDir(c)
	if err != nil {
		return err
	}
	requests, err := requests(c)
	if err != nil {
		return err
	}
	f, err := filter(c, time.Now())
	if err != nil {
		return err
	}
	if err := mayAsk(c, requests); err != nil {
		return err
	}
	ctx, stop := interruptible(c)
	defer stop()
	s, err := reconcile.Look(ctx, dir)
	if err != nil {
		return err
	}
	if c.Bool("all") {
		requests = chosen(c, s, f)
	}
	items, err := s.Resolve(ctx, requests)
	if err != nil {
		return usagef("%w", err)
	}
	out := &outcome{c: c, sight: s, many: len(items) != 1}
	if c.Bool("dry-run") {
		for _, i := range items {
			out.add(s.Predict(i))
		}
		return out.end(nil)
	}
	if err := confirm(ctx, c, s, requests, items); err != nil {
		return err
	}
	ctx, done := waitingAtMost(c, ctx)
	defer done()
	return out.end(reconcile.DecideAll(ctx, dir, items, out.wait(), out.add))
}

// chosen are the blocked receipts that a filter matches; without a worker also those that one which ended left in flight.
func chosen(c *cli.Context, s reconcile.Sight, f inspect.Filter) []reconcile.Request {
	var out []reconcile.Request
	for _, r := range s.Open {
		if r.Status != receipt.Unknown && s.Worker {
			continue
		}
		if f.Match(inspect.Describe(r, s.Taken, s.Dir)) {
			q := defaults(c)
			q.Receipt = string(r.ID)
			out = append(out, q)
		}
	}
	return out
}

// checkReconcileFlags finds combinations that mean nothing.
func checkReconcileFlags(c *cli.Context) error {
	dash, named := c.Args().First() == "-", c.NArg()
	filtered := filterText(c)
	switch {
	case c.Bool("all") && named > 0:
		return usagef("--all chooses receipts itself: give --all or receipts, not both")
	case !c.Bool("all") && named == 0:
		return usagef("RECEIPT is missing; 'provctl reconcile --help' shows the usage")
	case !c.Bool("all") && (filtered.Node != "" || len(filtered.Effects) > 0 || filtered.Since != "" || len(filtered.States) > 0):
		return usagef("--node, --effect, --since and --state choose among all: they need --all")
	case dash && named > 1:
		return usagef("- takes the receipts from standard input: give no others")
	case c.IsSet("seen") && (named != 1 || dash):
		return usagef("--seen is of exactly one receipt; for several, give each its own on standard input with -")
	case c.Bool("finish") && c.String("verdict") != "" && c.String("verdict") != "finish":
		return usagef("--finish is a verdict of its own: leave --verdict out")
	case c.IsSet("wait-at-most") && !c.Bool("wait"):
		return usagef("--wait-at-most needs --wait")
	case c.IsSet("wait-at-most") && c.Duration("wait-at-most") <= 0:
		return usagef("--wait-at-most %s: it must be more than nothing, like 2m", c.Duration("wait-at-most"))
	case c.Bool("wait") && c.Bool("dry-run"):
		return usagef("--dry-run does nothing that could wait: leave --wait out")
	}
	return nil
}

// errWaited ends the waiting of --wait-at-most.
var errWaited = errors.New("the time of --wait-at-most is over")

func checkTexts(q reconcile.Request, where string) error {
	if err := q.Check(); err != nil {
		return fmt.Errorf("%s%w", where, err)
	}
	return nil
}
