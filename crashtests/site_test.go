package crashtests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"provctl/internal/fleet"
)

// program is the binary under test, built once.
var program string

func TestMain(m *testing.M) { os.Exit(build(m)) }

func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "provctl-crash-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	defer func() {
		if err := summarize(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	if program = os.Getenv(programEnv); program != "" {
		return m.Run()
	}
	program = filepath.Join(dir, "provctl")
	if out, err := exec.Command("go", "build", "-o", program, "provctl/cmd/provctl").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the program under test: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// site is a fleet with a worker that can be killed.
type site struct {
	t     testing.TB
	ctx   context.Context
	fleet *fleet.Fleet
	files fleet.WorkerFiles
	log   string

	mu     sync.Mutex
	worker *process
}

// process is one life of the worker.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // once done
}

// options vary a site.
type options struct {
	nodes  int
	worker fleet.WorkerOptions
	hook   func(*site, fleet.Call) fleet.Fault
	splay  bool // go-choria's own restart and shutdown delays
	fleet  func(*fleet.Options)
	// releases are published before anything starts; they make the nodes upgradable.
	releases []fleet.Release
}

// short are the times of a test worker: what they mean is the same as with the long ones. evidence is looked for often.
func short(more map[string]any) map[string]any {
	values := map[string]any{
		"workers": 1, "interval": "2s", "effect_ttl": "3s", "clock_skew": "1s", "stop_timeout": "10s", "loglevel": "debug",
	}
	for k, v := range more {
		values[k] = v
	}
	return values
}

func newSite(t testing.TB, o options) *site {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	t.Cleanup(cancel)
	dir := t.TempDir()
	s := &site{t: t, ctx: ctx, log: filepath.Join(dir, "worker.log")}
	fo := fleet.Options{Dir: filepath.Join(dir, "fleet"), Nodes: o.nodes, NodeCommand: []string{program, "fleet-node"}, RealSplay: o.splay}
	if o.hook != nil {
		fo.Hook = func(c fleet.Call) fleet.Fault { return o.hook(s, c) }
	}
	fo.Upgradable = len(o.releases) > 0
	if o.fleet != nil {
		o.fleet(&fo)
	}
	f, err := fleet.Start(ctx, fo)
	if err != nil {
		t.Fatal(err)
	}
	s.fleet = f
	t.Cleanup(f.Close)
	s.publish(o.releases...)
	if s.files, err = f.WriteWorkerFiles(filepath.Join(dir, "worker"), o.worker); err != nil {
		t.Fatal(err)
	}
	if out, code := s.provctl("init", "--state-dir", s.files.StateDir); code != 0 {
		t.Fatalf("init: exit %d: %s", code, out)
	}
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			t.Logf("fleet: %s\nthe worker's log ends with:\n%s", f.State(), s.tail(60))
		}
	})
	return s
}

// start begins a life of the worker.
func (s *site) start(env ...string) *process {
	s.t.Helper()
	out, err := os.OpenFile(s.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	p := &process{cmd: exec.Command(program, "run", "--config", s.files.Config, "--choria-config", s.files.ChoriaConfig), done: make(chan struct{})}
	p.cmd.Stderr, p.cmd.Env = out, append(os.Environ(), env...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	s.worker = p
	return p
}

// kill ends the present life at once and returns when it has ended.
func (s *site) kill() {
	s.mu.Lock()
	p := s.worker
	s.mu.Unlock()
	if p != nil {
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// stop asks the worker to stop and returns its exit code.
func (s *site) stop() int {
	s.t.Helper()
	s.mu.Lock()
	p := s.worker
	s.mu.Unlock()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatalf("stop the worker: %v", err)
	}
	return s.exit(p)
}

// exit waits for the end of a life.
func (s *site) exit(p *process) int {
	s.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-s.ctx.Done():
		s.t.Fatal("the worker does not end")
		return -1
	}
}

// provctl runs a command and returns all it printed and its exit code. Each has a time of its own: a case may have waited for its turn for
// longer than a site lasts.
func (s *site) provctl(args ...string) (string, int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("provctl %v: %v", args, err)
	}
	if exit != nil {
		return string(out), exit.ExitCode()
	}
	return string(out), 0
}

// report is the part of `provctl inspect --json` that the tests use: the public output, not the program's types.
type report struct {
	Schema string
	Counts struct{ Receipts, Results map[string]int }
	Items  []item
	Nodes  []struct{ Node, State, Why, Result string }
}

type item struct {
	Receipt, Node, Action, Status, Why, Request string
	Version                                     uint64
	HorizonLeft                                 int `json:"horizon_left_seconds"`
}

func (s *site) inspect() report {
	s.t.Helper()
	var r report
	s.inspected(&r)
	return r
}

// errNoAnswer is an inspection that exits with 1: the worker did not answer in time, or is starting and holds the journal.
var errNoAnswer = errors.New("inspect has no answer")

// inspected decodes what inspect says. On a busy machine a worker may be slow to answer, so that is asked again.
func (s *site) inspected(v any) {
	s.t.Helper()
	err := s.tryInspect(v)
	for errors.Is(err, errNoAnswer) && s.ctx.Err() == nil {
		err = s.tryInspect(v)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// tryInspect is inspected for moments in which the worker may die before it has answered.
func (s *site) tryInspect(v any) error {
	out, err := exec.CommandContext(s.ctx, program, "inspect", "--json", "--state-dir", s.files.StateDir).Output()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == 1:
		return fmt.Errorf("%w: %s", errNoAnswer, exit.Stderr)
	case errors.As(err, &exit) && exit.ExitCode() != 3:
		return fmt.Errorf("inspect: %w: %s", err, exit.Stderr)
	case err != nil && exit == nil:
		return fmt.Errorf("inspect: %w", err)
	}
	if err := json.Unmarshal(out, v); err != nil {
		return fmt.Errorf("inspect --json: %w in %s", err, out)
	}
	return nil
}

// await polls a condition of the public output; what it waits for has no event that a process outside could see.
func (s *site) await(what string, is func() bool) {
	s.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.t.Fatalf("waited in vain until %s", what)
		}
	}
}

// awaitFleet waits for a state of the nodes.
func (s *site) awaitFleet(what string, is func(fleet.State) bool) {
	s.t.Helper()
	if err := s.fleet.Wait(s.ctx, is); err != nil {
		s.t.Fatalf("waited in vain until %s: %v", what, err)
	}
}

func joined(n fleet.NodeState) bool { return n.Mode == fleet.Provisioned && n.Joined }

// noneTwice is the heart of the oracle: by the nodes' own logs nothing ran twice.
func (s *site) noneTwice() fleet.Audit {
	s.t.Helper()
	audit, err := s.fleet.Audit()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range audit.Twice {
		s.t.Errorf("ran twice: %s", r)
	}
	return audit
}

// begins counts how often an action ran on a node.
func (s *site) begins(node, action string) int {
	s.t.Helper()
	return s.entries(node, action, fleet.PhaseBegin)
}

// entries counts what a node noted of an action in a phase.
func (s *site) entries(node, action string, phase fleet.Phase) int {
	s.t.Helper()
	entries, err := s.fleet.Log(node)
	if err != nil {
		s.t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if e.Phase == phase && e.Action == action {
			n++
		}
	}
	return n
}

// wroteConfig tells whether the node's configuration names the request, as an operator with a shell would look.
func (s *site) wroteConfig(node, request string) bool {
	s.t.Helper()
	dir, err := s.fleet.NodeDir(node)
	if err != nil {
		s.t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "server.conf"))
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	if err != nil {
		s.t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.Contains(line, request)
}

func (s *site) tail(lines int) string {
	b, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// logged tells whether the worker has written that message.
func (s *site) logged(message string) bool {
	b, err := os.ReadFile(s.log)
	return err == nil && strings.Contains(string(b), message)
}
