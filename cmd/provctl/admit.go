package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"provctl/inspect"
	"provctl/internal/control"
	"provctl/journal"
	"provctl/receipt"
	"provctl/reconcile"
)

func admitCommand() *cli.Command {
	return &cli.Command{
		Name:      "admit",
		Usage:     "queues a node now, although it is held or stays out",
		ArgsUsage: "NODE",
		Description: "Ends a hold, lets a node back in that was given up or exhausted, and forgives what failed before. A blocked node is refused:\n" +
			"its receipt needs a verdict first. A node of which nothing is known is queued, with a warning. Exit codes as for reconcile.",
		Flags: []cli.Flag{stateDirFlag(), reasonFlag(), operatorFlag(), jsonFlag()},
		Action: func(c *cli.Context) error {
			if err := rightNode(c); err != nil {
				return err
			}
			return onNode(reconcile.Admit, func(j receipt.Job) string {
				return fmt.Sprintf("node %s: job %s is %s", inspect.Printable(string(j.Node)), j.ID, j.Status)
			})(c)
		},
	}
}

// rightNode refuses a receipt that is given for a node, and warns of a node of which nothing is known: it may be mistyped. What cannot be
// looked up is for the command itself to tell.
func rightNode(c *cli.Context) error {
	dir, node, _, err := nodeRequest(c)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(c)
	defer stop()
	reader := inspect.Reader{Dir: dir}
	if one, err := receiptNamed(ctx, reader, string(node)); one != nil {
		return usagef("%s is a receipt: name its node, %s", one.ID, inspect.Printable(string(one.Node)))
	} else if err != nil && errors.Is(err, errUsage) {
		return err
	}
	if _, err := reader.Timeline(ctx, node); errors.Is(err, journal.ErrNotFound) {
		fmt.Fprintf(c.App.ErrWriter, "warning: nothing was known of node %s: if its name is mistyped, it fails by itself; 'provctl nodes' lists what is known\n", inspect.Printable(string(node)))
	}
	return nil
}

// onNode is the action of a command that decides about one node for a reason, and says what came of it.
func onNode[T any](decide func(ctx context.Context, dir, node, operator, reason string) (T, error), say func(T) string) cli.ActionFunc {
	return func(c *cli.Context) error {
		dir, node, reason, err := nodeRequest(c)
		if err != nil {
			return err
		}
		ctx, stop := interruptible(c)
		defer stop()
		got, err := decide(ctx, dir, string(node), c.String("operator"), reason)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return inspect.WriteJSON(c.App.Writer, got)
		}
		_, err = fmt.Fprintln(c.App.Writer, say(got))
		return err
	}
}

func nodeRequest(c *cli.Context) (dir string, node receipt.NodeID, reason string, err error) {
	if err := arguments(c, 1, 1, "NODE"); err != nil {
		return "", "", "", err
	}
	if dir, err = stateDir(c); err != nil {
		return "", "", "", err
	}
	reason = c.String("reason")
	if err := control.CheckText("--reason", reason, control.MaxReason); err != nil {
		return "", "", "", usagef("%w", err)
	}
	if o := c.String("operator"); o != "" {
		if err := control.CheckText("--operator", o, control.MaxOperator); err != nil {
			return "", "", "", usagef("%w", err)
		}
	}
	node, err = receipt.ParseNodeID(c.Args().First())
	if err != nil {
		return "", "", "", usagef("%w", err)
	}
	return dir, node, reason, nil
}
