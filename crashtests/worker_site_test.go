package crashtests

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"provctl/internal/fleet"
)

// Parallel sites mostly wait, so more of them run at a time than there are processors; -parallel still overrides it.
func init() {
	testing.Init()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
}

// view is more of the public report than report has.
type view struct {
	Worker *struct {
		PID                        int
		State, Gate                string
		Connected                  bool
		Lanes, Busy, Parked, Queue int
	}
	Counts struct{ Jobs, Results, Receipts map[string]int }
	Items  []struct {
		item
		Proposed *struct{ Verdict, Rule string }
	}
	Nodes []struct{ Node, State, Why, Result string }
}

func (s *site) view() view {
	s.t.Helper()
	var v view
	s.inspected(&v)
	return v
}

// tryView is view for moments in which the worker may die before it has answered.
func (s *site) tryView() (view, error) {
	var v view
	err := s.tryInspect(&v)
	return v, err
}

// awaitView waits until the public report says so and returns it.
func (s *site) awaitView(what string, is func(view) bool) view {
	s.t.Helper()
	var v view
	s.await(what, func() bool {
		v = s.view()
		return is(v)
	})
	return v
}

// out tells how a node is listed that is not taken: its state and the reason.
func (v view) out(node string) (state, why string) {
	for _, n := range v.Nodes {
		if n.Node == node {
			return n.State, n.Why + " " + n.Result
		}
	}
	return "", ""
}

// of is the open receipt of a node.
func (v view) of(node string) (item, bool) {
	for _, i := range v.Items {
		if i.Node == node {
			return i.item, true
		}
	}
	return item{}, false
}

// logLine is one line of the worker's log.
type logLine struct {
	Msg, Node, Request, Action string
	Nodes                      int
	Horizon                    string
	Time                       time.Time
}

// logMark is how long the worker's log is now.
func (s *site) logMark() int64 {
	st, err := os.Stat(s.log)
	if err != nil {
		return 0
	}
	return st.Size()
}

// logSince reads what the worker has logged since a mark.
func (s *site) logSince(mark int64) []logLine {
	s.t.Helper()
	b, err := os.ReadFile(s.log)
	if err != nil {
		s.t.Fatal(err)
	}
	var lines []logLine
	for text := range bytes.Lines(b[min(mark, int64(len(b))):]) {
		var l logLine
		if json.Unmarshal(text, &l) == nil {
			lines = append(lines, l)
		}
	}
	return lines
}

// awaitLog waits for a line of the worker's log after a mark.
func (s *site) awaitLog(mark int64, what string, is func(logLine) bool) {
	s.t.Helper()
	s.await(what, func() bool { return slices.ContainsFunc(s.logSince(mark), is) })
}

// logs is a condition on the message of a line.
func logs(message string) func(logLine) bool {
	return func(l logLine) bool { return strings.Contains(l.Msg, message) }
}

// reconfigure writes the worker's files anew for its next life.
func (s *site) reconfigure(o fleet.WorkerOptions) {
	s.t.Helper()
	files, err := s.fleet.WriteWorkerFiles(filepath.Dir(s.files.Config), o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.files = files
}

// wrapHelper puts a shell script before the fleet's helper; it may use $identity and run "answer" for the fleet's answer.
func (s *site) wrapHelper(script string) {
	s.t.Helper()
	inner := s.files.Helper + ".fleet"
	if err := os.Rename(s.files.Helper, inner); err != nil {
		s.t.Fatal(err)
	}
	text := "#!/bin/sh\nset -eu\ninput=$(cat)\n" +
		`identity=$(printf '%s' "$input" | sed -n 's/.*[{,]"identity":"\([^"]*\)".*/\1/p')` + "\n" +
		"answer() { printf '%s' \"$input\" | '" + inner + "'; }\n" + script
	if err := os.WriteFile(s.files.Helper, []byte(text), 0o700); err != nil {
		s.t.Fatal(err)
	}
}

// gateHelper lets the helper of one node wait until the test lets it go on, once. The result waits for the helper to have
// begun and returns what lets it go on.
func (s *site) gateHelper(node string) func() (release func()) {
	s.t.Helper()
	fifo := filepath.Join(filepath.Dir(s.files.Config), "gate")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.wrapHelper(fmt.Sprintf("if [ \"$identity\" = '%s' ] && [ ! -e '%s.open' ]; then cat '%s' >/dev/null; fi\nanswer\n", node, fifo, fifo))
	return func() func() {
		s.t.Helper()
		opened := make(chan *os.File, 1)
		go func() {
			f, err := os.OpenFile(fifo, os.O_WRONLY, 0) // returns when the helper reads
			if err == nil {
				opened <- f
			}
		}()
		select {
		case f := <-opened:
			return func() {
				if err := os.WriteFile(fifo+".open", nil, 0o600); err != nil {
					s.t.Error(err)
				}
				_ = f.Close()
			}
		case <-s.ctx.Done():
			s.t.Fatal("the helper was never run")
			return nil
		}
	}
}

// signal sends signals to the present life.
func (s *site) signal(signals ...syscall.Signal) *process {
	s.t.Helper()
	s.mu.Lock()
	p := s.worker
	s.mu.Unlock()
	for _, sig := range signals {
		if err := p.cmd.Process.Signal(sig); err != nil {
			s.t.Fatalf("send %s to the worker: %v", sig, err)
		}
	}
	return p
}

// endsFine waits for the end of a life and wants exit code 0 within a time.
func (s *site) endsFine(p *process, within time.Duration) {
	s.t.Helper()
	begun := time.Now()
	if code := s.exit(p); code != 0 {
		s.t.Errorf("the worker stopped with exit code %d", code)
	}
	if took := time.Since(begun); took > within {
		s.t.Errorf("stopping took %s, more than %s", took, within)
	}
}

// verdict gives one with the version that is shown.
func (s *site) verdict(i item, verdict string) (string, int) {
	s.t.Helper()
	return s.provctl("reconcile", i.Receipt, "--verdict", verdict, "--reason", "looked at the node", "--seen", fmt.Sprint(i.Version), "--state-dir", s.files.StateDir)
}

// resolve gives a verdict on a node's open receipt once its horizon is over, looking again if evidence changed it meanwhile.
func (s *site) resolve(node, verdict string) {
	s.t.Helper()
	s.await("the verdict on "+node+" is taken", func() bool {
		i, ok := s.view().of(node)
		if !ok || i.Status != "unknown" {
			s.t.Fatalf("%s has no unknown receipt to decide on: %+v", node, i)
		}
		if i.HorizonLeft > 0 {
			return false
		}
		return s.decide(i, verdict)
	})
}

// ran checks how often actions ran on a node.
func (s *site) ran(node string, want map[string]int) {
	s.t.Helper()
	for action, n := range want {
		if got := s.begins(node, action); got != n {
			s.t.Errorf("%s: %s ran %d times, want %d", node, action, got, n)
		}
	}
}

// stillIn tells whether the action waits for Release on the node.
func stillIn(st fleet.State, node, action string) bool {
	return slices.Contains(st.Nodes[node].Held, action)
}

// firstNode picks the node of the first call that fits; it is safe for use by several hooks at once.
type firstNode struct {
	mu   sync.Mutex
	node string
}

// take tells whether this is the very first call.
func (f *firstNode) take(node string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.node != "" {
		return false
	}
	f.node = node
	return true
}

// name is the node that was first; "" before.
func (f *firstNode) name() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.node
}

// holdFirst holds the action on the first node that gets it.
func holdFirst(hold *firstNode, action string) func(*site, fleet.Call) fleet.Fault {
	return func(_ *site, c fleet.Call) fleet.Fault {
		if c.Action == action && c.Phase == fleet.PhaseBegin && hold.take(c.Node) {
			return fleet.Fault{Kind: fleet.Hold}
		}
		return fleet.Fault{}
	}
}
