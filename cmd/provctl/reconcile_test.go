package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v5"
	"github.com/urfave/cli/v2"

	"provctl/inspect/inspecttest"
	"provctl/receipt"
)

// TestReconcileSchema has every kind of line meet the documented schema.
func TestReconcileSchema(t *testing.T) {
	schema, err := jsonschema.Compile("../../docs/reconcile-schema.json")
	if err != nil {
		t.Fatal(err)
	}
	b := inspecttest.New(t, t.TempDir(), time.Now())
	said := b.Unknown("said.example.net", receipt.Configure, time.Hour)
	b.See(said.ID, receipt.Evidence{Kind: receipt.SawReply, Source: "node", Reply: &receipt.ReplySeen{Means: receipt.ReplyApplied, Text: "done"}})
	plain := b.Unknown("plain.example.net", receipt.Configure, time.Hour)
	early := b.Unknown("early.example.net", receipt.Configure, time.Second)
	busy := b.Busy("busy.example.net", receipt.Restart, time.Hour)
	flight := b.Pending("flight.example.net", receipt.Restart, time.Second).Receipt()
	b.Serve()
	all := []string{string(said.ID), string(plain.ID), string(early.ID), string(busy.ID), string(flight.ID), "01ZZZZ", "01ZZZZZZZZZZZZZZZZZZZZZZZZ"}
	codes := map[string]int{}
	try := func(args ...string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		Main(append([]string{"reconcile", "--json", "--reason", "x", "--evidence", "y", "--state-dir", b.Dir}, args...), &stdout, &stderr)
		for line := range strings.Lines(stdout.String()) {
			var v map[string]any
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if err := schema.Validate(v); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			codes[v["code"].(string)]++
		}
	}
	try(append(all, "--verdict", "not-applied", "--dry-run")...)
	try(append(all, "--verdict", "not-applied", fmt.Sprintf("--yes=%d", len(all)))...)
	try(string(plain.ID), "--verdict", "applied", "--yes")
	try(string(plain.ID), "--verdict", "abandon", "--seen", fmt.Sprint(versionOf(t, b, plain.ID)))
	try(string(said.ID), "--verdict", "not-applied", "--contradict-evidence", "--yes")
	try(string(early.ID), "--verdict", "abandon", "--yes", "--wait", "--wait-at-most", "50ms")
	try(string(busy.ID), "--finish", "--yes")
	for _, code := range []string{"recorded", "would-record", "changed", "before-time", "may-still-run", "in-flight", "contradicted", "not-found", "not-tried", "invalid"} {
		if codes[code] == 0 {
			t.Errorf("no line has the code %s: %v", code, codes)
		}
	}
}

func versionOf(t *testing.T, b *inspecttest.Book, id receipt.ReceiptID) receipt.Seq {
	t.Helper()
	r, err := b.Receipt(id)
	if err != nil {
		t.Fatal(err)
	}
	return r.Version
}

// TestAThousand: an outage left many nodes blocked, and one command decides on all of them.
func TestAThousand(t *testing.T) {
	const n = 1000
	bothWays(func(name string, leave func(b *inspecttest.Book)) {
		t.Run(name, func(t *testing.T) {
			b := inspecttest.New(t, t.TempDir(), time.Now())
			b.Many(0, n)
			leave(b)
			decideOnAll(t, b, n, "--dry-run")
			decideOnAll(t, b, n, fmt.Sprintf("--yes=%d", n))
		})
	})
}

// BenchmarkReconcileTenThousand measures a verdict on each of 10,000 blocked nodes, by one command.
func BenchmarkReconcileTenThousand(b *testing.B) {
	const n = 10_000
	bothWays(func(name string, leave func(b *inspecttest.Book)) {
		for what, args := range map[string]string{"dry run": "--dry-run", "recorded": fmt.Sprintf("--yes=%d", n)} {
			b.Run(name+"/"+what, func(b *testing.B) {
				for range b.N {
					b.StopTimer()
					book := inspecttest.New(b, b.TempDir(), time.Now())
					book.Many(0, n)
					leave(book)
					b.StartTimer()
					decideOnAll(b, book, n, args)
				}
			})
		}
	})
}

func bothWays(do func(name string, leave func(b *inspecttest.Book))) {
	do("through a worker", func(b *inspecttest.Book) { b.Serve() })
	do("offline", func(b *inspecttest.Book) { _ = b.Close() })
}

func decideOnAll(t testing.TB, b *inspecttest.Book, n int, arg string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := Main([]string{"reconcile", "--all", arg, "--verdict", "not-applied", "--reason", "power cut", "--state-dir", b.Dir}, &stdout, &stderr)
	if code != 0 || strings.Count(stdout.String(), "\n") != n || !strings.HasPrefix(stderr.String(), fmt.Sprint(n, " ")) {
		t.Errorf("%s exits %d with %d lines: %.300s", arg, code, strings.Count(stdout.String(), "\n"), stderr.String())
	}
}

// TestManual: every command and flag is in the manual, with every exit code, and each line is either text or a request that is known.
func TestManual(t *testing.T) {
	app := newApp(nil, nil)
	page := manPage(app)
	plain := strings.NewReplacer(`\-`, "-", `\(aq`, "'", `\(dq`, `"`, `\fB`, "", `\fI`, "", `\fR`, "", `\e`, `\`).Replace(page)
	var walk func(parent string, all []*cli.Command)
	walk = func(parent string, all []*cli.Command) {
		for _, c := range all {
			name := parent + " " + c.Name
			if strings.Contains(plain, `.SS "`+name) == c.Hidden {
				t.Errorf("command %q, hidden %v, is not as it should be in the manual", name, c.Hidden)
			}
			if c.Hidden {
				continue
			}
			_, section, _ := strings.Cut(plain, `.SS "`+name)
			section, _, _ = strings.Cut(section, "\n.S")
			for _, f := range c.Flags {
				if !strings.Contains(section, "\n--"+f.Names()[0]) {
					t.Errorf("%s lacks --%s", name, f.Names()[0])
				}
			}
			walk(name, c.Subcommands)
		}
	}
	walk("provctl", app.Commands)
	for _, e := range exitCodes {
		if !strings.Contains(plain, fmt.Sprintf("\n%d\n%s", e.code, e.means)) {
			t.Errorf("exit code %d is missing", e.code)
		}
	}
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		name, _, _ := strings.Cut(line, " ")
		known := map[string]bool{".TH": true, ".SH": true, ".SS": true, ".TP": true, ".PP": true}
		if strings.HasPrefix(line, ".") && !known[name] || strings.HasPrefix(line, "'") || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("line %q", line)
		}
	}
}
