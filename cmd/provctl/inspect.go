package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"provctl/inspect"
	"provctl/journal"
	"provctl/receipt"
)

// screenful is how many rows of one kind a terminal gets unasked.
const screenful = 20

func inspectCommand() *cli.Command {
	return &cli.Command{
		Name:      "inspect",
		Usage:     "shows what is blocked or in flight, and what to look at and to type",
		ArgsUsage: "[RECEIPT|NODE]",
		Description: "Works with and without a running worker and changes nothing. RECEIPT may be shortened to its first 6 characters, and may have\n" +
			"ended. Of a damaged journal it shows what can be read and says what cannot.\n" +
			"--probe asks the node who it is and the broker for its connections. A node counts what it is asked: what a probe without a worker\n" +
			"asks makes that counter useless as a proof that the effect never arrived.\n" +
			"Exit codes: 0 nothing shown is blocked, 3 something is, 6 the journal is damaged or missing, 2 usage, 1 other errors.",
		Flags: append([]cli.Flag{
			stateDirFlag(), jsonFlag(),
			&cli.BoolFlag{Name: "probe", Usage: "ask node and broker about RECEIPT first; a running worker settles it if a rule allows, without one nothing is kept"},
			&cli.StringFlag{Name: "config", Usage: "of --probe without a worker: its `FILE` of settings; --choria-config must be its as well"},
			choriaConfigFlag(),
			&cli.BoolFlag{Name: "all-rows", Usage: fmt.Sprintf("on a terminal, list more than %d of a kind", screenful)},
		}, filterFlags()...),
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
	f, err := filter(c, time.Now())
	if err != nil {
		return err
	}
	name := c.Args().First()
	if name != "" {
		if !f.Everything() {
			return usagef("--node, --effect, --since and --state choose among all, and %q names what to show: give one or the other", name)
		}
		if _, err := receipt.ParseNodeID(name); err != nil {
			return usagef("neither a receipt nor a node: %w", err)
		}
	}
	ctx, stop := interruptible(c)
	defer stop()
	reader := inspect.Reader{Dir: dir}
	if c.Bool("probe") {
		if reader.Probe, err = probe(ctx, c, dir, name); err != nil {
			return err
		}
	}
	r, damaged := reader.Report(ctx)
	switch {
	case damaged != nil && r.Damage == nil:
		return damaged
	case name == "":
		r = r.Filter(f)
	case damaged != nil: // no history of what cannot be trusted
		r = r.Only(name)
	default:
		if r, err = asked(ctx, reader, r, name); err != nil {
			return err
		}
	}
	return errors.Join(damaged, show(c, r, name != ""))
}

// asked reduces a report to one receipt or node, with its history.
func asked(ctx context.Context, reader inspect.Reader, r inspect.Report, name string) (inspect.Report, error) {
	one, err := receiptNamed(ctx, reader, name)
	if err != nil {
		return r, err
	}
	node := receipt.NodeID(name)
	if one != nil {
		node, r = one.Node, r.Only(string(one.ID))
		if len(r.Items) == 0 {
			item := inspect.Describe(*one, r.Taken, reader.Dir)
			r.Asked = &item
		}
	} else {
		r = r.Only(name)
	}
	t, err := reader.Timeline(ctx, node)
	switch {
	case errors.Is(err, journal.ErrNotFound) && len(r.Items)+len(r.Nodes)+len(r.Jobs) > 0:
		return r, nil
	case errors.Is(err, journal.ErrNotFound):
		return r, fmt.Errorf("nothing is kept of a node or receipt %q: 'provctl nodes' lists the nodes, 'provctl inspect' the open receipts, and what retention has removed is gone", name)
	case err != nil:
		return r, err
	}
	if one != nil {
		t = t.OfJob(one.Job)
	}
	r.Timeline = &t
	return r, nil
}

// receiptNamed finds the one receipt that a name means, nil if it is none's: of several the open one.
func receiptNamed(ctx context.Context, reader inspect.Reader, name string) (*receipt.Receipt, error) {
	if len(name) < inspect.MinPrefix || strings.ContainsAny(name, ".-_") {
		return nil, nil //nolint:nilnil // it can be a node
	}
	found, err := reader.Find(ctx, name)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	if len(found) == 1 || found[0].Status.Open() && !found[1].Status.Open() {
		return &found[0], nil
	}
	lines := make([]string, 0, len(found))
	for _, r := range found {
		lines = append(lines, fmt.Sprintf("  %s  %s on %s, %s", r.ID, r.Action, r.Node, r.Status))
	}
	return nil, usagef("%q names %d receipts or more; give more of its id:\n%s", name, len(found), strings.Join(lines, "\n"))
}

// show prints the report; errBlocked sets the exit code and holds even if the reader has gone.
func show(c *cli.Context, r inspect.Report, whole bool) error {
	s := style(c.App.Writer)
	s.Detail = whole
	if s.Width > 0 && !whole && !c.Bool("all-rows") {
		s.Rows = screenful
	}
	var err error
	if c.Bool("json") {
		err = inspect.WriteReportJSON(c.App.Writer, r)
	} else {
		err = inspect.WriteText(c.App.Writer, r, s)
	}
	if err != nil && !quiet(err) {
		return err
	}
	if r.NeedsSomebody() && r.Damage == nil {
		return errBlocked
	}
	return nil
}
