package inspect

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"provctl/internal/control"
	"provctl/journal"
	"provctl/receipt"
)

// NodesSchema names the form of the list of nodes. It is documented in docs/nodes-schema.json.
const NodesSchema = "provctl.nodes/1"

// Nodes are the nodes that the journal knows.
type Nodes struct {
	Schema string         `json:"schema"`
	Taken  time.Time      `json:"taken"`
	Source Source         `json:"source"`
	Counts map[string]int `json:"counts"` // of all nodes, by state, whatever was asked for
	Nodes  []NodeRow      `json:"nodes"`  // by name
}

// NodeRow is one node and what it is at.
type NodeRow struct {
	Node    receipt.NodeID    `json:"node"`
	State   string            `json:"state"`
	Since   time.Time         `json:"since,omitzero"` // when that began, as far as it is on record
	Until   time.Time         `json:"until,omitzero"` // held: not taken before
	Why     string            `json:"why"`
	Job     receipt.JobID     `json:"job,omitempty"`
	Receipt receipt.ReceiptID `json:"receipt,omitempty"` // the one without an outcome
	Last    receipt.Result    `json:"last,omitzero"`     // how its last job ended
}

// NodeStates lists where a node can stand: blocked, claimed and queued have a job; held, exhausted and abandoned are not taken at present;
// done is any other whose last job has ended.
func NodeStates() []string {
	return []string{"blocked", "claimed", "queued", "held", "exhausted", "abandoned", "done"}
}

// ParseNodesFilter is ParseFilter with the states of nodes.
func ParseNodesFilter(t FilterText) (Filter, error) {
	states := words(t.States)
	for _, s := range states {
		if !slices.Contains(NodeStates(), s) {
			return Filter{}, fmt.Errorf("--state %.80q: %w: it must be one of %s", s, receipt.ErrInvalid, strings.Join(NodeStates(), ", "))
		}
	}
	f, err := ParseFilter(FilterText{Node: t.Node}, time.Time{})
	f.states = states
	return f, err
}

// atATime is how many nodes are asked of a worker at a time: it goes on committing in between.
const atATime = 2000

// Nodes lists the nodes that a filter of ParseNodesFilter chooses. Without a state it chooses all but those that are done. Through a
// worker it is not one moment: nodes move while it reads.
func (r Reader) Nodes(ctx context.Context, f Filter) (Nodes, error) {
	return read(ctx, r,
		func(c *control.Client) (Nodes, error) {
			n := newNodes(FromWorker)
			for after := receipt.NodeID(""); ; {
				some, err := c.Standings(ctx, after, atATime)
				if err != nil || len(some) == 0 {
					return n, err
				}
				n.add(some, f)
				after = some[len(some)-1].Node.ID
			}
		},
		func() (Nodes, error) {
			n := newNodes(FromJournal)
			err := journal.ReadStandings(r.Dir, func(some []journal.Standing) error { n.add(some, f); return nil })
			return n, err
		})
}

// SalvageNodes is Reader.Nodes for a damaged journal: what can be read, and what cannot. It writes nothing. The error is that not even this
// is possible.
func SalvageNodes(dir string, f Filter) (Nodes, []journal.Lost, error) {
	n := newNodes(FromJournal)
	some, lost, err := journal.SalvageStandings(dir)
	n.add(some, f)
	return n, lost, err
}

func newNodes(from Source) Nodes {
	n := Nodes{Schema: NodesSchema, Taken: time.Now().Round(0).UTC(), Source: from, Counts: map[string]int{}, Nodes: []NodeRow{}}
	for _, s := range NodeStates() {
		n.Counts[s] = 0
	}
	return n
}

func (n *Nodes) add(some []journal.Standing, f Filter) {
	for _, s := range some {
		row := nodeRow(s, n.Taken)
		n.Counts[row.State]++
		if f.named(row.Node) && f.state(row.State) && (row.State != "done" || len(f.states) > 0) {
			n.Nodes = append(n.Nodes, row)
		}
	}
}

func nodeRow(s journal.Standing, now time.Time) NodeRow {
	row := NodeRow{Node: s.Node.ID, State: "done", Since: s.Node.LastEnded.UTC(), Last: s.Node.LastResult}
	switch {
	case s.Open != nil && s.Open.Status == receipt.Unknown:
		row.State, row.Since, row.Why, row.Receipt, row.Job = "blocked", s.Open.RequestTime.UTC(), because(s.Open.Action.String(), s.Open.Why), s.Open.ID, s.Open.Job
	case s.Job != nil:
		row.State, row.Since, row.Why, row.Job = s.Job.Status.String(), s.Job.Admitted.UTC(), s.Job.Why, s.Job.ID
		if s.Open != nil {
			row.Receipt, row.Why = s.Open.ID, "waits for the reply to "+s.Open.Action.String()
		}
	case s.Node.Out != 0:
		row.State, row.Why = s.Node.Out.String(), node(s.Node, "").Why
	case s.Node.HeldUntil.After(now):
		row.State, row.Until, row.Why = "held", s.Node.HeldUntil.UTC(), s.Node.HeldWhy
	case row.Last != 0:
		row.Why = row.Last.String()
	}
	return row
}

// WriteNodes writes the list for people, the counts last.
func WriteNodes(w io.Writer, n Nodes, s Style) error {
	p := &printer{style: s}
	if len(n.Nodes) > 0 {
		rows := make([][]string, 0, len(n.Nodes))
		for _, r := range n.Nodes {
			when := "-"
			switch {
			case !r.Until.IsZero():
				when = until(r.Until, n.Taken)
			case !r.Since.IsZero():
				when = age(max(0, int64(n.Taken.Sub(r.Since)/time.Second))) + " ago"
			}
			rows = append(rows, []string{r.State, Printable(string(r.Node)), when, Printable(r.Why)})
		}
		p.table(nodesWidth+6, []string{"STATE", "NODE", "WHEN", "WHY"}, rows)
	}
	var counts []string
	for _, state := range NodeStates() {
		counts = append(counts, fmt.Sprintf("%d %s", n.Counts[state], state))
	}
	p.line(strings.Join(counts, ", "))
	_, err := io.WriteString(w, p.b.String())
	return err
}
