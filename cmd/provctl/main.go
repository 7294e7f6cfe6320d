// Command provctl provisions Choria nodes with a receipt before every effect, and shows and resolves what cannot be proved.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"provctl/inspect"
)

// commands lists every command; each file of this package makes one.
var commands = []func() *cli.Command{
	initCommand,
	runCommand,
	configCommand,
	doctorCommand,
	demoCommand,
	inspectCommand,
	nodesCommand,
	historyCommand,
	auditCommand,
	reconcileCommand,
	admitCommand,
	releaseCommand,
	pauseCommand,
	resumeCommand,
	drainCommand,
	versionCommand,
	completionCommand,
	manCommand,
	completeCommand,
	verifyCommand,
	journalCommand,
	nodeCommand,
}

func main() {
	// With a handler a closed pipe is an error of the write, not the end of the process; unlike when ignored, children do not
	// inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr))
}

// Main runs one command line and returns its exit code. Errors go to stderr, in one line each, with nothing in them that a
// terminal obeys.
func Main(args []string, stdout, stderr io.Writer) (code int) {
	defer func() {
		if p := recover(); p != nil {
			say(stderr, fmt.Errorf("internal error: %v; please report this with what follows\n%s", p, debug.Stack()))
			code = exitError
		}
	}()
	app := newApp(stdout, stderr)
	err := app.RunContext(context.Background(), append([]string{app.Name}, interleave(app, args)...))
	if !errors.Is(err, errBlocked) {
		say(stderr, err)
	}
	return exitCode(err)
}

func say(w io.Writer, err error) {
	var said told
	if err == nil || quiet(err) || errors.As(err, &said) {
		return
	}
	for line := range strings.Lines("provctl: " + err.Error() + "\n") {
		fmt.Fprintln(w, inspect.Printable(strings.TrimSuffix(line, "\n")))
	}
}

func newApp(stdout, stderr io.Writer) *cli.App {
	app := &cli.App{
		Name:           "provctl",
		Usage:          "provisions Choria nodes, with a receipt before every effect",
		Writer:         stdout,
		ErrWriter:      stderr,
		Version:        version, // --version, as the existing provisioner has it
		OnUsageError:   onUsageError,
		ExitErrHandler: func(*cli.Context, error) {}, // the exit code is Main's to say
		Action: func(c *cli.Context) error {
			if name := c.Args().First(); name != "" {
				return usagef("unknown command %q; 'provctl --help' lists them", name)
			}
			c.App.Writer = c.App.ErrWriter
			_ = cli.ShowAppHelp(c)
			return usagef("a command is missing")
		},
	}
	for _, command := range commands {
		cmd := command()
		for _, c := range append([]*cli.Command{cmd}, cmd.Subcommands...) {
			c.OnUsageError = onUsageError
			c.HideHelpCommand = true
			if c.Action != nil {
				checkRequired(c)
			}
		}
		app.Commands = append(app.Commands, cmd)
	}
	return app
}

func onUsageError(c *cli.Context, err error, _ bool) error {
	where := "provctl"
	if c.Command != nil && c.Command.HelpName != "" {
		where = c.Command.HelpName
	}
	return usagef("%w; '%s --help' shows what there is", err, where)
}

// interleave moves a command's flags before its arguments, so that both orders of typing work; the parser stops at the first
// argument. What follows "--" stays as it is.
func interleave(app *cli.App, args []string) []string {
	at := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") })
	if at < 0 {
		return args
	}
	cmd := app.Command(args[at])
	if cmd == nil || cmd.SkipFlagParsing {
		return args
	}
	if len(cmd.Subcommands) > 0 && at+1 < len(args) && !strings.HasPrefix(args[at+1], "-") {
		sub := slices.IndexFunc(cmd.Subcommands, func(c *cli.Command) bool { return c.HasName(args[at+1]) })
		if sub < 0 {
			return args[:at+2] // that there is no such command says more than that it has no such flags
		}
		cmd, at = cmd.Subcommands[sub], at+1
	}
	var flags, rest []string
	for i := at + 1; i < len(args); i++ {
		a := args[i]
		if a == "--" {
			rest = append(rest, args[i+1:]...)
			break
		}
		if !strings.HasPrefix(a, "-") || a == "-" {
			rest = append(rest, a)
			continue
		}
		if name := strings.TrimLeft(a, "-"); name == "help" || name == "h" {
			return append(slices.Clone(args[:at+1]), a) // with an argument the parser would look for a topic of that name
		}
		flags = append(flags, a)
		if takesValue(cmd, a) {
			if i++; i == len(args) {
				return slices.Concat(args[:at+1], flags) // the parser says that a value is missing
			}
			flags = append(flags, args[i])
		}
	}
	return slices.Concat(args[:at+1], flags, []string{"--"}, rest)
}

func takesValue(cmd *cli.Command, arg string) bool {
	name := strings.TrimLeft(arg, "-")
	for _, f := range cmd.Flags {
		if slices.Contains(f.Names(), name) {
			if g, ok := f.(*cli.GenericFlag); ok {
				b, isBool := g.Value.(interface{ IsBoolFlag() bool })
				return !isBool || !b.IsBoolFlag()
			}
			_, isBool := f.(*cli.BoolFlag)
			return !isBool
		}
	}
	return false
}
