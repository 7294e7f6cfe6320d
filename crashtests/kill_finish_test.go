package crashtests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"provctl/crashtests/oracle"
	"provctl/internal/fleet"
)

// patience is how long an unknown receipt stays with the worker, beyond its horizon, before a person decides: longer than the
// oracle gives to evidence, so that a needless block shows first.
const patience = 6 * time.Second

// play goes on until all is done, as an operator would see to it: the worker runs, evidence has its time, and what is still
// unknown then gets a verdict from the node's own files. It returns early, with true, as soon as a process was killed. The worker is
// stopped at the end.
func (tr *trial) play() (killed bool) {
	tr.t.Helper()
	return tr.drive(tr.start())
}

// drive is play with a worker that runs already.
func (tr *trial) drive(p *process) (killed bool) {
	tr.t.Helper()
	for {
		if ended, killed := p.dead(); killed {
			return true
		} else if ended {
			tr.t.Fatalf("the worker gave up: exit %d", p.cmd.ProcessState.ExitCode())
		}
		if r, looked := tr.glance(); looked {
			if tr.finished(r) {
				break
			}
			if again, killed := tr.decideOne(p, r); killed {
				return true
			} else if again {
				p = tr.start()
				continue
			}
		}
		select {
		case <-p.done:
		case <-time.After(100 * time.Millisecond):
		case <-tr.ctx.Done():
			tr.t.Fatalf("it is not done in time: %s", tr.lab.nodes.State())
		}
	}
	return tr.halt(p)
}

// halt stops the worker in order; true if it was killed before its end.
func (tr *trial) halt(p *process) (killed bool) {
	tr.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may be killed just now
	select {
	case <-p.done:
	case <-tr.ctx.Done():
		tr.t.Fatal("the worker does not stop")
	}
	if _, killed := p.dead(); killed {
		return true
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		tr.t.Errorf("the worker stopped with exit code %d", code)
	}
	return false
}

// glance looks if that may show something new and the last look is not too near: each starts a process. It is worth it when the
// nodes have just come to their ends, and else now and then.
func (tr *trial) glance() (r oracle.Report, looked bool) {
	tr.t.Helper()
	tr.mu.Lock()
	born, between := tr.lives[len(tr.lives)-1].From, time.Second
	tr.mu.Unlock()
	if tr.ended() {
		between = 300 * time.Millisecond
	} else if time.Since(born) < patience {
		return r, false
	}
	if n := len(tr.run.Looks); n > 0 && time.Since(tr.run.Looks[n-1].To) < between && tr.run.Looks[n-1].From.After(born) {
		return r, false
	}
	return tr.look(), true
}

// ended tells whether every node has done what it was to do.
func (tr *trial) ended() bool {
	s := tr.lab.nodes.State()
	for i, name := range tr.lab.names(tr.scene) {
		n := s.Nodes[name]
		done := n.Mode == fleet.Provisioned
		if slices.Contains(tr.scene.down, i) {
			done = !n.Alive
		}
		if !done {
			return false
		}
	}
	return true
}

// settledDown looks whether nothing is left to be done.
func (tr *trial) settledDown() bool {
	tr.t.Helper()
	return tr.ended() && tr.finished(tr.look())
}

// finished tells whether every node has done what it was to do and the report knows of nothing else. A worker that is only starting has
// not said that it knows of nothing.
func (tr *trial) finished(r oracle.Report) bool {
	return tr.ended() && r.Worker != nil && r.Worker.State == "running" && len(r.Items) == 0 && r.Counts.Jobs["queued"]+r.Counts.Jobs["claimed"] == 0
}

// decideOne gives a verdict on a receipt that has waited for evidence in vain. again says that the worker was stopped for it.
func (tr *trial) decideOne(p *process, r oracle.Report) (again, killed bool) {
	tr.t.Helper()
	for _, i := range r.Items {
		if i.Status != "unknown" || time.Since(i.Horizon) < tr.waits(i) {
			continue
		}
		index := slices.Index(tr.lab.nodes.Names(), i.Node)
		again = slices.Contains(tr.scene.offline, index)
		if again && tr.halt(p) {
			return false, true
		}
		return again, tr.decide(i)
	}
	return false, false
}

// waits is how long evidence has for a receipt. A restart proves itself by the node's absence, and a request that never arrived by the
// node's counter, which the worker's own questions may blur at the first look: the next one is 10 s later.
func (tr *trial) waits(i oracle.Item) time.Duration {
	tr.t.Helper()
	entries, err := tr.lab.nodes.Log(i.Node)
	if err != nil {
		tr.t.Fatal(err)
	}
	arrived := slices.ContainsFunc(entries, func(e fleet.Entry) bool { return e.RequestID == i.Request })
	if i.Action == "restart" || i.Action == "shutdown" || !arrived {
		return patience + 11*time.Second
	}
	return patience
}

// decide gives the verdict that the node's own files ask for.
func (tr *trial) decide(i oracle.Item) (killed bool) {
	tr.t.Helper()
	verdict := "not-applied"
	if tr.done(i) {
		verdict = "applied"
	}
	give := func(verdict string) (string, int) {
		return tr.provctl("reconcile", i.Receipt, "--verdict", verdict, "--reason", "looked at server.conf", "--seen", fmt.Sprint(i.Version), "--state-dir", tr.files.StateDir)
	}
	out, code := give(verdict)
	if keys := i.Action == "gen25519" || i.Action == "gencsr"; keys && code == 1 && strings.Contains(out, "evidence contradicts this verdict") {
		out, code = give("applied") // of its keys server.conf says nothing, but a late reply does
	}
	tr.mu.Lock()
	p := tr.worker
	tr.mu.Unlock()
	switch {
	case code == -1:
		_ = p.cmd.Process.Kill()
		<-p.done
		return true
	case code == 1 && strings.Contains(out, "may still have it to do"): // it is looked at again
	case code != 0 && code != 4:
		if p.waitKilled() {
			return true // the worker died while it was asked
		}
		tr.t.Fatalf("reconcile %s: exit %d: %s", i.Receipt, code, out)
	case code == 0:
		tr.by++
		tr.lab.nodes.Release(i.Node, fleet.Any)
	}
	return false
}

// waitKilled tells whether the process was killed, giving the news a moment to come.
func (p *process) waitKilled() bool {
	select {
	case <-p.done:
	case <-time.After(time.Second):
	}
	_, killed := p.dead()
	return killed
}

// done tells whether an effect took place, as an operator with a shell would see it.
func (tr *trial) done(i oracle.Item) bool {
	tr.t.Helper()
	n := tr.lab.nodes.State().Nodes[i.Node]
	switch i.Action {
	case "restart":
		return n.Mode == fleet.Provisioned
	case "shutdown":
		return !n.Alive
	default:
		return tr.wrote(i.Node, i.Request)
	}
}

// wrote tells whether the node's configuration names the request, as an operator with a shell would look.
func (tr *trial) wrote(node, request string) bool {
	tr.t.Helper()
	b, err := os.ReadFile(filepath.Join(tr.lab.nodes.Dir(node), "server.conf"))
	if err != nil {
		if os.IsNotExist(err) {
			return false
		}
		tr.t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.Contains(line, request)
}

// recover looks at what a killed process left and lets the released program, undisturbed, do the rest; it must come to the end.
func (tr *trial) recover(prog string, env ...string) (state string) {
	tr.t.Helper()
	tr.prog, tr.env = prog, env
	tr.phase()
	state = canonical(tr.look())
	if tr.play() {
		tr.t.Fatal("the recovery was killed by nobody")
	}
	tr.judge()
	return state
}

// judge takes the last look and asks the oracle.
func (tr *trial) judge() oracle.Run {
	tr.t.Helper()
	tr.look()
	entries, err := tr.lab.nodes.Entries()
	if err != nil {
		tr.t.Fatal(err)
	}
	tr.mu.Lock()
	r := tr.run
	r.Nodes, r.Entries, r.Ended, r.Lives = tr.lab.names(tr.scene), entries, true, slices.Clone(tr.lives)
	if tr.mounted() {
		r.Trace = join(slices.Clone(tr.events), tr.traces[len(tr.traces)-1].Events())
	}
	tr.mu.Unlock()
	for _, v := range oracle.Judge(r) {
		tr.t.Errorf("CASE=%s %s", tr.t.Name(), v)
		add("violations", 1)
	}
	if tr.by > 0 {
		add("cases that a person decided", 1)
	}
	return r
}

// tell prints what is needed to understand a failure.
func (tr *trial) tell() {
	entries, _ := tr.lab.nodes.Entries()
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "%s %s boot %d %s %s %s %s %d %s\n", e.Time.Format("05.000"), e.Node, e.Boot, e.Phase, e.Mode, e.Action, e.RequestID, e.Status, e.Fault)
	}
	log, _ := os.ReadFile(tr.log)
	lines := strings.Split(string(log), "\n")
	tr.t.Logf("the nodes' logs:\n%sthe worker's log ends with:\n%s", b.String(), strings.Join(lines[max(0, len(lines)-60):], "\n"))
}

// canonical is a report without what differs from run to run: two states that look the same are the same.
func canonical(r oracle.Report) string {
	var parts []string
	for _, i := range r.Items {
		parts = append(parts, fmt.Sprintf("%s %s %s of epoch %d", i.Node, i.Action, i.Status, r.Journal.Epoch))
	}
	for _, n := range r.Nodes {
		parts = append(parts, fmt.Sprintf("%s %s %s", n.Node, n.State, n.Result))
	}
	for what, counts := range map[string]map[string]int{"job": r.Counts.Jobs, "result": r.Counts.Results, "receipt": r.Counts.Receipts} {
		for name, n := range counts {
			if n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s %s", n, what, name))
			}
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
