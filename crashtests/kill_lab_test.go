package crashtests

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"provctl/crashtests/lightnode"
	"provctl/crashtests/oracle"
	"provctl/crashtests/trace"
	"provctl/crashtests/tracefs"
	"provctl/internal/fleet"
)

// pointed builds the program with its crash points, once.
var pointed = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(pointedEnv); path != "" {
		return path, nil
	}
	path := filepath.Join(filepath.Dir(program), "provctl-crashpoints")
	out, err := exec.Command("go", "build", "-tags", "crashpoints", "-o", path, "provctl/cmd/provctl").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the program with crash points: %w\n%s", err, out)
	}
	return path, nil
})

// ttl is how long a request of a trial can be accepted, and its horizon: long enough for a machine under load to send it in time.
const ttl = 3 * time.Second

// lab is a broker with light nodes on which many trials are made, one after another.
type lab struct {
	dir    string
	broker *fleet.Fleet
	nodes  *lightnode.Nodes
	trial  atomic.Pointer[trial] // whose hook is asked
	count  int
}

func newLab(t testing.TB, nodes int) *lab {
	t.Helper()
	dir, err := os.MkdirTemp("", "lab") // short: a socket's path is bounded
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{dir: dir}
	t.Cleanup(func() {
		if l.nodes != nil {
			l.nodes.Close()
		}
		if l.broker != nil {
			l.broker.Close()
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if l.broker, err = fleet.Start(ctx, fleet.Options{Dir: filepath.Join(dir, "fleet")}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range nodes {
		names = append(names, fmt.Sprintf("node-%d.example.net", i+1))
	}
	l.nodes, err = lightnode.Start(ctx, lightnode.Options{Dir: filepath.Join(dir, "nodes"), Broker: l.broker, Names: names, Hook: l.hook})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// hook records each effect in the trace and asks the scenario.
func (l *lab) hook(c fleet.Call) fleet.Fault {
	tr := l.trial.Load()
	if tr == nil {
		return fleet.Fault{}
	}
	if fleet.IsEffect(c.Action) {
		kind := trace.Begin
		if c.Phase == fleet.PhaseEnd {
			kind = trace.End
		}
		tr.traceNow().Add(trace.Event{Source: c.Node, Kind: kind, Action: c.Action, Request: c.RequestID})
	}
	if tr.scene.hook != nil {
		return tr.scene.hook(tr, c)
	}
	return fleet.Fault{}
}

// scene is what happens in a trial if nothing goes wrong.
type scene struct {
	name    string
	nodes   int
	lanes   int
	values  map[string]any // of the worker's YAML
	down    []int          // nodes that are to be shut down, from 0
	offline []int          // nodes on which a verdict is given without a worker
	faults  func(*lightnode.Nodes, []string)
	hook    func(*trial, fleet.Call) fleet.Fault
	plain   bool // the state directory is on the machine's own file system
}

// trial is one case: a fresh fleet, a fresh journal, one thing that goes wrong.
type trial struct {
	t     testing.TB
	ctx   context.Context
	lab   *lab
	scene *scene
	files fleet.WorkerFiles
	log   string
	dir   string // the state directory's backing one
	prog  string
	env   []string // of every process until something was killed

	by int // verdicts that were needed

	mu     sync.Mutex
	mirror *tracefs.FS
	traces []*trace.Trace // of each phase; the last is the present one
	events []trace.Event  // of all former phases
	worker *process
	all    []*process // every life
	lives  []oracle.Life
	run    oracle.Run
}

func (l *lab) names(s *scene) []string { return l.nodes.Names()[:s.nodes] }

// begin makes everything fresh for a trial. The lab's further nodes are down meanwhile.
func (l *lab) begin(t testing.TB, s *scene, prog string, env ...string) *trial {
	t.Helper()
	l.count++
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	dir := filepath.Join(l.dir, fmt.Sprintf("t%d", l.count))
	tr := &trial{t: t, ctx: ctx, lab: l, scene: s, prog: prog, env: env, log: filepath.Join(dir, "log"), dir: filepath.Join(dir, "disk")}
	t.Cleanup(func() {
		cancel()
		tr.end()
		if t.Failed() {
			tr.tell()
		}
		_ = os.RemoveAll(dir)
	})
	if err := l.nodes.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	for _, name := range l.nodes.Names()[s.nodes:] {
		if err := l.nodes.Kill(name); err != nil {
			t.Fatal(err)
		}
	}
	if s.faults != nil {
		s.faults(l.nodes, l.names(s))
	}
	for _, d := range []string{tr.dir, filepath.Join(dir, "s")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	o := fleet.WorkerOptions{Values: short(map[string]any{"interval": "10s", "effect_ttl": ttl.String(), "clock_skew": "0s", "workers": max(1, s.lanes)}), StateDir: tr.dir}
	for k, v := range s.values {
		o.Values[k] = v
	}
	for _, i := range s.down {
		o.Shutdown = append(o.Shutdown, l.nodes.Names()[i])
	}
	if !s.plain && tracefs.Available() == nil {
		o.StateDir = filepath.Join(dir, "s")
	}
	var err error
	if tr.files, err = l.broker.WriteWorkerFiles(filepath.Join(dir, "w"), o); err != nil {
		t.Fatal(err)
	}
	tr.phase()
	l.trial.Store(tr)
	if out, code := tr.provctl("init", "--state-dir", tr.files.StateDir); code != 0 {
		t.Fatalf("init: exit %d: %s", code, out)
	}
	tr.phase()
	return tr
}

// mounted tells whether the state directory is on a file system of ours.
func (tr *trial) mounted() bool { return tr.files.StateDir != tr.dir }

// phase begins a trace of its own, whose numbers start at 1. Nothing may use the state directory.
func (tr *trial) phase() {
	tr.t.Helper()
	next := trace.New()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if n := len(tr.traces); n > 0 {
		tr.events = join(tr.events, tr.traces[n-1].Events())
	}
	tr.traces = append(tr.traces, next)
	if !tr.mounted() {
		return
	}
	if tr.mirror != nil {
		if err := tr.mirror.Unmount(); err != nil {
			tr.t.Fatal(err)
		}
	}
	var err error
	if tr.mirror, err = tracefs.Mount(tr.dir, tr.files.StateDir, next); err != nil {
		tr.t.Fatal(err)
	}
}

// join appends events under numbers that go on.
func join(all, more []trace.Event) []trace.Event {
	for _, e := range more {
		e.N = len(all) + 1
		all = append(all, e)
	}
	return all
}

func (tr *trial) traceNow() *trace.Trace {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.traces[len(tr.traces)-1]
}

// killAt has the worker killed when event n of the present phase is about to happen. What it was about to do on the disk is not
// done.
func (tr *trial) killAt(n int) {
	tr.mirror.KillAt(n, func() {
		tr.mu.Lock()
		p := tr.worker
		tr.mu.Unlock()
		if p != nil {
			_ = p.cmd.Process.Kill()
		}
	})
}

// start begins a life of the worker.
func (tr *trial) start() *process {
	tr.t.Helper()
	out, err := os.OpenFile(tr.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		tr.t.Fatal(err)
	}
	defer out.Close()
	p := &process{cmd: exec.Command(tr.prog, "run", "--config", tr.files.Config, "--choria-config", tr.files.ChoriaConfig), done: make(chan struct{})}
	p.cmd.Stderr, p.cmd.Env = out, append(os.Environ(), tr.env...)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	life := len(tr.lives)
	tr.lives = append(tr.lives, oracle.Life{Span: oracle.Span{From: time.Now()}})
	if err := p.cmd.Start(); err != nil {
		tr.t.Fatal(err)
	}
	tr.worker, tr.all = p, append(tr.all, p)
	go func() {
		p.err = p.cmd.Wait()
		tr.mu.Lock()
		if tr.lives[life].To.IsZero() {
			tr.lives[life].To = time.Now()
		}
		tr.mu.Unlock()
		close(p.done)
	}()
	return p
}

// dead tells whether a process has ended, and whether by SIGKILL.
func (p *process) dead() (ended, killed bool) {
	select {
	case <-p.done:
	default:
		return false, false
	}
	return true, killedBy(p.cmd.ProcessState)
}

func killedBy(s *os.ProcessState) bool {
	ws, ok := s.Sys().(syscall.WaitStatus)
	return ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL
}

// provctl runs a command of the program; the exit code of one that was killed is -1.
func (tr *trial) provctl(args ...string) (string, int) {
	tr.t.Helper()
	cmd := exec.CommandContext(tr.ctx, tr.prog, args...)
	cmd.Env = append(os.Environ(), tr.env...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || tr.ctx.Err() != nil {
		tr.t.Fatalf("provctl %v: %v (%v)", args, err, tr.ctx.Err())
	}
	if exit != nil {
		return string(out), exit.ExitCode()
	}
	return string(out), 0
}

// look inspects and keeps what it saw. With nobody at work it makes sure that looking changed nothing.
func (tr *trial) look() oracle.Report {
	tr.t.Helper()
	tr.mu.Lock()
	p := tr.worker
	tr.mu.Unlock()
	still := p == nil
	if p != nil {
		still, _ = p.dead()
	}
	var before map[string]string
	if still {
		before = tr.image()
	}
	l := oracle.Look{From: time.Now()}
	cmd := exec.CommandContext(tr.ctx, program, "inspect", "--json", "--state-dir", tr.files.StateDir)
	out, err := cmd.Output()
	l.To = time.Now()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 3) {
		if exit != nil && !still {
			return oracle.Report{} // the worker may be starting or dying
		}
		if exit != nil {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		tr.t.Fatalf("inspect: %v", err)
	}
	if l.Report, err = oracle.ReadReport(out); err != nil {
		tr.t.Fatal(err)
	}
	if still {
		tr.run.Stills = append(tr.run.Stills, [2]map[string]string{before, tr.image()})
	}
	tr.run.Looks = append(tr.run.Looks, l)
	return l.Report
}

// image names the content of every file of the state directory.
func (tr *trial) image() map[string]string {
	tr.t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(tr.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		out[strings.TrimPrefix(path, tr.dir)] = fmt.Sprintf("%x", sha256.Sum256(b))
		return err
	})
	if err != nil {
		tr.t.Fatal(err)
	}
	return out
}

// end kills what still runs and lets go of the file system.
func (tr *trial) end() {
	tr.lab.trial.CompareAndSwap(tr, nil)
	tr.mu.Lock()
	mirror := tr.mirror
	tr.mirror = nil
	tr.mu.Unlock()
	for _, p := range tr.all {
		_ = p.cmd.Process.Kill() // a suspended one too
		<-p.done
	}
	if mirror != nil {
		if err := mirror.Unmount(); err != nil {
			tr.t.Error(err)
		}
	}
}
