package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"provctl/inspect"
	"provctl/journal"
)

func journalRestoreCommand() *cli.Command {
	return &cli.Command{
		Name:      "restore",
		Usage:     "puts a backup in the journal's place and goes on with it",
		ArgsUsage: "FILE",
		Description: "What was recorded after the backup is lost: nodes that were at work then look new, and may be configured again. Look for them\n" +
			"first (docs/journal.md). The former journal keeps existing under another name. The next worker sends nothing for one horizon\n" +
			"(effect_ttl + clock_skew). Who restored what and why stays in 'provctl audit'. A missing state directory is made.\n" +
			"Exit codes: 0 restored, 5 a worker holds the directory, 6 the backup is damaged or of a newer provctl, 2 usage,\n" +
			"1 the journal that is there is sound and holds what the backup does not, or its marker is another journal's (see --replace),\n" +
			"or other errors.",
		Flags: []cli.Flag{
			stateDirFlag(), reasonFlag(), operatorFlag(), jsonFlag(),
			&cli.BoolFlag{Name: "replace", Usage: "even if the journal that is there is sound, and newer than the backup or another one"},
		},
		Action: func(c *cli.Context) error {
			dir, err := fileAndDir(c)
			if err != nil {
				return err
			}
			by, err := signed(c)
			if err != nil {
				return err
			}
			file, err := filepath.Abs(c.Args().First())
			if err != nil {
				return fmt.Errorf("backup: %w; give FILE as an absolute path", err)
			}
			got, err := restoreJournal(dir, journal.Restoration{
				File: file, By: by, Reason: c.String("reason"), Replace: c.Bool("replace"), Verify: verifyInChild,
			})
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return inspect.WriteJSON(c.App.Writer, journalState{Schema: journalSchema, Info: got.Info, Was: got.Was, Aside: got.Aside})
			}
			return sayRestored(c, got)
		},
	}
}

// restoreJournal restores under the worker lock. A missing state directory is made, but not for what is no backup.
func restoreJournal(dir string, r journal.Restoration) (got journal.Restored, err error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := verifyInChild(r.File); err != nil {
			return got, fmt.Errorf("restore journal: %w", err)
		}
		if err := journal.MakeDir(dir); err != nil {
			return got, fmt.Errorf("restore journal: %w", err)
		}
	}
	err = locked(dir, func() error {
		got, err = journal.Restore(dir, r)
		return err
	})
	return got, err
}

func sayRestored(c *cli.Context, got journal.Restored) error {
	aside := ""
	if got.Aside != "" {
		aside = fmt.Sprintf("the former journal is %s\n", inspect.Printable(got.Aside))
	}
	_, err := fmt.Fprintf(c.App.Writer, "%s\nit goes on as journal %s at epoch %d, sequence %d\n%sthe next worker sends nothing for one horizon after %s\n",
		inspect.Printable(got.Was), got.Info.ID, got.Info.Epoch, got.Info.Seq, aside, inspect.Time(got.Info.Accepted))
	return err
}
