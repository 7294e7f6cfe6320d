// Package oracle judges a run from outside: by what the nodes' own logs say, by the trace of the disk and by what
// `provctl inspect --json` prints. It imports nothing of the program, so that no mistake of the program can be its own.
package oracle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"provctl/crashtests/trace"
	"provctl/internal/fleet"
)

// Run is all that is known of a run.
type Run struct {
	Nodes   []string
	Entries []fleet.Entry // of all nodes, each node's in the order of its log
	Looks   []Look        // in the order in which they were taken
	Lives   []Life        // of workers, in their order
	Outages []Span        // of the broker
	Trace   []trace.Event // of disk and effects; empty if it was not recorded
	// FailedAt is the first disk operation that failed, by its number in Trace; 0: none did.
	FailedAt int
	// Stills are pairs of images of the state directory, before and after an inspection without a worker.
	Stills [][2]map[string]string
	// Manual says that evidence settles nothing in this run, so that nobody is blocked for want of it.
	Manual bool
	// Ended says that the last look was taken when nothing more was expected to happen.
	Ended bool
}

// Look is one output of inspect, with the times between which it was taken.
type Look struct {
	From, To time.Time
	Report   Report
}

// Span is a time; an end of zero is open.
type Span struct{ From, To time.Time }

func (s Span) covers(t time.Time) bool {
	return !t.Before(s.From) && (s.To.IsZero() || t.Before(s.To))
}

// Life is one process of the worker, from its start to its end.
type Life struct{ Span }

// Violation is a broken promise: the number is that of docs/design.md, "Invariants".
type Violation struct {
	Invariant int
	Node      string
	What      string
}

// String names all of it.
func (v Violation) String() string {
	return fmt.Sprintf("invariant %d, %s: %s", v.Invariant, v.Node, v.What)
}

// Judge returns every promise that the run broke.
func Judge(r Run) []Violation {
	var all []Violation
	for _, check := range []func(Run) []Violation{
		durableFirst, oneOpen, atMostOnce, transitions, nothingLost, needless, inspection, afterFailure, sequence,
	} {
		all = append(all, check(r)...)
	}
	return all
}

// effects are the entries of one phase that concern effects.
func (r Run) effects(phase fleet.Phase) []fleet.Entry {
	var out []fleet.Entry
	for _, e := range r.Entries {
		if e.Effect && e.Phase == phase {
			out = append(out, e)
		}
	}
	return out
}

// durableFirst is invariant 1: before an effect begins, a file that names its request was written and then synced.
func durableFirst(r Run) []Violation {
	var out []Violation
	for _, e := range r.Trace {
		if e.Kind == trace.Begin && syncedBy(r.Trace, e.Request) >= e.N {
			out = append(out, Violation{1, e.Source, fmt.Sprintf("%s began (event %d) before its request %s was on the disk", e.Action, e.N, e.Request)})
		}
	}
	return out
}

// syncedBy is the number of the first sync of a file after a write of it that holds the text; beyond the trace if there is none.
func syncedBy(events []trace.Event, text string) int {
	var in string
	for _, e := range events {
		switch {
		case in == "" && e.Kind == trace.Write && strings.Contains(string(e.Data), text):
			in = e.Path
		case in != "" && e.Kind == trace.Sync && e.Path == in:
			return e.N
		}
	}
	return len(events) + 1
}

// oneOpen is invariant 2: a node has one open receipt, and no other effect begins while inspect shows it.
func oneOpen(r Run) []Violation {
	var out []Violation
	for _, l := range r.Looks {
		seen := map[string]bool{}
		for _, i := range l.Report.Items {
			if seen[i.Node] {
				out = append(out, Violation{2, i.Node, "it has two open receipts"})
			}
			seen[i.Node] = true
		}
	}
	for n := 1; n < len(r.Looks); n++ {
		before, after := r.Looks[n-1], r.Looks[n]
		for _, i := range before.Report.Items {
			if _, still := after.Report.open(i.Receipt); !still {
				continue
			}
			for _, e := range r.effects(fleet.PhaseBegin) {
				if e.Node == i.Node && e.RequestID != i.Request && e.Time.After(before.To) && e.Time.Before(after.From) {
					out = append(out, Violation{2, e.Node, fmt.Sprintf("%s began in request %s while receipt %s was open", e.Action, e.RequestID, i.Receipt)})
				}
			}
		}
	}
	return out
}

// atMostOnce is invariant 3: no request arrives twice, and no effect runs again that may have run.
func atMostOnce(r Run) []Violation {
	var out []Violation
	arrived := map[string]bool{}
	for _, e := range r.effects(fleet.PhaseReceived) {
		key := e.Node + " " + e.RequestID
		if arrived[key] {
			out = append(out, Violation{3, e.Node, fmt.Sprintf("request %s (%s) arrived twice", e.RequestID, e.Action)})
		}
		arrived[key] = true
	}
	for _, twice := range fleet.AuditEntries(r.Entries).Twice {
		out = append(out, Violation{3, twice.Node, "ran twice: " + twice.String()})
	}
	return out
}

// final are the counts that never fall: what ended stays as it ended.
var final = []string{"applied", "refused", "failed", "not-sent", "not-applied", "moot", "abandoned"}

// transitions is invariant 4 as far as it shows: what ended stays ended, and unknown never becomes pending again.
func transitions(r Run) []Violation {
	var out []Violation
	gone := map[string]bool{}
	for n := 1; n < len(r.Looks); n++ {
		before, after := r.Looks[n-1].Report, r.Looks[n].Report
		if before.Journal.ID != after.Journal.ID {
			out = append(out, Violation{4, "journal", "it is another journal than before"})
			continue
		}
		for _, status := range final {
			if was, is := before.Counts.Receipts[status], after.Counts.Receipts[status]; is < was {
				out = append(out, Violation{4, "journal", fmt.Sprintf("%d receipts were %s, then %d", was, status, is)})
			}
		}
		for _, i := range before.Items {
			now, still := after.open(i.Receipt)
			gone[i.Receipt] = !still
			if still && i.Status == unknown && now.Status != unknown {
				out = append(out, Violation{4, i.Node, fmt.Sprintf("receipt %s was unknown and is %s", i.Receipt, now.Status)})
			}
		}
		for _, i := range after.Items {
			if _, was := before.open(i.Receipt); gone[i.Receipt] && !was {
				out = append(out, Violation{4, i.Node, fmt.Sprintf("receipt %s had ended and is open again", i.Receipt)})
			}
		}
	}
	return out
}

// nothingLost is invariant 5: at the end each node did what it was to do, or the report accounts for it.
func nothingLost(r Run) []Violation {
	if !r.Ended || len(r.Looks) == 0 {
		return nil
	}
	last := r.Looks[len(r.Looks)-1].Report
	active := last.Counts.Jobs["queued"] + last.Counts.Jobs["claimed"]
	var lost []string
	audit := fleet.AuditEntries(r.Entries)
	for _, node := range r.Nodes {
		_, open := last.ofNode(node)
		out := slices.ContainsFunc(last.Nodes, func(o Out) bool { return o.Node == node })
		if !audit.Provisioned[node] && !audit.Down[node] && !open && !out {
			lost = append(lost, node)
		}
	}
	if len(lost) <= active {
		return nil
	}
	return []Violation{{5, strings.Join(lost, ", "), fmt.Sprintf("neither provisioned nor down, and the report knows only of %d jobs", active)}}
}

// inspection is invariant 7: it changes nothing.
func inspection(r Run) []Violation {
	var out []Violation
	for _, s := range r.Stills {
		for name, was := range s[0] {
			if is, there := s[1][name]; !there || is != was {
				out = append(out, Violation{7, "state directory", name + " was changed by inspect"})
			}
		}
		for name := range s[1] {
			if _, was := s[0][name]; !was {
				out = append(out, Violation{7, "state directory", name + " was made by inspect"})
			}
		}
	}
	return out
}

// afterFailure is invariant 8: what begins after a failed operation had its receipt on the disk before it.
func afterFailure(r Run) []Violation {
	var out []Violation
	for _, e := range r.Trace {
		if r.FailedAt > 0 && e.Kind == trace.Begin && e.N > r.FailedAt && syncedBy(r.Trace, e.Request) >= r.FailedAt {
			out = append(out, Violation{8, e.Source, fmt.Sprintf("%s began (event %d) although event %d failed and its request was not on the disk by then", e.Action, e.N, r.FailedAt)})
		}
	}
	return out
}

// sequence is invariant 9 as far as it shows: numbers only rise, whatever the clock does.
func sequence(r Run) []Violation {
	var out []Violation
	for n := 1; n < len(r.Looks); n++ {
		before, after := r.Looks[n-1].Report, r.Looks[n].Report
		if after.Journal.Seq < before.Journal.Seq || after.Journal.Epoch < before.Journal.Epoch {
			out = append(out, Violation{9, "journal", fmt.Sprintf("it went back from change %d of epoch %d to %d of %d",
				before.Journal.Seq, before.Journal.Epoch, after.Journal.Seq, after.Journal.Epoch)})
		}
		for _, i := range before.Items {
			if now, still := after.open(i.Receipt); still && now.Version < i.Version {
				out = append(out, Violation{9, i.Node, fmt.Sprintf("receipt %s went back from version %d to %d", i.Receipt, i.Version, now.Version)})
			}
		}
	}
	return out
}
