package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"provctl/inspect"
	"provctl/internal/control"
	"provctl/reconcile"
)

func pauseCommand() *cli.Command {
	return &cli.Command{
		Name:  "pause",
		Usage: "has the worker begin no effect and no helper until resumed",
		Description: "What is in flight ends. The pause is kept in the journal: it holds for a worker that is started later, too, and needs none that\n" +
			"runs. Pausing again changes nothing. Exit codes as for reconcile.",
		Flags: []cli.Flag{stateDirFlag(), reasonFlag(), operatorFlag(), jsonFlag()},
		Action: func(c *cli.Context) error {
			return atDesk(c, func(ctx context.Context, dir string) error {
				reason := c.String("reason")
				if err := control.CheckText("--reason", reason, control.MaxReason); err != nil {
					return usagef("%w", err)
				}
				p, err := reconcile.Pause(ctx, dir, c.String("operator"), reason)
				if err != nil {
					return err
				}
				if c.Bool("json") {
					return inspect.WriteJSON(c.App.Writer, p)
				}
				_, err = fmt.Fprintf(c.App.Writer, "paused since %s by %s: %s\n", inspect.Time(p.At), inspect.Printable(p.By), inspect.Printable(p.Reason))
				return err
			})
		},
	}
}

func resumeCommand() *cli.Command {
	return &cli.Command{
		Name:        "resume",
		Usage:       "ends a pause",
		Description: "The worker asks the fleet at once and goes on. Without a pause nothing changes. Exit codes as for reconcile.",
		Flags:       []cli.Flag{stateDirFlag(), operatorFlag(), jsonFlag()},
		Action: func(c *cli.Context) error {
			return atDesk(c, func(ctx context.Context, dir string) error {
				was, err := reconcile.Resume(ctx, dir, c.String("operator"))
				switch {
				case err != nil:
					return err
				case c.Bool("json"):
					return inspect.WriteJSON(c.App.Writer, struct {
						Ended any `json:"ended"` // the pause, or null
					}{was})
				case was == nil:
					_, err = fmt.Fprintln(c.App.Writer, "it was not paused")
				default:
					_, err = fmt.Fprintf(c.App.Writer, "resumed; it was paused since %s by %s: %s\n", inspect.Time(was.At), inspect.Printable(was.By), inspect.Printable(was.Reason))
				}
				return err
			})
		},
	}
}

// atDesk checks what pause and resume have in common and does the rest.
func atDesk(c *cli.Context, do func(ctx context.Context, dir string) error) error {
	if err := noArguments(c); err != nil {
		return err
	}
	dir, err := stateDir(c)
	if err != nil {
		return err
	}
	if o := c.String("operator"); o != "" {
		if err := control.CheckText("--operator", o, control.MaxOperator); err != nil {
			return usagef("%w", err)
		}
	}
	ctx, stop := interruptible(c)
	defer stop()
	return do(ctx, dir)
}
