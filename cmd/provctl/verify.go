package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"provctl/journal"
	"provctl/receipt"
)

const verifyCommandName = "verify-journal"

func verifyCommand() *cli.Command {
	return &cli.Command{
		Name: verifyCommandName, Hidden: true, Usage: "check a journal file; the worker runs this at start",
		Action: func(c *cli.Context) error { return journal.Verify(c.Args().First()) },
	}
}

// verifyInChild checks the journal in a process of its own, since a short or damaged file can kill whoever maps it. The child has a
// process group of its own: a signal to the worker's does not end the check, which would look like damage.
func verifyInChild(path string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// The parent-death signal is bound to the thread that forks.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(self, verifyCommandName, path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	var said strings.Builder
	cmd.Stderr = &limited{to: &said, left: 4096}
	return verdictOf(path, cmd.Run(), strings.TrimPrefix(strings.TrimSpace(said.String()), "provctl: "))
}

// runtimeCrash is what a Go program exits with when its runtime gives up, as on a fault in a mapped file.
const runtimeCrash = 2

// verdictOf tells a damaged journal from a check that could not be made: only the first is permanent, and restoring a backup
// without need loses receipts.
func verdictOf(path string, err error, said string) error {
	var exit *exec.ExitError
	if err == nil {
		return nil
	}
	if !errors.As(err, &exit) {
		return fmt.Errorf("check the journal: %w", err)
	}
	status, _ := exit.Sys().(syscall.WaitStatus)
	switch {
	case exit.ExitCode() == exitDamaged:
		return fmt.Errorf("%w: %s: %s", receipt.ErrDamaged, path, strings.TrimPrefix(said, receipt.ErrDamaged.Error()+": "))
	case exit.ExitCode() == runtimeCrash,
		status.Signaled() && (status.Signal() == syscall.SIGBUS || status.Signal() == syscall.SIGSEGV || status.Signal() == syscall.SIGABRT):
		return fmt.Errorf("%w: %s: the check crashed on it (%s)", receipt.ErrDamaged, path, exit)
	default:
		return fmt.Errorf("check the journal %s: %s: %s; nothing was changed, start again", path, exit, said)
	}
}

// limited keeps the first bytes and swallows the rest.
type limited struct {
	to   *strings.Builder
	left int
}

func (l *limited) Write(b []byte) (int, error) {
	keep := min(len(b), l.left)
	l.to.Write(b[:keep])
	l.left -= keep
	return len(b), nil
}
