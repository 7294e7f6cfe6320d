package crashtests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"provctl/internal/fleet"
)

// backup makes one and wants it made.
func (s *site) backup(file string) {
	s.t.Helper()
	if out, code := s.provctl("journal", "backup", file, "--state-dir", s.files.StateDir); code != 0 {
		s.t.Fatalf("backup: exit %d: %s", code, out)
	}
}

// TestBackupUnderLoad makes backup after backup while a fleet is provisioned. Each one can be restored and is sound there, the work goes on,
// and nothing runs twice.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	const nodes = 12
	var hold firstNode // the last one of the fleet to be provisioned, so that there is a midst of the work
	s := newSite(t, options{
		nodes:  nodes,
		worker: fleet.WorkerOptions{Values: short(map[string]any{"workers": 4, "interval": "1s", "effect_ttl": "20s"})},
		hook:   holdFirst(&hold, "configure"),
	})
	dir := t.TempDir()
	s.start()
	s.await("the worker answers", func() bool { v, err := s.tryView(); return err == nil && v.Worker != nil })
	made := 0
	for during := 0; ; made++ {
		s.backup(filepath.Join(dir, fmt.Sprint(made)))
		n := s.fleet.State().Count(joined)
		if n > 0 && n < nodes {
			during++
			s.fleet.Release(hold.name(), "configure")
		}
		if n == nodes && made > 0 {
			if during == 0 {
				t.Error("no backup was made in the midst of the work")
			}
			break
		}
	}
	s.await("nothing is open", func() bool { return len(s.inspect().Items) == 0 })
	s.endsFine(s.signal(syscall.SIGTERM), 20*time.Second)
	s.noneTwice()
	for i := range made + 1 {
		at := filepath.Join(t.TempDir(), "state")
		if out, code := s.provctl("journal", "restore", filepath.Join(dir, fmt.Sprint(i)), "--state-dir", at, "--reason", "test"); code != 0 {
			t.Fatalf("restore backup %d: exit %d: %s", i, code, out)
		}
		if out, code := s.provctl("journal", "verify", "--state-dir", at); code != 0 {
			t.Errorf("backup %d: exit %d: %s", i, code, out)
		}
	}
	if left, err := filepath.Glob(filepath.Join(s.files.StateDir, ".journal-*")); err != nil || len(left) > 0 {
		t.Errorf("left over in the state directory: %v, %v", left, err)
	}
}

// TestRestoreAfterTheDiskIsGone takes the state directory away from a worker with a blocked node, restores a backup into a new one and goes
// on: what the backup knows to be unknown stays blocked, what was provisioned after it is not provisioned again, and the first effect on a
// new node comes one horizon after the restore.
func TestRestoreAfterTheDiskIsGone(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{nodes: 4, worker: fleet.WorkerOptions{Values: short(map[string]any{
		"workers": 4, "interval": "1s", "effect_ttl": "8s", "clock_skew": "2s", "evidence": "manual",
	})}})
	n := s.fleet.Nodes()
	blocked, before, after, later := n[0], n[1], n[2], n[3]
	s.fleet.SetFault(blocked, "configure", fleet.Fault{Kind: fleet.Drop}) // it runs, and nobody hears of it
	s.killNode(after)
	s.killNode(later)
	s.start()
	s.awaitFleet("one is provisioned", func(st fleet.State) bool { return joined(st.Nodes[before]) })
	s.awaitView("one is unknown, one is done", func(v view) bool {
		return v.Counts.Receipts["unknown"] == 1 && v.Counts.Results["provisioned"] == 1
	})
	file := filepath.Join(t.TempDir(), "backup.db")
	s.backup(file)
	s.startNode(after)
	s.awaitFleet("another one is provisioned after the backup", func(st fleet.State) bool { return joined(st.Nodes[after]) })
	s.kill()
	if err := os.RemoveAll(s.files.StateDir); err != nil {
		t.Fatal(err)
	}
	if code := s.exit(s.start()); code != 6 {
		t.Errorf("a worker without its journal exits with %d", code)
	}
	restored := time.Now()
	if out, code := s.provctl("journal", "restore", file, "--state-dir", s.files.StateDir, "--reason", "the disk is gone"); code != 0 {
		t.Fatalf("restore: exit %d: %s", code, out)
	}
	s.startNode(later)
	s.start()
	s.awaitFleet("the new node is provisioned", func(st fleet.State) bool { return joined(st.Nodes[later]) })
	s.firstAfter(later, restored.Add(10*time.Second))
	if i, ok := s.view().of(blocked); !ok || i.Status != "unknown" {
		t.Errorf("the blocked node is %+v after the restore", i)
	}
	s.ran(blocked, map[string]int{"configure": 1, "restart": 0})
	s.ran(before, map[string]int{"configure": 1, "restart": 1})
	s.ran(after, map[string]int{"configure": 1, "restart": 1})
	s.resolve(blocked, "applied")
	s.awaitFleet("the blocked node goes on", func(st fleet.State) bool { return joined(st.Nodes[blocked]) })
	s.await("nothing is open", func() bool { return len(s.inspect().Items) == 0 })
	s.noneTwice()
	if out, code := s.provctl("audit", "--state-dir", s.files.StateDir); code != 0 || !strings.Contains(out, "the disk is gone; so: restored from "+file) {
		t.Errorf("audit: exit %d: %s", code, out)
	}
}

// firstAfter checks by the node's log that no effect ran on it before a moment.
func (s *site) firstAfter(node string, moment time.Time) {
	s.t.Helper()
	entries, err := s.fleet.Log(node)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range entries {
		if e.Phase == fleet.PhaseBegin && e.Effect {
			if e.Time.Before(moment) {
				s.t.Errorf("%s ran on %s %s before the horizon", e.Action, node, moment.Sub(e.Time))
			}
			return
		}
	}
	s.t.Errorf("nothing ran on %s", node)
}

// TestBackupsAtOnce: those who ask at the same time get one each, or are told to come again; the worker goes on.
func TestBackupsAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{nodes: 1, worker: fleet.WorkerOptions{Values: short(nil)}})
	s.start()
	s.await("the worker answers", func() bool { v, err := s.tryView(); return err == nil && v.Worker != nil })
	dir := t.TempDir()
	var all sync.WaitGroup
	codes := make([]int, 6)
	for i := range codes {
		all.Go(func() {
			out, code := s.provctl("journal", "backup", filepath.Join(dir, fmt.Sprint(i)), "--state-dir", s.files.StateDir)
			if codes[i] = code; code != 0 && !strings.Contains(out, "a backup is being made already") {
				t.Errorf("exit %d: %s", code, out)
			}
		})
	}
	all.Wait()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	good := 0
	for _, code := range codes {
		if code == 0 {
			good++
		}
	}
	if good == 0 || len(files) != good {
		t.Errorf("%d were made, exit codes %v, files %v", good, codes, files)
	}
	s.awaitFleet("the node is provisioned", func(st fleet.State) bool { return st.Count(joined) == 1 })
	s.noneTwice()
}
