package crashtests

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"provctl/internal/fleet"
)

// TestProbeWithoutAWorker: with the worker dead, the inspector asks a blocked node and the broker itself. It shows and weighs what they say,
// says what gave no answer, and leaves the journal as it is.
func TestProbeWithoutAWorker(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{nodes: 1, worker: fleet.WorkerOptions{Values: short(nil)}})
	node := s.fleet.Nodes()[0]
	s.fleet.SetFault(node, "configure", fleet.Fault{Kind: fleet.Drop})
	s.start()
	s.awaitFleet("the configure has run", func(st fleet.State) bool { return st.Nodes[node].Ends["configure"] == 1 })
	s.kill()
	open, ok := s.view().of(node)
	if !ok || open.Action != "configure" {
		t.Fatalf("left open: %+v", open)
	}
	db := filepath.Join(s.files.StateDir, "journal.db")
	before, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	probe := func() (kinds, unanswered []string) {
		t.Helper()
		out, code := s.provctl("inspect", open.Receipt, "--probe", "--json", "--state-dir", s.files.StateDir,
			"--config", s.files.Config, "--choria-config", s.files.ChoriaConfig)
		var shown struct {
			Unanswered []string
			Items      []struct{ Evidence []struct{ Kind string } }
		}
		if err := json.Unmarshal([]byte(out), &shown); err != nil || code != 0 && code != 3 || len(shown.Items) != 1 {
			t.Fatalf("exit %d, %v: %s", code, err, out)
		}
		for _, e := range shown.Items[0].Evidence {
			kinds = append(kinds, e.Kind)
		}
		return kinds, shown.Unanswered
	}
	kinds, unanswered := probe()
	if !slices.Contains(kinds, "daemon_stats") || !slices.Contains(kinds, "connections") || len(unanswered) != 0 {
		t.Errorf("seen %v, unanswered %v", kinds, unanswered)
	}
	if err := s.fleet.KillNode(node); err != nil {
		t.Fatal(err)
	}
	kinds, unanswered = probe()
	if slices.Contains(kinds, "daemon_stats") || len(unanswered) != 1 || !strings.Contains(unanswered[0], "daemon_stats") {
		t.Errorf("of a dead node: seen %v, unanswered %v", kinds, unanswered)
	}
	after, err := os.ReadFile(db)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("a probe changed the journal: %v", err)
	}
	s.noneTwice()
}
