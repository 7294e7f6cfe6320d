package crashtests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"provctl/internal/fleet"
)

// TestJournalManual types every command of docs/journal.md: a backup while the worker works, a journal that is destroyed and restored, and one
// that moves to another state directory.
func TestJournalManual(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{nodes: 2, worker: fleet.WorkerOptions{Values: short(nil)}})
	r := newReader(t, s, "docs/journal.md")
	const losing, moving = "Losing and restoring it", "Moving to another host"
	s.killNode(s.fleet.Nodes()[1])
	s.start()
	s.awaitView("one is provisioned", func(v view) bool { return v.Counts.Results["provisioned"] == 1 })
	if out := r.types("Backing it up", 0, ""); !strings.Contains(out, "provctl.db: journal ") {
		t.Errorf("backup: %s", out)
	}
	if code := s.stop(); code != 0 {
		t.Fatalf("the worker stopped with exit code %d", code)
	}
	if out := r.types("", 0, ""); !strings.Contains(out, "is sound") {
		t.Errorf("verify: %s", out)
	}
	r.types(losing, 0, "")
	if st, err := os.Stat(filepath.Join(r.path, "journal.jsonl")); err != nil || st.Size() == 0 {
		t.Errorf("nothing was exported: %v", err)
	}
	cut(t, filepath.Join(s.files.StateDir, "journal.db"), 2)
	if code := s.exit(s.start()); code != 6 {
		t.Errorf("a worker on a damaged journal exits with %d", code)
	}
	if out := r.types(losing, 1, ""); !strings.Contains(out, "the former journal is ") {
		t.Errorf("restore: %s", out)
	}
	if out := r.types(losing, 2, ""); !strings.Contains(out, "the disk broke, the backup is of 02:00; so: restored from") {
		t.Errorf("audit: %s", out)
	}
	r.types(moving, 0, "")
	if err := os.Rename(s.files.StateDir, s.files.StateDir+".old"); err != nil {
		t.Fatal(err)
	}
	r.types(moving, 1, "")
	mark := s.logMark()
	s.start()
	s.awaitLog(mark, "the worker waits", logs("waiting until no request of before can arrive"))
	s.startNode(s.fleet.Nodes()[1])
	s.awaitFleet("the other node is provisioned", func(st fleet.State) bool { return st.Count(joined) == 2 })
	s.noneTwice()
	r.book.all(t)
}
