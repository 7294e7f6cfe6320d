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
		Usage:     "records a verdict on a blocked receipt",
		ArgsUsage: "RECEIPT",
		Description: "Goes through the running worker, or takes the worker's lock for a moment. Asks nothing. RECEIPT may be shortened to its\n" +
			"first 6 characters. 'provctl inspect RECEIPT' shows what to look at first.\n" +
			"Exit codes: 0 recorded, 4 the receipt changed since it was seen, 5 a worker holds the directory and does not answer,\n" +
			"6 the journal is damaged or missing, 1 other errors. Nothing was recorded then, unless the error says that this is not\n" +
			"known; giving the same verdict again with the same --seen is always safe.",
		Flags: []cli.Flag{
			stateDirFlag(),
			&cli.StringFlag{Name: "verdict", Usage: "`VERDICT`: applied (the job goes on), not-applied (it is queued again) or abandon (it ends, the node stays out)", Required: true},
			reasonFlag(),
			&cli.StringFlag{Name: "seen", Usage: "the `VERSION` that was decided on, as inspect shows it; without it the present one, shown on stderr"},
			operatorFlag(),
			jsonFlag(),
		},
		Action: reconcileAction,
	}
}

func reconcileAction(c *cli.Context) error {
	dir, q, err := reconcileRequest(c)
	if err != nil {
		return err
	}
	before := receipt.Status(0)
	q.Show = func(r receipt.Receipt) {
		before = r.Status
		if q.Seen == 0 {
			_ = inspect.WriteItem(c.App.ErrWriter, inspect.Describe(r, time.Now(), dir), style(c.App.ErrWriter))
		}
	}
	ctx, stop := interruptible(c)
	defer stop()
	r, err := reconcile.Decide(ctx, dir, q)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return inspect.WriteJSON(c.App.Writer, r)
	}
	by := ""
	if n := len(r.Decisions); n > 0 {
		by = r.Decisions[n-1].By
	}
	_, err = fmt.Fprintf(c.App.Writer, "receipt %s: %s on %s was %s and is %s now, recorded for %s\n",
		r.ID, r.Action, inspect.Printable(string(r.Node)), before, r.Status, inspect.Printable(by))
	return err
}

// reconcileRequest reads the command line; whatever is wrong with it is a usage error.
func reconcileRequest(c *cli.Context) (dir string, q reconcile.Request, err error) {
	if err := arguments(c, 1, 1, "RECEIPT"); err != nil {
		return "", q, err
	}
	if dir, err = stateDir(c); err != nil {
		return "", q, err
	}
	if err := q.Verdict.UnmarshalText([]byte(c.String("verdict"))); err != nil {
		return "", q, usagef("--verdict %.40q: it must be applied, not-applied or abandon", c.String("verdict"))
	}
	if c.IsSet("seen") {
		n, err := strconv.ParseUint(c.String("seen"), 10, 64)
		if err != nil || n == 0 {
			return "", q, usagef("--seen %.40q: it must be a version as 'provctl inspect' shows it, a positive number", c.String("seen"))
		}
		q.Seen = receipt.Seq(n)
	}
	q.Receipt, q.Reason, q.Operator = c.Args().First(), c.String("reason"), c.String("operator")
	if err := q.Check(); errors.Is(err, receipt.ErrInvalid) {
		return "", q, usagef("%w", err)
	}
	return dir, q, nil
}
