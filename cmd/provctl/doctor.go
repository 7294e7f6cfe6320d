package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"provctl/doctor"
	"provctl/inspect"
	"provctl/internal/config"
)

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name:      "doctor",
		Usage:     "looks at all that a worker depends on, and says what to do",
		UsageText: "provctl doctor --config FILE [--choria-config FILE] [--no-network] [--json]",
		Description: "Looks at the configuration, rights, helper, keys and tokens, state directory, disk, lock, journal, clock and broker, one line each.\n" +
			"Writes nothing, never runs the helper, and sends nothing to a node; it works with and without a running worker. Run by root it looks on\n" +
			"behalf of the state directory's owner. docs/doctor.md lists the checks; docs/doctor-schema.json documents --json.\n" +
			"Exit codes: 0 nothing failed, with or without warnings; else what 'provctl run' exits with for the first failure: 5 a process that\n" +
			"is no healthy worker holds the lock, 6 journal damaged or missing, 78 configuration invalid, 1 anything else.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "config", Usage: "the worker's `FILE` of settings (YAML)", Required: true},
			choriaConfigFlag(),
			&cli.BoolFlag{Name: "no-network", Usage: "do not connect to the broker"},
			&cli.DurationFlag{Name: "timeout", Usage: "how long the broker has to answer", Value: 10 * time.Second},
			jsonFlag(),
		},
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			if d := c.Duration("timeout"); d <= 0 || d > time.Hour {
				return usagef("--timeout is %s; give more than 0s, 1h at most", d)
			}
			ctx, stop := interruptible(c)
			defer stop()
			return showDoctor(c, doctor.Run(ctx, doctorOptions(c)))
		},
	}
}

func doctorOptions(c *cli.Context) doctor.Options {
	file, choriaConfig := c.String("config"), c.String("choria-config")
	return doctor.Options{
		ChoriaConfig: choriaConfig, Network: !c.Bool("no-network"), Timeout: c.Duration("timeout"), Version: version,
		Verify: verifyUntil, ExitCode: exitCode,
		// What 'provctl config check' does, but for the state directory, at which the doctor looks more closely.
		Examine: func() *config.Report {
			r := config.Examine(file)
			if r.Config != nil {
				checkIdentities(r, time.Now())
				checkChoria(r, choriaConfig)
			}
			return r
		},
	}
}

// verifyUntil is verifyInChild for as long as the context lasts.
func verifyUntil(ctx context.Context, path string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// The parent-death signal is bound to the thread that forks.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, self, verifyCommandName, path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	var said strings.Builder
	cmd.Stderr = &limited{to: &said, left: 4096}
	return verdictOf(path, cmd.Run(), strings.TrimPrefix(strings.TrimSpace(said.String()), "provctl: "))
}

// showDoctor prints the report, which says all that an error would.
func showDoctor(c *cli.Context, r *doctor.Report) error {
	var err error
	if c.Bool("json") {
		if abs, aerr := filepath.Abs(r.ChoriaConfig); aerr == nil && r.ChoriaConfig != "" {
			r.ChoriaConfig = abs
		}
		err = inspect.WriteJSON(c.App.Writer, r)
	} else {
		err = doctor.WriteText(c.App.Writer, r, style(c.App.Writer).Colour)
	}
	if err != nil && !quiet(err) {
		return fmt.Errorf("show the findings: %w", err)
	}
	if failed := r.Failed(); failed != nil {
		return told{failed}
	}
	return nil
}
