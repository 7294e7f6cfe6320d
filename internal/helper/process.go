package helper

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// eofGrace is how long the output may stay open after the helper exited, and
	// again after its group was killed.
	eofGrace = 500 * time.Millisecond
	// killGrace is how long a killed process may take to die. One that sleeps in
	// the kernel can take for ever; the lane must not.
	killGrace = 5 * time.Second

	maxStderr     = 32 << 10
	maxStderrLine = 500
)

// process is one started helper. Exactly one finish follows start.
type process struct {
	cmd    *exec.Cmd
	opts   Options
	exited chan struct{} // closed when the helper exited; it is not reaped then
	stdin  *os.File
	wrote  chan struct{} // closed when the input is written or refused
	stdout *capture
	stderr *capture
}

// start starts the program with its own group and pipes.
func start(argv []string, opts Options, input []byte) (*process, *Error) {
	var pipes [3]struct{ r, w *os.File }
	closeAll := func() {
		for _, p := range pipes {
			_ = p.r.Close() // a nil *os.File refuses, which is fine
			_ = p.w.Close()
		}
	}
	for i := range pipes {
		var err error
		if pipes[i].r, pipes[i].w, err = os.Pipe(); err != nil {
			closeAll()
			return nil, startError(err)
		}
	}
	p := &process{opts: opts, exited: make(chan struct{}), wrote: make(chan struct{}), stdin: pipes[0].w}
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Env = append(slices.DeleteFunc(os.Environ(), forManager), opts.Env...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = pipes[0].r, pipes[1].w, pipes[2].w
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.launch(); err != nil {
		closeAll()
		return nil, startError(err)
	}
	_, _, _ = pipes[0].r.Close(), pipes[1].w.Close(), pipes[2].w.Close()
	p.stdout = read(pipes[1].r, opts.MaxOutput, false)
	p.stderr = read(pipes[2].r, maxStderr, true)
	go func() {
		defer close(p.wrote)
		_, _ = p.stdin.Write(input) // a helper may exit without reading it all
		_ = p.stdin.Close()
	}()
	return p, nil
}

// launch starts the program from a thread that lives as long as it: the kernel
// sends the parent-death signal when the thread that forked ends, not the
// process. The wait leaves the helper unreaped, so that the number of its group
// cannot pass to another process before the group is killed.
func (p *process) launch() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		defer close(p.exited)
		for unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
			continue
		}
	}()
	return <-started
}

// kill kills the helper's group. It must not be called after the helper was reaped.
func (p *process) kill() { _ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL) }

// finish waits for the helper, bounded in every way, and returns its output.
// When it returns, the group is dead, the helper reaped and all pipes closed.
func (p *process) finish(ctx context.Context) ([]byte, *Error) {
	deadline := time.NewTimer(p.opts.Timeout)
	defer deadline.Stop()
	var broken *Error
	select {
	case <-p.exited:
		waitEOF(p.stdout)
	case <-deadline.C:
		broken = failure(ErrTimeout, fmt.Sprintf("killed after %s", p.opts.Timeout), "make it faster, or raise helper_timeout")
	case <-ctx.Done():
		broken = &Error{Kind: ErrCanceled, Detail: "killed", Remedy: "none needed, the worker is stopping", Cause: context.Cause(ctx)}
	case <-p.stdout.over:
	}
	p.kill()
	waitEOF(p.stdout, p.stderr)
	state, ferr := p.reap()
	p.release()
	switch {
	case p.stdout.exceeded():
		return nil, &Error{Kind: ErrTooMuch, Detail: fmt.Sprintf("more than %d bytes", p.opts.MaxOutput), Excerpt: excerpt(p.stdout.bytes()), Remedy: "a reply has a few kilobytes; let the helper log to standard error"}
	case broken != nil:
		broken.Excerpt = excerpt(p.stdout.bytes())
		return nil, broken
	case ferr != nil:
		return nil, ferr
	case !state.Success():
		return nil, exitError(state, p.stderr.bytes(), p.stdout.bytes())
	}
	return p.stdout.bytes(), nil
}

// reap collects the exit status of a helper that exited or was killed.
func (p *process) reap() (*os.ProcessState, *Error) {
	timer := time.NewTimer(killGrace)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		go func() { _ = p.cmd.Wait() }()
		return nil, failure(ErrTimeout, "it does not die when killed", "look for a hanging disk or network file system")
	}
	_ = p.cmd.Wait() // its error repeats the state
	return p.cmd.ProcessState, nil
}

// release ends the goroutines and closes the pipes.
func (p *process) release() {
	now := time.Now()
	_ = p.stdin.SetWriteDeadline(now)
	<-p.wrote
	for _, c := range []*capture{p.stdout, p.stderr} {
		_ = c.r.SetReadDeadline(now)
		<-c.done
		_ = c.r.Close()
	}
}

// waitEOF waits until all outputs are closed, for eofGrace at most, whatever the
// context says: an answer that is complete must not be cut by a stop.
func waitEOF(outputs ...*capture) {
	timer := time.NewTimer(eofGrace)
	defer timer.Stop()
	for _, c := range outputs {
		select {
		case <-c.done:
		case <-timer.C:
			return
		}
	}
}

// logStderr logs what the helper said, line by line, bounded and escaped.
func (p *process) logStderr(log *slog.Logger, failed bool) {
	text := strings.TrimSpace(redact(string(p.stderr.bytes())))
	if text == "" {
		return
	}
	level := slog.LevelInfo
	if failed {
		level = slog.LevelWarn
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			log.Log(context.Background(), level, "helper said", "line", quote(line, maxStderrLine))
		}
	}
	if n := p.stderr.dropped; n > 0 {
		log.Log(context.Background(), level, "helper said more than is logged", "bytes_dropped", n)
	}
}

// forManager tells what of this process's environment is between it and its service manager alone.
func forManager(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return name == "NOTIFY_SOCKET" || name == "WATCHDOG_USEC" || name == "WATCHDOG_PID"
}
