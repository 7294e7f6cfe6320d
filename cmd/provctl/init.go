package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"provctl/inspect"
	"provctl/journal"
)

func initCommand() *cli.Command {
	return &cli.Command{
		Name:  "init",
		Usage: "makes a new, empty journal: once, before the first run",
		Description: "Makes the state directory if need be, and the journal in it. Nothing else ever makes one: a journal that is missing later\n" +
			"has been lost, and the worker does not start.",
		Flags: []cli.Flag{stateDirFlag(), jsonFlag()},
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			dir, err := stateDir(c)
			if err != nil {
				return err
			}
			info, err := journal.Init(dir)
			switch {
			case errors.Is(err, journal.ErrExists):
				return fmt.Errorf("%w; leave it and use it with 'provctl run', or choose another --state-dir", err)
			case err != nil:
				return err
			}
			if c.Bool("json") {
				return inspect.WriteJSON(c.App.Writer, info)
			}
			_, err = fmt.Fprintf(c.App.Writer, "made journal %s, format %d, at %s\n", info.ID, info.Format, info.Path)
			return err
		},
	}
}
