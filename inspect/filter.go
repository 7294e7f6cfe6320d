package inspect

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"provctl/receipt"
)

// Filter chooses what is shown, or decided on. The zero value chooses everything.
type Filter struct {
	node    string // a name, or a pattern of path.Match
	effects []receipt.Action
	since   time.Time
	states  []string
}

// FilterText is a filter as it was typed. Effects and States may hold several each, separated by commas.
type FilterText struct {
	Node    string
	Effects []string
	Since   string
	States  []string
}

// States lists what a filter can ask for: of receipts, nodes and jobs. Blocked is the job's word for an unknown receipt.
func States() []string {
	return []string{"unknown", "pending", "held", "out", "queued", "claimed", "blocked"}
}

// ParseFilter reads a filter. The error is receipt.ErrInvalid and names the option, its value and what there is to choose from.
func ParseFilter(t FilterText, now time.Time) (Filter, error) {
	f := Filter{node: t.Node}
	bad := func(option, value, want string) (Filter, error) {
		return Filter{}, fmt.Errorf("--%s %.80q: %w: %s", option, value, receipt.ErrInvalid, want)
	}
	if _, err := path.Match(t.Node, ""); err != nil {
		return bad("node", t.Node, "it must be a name, or a pattern of *, ? and [a-z]")
	}
	for _, text := range words(t.Effects) {
		var a receipt.Action
		if a.UnmarshalText([]byte(text)) != nil {
			return bad("effect", text, "it must be one of "+list(receipt.Actions()))
		}
		f.effects = append(f.effects, a)
	}
	for _, text := range words(t.States) {
		if !slices.Contains(States(), text) {
			return bad("state", text, "it must be one of "+strings.Join(States(), ", "))
		}
		f.states = append(f.states, text)
	}
	var err error
	if f.since, err = ParseSince(t.Since, now); err != nil {
		return bad("since", t.Since, "it must be how long ago, like 90s, 2h or 3d, or a time like 2026-03-04T05:06:07Z")
	}
	return f, nil
}

// ParseSince reads a moment: how long ago (Go's durations, and days as 3d), or RFC 3339. Nothing is the zero time.
func ParseSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.AddDate(0, 0, -int(n)), nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return time.Time{}, fmt.Errorf("%.80q: %w: neither how long ago nor a time", text, receipt.ErrInvalid)
	}
	return now.Add(-d), nil
}

func words(texts []string) []string {
	var out []string
	for _, t := range texts {
		for w := range strings.SplitSeq(t, ",") {
			out = append(out, strings.TrimSpace(w))
		}
	}
	return out
}

func list[T fmt.Stringer](all []T) string {
	var out []string
	for _, v := range all {
		out = append(out, v.String())
	}
	return strings.Join(out, ", ")
}

// Everything reports whether nothing was asked for.
func (f Filter) Everything() bool {
	return f.node == "" && len(f.effects) == 0 && f.since.IsZero() && len(f.states) == 0
}

func (f Filter) named(n receipt.NodeID) bool {
	if f.node == "" || string(n) == f.node {
		return true
	}
	ok, err := path.Match(f.node, string(n))
	return ok && err == nil
}

func (f Filter) state(any ...string) bool {
	return len(f.states) == 0 || slices.ContainsFunc(any, func(s string) bool { return slices.Contains(f.states, s) })
}

// Match reports whether an open receipt is chosen: by its node, effect and state, and if its request was made at or after the moment.
func (f Filter) Match(i Item) bool {
	states := []string{i.Status.String()}
	if i.Blocked {
		states = append(states, "blocked")
	}
	return f.named(i.Node) && f.state(states...) && !i.Since.Before(f.since) && (len(f.effects) == 0 || slices.Contains(f.effects, i.Action))
}

// MatchNode reports whether a node that is not taken is chosen. It has no effect and no request: a filter by those chooses none.
func (f Filter) MatchNode(n Node) bool {
	return f.named(n.Node) && f.state(n.State) && f.since.IsZero() && len(f.effects) == 0
}

// MatchJob is MatchNode of active work. Jobs are shown only if a state of theirs is asked for.
func (f Filter) MatchJob(j Job) bool {
	return f.named(j.Node) && len(f.states) > 0 && f.state(j.Status.String()) && f.since.IsZero() && len(f.effects) == 0
}

// Filter keeps what is chosen. The totals stay as they are.
func (r Report) Filter(f Filter) Report {
	if f.Everything() {
		r.Jobs = nil
		return r
	}
	r.Items = kept(r.Items, f.Match)
	r.Nodes = kept(r.Nodes, f.MatchNode)
	r.Jobs = kept(r.Jobs, f.MatchJob)
	return r
}

func kept[T any](all []T, keep func(T) bool) []T {
	out := []T{}
	for _, v := range all {
		if keep(v) {
			out = append(out, v)
		}
	}
	return out
}
