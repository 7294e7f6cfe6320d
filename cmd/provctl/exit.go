package main

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/urfave/cli/v2"

	"provctl/fence"
	"provctl/internal/config"
	"provctl/receipt"
	"provctl/worker"
)

// The exit codes: docs/design.md §9. Scripts depend on them.
const (
	exitFine    = 0
	exitError   = 1
	exitUsage   = 2
	exitBlocked = 3  // blocked items exist
	exitChanged = 4  // the item changed since it was seen
	exitHeld    = 5  // another worker holds the lock
	exitDamaged = 6  // journal damaged or missing
	exitDrained = 75 // drained: a service manager is to start the program again, which may be a newer one
	exitConfig  = 78 // configuration invalid; permanent, so that a service manager does not try again
)

// errUsage is what a wrong command line gives.
var errUsage = errors.New("usage")

// errBlocked is not shown: it only sets the exit code of inspect.
var errBlocked = errors.New("blocked items exist")

// told is an error that stderr has already: it only sets the exit code.
type told struct{ error }

func (t told) Unwrap() error { return t.error }

// badUsage is errUsage with its text.
type badUsage struct{ error }

func (badUsage) Is(target error) bool { return target == errUsage }
func (b badUsage) Unwrap() error      { return b.error }

func usageError(text string) error            { return badUsage{errors.New(text)} }
func usagef(format string, args ...any) error { return badUsage{fmt.Errorf(format, args...)} }

// exitCode maps an error to the code that its kind has, for every command.
func exitCode(err error) int {
	var bad *config.Invalid
	var parser cli.ExitCoder // what the command line parser itself exits with: an unknown help topic
	switch {
	case err == nil, quiet(err):
		return exitFine
	case errors.Is(err, errUsage), errors.As(err, &parser):
		return exitUsage
	case errors.As(err, &bad):
		return exitConfig
	case errors.Is(err, errBlocked):
		return exitBlocked
	case errors.Is(err, worker.ErrDrained):
		return exitDrained
	case errors.Is(err, receipt.ErrStale):
		return exitChanged
	case errors.Is(err, fence.ErrHeld):
		return exitHeld
	case errors.Is(err, receipt.ErrDamaged): // a missing journal is one
		return exitDamaged
	default:
		return exitError
	}
}

// quiet: whoever read the output has seen enough.
func quiet(err error) bool { return errors.Is(err, syscall.EPIPE) }
