package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"provctl/inspect"
	"provctl/reconcile"
)

func releaseCommand() *cli.Command {
	return &cli.Command{
		Name:      "release",
		Usage:     "ends a node's hold, or the wait of its queued job",
		ArgsUsage: "NODE",
		Description: "Forgives nothing: the next sighting decides whether the node is taken, and a running worker looks at once. A node that stays out\n" +
			"needs 'provctl admit'. Exit codes as for reconcile.",
		Flags: []cli.Flag{stateDirFlag(), reasonFlag(), operatorFlag(), jsonFlag()},
		Action: func(c *cli.Context) error {
			dir, node, reason, err := admitRequest(c)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(c)
			defer stop()
			n, err := reconcile.Release(ctx, dir, string(node), c.String("operator"), reason)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return inspect.WriteJSON(c.App.Writer, n)
			}
			_, err = fmt.Fprintf(c.App.Writer, "node %s is no longer held\n", inspect.Printable(string(n.ID)))
			return err
		},
	}
}
