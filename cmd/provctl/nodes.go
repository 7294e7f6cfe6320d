package main

import (
	"strings"

	"github.com/urfave/cli/v2"

	"provctl/inspect"
	"provctl/journal"
)

func nodesCommand() *cli.Command {
	return &cli.Command{
		Name:  "nodes",
		Usage: "lists the nodes that the journal knows, by name and state",
		Description: "Works with and without a running worker and changes nothing. Nodes that are done are counted, and listed only with --state done.\n" +
			"Of a damaged journal it shows what can be read, and says so.\n" +
			"Exit codes: 0 fine, 6 the journal is damaged or missing, 2 usage, 1 other errors.",
		Flags: []cli.Flag{
			stateDirFlag(), jsonFlag(), nodeFlag(),
			&cli.StringSliceFlag{Name: "state", Usage: "only nodes in `STATE`: " + strings.Join(inspect.NodeStates(), ", ") + "; several with commas"},
		},
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			dir, err := stateDir(c)
			if err != nil {
				return err
			}
			f, err := inspect.ParseNodesFilter(filterText(c))
			if err != nil {
				return usagef("%w", err)
			}
			ctx, stop := interruptible(c)
			defer stop()
			n, damaged := inspect.Reader{Dir: dir}.Nodes(ctx, f)
			if damaged != nil {
				if n, err = salvage(c, damaged, func() (inspect.Nodes, []journal.Lost, error) { return inspect.SalvageNodes(dir, f) }); err != nil {
					return err
				}
			}
			if c.Bool("json") {
				return ends(damaged, inspect.WriteJSON(c.App.Writer, n))
			}
			return ends(damaged, inspect.WriteNodes(c.App.Writer, n, style(c.App.Writer)))
		},
	}
}
