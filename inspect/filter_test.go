package inspect_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"provctl/inspect"
	"provctl/receipt"
)

func TestFilter(t *testing.T) {
	r := scene(t)
	for _, c := range []struct {
		text inspect.FilterText
		want string // items, nodes and jobs, by their nodes' numbers
	}{
		{inspect.FilterText{}, "items 1 2 3 4, nodes 5 6, jobs"},
		{inspect.FilterText{Node: "n1.example.net"}, "items 1, nodes, jobs"},
		{inspect.FilterText{Node: "n1"}, "items, nodes, jobs"},
		{inspect.FilterText{Node: "n[1-5].*"}, "items 1 2 3 4, nodes 5, jobs"},
		{inspect.FilterText{Effects: []string{"configure"}}, "items 1 2, nodes, jobs"},
		{inspect.FilterText{Effects: []string{"restart, gen25519"}}, "items 3 4, nodes, jobs"},
		{inspect.FilterText{Effects: []string{"restart", "configure"}, Node: "n3*"}, "items 3, nodes, jobs"},
		{inspect.FilterText{Since: "15m"}, "items 2 3 4, nodes, jobs"},
		{inspect.FilterText{Since: "20s"}, "items 3 4, nodes, jobs"}, // exactly then counts
		{inspect.FilterText{Since: "1d"}, "items 1 2 3 4, nodes, jobs"},
		{inspect.FilterText{Since: "2026-03-04T05:06:00+00:00"}, "items 4, nodes, jobs"},
		{inspect.FilterText{States: []string{"unknown"}}, "items 1 2 3, nodes, jobs"},
		{inspect.FilterText{States: []string{"pending"}}, "items 4, nodes, jobs"},
		{inspect.FilterText{States: []string{"held"}}, "items, nodes 6, jobs"},
		{inspect.FilterText{States: []string{"out,held"}}, "items, nodes 5 6, jobs"},
		{inspect.FilterText{States: []string{"blocked"}}, "items 1 2 3, nodes, jobs 1 2 3"},
		{inspect.FilterText{States: []string{"claimed"}}, "items, nodes, jobs 4"},
		{inspect.FilterText{States: []string{"queued"}}, "items, nodes, jobs"},
	} {
		f, err := inspect.ParseFilter(c.text, moment)
		if err != nil {
			t.Errorf("%+v: %v", c.text, err)
			continue
		}
		got := r.Filter(f)
		var b strings.Builder
		b.WriteString("items")
		for _, i := range got.Items {
			fmt.Fprintf(&b, " %c", i.Node[1])
		}
		b.WriteString(", nodes")
		for _, n := range got.Nodes {
			fmt.Fprintf(&b, " %c", n.Node[1])
		}
		b.WriteString(", jobs")
		for _, j := range got.Jobs {
			fmt.Fprintf(&b, " %c", j.Node[1])
		}
		if b.String() != c.want {
			t.Errorf("%+v chooses %s, want %s", c.text, b.String(), c.want)
		}
		if got.Blocked != r.Blocked {
			t.Errorf("%+v changes the total of blocked items", c.text)
		}
	}
	if len(r.Items) != 4 || len(r.Jobs) != 4 {
		t.Error("a filter changed the report that it was applied to")
	}
}

func TestFilterRefuses(t *testing.T) {
	for _, c := range []struct {
		text inspect.FilterText
		says []string
	}{
		{inspect.FilterText{Node: "n["}, []string{"--node", `"n["`, "pattern"}},
		{inspect.FilterText{Effects: []string{"reboot"}}, []string{"--effect", `"reboot"`, "gen25519, gencsr, release_update, configure, restart, shutdown"}},
		{inspect.FilterText{Effects: []string{"restart,"}}, []string{"--effect", `""`}},
		{inspect.FilterText{States: []string{"unknown", "gone"}}, []string{"--state", `"gone"`, "unknown, pending, held, out, queued, claimed, blocked"}},
		{inspect.FilterText{Since: "yesterday"}, []string{"--since", `"yesterday"`, "2h"}},
		{inspect.FilterText{Since: "-2h"}, []string{"--since", `"-2h"`}},
		{inspect.FilterText{Since: "99999999999999d"}, []string{"--since"}},
		{inspect.FilterText{Since: "\x1b[2J"}, []string{"--since", `"\x1b[2J"`}},
	} {
		_, err := inspect.ParseFilter(c.text, moment)
		if !errors.Is(err, receipt.ErrInvalid) {
			t.Errorf("%+v: %v", c.text, err)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%+v: %q does not say %q", c.text, err, s)
			}
		}
	}
	if _, err := inspect.ParseNodesFilter(inspect.FilterText{States: []string{"unknown"}}); !errors.Is(err, receipt.ErrInvalid) || !strings.Contains(err.Error(), "exhausted") {
		t.Errorf("a state that no node has: %v", err)
	}
}

func FuzzParseFilter(f *testing.F) {
	f.Add("n*", "restart", "2h", "unknown")
	f.Add("[", ",", "3d", "")
	f.Fuzz(func(t *testing.T, node, effect, since, state string) {
		got, err := inspect.ParseFilter(inspect.FilterText{Node: node, Effects: []string{effect}, Since: since, States: []string{state}}, moment)
		if err != nil {
			if !errors.Is(err, receipt.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		got.Match(inspect.Item{Node: "n1", Action: receipt.Restart, Status: receipt.Unknown, Since: moment.Add(-time.Hour)})
	})
}
