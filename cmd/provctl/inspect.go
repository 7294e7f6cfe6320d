package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"provctl/inspect"
	"provctl/internal/control"
	"provctl/receipt"
)

func inspectCommand() *cli.Command {
	return &cli.Command{
		Name:      "inspect",
		Usage:     "shows what is blocked or in flight, and what to look at and to type",
		ArgsUsage: "[RECEIPT|NODE]",
		Description: "Works with and without a running worker and changes nothing. RECEIPT may be shortened to its first 6 characters.\n" +
			"Exit codes: 0 nothing shown is blocked, 3 something is, 6 the journal is damaged or missing, 1 other errors.",
		Flags: []cli.Flag{stateDirFlag(), jsonFlag(), &cli.BoolFlag{
			Name: "probe", Usage: "have the running worker gather evidence about RECEIPT first; the worker settles it if a rule allows",
		}},
		Action: inspectAction,
	}
}

func inspectAction(c *cli.Context) error {
	if err := arguments(c, 0, 1, ""); err != nil {
		return err
	}
	dir, err := stateDir(c)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(c)
	defer stop()
	name := c.Args().First()
	if name != "" {
		if _, err := receipt.ParseNodeID(name); err != nil {
			return usagef("neither a receipt nor a node: %w", err)
		}
	}
	if c.Bool("probe") {
		if err := probe(ctx, dir, name); err != nil {
			return err
		}
	}
	r, err := inspect.Fetch(ctx, dir)
	if err != nil {
		return err
	}
	return show(c, r, name)
}

// show prints the report; errBlocked sets the exit code and holds even if the reader has gone.
func show(c *cli.Context, r inspect.Report, name string) error {
	s := style(c.App.Writer)
	if name == "" {
		r.Jobs = nil
	} else {
		r, s.Detail = r.Only(name), true
		if len(r.Items)+len(r.Nodes)+len(r.Jobs) == 0 {
			say(c.App.ErrWriter, fmt.Errorf("nothing open, active, held or out under %q; 'provctl inspect' without it shows everything", name))
		}
	}
	var err error
	if c.Bool("json") {
		err = inspect.WriteJSON(c.App.Writer, r)
	} else {
		err = inspect.WriteText(c.App.Writer, r, s)
	}
	if err != nil && !quiet(err) {
		return err
	}
	if r.NeedsSomebody() {
		return errBlocked
	}
	return nil
}

// probe asks the worker to look again. Only a worker can: it has the connection, and it settles.
func probe(ctx context.Context, dir, name string) error {
	w, err := control.Dial(dir)
	if errors.Is(err, control.ErrNoWorker) {
		return fmt.Errorf("--probe: %w; start one with 'provctl run', which gathers evidence by itself", err)
	}
	if err != nil {
		return err
	}
	s, err := w.Snapshot(ctx)
	if err != nil {
		return err
	}
	var hits []receipt.ReceiptID
	for _, i := range inspect.Build(inspect.View{Snapshot: s}, dir).Only(name).Items {
		hits = append(hits, i.Receipt)
	}
	if len(hits) != 1 {
		return usagef("--probe needs one open receipt, %q names %d; 'provctl inspect' lists them", name, len(hits))
	}
	_, err = w.Probe(ctx, hits[0])
	return err
}
