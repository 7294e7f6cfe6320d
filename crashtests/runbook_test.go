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
	"testing"
	"time"

	"provctl/internal/fleet"
)

// runbook is docs/runbook.md: the commands of each section, block by block, and which of them were run.
type runbook struct {
	blocks map[string][][]string
	ran    map[string]bool
}

func readRunbook(t *testing.T) *runbook {
	t.Helper()
	b, err := os.ReadFile("../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	r := &runbook{blocks: map[string][][]string{}, ran: map[string]bool{}}
	section, inside := "", false
	for line := range strings.Lines(string(b)) {
		line = strings.TrimRight(line, "\n")
		switch title, isTitle := strings.CutPrefix(line, "## "); {
		case isTitle:
			section = title
		case line == "```sh":
			inside = true
			r.blocks[section] = append(r.blocks[section], nil)
		case line == "```":
			inside = false
		case inside:
			n := len(r.blocks[section]) - 1
			r.blocks[section][n] = append(r.blocks[section][n], line)
		}
	}
	return r
}

// all reports what was never typed.
func (r *runbook) all(t *testing.T) {
	t.Helper()
	for section, blocks := range r.blocks {
		for n := range blocks {
			if !r.ran[fmt.Sprint(section, n)] {
				t.Errorf("docs/runbook.md, %q, block %d: nobody has tried it: %q", section, n, blocks[n])
			}
		}
	}
}

// reader is an operator with the runbook open.
type reader struct {
	*site
	book *runbook
	path string // a directory with the program under its name
}

func newReader(t *testing.T, s *site) *reader {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(program, filepath.Join(dir, "provctl")); err != nil {
		t.Fatal(err)
	}
	return &reader{site: s, book: readRunbook(t), path: dir}
}

// types runs a block line by line, as a person does, and returns what was printed. A line of inspect may exit with 3.
func (r *reader) types(section string, block int, node string) string {
	r.t.Helper()
	out, failed := r.tries(section, block, node)
	if failed != "" {
		r.t.Fatalf("docs/runbook.md, %q, on %s: %s", section, node, failed)
	}
	return out
}

// tries is types for a block that may be refused; failed says how.
func (r *reader) tries(section string, block int, node string) (all, failed string) {
	r.t.Helper()
	blocks := r.book.blocks[section]
	if block >= len(blocks) {
		r.t.Fatalf("docs/runbook.md has no block %d under %q", block, section)
	}
	r.book.ran[fmt.Sprint(section, block)] = true
	for _, line := range blocks[block] {
		out, code := r.line(line, node)
		all += out
		if code != 0 && (code != 3 || !strings.Contains(line, "inspect")) {
			return all, fmt.Sprintf("%s: exit %d: %s", line, code, out)
		}
	}
	return all, ""
}

func (r *reader) line(line, node string) (string, int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-u", "-c", line)
	cmd.Dir = r.path
	cmd.Env = append(os.Environ(), "PATH="+r.path+":"+os.Getenv("PATH"), "PROVCTL_STATE_DIR="+r.files.StateDir, "NODE="+node)
	if v, err := r.tryView(); err == nil { // a damaged journal has no count
		cmd.Env = append(cmd.Env, fmt.Sprintf("COUNT=%d", len(v.Items)))
	}
	if id, version := r.last(node); id != "" {
		cmd.Env = append(cmd.Env, "RECEIPT="+id, fmt.Sprintf("SEEN=%d", version))
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.t.Fatalf("%s: %v", line, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// last is the node's newest receipt and its version, by the public output; empty if there is none.
func (r *reader) last(node string) (id string, version uint64) {
	r.t.Helper()
	if node == "" {
		return "", 0
	}
	if i, ok := r.view().of(node); ok {
		return i.Receipt, i.Version
	}
	out, _ := r.provctl("history", node, "--json", "--state-dir", r.files.StateDir)
	var told struct {
		Entries []struct{ Receipt string }
	}
	if json.Unmarshal([]byte(out), &told) != nil {
		return "", 0
	}
	for _, e := range told.Entries {
		if e.Receipt != "" {
			id = e.Receipt
		}
	}
	if id == "" {
		return "", 0
	}
	out, code := r.provctl("inspect", id, "--json", "--state-dir", r.files.StateDir)
	var shown struct {
		Asked *struct{ Version uint64 }
		Items []struct{ Version uint64 }
	}
	switch err := json.Unmarshal([]byte(out), &shown); {
	case err != nil:
		r.t.Fatalf("inspect %s: exit %d: %v", id, code, err)
	case shown.Asked != nil:
		return id, shown.Asked.Version
	case len(shown.Items) == 1:
		return id, shown.Items[0].Version
	}
	return id, 0
}

// insists types a block until it is not refused for now: evidence of the node may still be on its way.
func (r *reader) insists(section string, block int, node string) {
	r.t.Helper()
	r.await(section+" is done on "+node, func() bool {
		_, failed := r.tries(section, block, node)
		if failed != "" && !strings.Contains(failed, "may still have it to do") && !strings.Contains(failed, "changed since it was seen") {
			r.t.Fatalf("docs/runbook.md, %q, on %s: %s", section, node, failed)
		}
		return failed == ""
	})
}

// TestRunbook blocks nodes in every way that docs/runbook.md knows, types what it says to type, and wants what it promises.
func TestRunbook(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{nodes: 10, worker: fleet.WorkerOptions{Values: short(map[string]any{
		"workers": 10, "evidence": "manual", "effect_ttl": "8s", "interval": "1s", "max_unknown": 100,
	})}})
	r := newReader(t, s)
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
	older, err := os.ReadFile(filepath.Join(s.files.StateDir, "journal.db"))
	if err != nil {
		t.Fatal(err)
	}

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
	r.types("A node is held", 0, held)
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

// mistake gives a verdict and takes it back.
func (r *reader) mistake(node string) {
	r.t.Helper()
	if out, code := r.provctl("pause", "--reason", "test", "--state-dir", r.files.StateDir); code != 0 {
		r.t.Fatalf("pause: exit %d: %s", code, out)
	}
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
