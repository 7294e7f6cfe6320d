package inspect_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"provctl/inspect"
	"provctl/inspect/inspecttest"
	"provctl/journal"
	"provctl/receipt"
)

// fits validates what is written as JSON against a schema of docs/.
func fits(t *testing.T, schema, written string) {
	t.Helper()
	s, err := jsonschema.Compile(filepath.Join("..", "docs", schema))
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(strings.NewReader(written))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(v); err != nil {
		t.Errorf("does not fit %s: %#v\n%s", schema, err, written)
	}
	v.(map[string]any)["extra"] = 1
	if err := s.Validate(v); err == nil {
		t.Errorf("%s accepts an unknown field", schema)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	var b bytes.Buffer
	if err := inspect.WriteJSON(&b, v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// lives makes a node with a past of everything that a timeline tells.
func lives(t *testing.T) *inspecttest.Book {
	t.Helper()
	b := inspecttest.New(t, t.TempDir(), moment)
	const n = "n1.example.net"
	r := b.Decided(n, receipt.Configure, receipt.VerdictAbandon)
	b.See(r.ID, receipt.Evidence{Kind: receipt.SawEvent, Source: "lifecycle event", Event: &receipt.EventSeen{Type: "provisioned", Component: "provision_mode_server"}})
	if _, err := b.AdmitByHand(t.Context(), n, "bob", "repaired by hand\x1b[2J"); err != nil {
		t.Fatal(err)
	}
	b.Done("n2.example.net")
	b.Unknown("n3.example.net", receipt.Restart, time.Hour)
	b.Out("n4.example.net")
	b.HeldFor("n5.example.net", time.Hour)
	b.Claimed("n6.example.net")
	return b
}

func timeline(t *testing.T, b *inspecttest.Book, node receipt.NodeID) inspect.Timeline {
	t.Helper()
	s, err := b.Story(node)
	if err != nil {
		t.Fatal(err)
	}
	return inspect.MakeTimeline(s, node, inspect.FromWorker, moment, shownDir)
}

func TestTimeline(t *testing.T) {
	b := lives(t)
	var out bytes.Buffer
	for _, n := range []receipt.NodeID{"n1.example.net", "n2.example.net", "n3.example.net", "n4.example.net", "n6.example.net"} {
		tl := timeline(t, b, n)
		if err := inspect.WriteTimeline(&out, tl, inspect.Style{}); err != nil {
			t.Fatal(err)
		}
		fits(t, "timeline-schema.json", asJSON(t, tl))
		if !slices.IsSortedFunc(tl.Entries, func(a, b inspect.Entry) int { return int(a.Seq) - int(b.Seq) }) {
			t.Errorf("%s is not told in order", n)
		}
		for _, e := range tl.Entries {
			if strings.ContainsRune(asJSON(t, e), 0x1b) {
				t.Errorf("a terminal obeys %q", e.Text)
			}
		}
	}
	golden(t, "timelines.golden", out.String())
	if strings.ContainsRune(out.String(), 0x1b) {
		t.Error("a terminal obeys the timeline")
	}
}

func TestAuditOutput(t *testing.T) {
	b := lives(t)
	if _, err := b.SetPause(t.Context(), "carol", "the storage is moved"); err != nil {
		t.Fatal(err)
	}
	acts, err := b.Audit(0)
	if err != nil {
		t.Fatal(err)
	}
	var lines, all bytes.Buffer
	if err := inspect.WriteAuditJSON(&lines, acts); err != nil {
		t.Fatal(err)
	}
	count := 0
	for line := range strings.Lines(lines.String()) {
		fits(t, "audit-schema.json", line)
		count++
	}
	if count != 3 || strings.ContainsRune(lines.String(), 0x1b) {
		t.Errorf("three acts are %d lines:\n%s", count, lines.String())
	}
	if err := inspect.WriteAudit(&all, acts, inspect.Style{}); err != nil {
		t.Fatal(err)
	}
	if err := inspect.WriteAudit(&all, acts, inspect.Style{Width: 80}); err != nil {
		t.Fatal(err)
	}
	if err := inspect.WriteAudit(&all, nil, inspect.Style{}); err != nil {
		t.Fatal(err)
	}
	golden(t, "audit.golden", all.String())
	for _, c := range []struct {
		text inspect.FilterText
		want int
	}{
		{inspect.FilterText{}, 3},
		{inspect.FilterText{Node: "n1*"}, 2},
		{inspect.FilterText{Node: "*"}, 2}, // a pause is on no node
		{inspect.FilterText{Node: "n2*"}, 0},
		{inspect.FilterText{Effects: []string{"configure"}}, 1},
		{inspect.FilterText{Since: "1s"}, 3},
		{inspect.FilterText{Since: "2026-03-04T05:06:08Z"}, 0},
	} {
		f, err := inspect.ParseFilter(c.text, moment)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Acts(acts); len(got) != c.want {
			t.Errorf("%+v chooses %d acts, want %d", c.text, len(got), c.want)
		}
	}
}

func TestNodesOutput(t *testing.T) {
	b := lives(t)
	read := func(states ...string) inspect.Nodes {
		t.Helper()
		f, err := inspect.ParseNodesFilter(inspect.FilterText{States: states})
		if err != nil {
			t.Fatal(err)
		}
		n, err := (inspect.Reader{Dir: b.Dir}).Nodes(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		n.Taken = moment
		return n
	}
	stop := b.Serve()
	through := read()
	stop()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	alone := read()
	if through.Source != inspect.FromWorker || alone.Source != inspect.FromJournal {
		t.Errorf("sources are %s and %s", through.Source, alone.Source)
	}
	through.Source = alone.Source
	if asJSON(t, through) != asJSON(t, alone) {
		t.Error("the worker lists other nodes than the journal")
	}
	fits(t, "nodes-schema.json", asJSON(t, alone))
	fits(t, "nodes-schema.json", asJSON(t, read(inspect.NodeStates()...)))
	var out bytes.Buffer
	for _, n := range []inspect.Nodes{alone, read("done"), read("blocked", "held")} {
		for i := range n.Nodes { // by the real clock
			n.Nodes[i].Since, n.Nodes[i].Until = time.Time{}, time.Time{}
		}
		if err := inspect.WriteNodes(&out, n, inspect.Style{}); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "nodes.golden", out.String())
}

func TestReportOfADamagedJournal(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), time.Now())
	b.Unknown("n1.example.net", receipt.Configure, time.Hour)
	_ = b.Close()
	other := inspecttest.New(t, t.TempDir(), time.Now())
	_ = other.Close()
	marker, err := os.ReadFile(filepath.Join(other.Dir, "journal.marker"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.Dir, "journal.marker"), marker, 0o600); err != nil {
		t.Fatal(err)
	}
	before := state(t, b.Dir)
	r, err := inspect.Fetch(t.Context(), b.Dir)
	if err == nil || r.Damage == nil || !strings.Contains(r.Damage.Why, "marker belongs to") || r.Blocked != 1 || len(r.Items) != 1 {
		t.Errorf("a journal copied without its marker: %+v, %v", r, err)
	}
	if after := state(t, b.Dir); len(before) != len(after) {
		t.Error("the directory was changed")
	}
	r.Damage.Unreadable = append(r.Damage.Unreadable, journal.Lost{Place: "jobs/\x1b[2J", Why: "checksum"})
	fits(t, "inspect-schema.json", asJSON(t, r))
	out := text(t, r, inspect.Style{})
	if !strings.HasPrefix(out, "DAMAGED\n") || !strings.Contains(out, `jobs/\x1b[2J`) || strings.ContainsRune(out, 0x1b) {
		t.Errorf("a damaged journal is shown as\n%s", out)
	}
}

func TestRowsAreLimited(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), moment)
	for _, n := range []receipt.NodeID{"a", "b", "c", "d", "e"} {
		b.Unknown(n, receipt.Configure, time.Hour)
	}
	r := build(t, b, true).Filter(inspect.Filter{})
	if out := text(t, r, inspect.Style{Width: 100, Rows: 3}); strings.Contains(out, " d ") || !strings.Contains(out, "and 2 more: provctl inspect --all-rows") {
		t.Errorf("five of at most three are shown as\n%s", out)
	}
	if out := text(t, r, inspect.Style{Width: 100, Rows: 5}); strings.Contains(out, "more: ") {
		t.Errorf("five of at most five are shown as\n%s", out)
	}
}
