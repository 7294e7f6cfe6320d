package statuspage

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"provctl/inspect"
	"provctl/internal/control"
	"provctl/journal"
	"provctl/receipt"
)

// fake is a worker whose state the test sets.
type fake struct {
	mu        sync.Mutex
	report    inspect.Report
	timelines map[receipt.NodeID]inspect.Timeline
	samples   []Sample
	err       error
	panics    bool
	asked     int           // reports
	at        int           // reports being made now
	atMost    int           // the most at a time
	wait      chan struct{} // nil, or what a report waits for, context or not
}

func (f *fake) Report(context.Context) (inspect.Report, error) {
	f.mu.Lock()
	f.asked++
	f.at++
	f.atMost = max(f.atMost, f.at)
	wait := f.wait
	f.mu.Unlock()
	if wait != nil {
		<-wait
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at--
	if f.panics {
		panic("a <defect>")
	}
	r := f.report
	r.Taken = time.Now().UTC()
	r.Items = append([]inspect.Item{}, r.Items...)
	for n := range r.Items {
		r.Items[n].AgeSeconds = int64(time.Since(r.Items[n].Since) / time.Second)
	}
	return r, f.err
}

func (f *fake) Timeline(_ context.Context, node receipt.NodeID) (inspect.Timeline, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.panics {
		panic("a <defect>")
	}
	t, known := f.timelines[node]
	if !known {
		return inspect.Timeline{}, fmt.Errorf("node %s: %w", node, journal.ErrNotFound)
	}
	return t, f.err
}

func (f *fake) Samples() []Sample {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.panics {
		panic("a <defect>")
	}
	return f.samples
}

// change alters the worker's state; its journal goes on.
func (f *fake) change(how func(*fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	how(f)
	f.report.Journal.Seq++
}

func (f *fake) reportsAsked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// calm is a worker that runs and has nothing to tell.
func calm() *fake {
	now := time.Now().UTC().Truncate(time.Second)
	counts := func(names ...string) map[string]int {
		m := map[string]int{}
		for _, n := range names {
			m[n] = 0
		}
		return m
	}
	f := &fake{
		timelines: map[receipt.NodeID]inspect.Timeline{},
		report: inspect.Report{
			Schema: inspect.Schema, Taken: now, Source: inspect.FromWorker,
			Worker: &control.Live{
				PID: 4242, Epoch: 7, State: control.Running, Connected: true, Lanes: 8, Busy: 5, Parked: 2, Queue: 31,
				Started: now.Add(-26 * time.Hour), Version: "1.2.3",
			},
			Journal: inspect.Journal{ID: "01KTESTJOURNAL000000000000", Format: 2, Epoch: 7, Seq: 48213, Created: now.Add(-900 * time.Hour), Path: "/var/lib/provctl/journal.db"},
			Counts: inspect.Counts{
				Jobs: counts("queued", "claimed", "blocked", "ended"), Results: counts("provisioned", "failed", "exhausted", "upgraded"),
				Receipts: counts("applied", "pending", "refused", "unknown"),
			},
			Items: []inspect.Item{}, Nodes: []inspect.Node{},
		},
	}
	f.report.Counts.Results["provisioned"] = 6123
	f.report.Counts.Jobs["ended"] = 6140
	f.report.Counts.Receipts["applied"] = 24519
	return f
}

// opened is an open receipt as the report shows it, made that long ago.
func opened(n int, node string, a receipt.Action, ago time.Duration, status receipt.Status, evidence ...receipt.Evidence) inspect.Item {
	made := time.Now().UTC().Add(-ago).Truncate(time.Second)
	why := "no reply until the horizon"
	if status == receipt.Pending {
		why = ""
	}
	return inspect.Describe(receipt.Receipt{
		ID: receipt.ReceiptID(fmt.Sprintf("01KTEST%019d", n)), Version: receipt.Seq(1000 + n), Job: receipt.JobID(fmt.Sprintf("01KTESTJ%018d", n)),
		ClaimNo: 1, Epoch: 7, Node: receipt.NodeID(node), Action: a, Request: receipt.RequestID(fmt.Sprintf("%032x", n)), RequestTime: made,
		Horizon: receipt.HorizonOf(made, time.Minute, 10*time.Second), Digest: strings.Repeat("0123456789abcdef", 4), Status: status, Why: why,
		Incarnation: receipt.Incarnation{PID: 4711, Start: made.Add(-time.Hour).Unix()}, Evidence: evidence,
	}, time.Now(), "/var/lib/provctl")
}

// busy is a worker with some of everything: three blocked nodes, one with a proposal and one whose horizon is ahead.
func busy() *fake {
	f := calm()
	now := time.Now().UTC().Truncate(time.Second)
	f.report.Items = []inspect.Item{
		opened(1, "web-17.fra.example.net", receipt.Configure, 3*time.Hour+12*time.Minute, receipt.Unknown),
		opened(2, "db-03.fra.example.net", receipt.Configure, 48*time.Minute, receipt.Unknown,
			receipt.Evidence{Kind: receipt.SawIdle, Source: "node", At: now, Idle: &receipt.IdleSeen{Incarnation: receipt.Incarnation{PID: 4711, Start: 1}}},
			receipt.Evidence{Kind: receipt.SawEvent, Source: "lifecycle event", At: now, Event: &receipt.EventSeen{Type: "provisioned", Component: "provision_mode_server", Time: now.Unix()}}),
		opened(3, "edge-9.sin.example.net", receipt.Restart, 5*time.Second, receipt.Unknown),
		opened(4, "app-1.fra.example.net", receipt.Configure, 4*time.Second, receipt.Pending),
		opened(5, "app-2.fra.example.net", receipt.GenCSR, 2*time.Second, receipt.Pending),
	}
	f.report.Blocked = 3
	f.report.Nodes = []inspect.Node{
		{Node: "app-7.fra.example.net", State: "held", Until: now.Add(9 * time.Minute), Why: "the helper defers it", Run: "provctl admit app-7.fra.example.net --state-dir /var/lib/provctl --reason TEXT"},
		{Node: "old-1.fra.example.net", State: "out", Why: "exhausted: stays out while its server is pid 812 since 2026-03-01T10:00:00Z", Result: receipt.Exhausted, Run: "provctl admit old-1.fra.example.net --state-dir /var/lib/provctl --reason TEXT"},
	}
	for n := range Kept {
		s := Sample{At: now.Add(time.Duration(n-Kept) * Interval)}
		if n > 90 {
			s.Commits, s.Ended = 40+n%17, n%7
			s.CommitP50 = time.Duration(2000+n%30*40) * time.Microsecond
			s.CommitMax = time.Duration(5+n%13*2) * time.Millisecond
		}
		f.samples = append(f.samples, s)
	}
	f.timelines["web-17.fra.example.net"] = history("web-17.fra.example.net", f.report.Items[0])
	return f
}

// history is a node's timeline that ends with an open receipt.
func history(node receipt.NodeID, open inspect.Item) inspect.Timeline {
	entry := func(seq receipt.Seq, kind, status, by, text string) inspect.Entry {
		return inspect.Entry{Seq: seq, At: open.Since.Add(time.Duration(seq) * time.Millisecond), Kind: kind, Job: open.Job, Status: status, By: by, Text: text}
	}
	effect := entry(1000, "receipt", "pending", "", "request "+string(open.Request))
	effect.Receipt, effect.Action = open.Receipt, open.Action
	return inspect.Timeline{
		Schema: inspect.TimelineSchema, Source: inspect.FromWorker, Node: node, Open: []inspect.Item{open},
		Entries: []inspect.Entry{
			entry(990, "admission", "queued", "discovery", "seen in the provisioning collective"),
			entry(991, "claim", "claimed", "epoch 7", "claim 1"), effect,
			entry(1001, "reply", "unknown", "horizon", "no reply until the horizon"),
		},
	}
}

// many is a worker with so many blocked nodes.
func many(blocked int) *fake {
	f := calm()
	for n := range blocked {
		f.report.Items = append(f.report.Items, opened(n, fmt.Sprintf("n%04d.example.net", n), receipt.Configure, 3*time.Hour-time.Duration(n)*time.Second, receipt.Unknown,
			receipt.Evidence{Kind: receipt.SawIdle, Source: "node", At: time.Now(), Idle: &receipt.IdleSeen{Incarnation: receipt.Incarnation{PID: 4711, Start: 1}}}))
	}
	f.report.Blocked = blocked
	return f
}

// soon is a context for what should take no time.
func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}
