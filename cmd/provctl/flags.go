package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"provctl/inspect"
	"provctl/internal/control"
)

// stateDirVariable is where --state-dir comes from if it is not given.
const (
	stateDirName     = "state-dir"
	stateDirVariable = "PROVCTL_STATE_DIR"
)

// socketVariable is where --socket comes from if neither it nor --state-dir is given.
const (
	socketName     = "socket"
	socketVariable = "PROVCTL_SOCKET"
)

// Flags that several commands share.
func stateDirFlag() cli.Flag {
	return &cli.StringFlag{Name: stateDirName, Usage: "the worker's state directory `DIR`", EnvVars: []string{stateDirVariable}, Required: true}
}

// throughWorker are the commands that work through a running worker: they take its socket in place of its state directory.
var throughWorker = []string{"inspect", "nodes", "history", "audit", "reconcile", "pause", "resume", "admit", "release", "drain"}

func socketFlag() cli.Flag {
	return &cli.StringFlag{Name: socketName, Usage: "in place of --state-dir, for members of the worker's control_group: its control_socket `PATH` [$" + socketVariable + "]"}
}

func reasonFlag() cli.Flag {
	return &cli.StringFlag{Name: "reason", Usage: "why, for the record: `TEXT` of one line", Required: true}
}

func operatorFlag() cli.Flag {
	return &cli.StringFlag{Name: "operator", Usage: "`NAME` to record beside that of the user who runs this, where people share one"}
}

func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print JSON instead of text"}
}

// checkRequired takes the check for required flags over from the parser, which would print the help to stdout first. An empty
// value counts as none. It gives --socket to the commands that work through a worker.
func checkRequired(cmd *cli.Command) {
	var names []string
	socket := slices.Contains(throughWorker, cmd.Name)
	if socket {
		cmd.Flags = append(slices.Clip(cmd.Flags), socketFlag())
	}
	for _, f := range cmd.Flags {
		if s, ok := f.(*cli.StringFlag); ok && s.Required {
			s.Required = false
			names = append(names, s.Name)
		}
	}
	action := cmd.Action
	cmd.Action = func(c *cli.Context) error {
		for _, n := range names {
			switch {
			case c.String(n) != "", socket && n == stateDirName && socketPath(c) != "":
			case socket && n == stateDirName:
				return usagef("--%s is missing, or --%s; '%s --help' shows what they are", n, socketName, c.Command.HelpName)
			default:
				return usagef("--%s is missing; '%s --help' shows what it is", n, c.Command.HelpName)
			}
		}
		return action(c)
	}
}

// stateDir is the state directory as an absolute path, so that the commands shown work from anywhere; or, of a command that works
// through a worker, the place that its socket is.
func stateDir(c *cli.Context) (string, error) {
	dir := c.String(stateDirName)
	if slices.Contains(throughWorker, c.Command.Name) {
		path := socketPath(c)
		switch _, is := control.IsSocket(dir); {
		case path != "" && dir != "" && dir != os.Getenv(stateDirVariable):
			return "", usagef("--%s %q and --%s %q: give one of the two", stateDirName, dir, socketName, path)
		case path != "":
			abs, err := filepath.Abs(path)
			return control.SocketPlace(abs), err
		case is: // as the commands that are shown have it
			return dir, nil
		}
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("state directory %q: %w; give it as an absolute path", dir, err)
	}
	return abs, nil
}

// socketPath is the socket that was given. Its variable gives way to a --state-dir on the command line.
func socketPath(c *cli.Context) string {
	if path := c.String(socketName); path != "" {
		return path
	}
	if dir := c.String(stateDirName); dir != "" && dir != os.Getenv(stateDirVariable) {
		return ""
	}
	return os.Getenv(socketVariable)
}

// noArguments refuses any.
func noArguments(c *cli.Context) error { return arguments(c, 0, 0, "") }

// arguments checks how many there are: at least and at most.
func arguments(c *cli.Context, least, most int, what string) error {
	switch n := c.NArg(); {
	case n < least:
		return usagef("%s is missing; '%s --help' shows the usage", what, c.Command.HelpName)
	case n > most:
		return usagef("unexpected argument %q; '%s --help' shows the usage", c.Args().Get(most), c.Command.HelpName)
	}
	return nil
}

// interruptible ends with the first SIGINT or SIGTERM. What is being committed then is still committed.
func interruptible(c *cli.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(c.Context, os.Interrupt, syscall.SIGTERM)
}

// style is how text looks on the given writer: folded and coloured on a terminal alone.
func style(w io.Writer) inspect.Style {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return inspect.Style{}
	}
	s := inspect.Style{Colour: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	if width, _, err := term.GetSize(int(f.Fd())); err == nil {
		s.Width = width
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		s.Width = n
	}
	return s
}
