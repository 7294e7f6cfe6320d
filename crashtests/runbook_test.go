package crashtests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"provctl/internal/fleet"
)

// TestRunbook blocks nodes in every way that docs/runbook.md knows, types what it says to type, and wants what it promises.
func TestRunbook(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{nodes: 10, worker: fleet.WorkerOptions{Values: short(map[string]any{
		"workers": 10, "evidence": "manual", "effect_ttl": "8s", "interval": "1s", "max_unknown": 100,
	})}})
	r := newReader(t, s, "docs/runbook.md")
	n := s.fleet.Nodes()
	applied, notApplied, abandoned, finished, early, contradicted, mistaken, held := n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[9]
	for _, node := range []string{applied, finished, contradicted} {
		s.fleet.SetFault(node, "configure", fleet.Fault{Kind: fleet.Drop}) // it runs, and nobody hears of it
	}
	for _, node := range []string{notApplied, abandoned, early, mistaken, n[7], n[8]} {
		s.fleet.SetFault(node, "configure", fleet.Fault{Kind: fleet.Hold, Detached: true}) // it never runs
	}
	s.fleet.SetFault(held, "configure", fleet.Fault{Kind: fleet.Answer, Code: 1, Text: "Could not write something new"})
	s.start()
	s.awaitView("nine are unknown and one is held", func(v view) bool {
		return v.Counts.Receipts["unknown"] == 9 && v.Counts.Results["failed"] == 1
	})
	r.types("A node is held", 0, held) // while it is
	older := s.copied("journal.db")

	r.insists(`"The request can still be accepted"`, 0, early)
	s.awaitView("every horizon is over", func(v view) bool {
		for _, i := range v.Items {
			if i.HorizonLeft > 0 {
				return false
			}
		}
		return true
	})
	s.fleet.Release(fleet.Any, fleet.Any) // what was held back expired
	const blocked = "A node is blocked: an effect is unknown"
	if out := r.types(blocked, 0, applied); !strings.Contains(out, applied) || !strings.Contains(out, "--verdict") {
		t.Errorf("the runbook's look at a blocked node shows: %s", out)
	}
	r.insists(blocked, 1, applied)
	r.insists(blocked, 2, notApplied)
	r.insists(blocked, 3, abandoned)
	r.insists("Nobody can look at the node, and it was a configure", 0, finished)
	s.awaitView("the node has said what it did", func(v view) bool {
		i, ok := v.of(contradicted)
		return ok && i.Status == "unknown" && proposes(v, contradicted, "applied")
	})
	r.insists(`"Evidence contradicts this verdict"`, 0, contradicted)
	r.mistake(mistaken)
	if out := r.types("Many nodes are blocked", 0, ""); !strings.Contains(out, n[7]) || !strings.Contains(out, n[8]) {
		t.Errorf("many: %s", out)
	}
	r.types("Many nodes are blocked", 1, "")
	r.types("A node stays out: exhausted or abandoned", 0, abandoned)
	r.types("A node stays out: exhausted or abandoned", 1, abandoned)
	s.awaitFleet("what was decided goes on", func(st fleet.State) bool {
		for _, node := range []string{applied, notApplied, abandoned, finished, contradicted, held} {
			if !joined(st.Nodes[node]) {
				return false
			}
		}
		return true
	})
	for _, node := range []string{applied, finished} { // configured once, and restarted once
		s.ran(node, map[string]int{"configure": 1, "restart": 1})
	}
	r.types("", 0, "")
	r.types("Who decided what", 0, abandoned)
	r.lostJournal(older)
	r.book.all(t)
	r.onlyTwice(contradicted) // the operator insisted
}

// copied reads a file of the state directory while a worker may write it, and wants it as it was at one moment.
func (s *site) copied(name string) []byte {
	s.t.Helper()
	var last, now string
	s.await(name+" stays as it is for a moment", func() bool {
		last, now = now, read(s.t, filepath.Join(s.files.StateDir, name))
		return now == last
	})
	return []byte(now)
}

// mistake gives a verdict and takes it back.
func (r *reader) mistake(node string) {
	r.t.Helper()
	r.pause()
	r.resolve(node, "not-applied")
	r.insists("A verdict was wrong", 0, node)
	if state, why := r.view().out(node); state != "out" || !strings.Contains(why, "abandoned") {
		r.t.Errorf("%s is %q after its verdict was replaced: %s", node, state, why)
	}
	r.ran(node, map[string]int{"restart": 0})
}

// lostJournal puts an older journal in place, and goes on with it.
func (r *reader) lostJournal(older []byte) {
	r.t.Helper()
	const section = "The journal is damaged, lost or restored"
	if code := r.stop(); code != 0 {
		r.t.Fatalf("the worker stopped with exit code %d", code)
	}
	if out := r.types(section, 0, ""); !strings.Contains(out, "is sound") {
		r.t.Errorf("a sound journal: %s", out)
	}
	if st, err := os.Stat(filepath.Join(r.path, "journal.jsonl")); err != nil || st.Size() == 0 {
		r.t.Errorf("nothing was exported: %v", err)
	}
	if err := os.WriteFile(filepath.Join(r.files.StateDir, "journal.db"), older, 0o600); err != nil {
		r.t.Fatal(err)
	}
	if out, code := r.provctl("journal", "verify", "--state-dir", r.files.StateDir); code != 6 {
		r.t.Errorf("an older journal is verified: exit %d: %s", code, out)
	}
	if code := r.exit(r.start()); code != 6 {
		r.t.Errorf("a worker on an older journal exits with %d", code)
	}
	r.types(section, 1, "")
	mark := r.logMark()
	r.start()
	r.awaitLog(mark, "the worker waits", func(l logLine) bool { return strings.Contains(l.Msg, "waiting until no request of before can arrive") })
	r.awaitLog(mark, "it is ready", func(l logLine) bool { return l.Msg == "ready" })
	if out, code := r.provctl("audit", "--state-dir", r.files.StateDir); code != 0 || !strings.Contains(out, "accept") {
		r.t.Errorf("audit: exit %d: %s", code, out)
	}
}

// onlyTwice wants that nothing ran twice on any other node.
func (r *reader) onlyTwice(node string) {
	r.t.Helper()
	audit, err := r.fleet.Audit()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, twice := range audit.Twice {
		if twice.Node != node {
			r.t.Errorf("ran twice: %s", twice)
		}
	}
}

func proposes(v view, node, verdict string) bool {
	for _, i := range v.Items {
		if i.Node == node && i.Proposed != nil && i.Proposed.Verdict == verdict {
			return true
		}
	}
	return false
}
