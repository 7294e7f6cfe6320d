package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"provctl/inspect"
	"provctl/receipt"
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
		Action: onNode(reconcile.Release, func(n receipt.Node) string {
			return fmt.Sprintf("node %s is no longer held", inspect.Printable(string(n.ID)))
		}),
	}
}
