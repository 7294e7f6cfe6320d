// Package helper runs a site's helper, the program that decides about a node
// and makes its configuration, and reads its answer.
//
// The contract (JSON in on standard input, JSON out on standard output, exit 0)
// is the existing provisioner's. What is different is that nothing about the
// program is trusted: time, output and children are bounded, and an answer is
// taken whole or not at all.
package helper

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/kballard/go-shellquote"
)

const (
	// DefaultTimeout is the existing provisioner's fixed limit.
	DefaultTimeout = 10 * time.Second
	// DefaultMaxOutput is far above any reply that a request could carry.
	DefaultMaxOutput = 1 << 20
)

// Options say what to run and how much of it to endure.
type Options struct {
	Command   string        // quoted as for a shell; no shell runs it
	Timeout   time.Duration // 0: DefaultTimeout
	MaxOutput int           // bytes on standard output; 0: DefaultMaxOutput
	Env       []string      // NAME=value, added to this process's environment, of which only what is for the service manager is left out
	Log       *slog.Logger  // gets standard error and warnings; nil: nowhere

	PKI      bool // features.pki: nodes make a key and a request; a reply without a certificate gets a warning
	Upgrades bool // features.upgrades; off: upgrade in a reply gets a warning and is dropped
}

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MaxOutput <= 0 {
		o.MaxOutput = DefaultMaxOutput
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Run runs the helper once for one node and returns its checked answer. It
// sends nothing to the node. The error is an [*Error].
//
// The helper gets a process group of its own, which is killed when the deadline
// passes, the context ends or the output exceeds its limit, and in any case
// after the helper exited: nothing it started in that group outlives Run. It is
// killed too when this process dies. A process that left the group (setsid)
// is beyond reach, but cannot hold Run up.
//
// When the helper has exited with 0 and a child of it still holds standard
// output, Run waits for a short grace, kills the group and takes what was
// written if it is complete.
func Run(ctx context.Context, opts Options, in Input) (*Reply, error) {
	opts = opts.withDefaults()
	input, err := in.encode()
	if err != nil {
		return nil, err
	}
	argv, ferr := split(opts.Command)
	if ferr != nil {
		return nil, ferr
	}
	if err := ctx.Err(); err != nil {
		return nil, &Error{Kind: ErrCanceled, Program: argv[0], Detail: "before it was started", Remedy: "none needed, the worker is stopping", Cause: err}
	}
	p, ferr := start(argv, opts, input)
	if ferr != nil {
		ferr.Program = argv[0]
		return nil, ferr
	}
	output, ferr := p.finish(ctx)
	p.logStderr(opts.Log, ferr != nil)
	var reply *Reply
	if ferr == nil {
		reply, ferr = decode(output)
	}
	if ferr == nil {
		ferr = reply.settle(in, opts)
	}
	if ferr != nil {
		ferr.Program = argv[0]
		return nil, ferr
	}
	for _, text := range reply.Warnings {
		opts.Log.Warn("helper reply: "+text, "node", in.Identity)
	}
	return reply, nil
}

// split makes the argument vector and finds the program.
func split(command string) ([]string, *Error) {
	argv, err := shellquote.Split(command)
	if err != nil || len(argv) == 0 || argv[0] == "" {
		return nil, failure(ErrMissing, "the command line "+quote(command, maxExcerpt)+" cannot be split", "set helper to a program with its arguments, quoted as for a shell")
	}
	program, err := exec.LookPath(argv[0])
	if err != nil {
		ferr := startError(err)
		ferr.Program = argv[0]
		return nil, ferr
	}
	argv[0] = program
	return argv, nil
}

// startError sorts what keeps a program from starting: what an operator must
// mend in the program, and what the system lacks at the moment.
func startError(err error) *Error {
	e := &Error{Kind: ErrMissing, Detail: plain(err), Cause: err}
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		e.Remedy = "begin a script with its interpreter, as in #!/bin/sh"
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound):
		e.Remedy = "check the path of the program and of the interpreter in its first line"
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EISDIR) || errors.Is(err, exec.ErrDot):
		e.Remedy = "make the program a file that this user may execute, named by its full path"
	default:
		e.Kind = ErrStart
		e.Remedy = "check the limits on memory, processes and open files; it is tried again later"
	}
	return e
}

// exitError describes an exit that was not 0.
func exitError(state *os.ProcessState, stderr, stdout []byte) *Error {
	detail := fmt.Sprintf("exit code %d", state.ExitCode())
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		detail = "killed by signal " + strings.ToLower(status.Signal().String())
	}
	said := excerpt(stderr)
	if said == "" {
		said = excerpt(stdout)
	}
	return &Error{Kind: ErrExit, Detail: detail, Excerpt: said, Remedy: "see its standard error in the log, run it by hand with the same input"}
}
