package crashtests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tooth is a fault that is built into the program on purpose. The named test must see it.
type tooth struct {
	name     string
	file     string // of the program, from the module's root
	old, now string // old must be there exactly once, else the tooth has to be mended
	test     string // a case of a sweep, a sweep, or "./package Test" for a test of the program's own
	says     string // in what the test prints
}

var teeth = []tooth{
	{
		"the journal is not synced", "journal/file.go",
		"	db.AllocSize = growSize\n", "	db.AllocSize, db.NoSync = growSize, true\n",
		"TestSweep1Disk/event-1", "invariant 1",
	},
	{
		"an effect before its receipt is durable", "journal/effect.go",
		"	err := j.do(ctx, func(s *stage) (err error) {\n		r, err = s.begin(in)\n		return err\n	})\n",
		"	j.db.NoSync = true\n	err := j.do(ctx, func(s *stage) (err error) {\n		r, err = s.begin(in)\n		return err\n	})\n	j.db.NoSync = false\n",
		"TestSweep1Disk/event-1", "invariant 1",
	},
	{
		"an open receipt is queued again blindly", "journal/recover.go",
		"	if err := s.settle(&r, &n, receipt.Lost, why, \"\"); err != nil {\n		return Recovered{}, err\n	}\n	err = s.step(&job, &n, receipt.Block, Next{Why: why})\n",
		"	if err := s.settle(&r, &n, receipt.NeverSent, why, \"\"); err != nil {\n		return Recovered{}, err\n	}\n	err = s.step(&job, &n, receipt.Requeue, Next{Why: why})\n",
		"TestSweep1Points/alone/reply-read#2", "invariant 3",
	},
	{
		"the directory is not synced", "journal/init.go",
		"	if err := syncDir(dir); err != nil {\n		return Info{}, fmt.Errorf(\"init journal: %w\", err)\n	}\n	return m.info", "	return m.info",
		"TestSweep3PowerLoss", "CASE=",
	},
	{
		"the lock's file is not compared", "fence/lock.go",
		"	if !os.SameFile(held, there) || links(held) == 0 {\n", "	if held == nil || there == nil {\n",
		"TestSweep6Stale/begun#2/lock-deleted/early", "the stale worker",
	},
	{
		"a worker that lost its lock goes on asking", "cmd/provctl/run_locked.go",
		"	if err := r.lock.Check(); err != nil {\n		return err\n	}\n	return r.journal.Current()\n", "	return nil\n",
		"TestSweep6Stale/fence-passed#2/directory-copied/late", "the stale worker goes on",
	},
	{
		"an outcome is settled whatever the epoch", "journal/effect.go",
		"	if r.Epoch != s.term {\n		return r, fmt.Errorf(\"%w: it is of epoch %d, this worker is of %d\", receipt.ErrFenced, r.Epoch, s.term)\n	}\n	job, n, err := s.around(r)\n",
		"	job, n, err := s.around(r)\n",
		"./journal TestConformance/settle_is_refused", "settle.go",
	},
	{
		"another try after a lost reply", "journal/effect.go",
		"	s.next()\n	if st.Key != nil {\n",
		"	if st.Event == receipt.Lost {\n		st.Event, st.Next = receipt.NeverSent, Next{Event: receipt.Requeue, Why: st.Why}\n	}\n	s.next()\n	if st.Key != nil {\n",
		"TestSweep8Wire/reply-empty/configure", "invariant 3",
	},
	{
		"a verdict before the horizon", "journal/decide.go",
		"	case !r.Horizon.Passed(now):\n", "	case false:\n",
		"TestSweep8Wire/verdict-at-once/configure", "before the horizon was taken",
	},
}

// TestTeeth builds each fault into the program and wants the suite to see it: a suite that stays green then proves nothing.
func TestTeeth(t *testing.T) {
	t.Parallel()
	if !mine(t) || !full() && os.Getenv(caseEnv) == "" {
		return
	}
	var bit []string
	for i, th := range teeth {
		name := strings.ReplaceAll(th.name, " ", "-")
		if !wanted(t.Name() + "/" + name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if th.bites(t, i) {
				bit = append(bit, th.name)
			}
		})
	}
	slices.Sort(bit)
	t.Logf("seen: %s", strings.Join(bit, "; "))
	add("teeth that bit", len(bit))
	add("teeth", len(teeth))
}

// TestTeethFit: every fault still has the place in the program that it changes, so that the quick tier sees when one no longer does.
func TestTeethFit(t *testing.T) {
	for _, th := range teeth {
		th.overlay(t)
	}
}

// bites builds the fault and runs the test that must fail on it.
func (th tooth) bites(t *testing.T, n int) bool {
	t.Helper()
	overlay := th.overlay(t)
	var cmd *exec.Cmd
	if pkg, test, own := strings.Cut(th.test, " "); own {
		cmd = exec.CommandContext(t.Context(), "go", "test", "-count=1", "-overlay", overlay, "-run", test, pkg)
		cmd.Dir = ".."
	} else {
		cmd = th.sweep(t, overlay, n)
	}
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		t.Errorf("CASE=%s %s stays green although in %s %s", t.Name(), th.test, th.file, th.name)
	case !strings.Contains(string(out), th.says):
		t.Errorf("CASE=%s %s fails, but not for the fault: it does not say %q:\n%.3000s", t.Name(), th.test, th.says, out)
	default:
		t.Logf("%s turned %s red", th.name, th.test)
		return true
	}
	return false
}

// sweep is a run of this very test program against the faulty one.
func (th tooth) sweep(t *testing.T, overlay string, n int) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	faulty := filepath.Join(t.TempDir(), fmt.Sprintf("provctl-%d", n))
	// With its crash points it is the same program otherwise.
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "crashpoints", "-overlay", overlay, "-o", faulty, "provctl/cmd/provctl")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the faulty program: %v\n%s", err, out)
	}
	test, _, one := strings.Cut(th.test, "/")
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^"+test+"$", "-test.timeout", "4m")
	cmd.Env = append(os.Environ(), programEnv+"="+faulty, pointedEnv+"="+faulty, tierEnv+"=", summaryEnv+"=", caseEnv+"=")
	if one {
		cmd.Env = append(cmd.Env, caseEnv+"="+th.test)
	}
	return cmd
}

// overlay writes the changed file and what tells the compiler to take it.
func (th tooth) overlay(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", th.file))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if k := strings.Count(string(b), th.old); k != 1 {
		t.Fatalf("CASE=%s %s holds the text to be changed %d times, not once: mend the tooth in teeth_test.go\n%s", t.Name(), th.file, k, th.old)
	}
	dir := t.TempDir()
	changed := filepath.Join(dir, filepath.Base(th.file))
	text, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err == nil {
		err = os.WriteFile(changed, []byte(strings.Replace(string(b), th.old, th.now, 1)), 0o600)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err == nil {
		err = os.WriteFile(overlay, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return overlay
}
