package metrics

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"provctl/journal"
	"provctl/receipt"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// used is metrics on which every hook was called once, and their state is this.
func used(site string, s State) *Metrics {
	m := New(site)
	m.Discovered("discovery")
	m.Discovered("event")
	m.Cycle(nil)
	m.Asked("choria_provision#configure", 250*time.Millisecond)
	m.Failed("choria_provision#configure")
	m.Helped(2*time.Second, false, nil)
	m.Refused(receipt.ErrFenced)
	m.Committed(journal.CommitStats{Operations: 3, Took: 4 * time.Millisecond})
	m.Watch(func() (State, error) { return s, nil })
	return m
}

// row is a metric as dashboards and docs/metrics.md know it.
func row(name, kind string, labels []string, help string) string {
	return fmt.Sprintf("| %s | %s | %s | %s |", name, strings.ToLower(kind), strings.Join(labels, ", "), help)
}

// rows are all metrics that are shown, the runtime's and the process's left out, in the order of their names.
func rows(t *testing.T, m *Metrics) []string {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "go_") || strings.HasPrefix(f.GetName(), "process_") {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		slices.SortFunc(labels, func(a, b string) int { return strings.Compare(order(a), order(b)) })
		all = append(all, row(f.GetName(), f.GetType().String(), labels, f.GetHelp()))
	}
	return all
}

// order puts the label that all have first.
func order(label string) string {
	if label == "site" {
		return ""
	}
	return label
}

func TestNamesTypesLabelsAndHelp(t *testing.T) {
	got := strings.Join(rows(t, used("s", State{})), "\n") + "\n"
	file := filepath.Join("testdata", "metrics.golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("dashboards and alerts know these names; if the change is meant, run with -update and change docs/metrics.md:\n%s\nwant\n%s", got, want)
	}
}

// TestTheContractOfTheExistingProvisioner repeats what its dashboards use, apart from the golden file, which can be rewritten.
func TestTheContractOfTheExistingProvisioner(t *testing.T) {
	shown := rows(t, used("s", State{}))
	for kind, names := range map[string][]string{
		"counter | site":      {"discovered", "event_discovered", "discover_cycles", "discovery_errors", "provision_errors", "provisioned", "helper_errors", "helper_shutdown_requests"},
		"gauge | site":        {"busy_workers", "work_queue_entries", "waiting_nodes", "paused"},
		"summary | site":      {"helper_time"},
		"summary | site, rpc": {"rpc_time"},
		"counter | site, rpc": {"rpc_errors"},
	} {
		for _, name := range names {
			start := "| choria_provisioner_" + name + " | " + kind + " |"
			if !slices.ContainsFunc(shown, func(r string) bool { return strings.HasPrefix(r, start) }) {
				t.Errorf("no metric is %q", start)
			}
		}
	}
}

func TestTheDocumentListsTheSame(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "| choria_provisioner_") || strings.HasPrefix(line, "| provctl_") {
			listed = append(listed, line)
		}
	}
	slices.Sort(listed)
	golden, err := os.ReadFile(filepath.Join("testdata", "metrics.golden"))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(golden)), "\n")
	slices.Sort(want)
	if !slices.Equal(listed, want) {
		t.Errorf("docs/metrics.md lists\n%s\nwant\n%s", strings.Join(listed, "\n"), strings.Join(want, "\n"))
	}
}

// value is a metric's one value, or the sum of what a summary or histogram observed. labels are all but site.
func value(t *testing.T, m *Metrics, name string, labels ...string) float64 {
	t.Helper()
	families, _ := m.registry.Gather() // what cannot be read is missing
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, one := range f.GetMetric() {
			var has []string
			for _, l := range one.GetLabel() {
				if l.GetName() != "site" {
					has = append(has, l.GetValue())
				}
			}
			if slices.Equal(has, labels) {
				return one.GetCounter().GetValue() + one.GetGauge().GetValue() + one.GetSummary().GetSampleSum() + one.GetHistogram().GetSampleSum()
			}
		}
	}
	return -1
}

func TestValues(t *testing.T) {
	now := time.Now()
	m := used("s", State{
		Epoch: 7, Busy: 2, Queued: 3, Parked: 1, Paused: true, Leading: true, Connected: true, Requeues: 9,
		Open: []receipt.Receipt{
			{Status: receipt.Pending, RequestTime: now.Add(-time.Hour)},
			{Status: receipt.Unknown, RequestTime: now.Add(-time.Minute)},
			{Status: receipt.Unknown, RequestTime: now.Add(-time.Second)},
		},
	})
	m.Cycle(errors.New("no broker"))
	m.Helped(time.Second, true, nil)
	m.Helped(time.Second, false, errors.New("exit 1"))
	for name, want := range map[string]float64{
		theirs + "discovered": 1, theirs + "event_discovered": 1, theirs + "discover_cycles": 2, theirs + "discovery_errors": 1,
		theirs + "busy_workers": 2, theirs + "work_queue_entries": 3, theirs + "waiting_nodes": 8, theirs + "paused": 1,
		theirs + "helper_time": 4, theirs + "helper_errors": 1, theirs + "helper_shutdown_requests": 1,
		ours + "receipts_open": 3, ours + "receipts_unknown": 2, ours + "requeues_total": 9, ours + "fence_refusals_total": 1,
		ours + "commit_seconds": 0.004, ours + "commit_changes": 3, ours + "epoch": 7, ours + "leading": 1, ours + "connected": 1,
	} {
		if got := value(t, m, name); got != want {
			t.Errorf("%s is %g, want %g", name, got, want)
		}
	}
	for name, want := range map[string]float64{theirs + "rpc_time": 0.25, theirs + "rpc_errors": 1} {
		if got := value(t, m, name, "choria_provision#configure"); got != want {
			t.Errorf("%s is %g, want %g", name, got, want)
		}
	}
	if age := value(t, m, ours+"oldest_unknown_age_seconds"); age < 60 || age > 120 {
		t.Errorf("the oldest unknown receipt is %g s old, want a minute", age)
	}
}

// TestOnlyProvisionedNodesCount: the existing provisioner counts shutdowns and refused ones too.
func TestOnlyProvisionedNodesCount(t *testing.T) {
	m := New("s")
	m.Committed(journal.CommitStats{Operations: 1, Moves: journal.Moves{Ended: receipt.Results()}})
	if got := value(t, m, theirs+"provisioned"); got != 1 {
		t.Errorf("provisioned is %g after one job ended in each way, want 1", got)
	}
	if got := value(t, m, theirs+"provision_errors"); got != 2 { // failed, exhausted
		t.Errorf("provision_errors is %g, want 2", got)
	}
	m.Committed(journal.CommitStats{Operations: 1, Moves: journal.Moves{Unknown: 3}})
	if got := value(t, m, theirs+"provision_errors"); got != 5 {
		t.Errorf("provision_errors is %g after three effects became unknown, want 5", got)
	}
}

// TestEveryWayToSettle goes through the receipt's transition table: each way is shown before it happened, and no other.
func TestEveryWayToSettle(t *testing.T) {
	m := New("s")
	shown := 0
	for _, e := range receipt.Events() {
		for _, from := range []receipt.Status{receipt.Pending, receipt.Unknown} {
			to, err := from.Apply(e)
			if err != nil || to.Open() || to == receipt.Finishing { // that is no outcome yet
				continue
			}
			by, label := "reply", "reply"
			switch {
			case from == receipt.Unknown && strings.HasPrefix(e.String(), "proved"):
				by, label = "evidence: late-reply", "evidence"
			case from == receipt.Unknown:
				by, label = "verdict", "verdict"
			}
			shown++
			if got := value(t, m, ours+"settled_total", label, to.String()); got != 0 {
				t.Errorf("%s, %s: shown as %g before it happened, want 0", label, to, got)
			}
			m.Committed(journal.CommitStats{Moves: journal.Moves{Settled: []journal.Settled{{By: by, Status: to}}}})
			if got := value(t, m, ours+"settled_total", label, to.String()); got != 1 {
				t.Errorf("%s, %s: %g, want 1", label, to, got)
			}
		}
	}
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == ours+"settled_total" && len(f.GetMetric()) != shown {
			t.Errorf("%d ways are shown, %d exist", len(f.GetMetric()), shown)
		}
	}
}

func TestSiteOfAnyBytes(t *testing.T) {
	m := used("a\xffb\n\"", State{})
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, l := range f.GetMetric()[0].GetLabel() {
			if l.GetName() == "site" && l.GetValue() != "a�b\n\"" {
				t.Errorf("%s has site %q", f.GetName(), l.GetValue())
			}
		}
	}
}
