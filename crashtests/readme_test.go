package crashtests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"provctl/internal/fleet"
)

// TestReadme types every command of README.md that TestSweep9FirstTenMinutes does not, on real servers, and wants what it promises.
func TestReadme(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{nodes: 7, worker: fleet.WorkerOptions{Values: short(map[string]any{
		"workers": 7, "evidence": "manual", "effect_ttl": "6s", "interval": "1s", "max_unknown": 100,
	})}})
	r := newReader(t, s, "README.md")
	n := s.fleet.Nodes()
	applied, finished, notApplied, abandoned, held := n[0], n[1], n[2], n[3], n[4]
	for _, node := range []string{applied, finished} {
		s.fleet.SetFault(node, "configure", fleet.Fault{Kind: fleet.Drop}) // it runs, and nobody hears of it
	}
	for _, node := range []string{notApplied, abandoned} {
		s.fleet.SetFault(node, "configure", fleet.Fault{Kind: fleet.Hold, Detached: true}) // it never runs
	}
	s.fleet.SetFault(held, "configure", fleet.Fault{Kind: fleet.Answer, Code: 1, Text: "Could not write"})
	r.byMake("Try it", 0)
	r.elsewhere("Install", 0)
	r.elsewhere("Install", 1)
	r.samples("Install", 2)
	r.runs("Install", 3)
	s.awaitView("four are unknown, and one is held", func(v view) bool {
		return v.Counts.Receipts["unknown"] == 4 && v.Counts.Results["failed"] == 1
	})
	const blocked = "When a node is blocked"
	r.types(blocked, 7, held) // while it is held
	s.awaitView("every horizon is over", func(v view) bool {
		for _, i := range v.Items {
			if i.HorizonLeft > 0 {
				return false
			}
		}
		return true
	})
	s.fleet.Release(fleet.Any, fleet.Any) // what was held back expired

	if out := r.types(blocked, 0, ""); !strings.Contains(out, applied) {
		t.Errorf("inspect shows %s", out)
	}
	r.insists(blocked, 1, applied)
	r.insists(blocked, 4, finished)
	s.awaitView("two are left", func(v view) bool { return len(v.Items) == 2 })
	r.insists(blocked, 5, "")
	r.insists(blocked, 2, notApplied)
	r.insists(blocked, 3, abandoned)
	r.types(blocked, 6, abandoned)
	s.awaitFleet("all go on", func(st fleet.State) bool { return st.Count(joined) == len(n) })
	s.awaitView("nothing is open", func(v view) bool { return len(v.Items) == 0 && v.Worker != nil && v.Worker.Busy == 0 })
	p := s.worker
	out := r.types("Use it", 0, "")
	if code := s.exit(p); code != 75 || !strings.Contains(out, "resumed") {
		t.Errorf("exit %d; it said %s", code, out)
	}
	if st, err := os.Stat(filepath.Join(r.path, "provctl.db")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the backup: %v, %v", st, err)
	}
	r.book.all(t)
	for _, path := range []string{"docs/configuration.md", "docs/doctor.md"} {
		r.book = readManual(t, path)
		r.types("", 0, "")
		r.book.all(t)
	}
	s.noneTwice()
}

// TestCrashTestingManual: .ci/run does what docs/crash-testing.md tells to type, and the case that it replays is one.
func TestCrashTestingManual(t *testing.T) {
	r := &reader{site: &site{t: t}, book: readManual(t, "docs/crash-testing.md")}
	r.byMake("", 0)
	const section = "To replay a case"
	r.elsewhere(section, 0)
	line := r.book.blocks[section][0][0]
	out, err := exec.Command("sh", "-c", "cd .. && "+strings.Replace(line, "make", "make -n", 1)).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "-run '^TestSweep8Wire$'") {
		t.Errorf("%s: %v: %s", line, err, out)
	}
	_, name, _ := strings.Cut(line, "CASE=TestSweep8Wire/")
	if !slices.ContainsFunc(wireCases(false), func(c *wireCase) bool { return c.id() == name }) {
		t.Errorf("%s: there is no case %q", line, name)
	}
	r.book.all(t)
}

// byMake marks a block whose every line .ci/run runs as it stands.
func (r *reader) byMake(section string, block int) {
	r.t.Helper()
	ci, err := os.ReadFile("../.ci/run")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, line := range r.book.blocks[section][block] {
		command, _, _ := strings.Cut(line, "#")
		if command = strings.TrimSpace(command); !strings.Contains(string(ci), "\n"+command+"\n") {
			r.t.Errorf("%s tells to type %q, which .ci/run does not", r.book.path, command)
		}
	}
	r.elsewhere(section, block)
}

// elsewhere marks a block that another test types.
func (r *reader) elsewhere(section string, block int) {
	r.book.ran[fmt.Sprint(section, block)] = true
}

// samples prints the sample files and has them checked: as they come they are refused.
func (r *reader) samples(section string, block int) {
	r.t.Helper()
	out, failed := r.tries(section, block, "")
	if !strings.Contains(failed, "exit 78") || !strings.Contains(out, "helper") {
		r.t.Errorf("the samples are taken as they come: %s %s", out, failed)
	}
	for _, name := range []string{"provctl.yaml", "choria.conf"} {
		if b, err := os.ReadFile(filepath.Join(r.path, name)); err != nil || !strings.Contains(string(b), "FILL IN") {
			r.t.Errorf("%s: %v", name, err)
		}
	}
}

// runs starts the worker with the very line of a block and waits until it is ready, and once more as the site does, whose log is read.
func (r *reader) runs(section string, block int) {
	r.t.Helper()
	r.elsewhere(section, block)
	line := r.book.blocks[section][block][0]
	cmd := exec.Command("sh", "-u", "-c", "exec "+r.places.Replace(line))
	cmd.Env = append(os.Environ(), "PATH="+r.path+":"+os.Getenv("PATH"))
	var log strings.Builder
	cmd.Stderr = &log
	r.pause() // nothing is to happen in this life
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.awaitView("the worker runs", func(v view) bool { return v.Worker != nil && v.Worker.State == "running" })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		r.t.Errorf("%s: %v: %s", line, err, &log)
	}
	if out, code := r.provctl("resume", "--state-dir", r.files.StateDir); code != 0 {
		r.t.Fatalf("resume: exit %d: %s", code, out)
	}
	r.start()
}

func (r *reader) pause() {
	r.t.Helper()
	if out, code := r.provctl("pause", "--reason", "test", "--state-dir", r.files.StateDir); code != 0 {
		r.t.Fatalf("pause: exit %d: %s", code, out)
	}
}

// TestManualsAreTyped wants of every command in a document that a test types it: a block of commands is marked sh, and the document is in
// the table with the test that goes through it.
func TestManualsAreTyped(t *testing.T) {
	typed := map[string]string{
		"README.md":             "TestReadme",
		"docs/configuration.md": "TestReadme",
		"docs/crash-testing.md": "TestCrashTestingManual",
		"docs/doctor.md":        "TestReadme",
		"docs/journal.md":       "TestJournalManual",
		"docs/packages.md":      "TestSweep9FirstTenMinutes",
		"docs/runbook.md":       "TestRunbook",
		"docs/security.md":      "TestSweep9FirstTenMinutes",
		"docs/service.md":       "TestSweep9FirstTenMinutes",
	}
	var sources strings.Builder
	tests, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range tests {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sources.Write(b)
	}
	documents, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(documents, "../README.md") {
		name := strings.TrimPrefix(path, "../")
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		language, inside := "", false
		for i, line := range strings.Split(string(b), "\n") {
			if mark, ok := strings.CutPrefix(line, "```"); ok {
				language, inside = mark, !inside
				continue
			}
			word, _, _ := strings.Cut(line, " ")
			switch {
			case !inside:
			case language == "sh":
				if test := typed[name]; test == "" || !strings.Contains(sources.String(), "func "+test+"(t *testing.T)") {
					t.Errorf("%s:%d: no test types this: %s", name, i+1, line)
				}
			case word == "provctl" || word == "make" || word == "systemctl":
				t.Errorf("%s:%d: a command in a block that is not marked sh, so that no test types it: %s", name, i+1, line)
			}
		}
	}
}
