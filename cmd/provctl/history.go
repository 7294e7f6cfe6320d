package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"provctl/inspect"
	"provctl/journal"
	"provctl/receipt"
)

func historyCommand() *cli.Command {
	return &cli.Command{
		Name:      "history",
		Usage:     "tells all that is kept of a node, in order",
		ArgsUsage: "NODE",
		Description: "Works with and without a running worker and changes nothing. What retention has removed is not told; what people did stays.\n" +
			"Of a damaged journal it tells what can be read, and says so.\n" +
			"Exit codes: 0 fine, 6 the journal is damaged or missing, 2 usage, 1 other errors, such as a node of which nothing is kept.",
		Flags: []cli.Flag{stateDirFlag(), jsonFlag()},
		Action: func(c *cli.Context) error {
			if err := arguments(c, 1, 1, "NODE"); err != nil {
				return err
			}
			dir, err := stateDir(c)
			if err != nil {
				return err
			}
			node, err := receipt.ParseNodeID(c.Args().First())
			if err != nil {
				return usagef("%w", err)
			}
			ctx, stop := interruptible(c)
			defer stop()
			t, damaged := inspect.Reader{Dir: dir}.Timeline(ctx, node)
			if errors.Is(damaged, journal.ErrNotFound) {
				return fmt.Errorf("nothing is kept of node %q: 'provctl nodes' lists those of which something is", node)
			}
			if damaged != nil {
				if t, err = salvage(c, damaged, func() (inspect.Timeline, []journal.Lost, error) { return inspect.SalvageTimeline(dir, node) }); err != nil {
					return err
				}
			}
			if c.Bool("json") {
				return ends(damaged, inspect.WriteJSON(c.App.Writer, t))
			}
			return ends(damaged, inspect.WriteTimeline(c.App.Writer, t, style(c.App.Writer)))
		},
	}
}
