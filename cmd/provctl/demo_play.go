package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"provctl/inspect"
	"provctl/internal/fleet"
	"provctl/receipt"
	"provctl/reconcile"
)

// demonstration is one run of the demo: a fleet in this process and its children, and a worker in a child of its own, started,
// killed and asked through the same commands that an operator types.
type demonstration struct {
	dir          string
	nodes, lanes int
	crash        bool
	show         *stage

	fleet  *fleet.Fleet
	files  fleet.WorkerFiles
	worker *exec.Cmd
	done   chan error // of the worker process
	log    *os.File

	mu         sync.Mutex
	killed     chan struct{} // closed when the hook has killed the worker
	reconciled int
}

// crashAt is which configure, counted over the fleet, finds the worker killed: some nodes are done, some are not.
func (d *demonstration) crashAt() int { return max(1, d.nodes/3) }

func (d *demonstration) run(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	d.killed = make(chan struct{})
	d.show.say(fmt.Sprintf("starting a Choria broker and %d Choria servers in provisioning mode", d.nodes))
	d.fleet, err = fleet.Start(ctx, fleet.Options{
		Dir: d.path("fleet"), Nodes: d.nodes, NodeCommand: []string{self, nodeCommandName}, Hook: d.hook(),
	})
	if err != nil {
		return err
	}
	// Short times keep the demo short; what they mean is the same.
	d.files, err = d.fleet.WriteWorkerFiles(d.path("worker"), fleet.WorkerOptions{Values: map[string]any{
		"workers": d.lanes, "interval": "5s", "effect_ttl": "5s", "clock_skew": "1s", "stop_timeout": "10s", "loglevel": "debug",
	}})
	if err != nil {
		return err
	}
	if d.log, err = os.Create(d.path("worker.log")); err != nil {
		return err
	}
	if _, err := d.provctl(ctx, "init", "--state-dir", d.files.StateDir); err != nil {
		return err
	}
	if d.crash {
		d.dropReplies()
	}
	if err := d.startWorker(); err != nil {
		return err
	}
	d.show.say(fmt.Sprintf("provisioning with %d lanes", d.lanes))
	if d.crash {
		if err := d.seeCrash(ctx); err != nil {
			return err
		}
	}
	return d.finish(ctx)
}

// dropReplies has three nodes lose one reply each, of three different effects.
func (d *demonstration) dropReplies() {
	names := d.fleet.Nodes()
	for i, action := range []string{"configure", "restart", "gen25519"} {
		if at := len(names) - 1 - i; at >= 0 {
			d.fleet.SetFault(names[at], action, fleet.Fault{Kind: fleet.Drop})
			d.show.say(fmt.Sprintf("the reply of %s to its %s will be lost", names[at], action))
		}
	}
}

// hook kills the worker when a certain configure has reached its node and is about to run.
func (d *demonstration) hook() func(fleet.Call) fleet.Fault {
	if !d.crash {
		return nil
	}
	count := 0
	return func(c fleet.Call) fleet.Fault {
		d.mu.Lock()
		defer d.mu.Unlock()
		if c.Phase != fleet.PhaseBegin || c.Action != "configure" || c.Node == d.fleet.Nodes()[max(0, len(d.fleet.Nodes())-1)] {
			return fleet.Fault{}
		}
		if count++; count == d.crashAt() {
			_ = d.worker.Process.Signal(syscall.SIGKILL)
			close(d.killed)
		}
		return fleet.Fault{}
	}
}

func (d *demonstration) startWorker() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "run", "--config", d.files.Config, "--choria-config", d.files.ChoriaConfig)
	cmd.Stdout, cmd.Stderr = d.log, d.log
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	d.worker, d.done = cmd, make(chan error, 1)
	go func(done chan error) { done <- cmd.Wait() }(d.done)
	return nil
}

func (d *demonstration) seeCrash(ctx context.Context) error {
	select {
	case <-d.killed:
	case err := <-d.done:
		return d.workerDied(err)
	case <-ctx.Done():
		return ctx.Err()
	}
	<-d.done
	d.show.say("killed the worker (SIGKILL) while a node was being configured; this is what it left:")
	d.showInspect(ctx)
	d.show.say("starting it again")
	return d.startWorker()
}

func (d *demonstration) workerDied(err error) error {
	return fmt.Errorf("the worker ended by itself (%v); its log ends with:\n%s", err, tail(d.path("worker.log"), 12))
}

// finish waits until every node is provisioned, reconciling what evidence cannot settle.
func (d *demonstration) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(120+2*d.nodes)*time.Second)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	shown := false
	for {
		joined := d.fleet.State().Count(func(s fleet.NodeState) bool { return s.Mode == fleet.Provisioned && s.Joined })
		report, err := inspect.Fetch(ctx, d.files.StateDir)
		if err == nil {
			d.show.progress(fmt.Sprintf("%d of %d nodes provisioned, %d receipts open", joined, d.nodes, len(report.Items)))
			if err := d.reconcile(ctx, report, &shown); err != nil {
				return err
			}
			if joined == d.nodes && len(report.Items) == 0 {
				return d.stopWorker(ctx)
			}
		}
		select {
		case <-tick.C:
		case err := <-d.done:
			return d.workerDied(err)
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				d.show.say("giving up waiting: the table shows how far it came")
				return d.stopWorker(context.WithoutCancel(ctx))
			}
			return ctx.Err()
		}
	}
}

// reconcile gives a verdict on what stays unknown past its horizon, after a look at the node as an operator would take it.
func (d *demonstration) reconcile(ctx context.Context, report inspect.Report, shown *bool) error {
	for _, item := range report.Items {
		if item.Status != receipt.Unknown || item.HorizonLeft > 0 || item.Action != receipt.Configure {
			continue // evidence may still come
		}
		if !*shown {
			*shown = true
			d.show.say("this is how a blocked node looks:")
			d.showInspect(ctx)
		}
		verdict, saw := d.lookAtNode(string(item.Node), item.Request)
		args := []string{"reconcile", string(item.Receipt), "--verdict", verdict, "--reason", saw, "--seen", fmt.Sprint(item.Version), "--json", "--state-dir", d.files.StateDir}
		if out, err := d.provctl(ctx, args...); err != nil {
			switch refusal(out) {
			case reconcile.Changed, reconcile.MayStillRun:
				continue // evidence was quicker, or the node may still write the file: look again
			}
			return fmt.Errorf("%w: %s", err, out)
		}
		d.reconciled++
		d.show.say(fmt.Sprintf("%s: %s; provctl reconcile %s --verdict %s", item.Node, saw, item.Receipt, verdict))
	}
	return nil
}

// refusal is the code of the line that reconcile --json printed, whatever it said besides; "" without one.
func refusal(out string) reconcile.Code {
	for line := range strings.Lines(out) {
		var l resultLine
		if json.Unmarshal([]byte(line), &l) == nil && l.Schema == reconcileSchema {
			return l.Code
		}
	}
	return ""
}

// lookAtNode reads the first line of the node's server.conf, which names the request that wrote it.
func (d *demonstration) lookAtNode(node string, request receipt.RequestID) (verdict, saw string) {
	dir, err := d.fleet.NodeDir(node)
	if err != nil {
		return "abandon", err.Error()
	}
	f, err := os.Open(dir + "/server.conf")
	if err != nil {
		return "not-applied", "the node has no server.conf"
	}
	defer func() { _ = f.Close() }()
	line, _ := bufio.NewReader(f).ReadString('\n')
	if strings.Contains(line, string(request)) {
		return "applied", "line 1 of its server.conf names the request"
	}
	return "not-applied", "line 1 of its server.conf names another request"
}

func (d *demonstration) showInspect(ctx context.Context) {
	if d.show.quiet {
		return
	}
	out, err := d.provctl(ctx, "inspect", "--state-dir", d.files.StateDir)
	if err != nil && exitStatus(err) != exitBlocked {
		out += err.Error()
	}
	d.show.say(strings.TrimRight(out, "\n"))
}

// provctl runs this very program with other arguments and returns what it printed.
func (d *demonstration) provctl(ctx context.Context, args ...string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, self, args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("provctl %s: %w", args[0], err)
	}
	return string(out), nil
}

func exitStatus(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}

func (d *demonstration) stopWorker(ctx context.Context) error {
	_ = d.worker.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-d.done:
		if err != nil {
			return d.workerDied(err)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end leaves nothing behind, whatever happened.
func (d *demonstration) end() {
	if d.worker != nil {
		_ = d.worker.Process.Kill()
	}
	if d.fleet != nil {
		d.fleet.Close()
	}
	if d.log != nil {
		_ = d.log.Close()
	}
}

// result counts. What ran on the nodes comes from their own logs, what the worker did from its journal.
func (d *demonstration) result(began time.Time) (demoResult, error) {
	audit, err := d.fleet.Audit()
	if err != nil {
		return demoResult{}, err
	}
	report, err := inspect.Fetch(context.Background(), d.files.StateDir)
	if err != nil {
		return demoResult{}, err
	}
	blocked := map[receipt.NodeID]bool{}
	for _, item := range report.Items {
		blocked[item.Node] = true
	}
	r := demoResult{
		Nodes: d.nodes, Provisioned: len(audit.Provisioned), Blocked: len(blocked), Requeued: report.Counts.Requeues,
		SettledByEvidence: report.Counts.SettledByEvidence, Reconciled: d.reconciled,
		Effects: audit.Effects, EffectsTwice: len(audit.Twice), Seconds: time.Since(began).Seconds(),
	}
	for _, node := range d.fleet.Nodes() {
		if !audit.Provisioned[node] && !blocked[receipt.NodeID(node)] {
			r.Lost++
		}
	}
	for _, twice := range audit.Twice {
		d.show.say("TWICE: " + twice.String())
	}
	return r, nil
}

// tail is the last lines of a file, for an error message.
func tail(path string, lines int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
