package crashtests

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"provctl/internal/fleet"
)

// sabotage is something done to the state directory of a worker at work.
type sabotage struct {
	name   string
	at     boundary // when the node has run this, and the worker does not know yet
	do     func(t *testing.T, dir string)
	code   int      // the worker's exit code
	words  []string // of its last words
	after  int      // exit code of the next start; 0: it comes up
	remedy string   // what the next start says
}

var sabotages = []sabotage{
	{"directory deleted", boundary{"jwt", fleet.PhaseEnd}, func(t *testing.T, dir string) {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}, 1, []string{`worker\.lock was removed while held`}, 6, "provctl init"},
	{"journal deleted", boundary{"jwt", fleet.PhaseEnd}, func(t *testing.T, dir string) {
		remove(t, filepath.Join(dir, "journal.db"))
	}, 1, []string{"journal", "was removed while open"}, 6, "restore it with its marker"},
	{"marker deleted", boundary{"jwt", fleet.PhaseEnd}, func(t *testing.T, dir string) {
		remove(t, filepath.Join(dir, "journal.marker"))
	}, 6, []string{`journal\.marker`}, 6, "restore journal and marker together"},
	{"journal replaced by a copy", boundary{"gen25519", fleet.PhaseEnd}, func(t *testing.T, dir string) {
		path := filepath.Join(dir, "journal.db")
		write(t, path+".copy", read(t, path))
		rename(t, path+".copy", path)
	}, 1, []string{"journal", "was replaced while open", "start again"}, 6, "marker"},
	{"lock deleted", boundary{"jwt", fleet.PhaseEnd}, func(t *testing.T, dir string) {
		remove(t, filepath.Join(dir, "worker.lock"))
	}, 1, []string{`worker\.lock was removed while held`}, 0, ""},
	{"lock replaced", boundary{"gen25519", fleet.PhaseEnd}, func(t *testing.T, dir string) {
		path := filepath.Join(dir, "worker.lock")
		write(t, path+".new", "")
		rename(t, path+".new", path)
	}, 1, []string{`worker\.lock was replaced while held`, "start again"}, 0, ""},
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Error(err)
	}
}

// TestStateTakenFromARunningWorker takes away or replaces what makes a process the worker, in the middle of a node's cycle. The
// worker notices before its next effect, sends nothing more and says why.
func TestStateTakenFromARunningWorker(t *testing.T) {
	t.Parallel()
	var now atomic.Pointer[sabotage]
	s := newSite(t, options{nodes: 1, worker: fleet.WorkerOptions{Values: short(nil)}, hook: func(s *site, c fleet.Call) fleet.Fault {
		if b := now.Load(); b != nil && b.at == (boundary{c.Action, c.Phase}) && now.CompareAndSwap(b, nil) {
			b.do(t, s.files.StateDir)
		}
		return fleet.Fault{}
	}})
	node := s.fleet.Nodes()[0]
	for i, b := range sabotages {
		files, err := s.fleet.WriteWorkerFiles(t.TempDir(), fleet.WorkerOptions{Values: short(nil)})
		if err != nil {
			t.Fatal(err)
		}
		s.files, s.log = files, filepath.Join(t.TempDir(), "worker.log")
		if out, code := s.provctl("init", "--state-dir", s.files.StateDir); code != 0 {
			t.Fatal(out)
		}
		now.Store(&sabotages[i])
		keys := s.begins(node, "gen25519")
		code := s.exit(s.start())
		if now.Load() != nil {
			t.Fatalf("%s: the worker ended too early: %s", b.name, s.tail(20))
		}
		last := s.tail(1)
		says(t, last, code, b.code, append(b.words, "the worker gave up, nothing was sent after this")...)
		if made := s.begins(node, "gen25519") - keys; b.at.action == "jwt" && made != 0 || made > 1 || s.begins(node, "configure") != 0 {
			t.Errorf("%s: an effect was sent after it: %s", b.name, s.fleet.State())
		}
		whole(t, b.name, read(t, s.log))
		s.silent(t, b.name, read(t, s.log))
		if b.after != 0 {
			out, code := refused(t, "--config", s.files.Config, "--choria-config", s.files.ChoriaConfig)
			says(t, out, code, b.after, b.remedy)
		}
	}
	// The last one left the journal whole: the next worker goes on where it ended.
	s.start()
	s.awaitFleet("the node is provisioned", func(st fleet.State) bool { return st.Count(joined) == 1 })
	s.await("the job has ended", func() bool { return s.inspect().Counts.Results["provisioned"] == 1 })
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.noneTwice()
	s.discreet()
}
