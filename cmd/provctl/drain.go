package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"provctl/inspect"
	"provctl/internal/control"
)

// drainSchema names the form of drain --json.
const drainSchema = "provctl.drain/1"

// drainEvery is how often a draining worker is asked whether it has ended.
const drainEvery = 500 * time.Millisecond

func drainCommand() *cli.Command {
	return &cli.Command{
		Name:  "drain",
		Usage: "has the worker end the work at hand and exit, so that its supervisor starts the program that is installed now",
		Description: "No job is claimed any more; those at work go on to their last step, which a stop by SIGTERM does not wait for. Then the worker\n" +
			"exits with 75, at which the unit of the package starts it again. What waits stays queued. Waits until the worker has ended;\n" +
			"ending this command does not end the draining. Exit code 1 if no worker runs.",
		Flags: []cli.Flag{
			stateDirFlag(), operatorFlag(), jsonFlag(),
			&cli.BoolFlag{Name: "no-wait", Usage: "do not wait until the worker has ended"},
		},
		Action: func(c *cli.Context) error {
			return atDesk(c, func(ctx context.Context, dir string) error { return drain(ctx, c, dir) })
		},
	}
}

func drain(ctx context.Context, c *cli.Context, dir string) error {
	client, err := control.Dial(dir)
	if err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	d, err := client.Drain(ctx, c.String("operator"))
	if err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	if !c.Bool("no-wait") {
		if err := untilEnded(ctx, c, dir, d.PID); err != nil {
			return fmt.Errorf("drain: wait for the end of pid %d, which goes on draining: %w", d.PID, err)
		}
	}
	switch {
	case c.Bool("json"):
		err = inspect.WriteJSON(c.App.Writer, struct {
			Schema string `json:"schema"`
			control.Draining
			Ended bool `json:"ended"`
		}{drainSchema, d, !c.Bool("no-wait")})
	case c.Bool("no-wait"):
		_, err = fmt.Fprintf(c.App.Writer, "the worker, pid %d, ends once its work at %s has\n", d.PID, count(d.Busy, "node"))
	default:
		_, err = fmt.Fprintf(c.App.Writer, "the worker, pid %d, has ended; its supervisor starts the next\n", d.PID)
	}
	return err
}

// untilEnded waits until the state directory has another worker than that of pid, or none. On a terminal it shows what is still at work.
func untilEnded(ctx context.Context, c *cli.Context, dir string, pid int) error {
	live := onTerminal(c)
	ticker := time.NewTicker(drainEvery)
	defer ticker.Stop()
	for {
		client, err := control.Dial(dir)
		var now control.Live
		if err == nil {
			now, err = client.Live(ctx)
		}
		switch {
		case errors.Is(err, control.ErrNoWorker), errors.Is(err, control.ErrUnserved), err == nil && now.PID != pid:
			if live {
				fmt.Fprint(c.App.ErrWriter, "\r\x1b[K")
			}
			return nil
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, control.ErrDenied), errors.Is(err, control.ErrProtocol):
			return err
		}
		if live && err == nil { // else it is just ending, or busy
			fmt.Fprintf(c.App.ErrWriter, "\r\x1b[Kdraining: %d at work, %d waiting for a reply", now.Busy, now.Parked)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
