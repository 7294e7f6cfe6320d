package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"provctl/inspect"
	"provctl/internal/control"
	"provctl/journal"
)

// toStdout stands for a backup that another program takes.
const toStdout = "-"

func journalBackupCommand() *cli.Command {
	return &cli.Command{
		Name:      "backup",
		Usage:     "copies the journal as it is at one moment, with and without a running worker, and checks the copy",
		ArgsUsage: "FILE|-",
		Description: "FILE must not exist. It gets its name, mode 0600, once the copy is whole, on the disk and checked; else there is no such file.\n" +
			"With - the checked copy goes to stdout, by way of a temporary file (TMPDIR). A running worker goes on meanwhile.\n" +
			"docs/journal.md says how to go on with it: 'provctl journal restore'.\n" +
			"Exit codes: 0 there is a sound backup, 6 the journal is damaged, missing, or not what its marker says, 2 usage, 1 other errors.",
		Flags: []cli.Flag{stateDirFlag(), jsonFlag()},
		Action: func(c *cli.Context) error {
			dir, err := fileAndDir(c)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(c)
			defer stop()
			if c.Args().First() == toStdout {
				return backupToStdout(ctx, c, dir)
			}
			file, err := filepath.Abs(c.Args().First())
			if err != nil {
				return fmt.Errorf("backup: %w; give FILE as an absolute path", err)
			}
			info, size, err := saveBackup(ctx, dir, file)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return inspect.WriteJSON(c.App.Writer, journalState{Schema: journalSchema, Info: info, Bytes: size})
			}
			return sayBackup(c.App.Writer, info, size)
		},
	}
}

// fileAndDir takes one argument and the state directory.
func fileAndDir(c *cli.Context) (string, error) {
	if err := arguments(c, 1, 1, "FILE"); err != nil {
		return "", err
	}
	if c.Args().First() == "" {
		return "", usagef("FILE is empty; '%s --help' shows the usage", c.Command.HelpName)
	}
	return stateDir(c)
}

func sayBackup(w io.Writer, info journal.Info, size int64) error {
	_, err := fmt.Fprintf(w, "%s: journal %s at epoch %d, sequence %d, %d bytes, checked\n", inspect.Printable(info.Path), info.ID, info.Epoch, info.Seq, size)
	return err
}

// saveBackup makes a backup file. Nothing of it is left if it fails or is interrupted.
func saveBackup(ctx context.Context, dir, file string) (journal.Info, int64, error) {
	info, size, err := journal.Save(file, func(w io.Writer) (journal.Info, error) { return copyJournal(ctx, dir, w) }, verifyInChild)
	if err != nil {
		return info, size, fmt.Errorf("no backup was made: %w", err)
	}
	return info, size, nil
}

// The moment in which a worker starts or ends, holding the journal without a socket, is waited for.
const (
	copyTries = 50
	copyPause = 100 * time.Millisecond
)

// copyJournal writes the journal as it is at one moment: through its worker, or from the file when none runs.
func copyJournal(ctx context.Context, dir string, w io.Writer) (info journal.Info, err error) {
	for range copyTries {
		c, dialled := control.Dial(dir)
		switch {
		case errors.Is(dialled, control.ErrNoWorker):
			info, err = journal.CopyTo(ctx, dir, w)
		case dialled != nil:
			return info, dialled
		default:
			return c.Backup(ctx, w)
		}
		if !errors.Is(err, journal.ErrBusy) { // of a busy one nothing was written
			return info, err
		}
		select {
		case <-ctx.Done():
			return info, ctx.Err()
		case <-time.After(copyPause):
		}
	}
	return info, fmt.Errorf("%w, which serves no %s: if it is a worker that starts or ends, run this again in a moment", err, control.SocketPath(dir))
}

// aCopy makes a backup in a directory of its own, which done removes.
func aCopy(ctx context.Context, dir string) (path string, info journal.Info, size int64, done func() error, err error) {
	temp, err := os.MkdirTemp("", "provctl-backup-")
	if err != nil {
		return "", info, 0, nil, fmt.Errorf("no backup was made: %w: set TMPDIR to a directory that this user may write to", err)
	}
	done = func() error { return os.RemoveAll(temp) }
	path = filepath.Join(temp, "journal.db")
	if info, size, err = saveBackup(ctx, dir, path); err != nil {
		return "", info, 0, nil, errors.Join(err, done())
	}
	return path, info, size, done, nil
}

func backupToStdout(ctx context.Context, c *cli.Context, dir string) error {
	out, ok := c.App.Writer.(*os.File)
	switch {
	case c.Bool("json"):
		return usagef("--json and - both want stdout; name a FILE")
	case ok && term.IsTerminal(int(out.Fd())):
		return usagef("a backup is no text for a terminal; name a FILE, or send it to another program")
	}
	path, info, size, done, err := aCopy(ctx, dir)
	if err != nil {
		return err
	}
	if err := errors.Join(sendFile(path, c.App.Writer), done()); err != nil {
		return err
	}
	info.Path = "stdout"
	return sayBackup(c.App.ErrWriter, info, size)
}

// sendFile writes a file. A reader that has gone has no backup, so that this is an error here as nowhere else.
func sendFile(path string, w io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if n, err := io.Copy(w, f); err != nil {
		return fmt.Errorf("no backup was made: after %d bytes: %v", n, err) //nolint:errorlint // a closed pipe is not quiet here
	}
	return nil
}

// exportJournal writes all records that can be read: of the file when no worker runs, else of a copy of what that has.
func exportJournal(ctx context.Context, dir string, each func(journal.Exported) error) ([]journal.Lost, error) {
	lost, err := journal.Export(dir, each)
	if !errors.Is(err, journal.ErrBusy) {
		return lost, err
	}
	path, _, _, done, err := aCopy(ctx, dir)
	if err != nil {
		return nil, err
	}
	lost, err = journal.Export(filepath.Dir(path), func(r journal.Exported) error {
		if r.Journal != nil {
			r.Journal.Path = filepath.Join(dir, "journal.db")
		}
		return each(r)
	})
	return lost, errors.Join(err, done())
}
