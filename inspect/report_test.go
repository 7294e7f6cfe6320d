package inspect_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"provctl/inspect"
	"provctl/inspect/inspecttest"
	"provctl/receipt"
)

var update = flag.Bool("update", false, "write the golden files anew")

var moment = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

const shownDir = "/var/lib/provctl"

// scene makes a report with one of everything, as of a fixed moment.
func scene(t *testing.T) inspect.Report {
	t.Helper()
	b := inspecttest.New(t, t.TempDir(), moment)
	b.Unknown("n1.example.net", receipt.Configure, time.Hour)
	r := b.Unknown("n2.example.net", receipt.Configure, 10*time.Minute)
	b.See(r.ID, receipt.Evidence{Kind: receipt.SawEvent, Source: "lifecycle event", Event: &receipt.EventSeen{Type: "provisioned", Component: "provision_mode_server"}})
	b.Unknown("n3.example.net", receipt.Restart, 20*time.Second)
	b.Pending("n4.example.net", receipt.Gen25519, 5*time.Second)
	b.Out("n5.example.net")
	b.HeldFor("n6.example.net", 90*time.Second)
	return build(t, b, true)
}

func build(t *testing.T, b *inspecttest.Book, live bool) inspect.Report {
	t.Helper()
	s, err := b.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	s.Info.Path, s.Info.ID, s.Info.Created = shownDir+"/journal.db", "01KTESTJOURNAL000000000000", moment
	v := inspect.View{Source: inspect.FromJournal, Snapshot: s}
	if live {
		l := b.Worker().Live()
		l.PID = 4242
		v.Source, v.Live = inspect.FromWorker, &l
	}
	return inspect.Build(v, shownDir)
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update writes it anew):\n%s", path, got)
	}
}

func text(t *testing.T, r inspect.Report, s inspect.Style) string {
	t.Helper()
	var out bytes.Buffer
	if err := inspect.WriteText(&out, r, s); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestText(t *testing.T) {
	r := scene(t)
	listed := r
	listed.Jobs = nil
	golden(t, "wide.golden", text(t, listed, inspect.Style{}))
	golden(t, "narrow.golden", text(t, listed, inspect.Style{Width: 80}))
	golden(t, "colour.golden", text(t, r.Only("n1.example.net"), inspect.Style{Width: 100, Colour: true, Detail: true}))
	golden(t, "node-out.golden", text(t, r.Only("n5.example.net"), inspect.Style{Detail: true}))
}

func TestTextWithoutWorker(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), moment)
	golden(t, "empty.golden", text(t, build(t, b, false), inspect.Style{}))
	b.Pending("n1.example.net", receipt.Shutdown, time.Hour)
	golden(t, "no-worker.golden", text(t, build(t, b, false).Filter(inspect.Filter{}), inspect.Style{}))
}

func TestManyBlockedAreAList(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), moment)
	for _, n := range []receipt.NodeID{"a", "b", "c", "d", "e"} {
		b.Unknown(n, receipt.Configure, time.Hour)
	}
	r := build(t, b, true)
	if out := text(t, r, inspect.Style{}); strings.Contains(out, "look at  ") || !strings.Contains(out, "provctl inspect RECEIPT") {
		t.Errorf("five blocked items are shown whole:\n%s", out)
	}
	if out := text(t, r.Only("c"), inspect.Style{Detail: true}); !strings.Contains(out, "look at  ") || strings.Contains(out, " d ") {
		t.Errorf("the one asked for is not shown whole:\n%s", out)
	}
}

func TestNarrowLinesFit(t *testing.T) {
	r := scene(t)
	r.Jobs = nil
	for _, width := range []int{80, 100, 140} {
		for line := range strings.Lines(text(t, r, inspect.Style{Width: width})) {
			line = strings.TrimSuffix(line, "\n")
			if len(line) > width && !strings.Contains(line, "provctl reconcile") {
				t.Errorf("at width %d a line has %d columns: %q", width, len(line), line)
			}
		}
	}
}

func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.Compile(filepath.Join("..", "docs", "inspect-schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func decoded(t *testing.T, r inspect.Report) (any, []byte) {
	t.Helper()
	var out bytes.Buffer
	if err := inspect.WriteJSON(&out, r); err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(out.Bytes()))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v, out.Bytes()
}

func TestJSONFitsItsSchema(t *testing.T) {
	r := scene(t)
	v, b := decoded(t, r)
	golden(t, "report.golden.json", string(b))
	if err := schema(t).Validate(v); err != nil {
		t.Errorf("the full report does not fit: %#v", err)
	}
	empty, _ := decoded(t, build(t, inspecttest.New(t, t.TempDir(), moment), false))
	if err := schema(t).Validate(empty); err != nil {
		t.Errorf("the empty report does not fit: %#v", err)
	}
	// The schema must be able to fail.
	for name, breakIt := range map[string]func(map[string]any){
		"missing field": func(m map[string]any) { delete(m, "taken") },
		"unknown field": func(m map[string]any) { m["extra"] = 1 },
		"other version": func(m map[string]any) { m["schema"] = "provctl.inspect/2" },
		"bad status":    func(m map[string]any) { m["items"].([]any)[0].(map[string]any)["status"] = "applied" },
	} {
		v, _ := decoded(t, r)
		breakIt(v.(map[string]any))
		if err := schema(t).Validate(v); err == nil {
			t.Errorf("the schema accepts a report with: %s", name)
		}
	}
}

func TestNothingFromANodeReachesTheTerminal(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), moment)
	evil := "\x1b]0;owned\a\x1b[2J\u202e\u009b31m\r\n\u200b\x7f\U000e0041é"
	r := b.Unknown("n1.example.net", receipt.Configure, time.Hour)
	b.See(r.ID, receipt.Evidence{Kind: receipt.SawEvent, Source: evil, Event: &receipt.EventSeen{Type: evil, Component: evil}})
	report := build(t, b, true)
	report.Items[0].Why, report.Items[0].Node, report.Worker.Gate = evil, receipt.NodeID(evil), evil
	var js bytes.Buffer
	if err := inspect.WriteJSON(&js, report); err != nil {
		t.Fatal(err)
	}
	for name, out := range map[string]string{"text": text(t, report, inspect.Style{Width: 80}), "JSON": js.String()} {
		for _, bad := range []rune{0x1b, 7, '\r', 0x7f, 0x9b, 0x202e, 0x200b, 0xe0041} {
			if strings.ContainsRune(out, bad) {
				t.Errorf("%s has character %U: %q", name, bad, out)
			}
		}
		if !strings.ContainsRune(out, 'é') {
			t.Errorf("%s lost a letter", name)
		}
	}
	var back inspect.Report
	if err := json.Unmarshal(js.Bytes(), &back); err != nil || back.Items[0].Why != evil {
		t.Errorf("JSON does not give back what was put in: %q, %v", back.Items[0].Why, err)
	}
}

func FuzzPrintable(f *testing.F) {
	for _, s := range []string{"", "plain", "\x1b[2J", "\xff\xfe", "\u202e", "日本", "a\x00b", "\ufffd"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out := inspect.Printable(s)
		for _, r := range out {
			if r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e {
				t.Fatalf("%q became %q with %U", s, out, r)
			}
		}
		if again := inspect.Printable(out); again != out {
			t.Fatalf("%q became %q and then %q", s, out, again)
		}
	})
}

func TestCommandsAreQuoted(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), moment)
	b.Unknown("$(reboot);n1", receipt.Restart, time.Hour)
	b.Out("`id`")
	s, err := b.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	r := inspect.Build(inspect.View{Snapshot: s}, "/var/lib/my state")
	for _, c := range r.Items[0].Commands {
		if !strings.Contains(c.Run, "--state-dir '/var/lib/my state'") {
			t.Errorf("the directory is not quoted in %s", c.Run)
		}
	}
	if look := strings.Join(r.Items[0].Look, "\n"); strings.Contains(look, " $(reboot);n1.") {
		t.Errorf("the node is not quoted in %s", look)
	}
	if run := r.Nodes[0].Run; strings.Contains(run, "admit `id`") {
		t.Errorf("the node is not quoted in %s", run)
	}
}

func TestProposals(t *testing.T) {
	reply := func(means receipt.Event) receipt.Evidence {
		return receipt.Evidence{Kind: receipt.SawReply, Source: "node", Reply: &receipt.ReplySeen{Text: "x", Means: means}}
	}
	elsewhere := receipt.Evidence{Kind: receipt.SawStats, Source: "node", Stats: &receipt.StatsSeen{Incarnation: receipt.Incarnation{PID: 1, Start: 9}}}
	for _, c := range []struct {
		name   string
		action receipt.Action
		ago    time.Duration
		see    []receipt.Evidence
		want   receipt.Verdict // 0: none
	}{
		{"nothing seen", receipt.Configure, time.Hour, nil, 0},
		{"late reply: done", receipt.Configure, time.Hour, []receipt.Evidence{reply(receipt.ReplyApplied)}, receipt.VerdictApplied},
		{"late reply: refused", receipt.Configure, time.Hour, []receipt.Evidence{reply(receipt.ReplyRefused)}, receipt.VerdictNotApplied},
		{"late reply: failed", receipt.Configure, time.Hour, []receipt.Evidence{reply(receipt.ReplyFailed)}, receipt.VerdictNotApplied},
		{"late reply: upgrade failed", receipt.ReleaseUpdate, time.Hour, []receipt.Evidence{reply(receipt.ReplyFailed)}, receipt.VerdictAbandon},
		{"new process after restart", receipt.Restart, time.Hour, []receipt.Evidence{elsewhere}, receipt.VerdictApplied},
		{"new process after configure", receipt.Configure, time.Hour, []receipt.Evidence{elsewhere}, receipt.VerdictAbandon},
		{"the same before the horizon", receipt.Configure, time.Second, []receipt.Evidence{elsewhere}, 0},
		{"key generation expired", receipt.Gen25519, time.Hour, nil, receipt.VerdictNotApplied},
		{"key generation not expired", receipt.Gen25519, time.Second, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := inspecttest.New(t, t.TempDir(), moment)
			r := b.Unknown("n1.example.net", c.action, c.ago)
			for _, e := range c.see {
				r = b.See(r.ID, e)
			}
			got := receipt.Verdict(0)
			if p := inspect.Describe(r, moment, "/x").Proposed; p != nil {
				got = p.Verdict
			}
			if got != c.want {
				t.Errorf("proposed is %v, want %v", got, c.want)
			}
		})
	}
}

func TestOnly(t *testing.T) {
	r := scene(t)
	id := string(r.Items[1].Receipt)
	for _, c := range []struct {
		name         string
		items, nodes int
	}{
		{id, 1, 0},
		{strings.ToLower(id), 1, 0},
		{id[:6], 4, 0}, // all ids begin alike here
		{id[:5], 0, 0},
		{"n1.example.net", 1, 0},
		{"n1", 0, 0},
		{"n5.example.net", 0, 1},
		{"nobody.example.net", 0, 0},
	} {
		got := r.Only(c.name)
		if len(got.Items) != c.items || len(got.Nodes) != c.nodes {
			t.Errorf("%s names %d items and %d nodes, want %d and %d", c.name, len(got.Items), len(got.Nodes), c.items, c.nodes)
		}
		if got.Blocked != r.Blocked {
			t.Errorf("%s changes the total of blocked items", c.name)
		}
	}
	if !r.NeedsSomebody() || r.Only("n5.example.net").NeedsSomebody() || r.Only("n4.example.net").NeedsSomebody() {
		t.Error("what needs somebody is wrong: an item in flight or a node that stays out does not")
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestWriteErrorsAreReported(t *testing.T) {
	r := scene(t)
	if err := inspect.WriteText(broken{}, r, inspect.Style{}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("text: %v", err)
	}
	if err := inspect.WriteJSON(broken{}, r); !errors.Is(err, os.ErrClosed) {
		t.Errorf("JSON: %v", err)
	}
	for len(r.Items) < 1000 {
		r.Items = append(r.Items, r.Items...)
	}
	if err := inspect.WriteReportJSON(broken{}, r); !errors.Is(err, os.ErrClosed) {
		t.Errorf("JSON of many items: %v", err)
	}
}

// TestManyItemsAreTheSameJSON: what is encoded in parts is what is encoded at once, whatever the texts are.
func TestManyItemsAreTheSameJSON(t *testing.T) {
	r := scene(t)
	model := r.Items[0]
	model.Why, model.FirstLine = "\n  \"items\": []", "\n  ]\n"
	r.Nodes[0].Why = model.Why
	for _, n := range []int{0, 1, 128, 129, 256, 1000} {
		r.Items = make([]inspect.Item, n)
		for i := range r.Items {
			r.Items[i] = model
			r.Items[i].Claim = i
		}
		var whole, parts bytes.Buffer
		if err := errors.Join(inspect.WriteJSON(&whole, r), inspect.WriteReportJSON(&parts, r)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(whole.Bytes(), parts.Bytes()) {
			t.Errorf("of %d items the two differ", n)
		}
	}
}
