package inspect

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"time"

	"provctl/internal/control"
	"provctl/receipt"
)

// MinPrefix is how many characters of a receipt's id are the least that name it.
const MinPrefix = 6

// Build makes a report of what was fetched. dir goes into the commands to type. It is a pure function: the moment is the
// snapshot's.
func Build(v View, dir string) Report {
	s := v.Snapshot
	r := Report{
		Schema: Schema, Taken: s.Taken.UTC(), Source: v.Source, Worker: live(v.Live), Damage: v.Damage,
		Journal: Journal{ID: s.Info.ID, Format: s.Info.Format, Epoch: s.Info.Epoch, Seq: s.Info.Seq, Created: s.Info.Created.UTC(), Path: s.Info.Path},
		Counts: Counts{
			Jobs:     named(receipt.JobStatuses(), s.ByJob),
			Results:  named(receipt.Results(), s.ByResult),
			Receipts: named(receipt.Statuses(), s.ByStatus),

			SettledByEvidence: s.Tally.Evidence, SettledByVerdict: s.Tally.Verdicts, Requeues: s.Tally.Requeues,
		},
		Items: items(s.Open, s.Taken, dir), Nodes: make([]Node, 0, len(s.Nodes)), Jobs: make([]Job, 0, len(s.Jobs)),
	}
	if p := s.Info.Pause; p != nil {
		r.Journal.Paused = &Pause{By: p.By, Reason: p.Reason, At: p.At.UTC()}
	}
	if at := s.Info.Accepted; !at.IsZero() {
		r.Journal.Accepted = at.UTC()
	}
	for i := range r.Items {
		if r.Items[i].Blocked {
			r.Blocked++
		}
	}
	for _, n := range s.Nodes {
		r.Nodes = append(r.Nodes, node(n, dir))
	}
	for _, j := range s.Jobs {
		r.Jobs = append(r.Jobs, Job{Job: j.ID, Node: j.Node, Status: j.Status, Admitted: j.Admitted.UTC(), Claims: j.Claims, Why: j.Why})
	}
	return r
}

func live(l *control.Live) *control.Live {
	if l == nil {
		return nil
	}
	out := *l
	out.Started = out.Started.UTC()
	return &out
}

// Only keeps what concerns one node, or the receipts whose id begins with the name. The totals stay as they are.
func (r Report) Only(name string) Report {
	isReceipt := func(id receipt.ReceiptID) bool {
		return len(name) >= MinPrefix && strings.HasPrefix(string(id), strings.ToUpper(name))
	}
	items, nodes, jobs := []Item{}, []Node{}, []Job{}
	for _, i := range r.Items {
		if string(i.Node) == name || isReceipt(i.Receipt) {
			items = append(items, i)
		}
	}
	for _, n := range r.Nodes {
		if string(n.Node) == name {
			nodes = append(nodes, n)
		}
	}
	for _, j := range r.Jobs {
		if string(j.Node) == name {
			jobs = append(jobs, j)
		}
	}
	r.Items, r.Nodes, r.Jobs = items, nodes, jobs
	return r
}

// NeedsSomebody reports whether anything shown is blocked.
func (r Report) NeedsSomebody() bool {
	for _, i := range r.Items {
		if i.Blocked {
			return true
		}
	}
	return false
}

func named[T interface {
	comparable
	fmt.Stringer
}](all []T, counts map[T]int) map[string]int {
	out := make(map[string]int, len(all))
	for _, v := range all {
		out[v.String()] = counts[v]
	}
	return out
}

// Describe makes the item of one receipt as it is at a moment, for whoever shows a single one.
func Describe(r receipt.Receipt, now time.Time, dir string) Item { return item(r, now, dir) }

// items makes the items of many receipts, on what processors there are. For the status page that is done within the worker, whose commits
// come first.
func items(of []receipt.Receipt, now time.Time, dir string) []Item {
	out := make([]Item, len(of))
	n := runtime.GOMAXPROCS(0)
	var wg sync.WaitGroup
	for p := range n {
		wg.Go(func() {
			for i := p * len(of) / n; i < (p+1)*len(of)/n; i++ {
				out[i] = item(of[i], now, dir)
				runtime.Gosched()
			}
		})
	}
	wg.Wait()
	return out
}

func item(r receipt.Receipt, now time.Time, dir string) Item {
	i := Item{
		Receipt: r.ID, Version: r.Version, Node: r.Node, Action: r.Action, Status: r.Status, Blocked: r.Status == receipt.Unknown,
		Since: r.RequestTime.UTC(), AgeSeconds: max(0, int64(now.Sub(r.RequestTime)/time.Second)), Why: r.Why,
		Job: r.Job, Claim: r.ClaimNo, Epoch: r.Epoch, Request: r.Request,
		Horizon: r.Horizon.UTC(), HorizonLeft: int64(math.Ceil(r.Horizon.Left(now).Seconds())), Incarnation: r.Incarnation,
		Evidence: make([]Evidence, 0, len(r.Evidence)), FirstLine: firstLine(r), Look: append(caution(r, now), look(r)...), Commands: []Command{},
	}
	i.Weights = receipt.Weigh(r, now)
	if i.Weights == nil {
		i.Weights = []receipt.Weight{}
	}
	for n := range i.Weights {
		i.Weights[n].At = i.Weights[n].At.UTC()
	}
	if !r.Status.Open() {
		i.Settled, i.Ended, i.HorizonLeft = r.Settled, r.EndedAt.UTC(), 0
		i.Look = []string{}
	}
	for _, e := range r.Evidence {
		i.Evidence = append(i.Evidence, Evidence{Kind: e.Kind, Source: e.Source, At: e.At.UTC(), Text: e.String()})
	}
	if i.Blocked {
		i.Proposed = propose(r, now)
		i.Commands = commands(r, i.Weights, now, dir)
	}
	return i
}

func node(n receipt.Node, dir string) Node {
	out := Node{Node: n.ID, State: "held", Until: n.HeldUntil.UTC(), Why: n.HeldWhy, Run: command("admit", string(n.ID), "--state-dir", dir) + " --reason TEXT"}
	if n.Out != 0 {
		out.State, out.Result, out.Until = "out", n.Out, time.Time{}
		out.Why = fmt.Sprintf("%s: stays out while its server is %s", n.Out, n.OutOf)
		if !n.OutOf.Known() {
			out.Why = fmt.Sprintf("%s: stays out until it is admitted by hand or seen as another process", n.Out)
		}
		if n.HeldWhy != "" {
			out.Why += "; " + n.HeldWhy
		}
	}
	return out
}
