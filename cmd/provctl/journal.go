package main

import (
	"bufio"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"provctl/inspect"
	"provctl/internal/control"
	"provctl/journal"
)

// journalCommand holds what cares for the journal as a file. None of it needs a configuration or a broker.
func journalCommand() *cli.Command {
	return &cli.Command{
		Name:  "journal",
		Usage: "backs up, restores, checks, exports and compacts the journal, and goes on with a lost or older one",
		Description: "A running worker has the journal open: backup and export ask it, for the others stop it first.\n" +
			"docs/journal.md says what the journal is, and what to do when it is lost.",
		Subcommands: []*cli.Command{
			journalBackupCommand(), journalRestoreCommand(), journalVerifyCommand(), journalExportCommand(), journalCompactCommand(), journalAcceptCommand(),
		},
		Action: func(c *cli.Context) error {
			if name := c.Args().First(); name != "" {
				return usagef("unknown command %q; 'provctl journal --help' lists them", name)
			}
			return usagef("a command is missing; 'provctl journal --help' lists them")
		},
	}
}

func journalVerifyCommand() *cli.Command {
	return &cli.Command{
		Name:  "verify",
		Usage: "checks every page and record, and that journal and marker go together",
		Description: "Changes nothing.\n" +
			"Exit codes: 0 sound, 6 damaged, missing, or not what its marker says, 1 it could not be checked.",
		Flags: []cli.Flag{stateDirFlag(), jsonFlag()},
		Action: func(c *cli.Context) error {
			dir, err := journalDir(c)
			if err != nil {
				return err
			}
			s, err := verified(dir)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return inspect.WriteJSON(c.App.Writer, journalState{Schema: journalSchema, Info: s.Info})
			}
			_, err = fmt.Fprintf(c.App.Writer, "%s: journal %s of format %d is sound: epoch %d, sequence %d, as its marker says\n",
				inspect.Printable(s.Info.Path), s.Info.ID, s.Info.Format, s.Info.Epoch, s.Info.Seq)
			return err
		},
	}
}

// verified checks the file in a process of its own, and then against its marker.
func verified(dir string) (journal.Snapshot, error) {
	s, err := journal.Read(dir)
	if errors.Is(err, journal.ErrBusy) || errors.Is(err, journal.ErrMissing) {
		return s, err
	}
	if damage := verifyInChild(filepath.Join(dir, "journal.db")); damage != nil {
		return s, damage
	}
	return s, err
}

// journalSchema names the form of --json of the journal commands, in docs/journal-schema.json.
const journalSchema = "provctl.journal/1"

// journalState is what the journal commands say of it in JSON.
type journalState struct {
	Schema    string             `json:"schema"`
	Info      journal.Info       `json:"info"`
	Bytes     int64              `json:"bytes,omitzero"` // backup: of the file
	Compacted *journal.Compacted `json:"compacted,omitempty"`
	Was       string             `json:"was,omitempty"`   // accept, restore: what was found
	Aside     string             `json:"aside,omitempty"` // accept: where the damaged journal is now; restore: the former one
}

func journalExportCommand() *cli.Command {
	return &cli.Command{
		Name:  "export",
		Usage: "writes every record that can be read to stdout, one JSON object a line",
		Description: "Changes nothing, and works on a damaged journal: what cannot be read is listed on stderr. With a running worker it reads a\n" +
			"copy, which takes the journal's size in TMPDIR for a moment.\n" +
			"Exit codes: 0 all was written, 6 something could not be read, 1 other errors. docs/journal-schema.json documents the lines.",
		Flags: []cli.Flag{stateDirFlag()},
		Action: func(c *cli.Context) error {
			dir, err := journalDir(c)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(c)
			defer stop()
			w := bufio.NewWriterSize(c.App.Writer, 1<<16)
			lost, err := exportJournal(ctx, dir, func(r journal.Exported) error { return inspect.WriteJSONLine(w, r) })
			for _, l := range lost {
				say(c.App.ErrWriter, fmt.Errorf("not exported: %s: %s", l.Place, l.Why))
			}
			if flushed := w.Flush(); err == nil && flushed != nil {
				return flushed
			}
			return err
		},
	}
}

func journalCompactCommand() *cli.Command {
	return &cli.Command{
		Name:  "compact",
		Usage: "rewrites the journal without its free pages",
		Description: "A start does this by itself once more than half of a file of over 1 MiB is free.\n" +
			"Exit codes: 0 done, 5 a worker holds the directory, 6 the journal is damaged or missing, 1 other errors.",
		Flags: []cli.Flag{stateDirFlag(), jsonFlag()},
		Action: func(c *cli.Context) error {
			dir, err := journalDir(c)
			if err != nil {
				return err
			}
			return locked(dir, func() error {
				done, err := journal.Compact(dir)
				if err != nil {
					return err
				}
				if c.Bool("json") {
					s, err := journal.Read(dir)
					return errors.Join(err, inspect.WriteJSON(c.App.Writer, journalState{Schema: journalSchema, Info: s.Info, Compacted: &done}))
				}
				_, err = fmt.Fprintf(c.App.Writer, "%s: %d bytes, was %d\n", inspect.Printable(filepath.Join(dir, "journal.db")), done.After, done.Before)
				return err
			})
		},
	}
}

func journalAcceptCommand() *cli.Command {
	return &cli.Command{
		Name:  "accept",
		Usage: "goes on with a journal that is older than its marker says, or another one, or in place of a lost one",
		Description: "What was recorded since is lost: nodes that were at work then look new, and may be configured again. The next worker sends\n" +
			"nothing for one horizon (effect_ttl + clock_skew). Who accepted it and why stays in 'provctl audit'.\n" +
			"Exit codes: 0 accepted, 5 a worker holds the directory, 6 the journal is damaged (see --set-aside), or there never was one,\n" +
			"1 there is nothing to accept, or other errors.",
		Flags: []cli.Flag{
			stateDirFlag(), reasonFlag(), operatorFlag(), jsonFlag(),
			&cli.BoolFlag{Name: "set-aside", Usage: "rename a damaged journal and begin a blank one"},
		},
		Action: func(c *cli.Context) error {
			dir, err := journalDir(c)
			if err != nil {
				return err
			}
			by, err := signed(c)
			if err != nil {
				return err
			}
			return locked(dir, func() error {
				got, err := journal.Accept(dir, journal.Acceptance{By: by, Reason: c.String("reason"), SetAside: c.Bool("set-aside")})
				if err != nil {
					return err
				}
				if c.Bool("json") {
					return inspect.WriteJSON(c.App.Writer, journalState{Schema: journalSchema, Info: got.Info, Was: got.Was, Aside: got.Aside})
				}
				return sayAccepted(c, got)
			})
		},
	}
}

// signed checks the reason that is given for an act on the journal itself, and says who acts.
func signed(c *cli.Context) (by string, err error) {
	if err := control.CheckText("--reason", c.String("reason"), control.MaxReason); err != nil {
		return "", usagef("%w", err)
	}
	if by, err = control.Me(c.String("operator")); err != nil {
		return "", usagef("--operator: %w", err)
	}
	return by, nil
}

func sayAccepted(c *cli.Context, got journal.Accepted) error {
	aside := ""
	if got.Aside != "" {
		aside = fmt.Sprintf("the damaged journal is %s\n", inspect.Printable(got.Aside))
	}
	_, err := fmt.Fprintf(c.App.Writer, "accepted journal %s at epoch %d, sequence %d: %s\n%sthe next worker sends nothing for one horizon after %s\n",
		got.Info.ID, got.Info.Epoch, got.Info.Seq, inspect.Printable(got.Was), aside, inspect.Time(got.Info.Accepted))
	return err
}

func journalDir(c *cli.Context) (string, error) {
	if err := noArguments(c); err != nil {
		return "", err
	}
	return stateDir(c)
}

// locked does something under the worker lock, so that no worker can run meanwhile.
func locked(dir string, do func() error) error {
	lock, err := acquireDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(do(), lock.Release())
}
