package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
)

// ErrNodeRunning is returned by StartNode when the node's process already runs.
var ErrNodeRunning = errors.New("the node already runs")

// ErrNodeStopped is returned for a node whose process does not run.
var ErrNodeStopped = errors.New("the node does not run")

// node is one node as its fleet sees it. Fleet.mu guards state, conn and proc.
type node struct {
	name, dir string
	state     NodeState
	conn      *lineConn
	proc      *process
}

// process is one process of a node, restarts by exec included.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// spawner starts processes from one thread that lives as long as the fleet: the kernel sends a child its parent death
// signal when the thread that made it ends, not when the process does.
type spawner struct {
	requests chan spawnRequest
}

type spawnRequest struct {
	cmd    *exec.Cmd
	result chan error
}

func newSpawner() *spawner {
	s := &spawner{requests: make(chan spawnRequest)}
	go func() {
		runtime.LockOSThread()
		for r := range s.requests {
			r.result <- r.cmd.Start()
		}
	}()
	return s
}

func (s *spawner) start(cmd *exec.Cmd) error {
	r := spawnRequest{cmd: cmd, result: make(chan error, 1)}
	s.requests <- r
	return <-r.result
}

func (s *spawner) close() { close(s.requests) }

// spawn starts the node's process.
func (f *Fleet) spawn(n *node) error {
	log, err := os.OpenFile(filepath.Join(n.dir, "node.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("starting %s: %w", n.name, err)
	}
	defer log.Close()
	command := f.opts.NodeCommand
	if f.opts.Version != "" {
		command = []string{filepath.Join(n.dir, executableFile)}
	}
	argv := append(slices.Clone(command), "--dir", n.dir, "--socket", f.socket)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = n.dir, log, log, processAttributes()
	// A node is idle most of its life; many of them must not each claim a whole machine.
	cmd.Env = append(append(os.Environ(), "USER=root", "HOME="+n.dir, "GOMAXPROCS=2"), f.opts.NodeEnv...)

	f.spawning.Lock()
	defer f.spawning.Unlock()
	f.mu.Lock()
	running, closed := n.proc != nil, f.closed
	f.mu.Unlock()
	if closed {
		return ErrClosed
	}
	if running {
		return fmt.Errorf("%w: %s", ErrNodeRunning, n.name)
	}
	if err = f.spawner.start(cmd); err != nil {
		return fmt.Errorf("starting %s with %s: %w", n.name, argv[0], err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	f.update(func() {
		n.proc = p
		n.state.Alive, n.state.PID, n.state.Exit = true, cmd.Process.Pid, ""
	})
	f.wg.Go(func() { f.reap(n, p) })
	return nil
}

// reap records the end of a process.
func (f *Fleet) reap(n *node, p *process) {
	err := p.cmd.Wait()
	exit := "exit status 0"
	if err != nil {
		exit = err.Error()
	}
	f.update(func() {
		n.proc = nil
		n.state.Alive, n.state.Joined, n.state.Connected, n.state.Exit = false, false, false, exit
	})
	close(p.done)
}

// StartNode starts a node's process again after KillNode, a crash or a shutdown, and returns when it has joined in the
// mode its files give it.
func (f *Fleet) StartNode(ctx context.Context, name string) error {
	n, err := f.node(name)
	if err != nil {
		return err
	}
	if err = f.spawn(n); err != nil {
		return err
	}
	return f.awaitJoined(ctx, n)
}

// awaitJoined returns when the node's instance runs, or with the reason why it does not.
func (f *Fleet) awaitJoined(ctx context.Context, n *node) error {
	var exit string
	err := f.waitNode(ctx, n, func(s NodeState) bool {
		exit = s.Exit
		return s.Joined || exit != ""
	})
	if err != nil {
		return fmt.Errorf("%s did not join: %w", n.name, err)
	}
	if exit != "" {
		return fmt.Errorf("%s did not join: %w (%s); see %s", n.name, ErrNodeStopped, exit, filepath.Join(n.dir, "node.log"))
	}
	return nil
}

// KillNode kills a node's process (SIGKILL) and returns when it is gone. Its files stay.
func (f *Fleet) KillNode(name string) error {
	p, err := f.process(name)
	if err != nil {
		return err
	}
	if err = p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing %s: %w", name, err)
	}
	<-p.done
	return nil
}

// SuspendNode stops a node's process (SIGSTOP): its connections stay, nothing answers.
func (f *Fleet) SuspendNode(name string) error { return f.signal(name, syscall.SIGSTOP) }

// ResumeNode lets a suspended node go on (SIGCONT).
func (f *Fleet) ResumeNode(name string) error { return f.signal(name, syscall.SIGCONT) }

func (f *Fleet) signal(name string, sig syscall.Signal) error {
	p, err := f.process(name)
	if err != nil {
		return err
	}
	if err = p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("sending %s to %s: %w", sig, name, err)
	}
	return nil
}

func (f *Fleet) process(name string) (*process, error) {
	n, err := f.node(name)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n.proc == nil {
		return nil, fmt.Errorf("%w: %s", ErrNodeStopped, name)
	}
	return n.proc, nil
}
