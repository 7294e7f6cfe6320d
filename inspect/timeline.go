package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"provctl/journal"
	"provctl/receipt"
)

// TimelineSchema names the timeline's form, as Schema does the report's. It is documented in docs/timeline-schema.json.
const TimelineSchema = "provctl.timeline/1"

// Timeline is what the journal keeps of one node, in sequence order. Its items are those of the report: what is open now.
type Timeline struct {
	Schema  string         `json:"schema"`
	Taken   time.Time      `json:"taken"`
	Source  Source         `json:"source"`
	Node    receipt.NodeID `json:"node"`
	Entries []Entry        `json:"entries"`
	Open    []Item         `json:"open"` // at most one
}

// Entry is one thing that happened to a node. What the journal does not number by itself has the number of what it is known with: a claim
// and the facts that of the receipt which came of them.
type Entry struct {
	Seq     receipt.Seq       `json:"seq"`
	At      time.Time         `json:"at,omitzero"` // absent: it is not on record
	Kind    string            `json:"kind"`        // admission, claim, facts, receipt, publish, reply, unknown, evidence, verdict, settled, job, end, act
	Job     receipt.JobID     `json:"job,omitempty"`
	Receipt receipt.ReceiptID `json:"receipt,omitempty"`
	Action  receipt.Action    `json:"action,omitzero"`
	Status  string            `json:"status,omitempty"` // receipt or job status after it
	By      string            `json:"by,omitempty"`
	Text    string            `json:"text"`
}

// MakeTimeline puts what is kept of a node in sequence order. It is a pure function of the story and of the moment.
func MakeTimeline(s journal.Story, node receipt.NodeID, source Source, now time.Time, dir string) Timeline {
	t := Timeline{Schema: TimelineSchema, Taken: now.Round(0).UTC(), Source: source, Node: node, Entries: []Entry{}, Open: []Item{}}
	decided := map[receipt.Seq]bool{}
	for _, j := range s.Jobs {
		t.admission(j)
	}
	claims := map[string]bool{}
	for _, r := range s.Receipts {
		if claim := fmt.Sprint(r.Job, r.ClaimNo); !claims[claim] {
			claims[claim] = true
			t.add(Entry{Seq: r.Seq, Kind: "claim", Job: r.Job, Text: fmt.Sprintf("claim %d of the job, by the worker's term %d", r.ClaimNo, r.Epoch)})
		}
		t.receipt(r)
		for _, d := range r.Decisions {
			decided[d.Seq] = true
		}
		if r.Status.Open() {
			t.Open = append(t.Open, item(r, now, dir))
		}
	}
	for _, j := range s.Jobs {
		t.standing(j, claims)
	}
	for _, a := range s.Acts {
		if !decided[a.Seq] { // else it is told with its receipt
			t.add(Entry{Seq: a.Seq, At: a.At, Kind: actKind(a), Job: a.Job, Receipt: a.Receipt, Action: a.Action, By: a.By, Text: actText(a)})
		}
	}
	slices.SortStableFunc(t.Entries, func(a, b Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	return t
}

// SalvageTimeline is Reader.Timeline for a damaged journal: what can be read of a node, and what cannot of the journal. It writes nothing.
// The error is that not even this is possible, or journal.ErrNotFound.
func SalvageTimeline(dir string, node receipt.NodeID) (Timeline, []journal.Lost, error) {
	s, lost, err := journal.SalvageStory(dir, node)
	return MakeTimeline(s, node, FromJournal, time.Now(), dir), lost, err
}

// OfJob keeps what concerns one job.
func (t Timeline) OfJob(id receipt.JobID) Timeline {
	t.Entries = kept(t.Entries, func(e Entry) bool { return e.Job == id })
	return t
}

func (t *Timeline) add(e Entry) {
	if !e.At.IsZero() {
		e.At = e.At.UTC()
	}
	t.Entries = append(t.Entries, e)
}

func (t *Timeline) admission(j receipt.Job) {
	t.add(Entry{
		Seq: j.Seq, At: j.Admitted, Kind: "admission", Job: j.ID, Status: receipt.Queued.String(), By: j.Source,
		Text: "queued, brought by " + cmp.Or(j.Source, "an unnamed source"),
	})
}

// standing says where a job ended, or stands.
func (t *Timeline) standing(j receipt.Job, claims map[string]bool) {
	e := Entry{Seq: j.Version, Kind: "job", Job: j.ID, Status: j.Status.String(), Text: because("it is "+j.Status.String(), j.Why)}
	switch {
	case j.Status == receipt.Ended:
		e.Kind, e.At, e.Text = "end", j.EndedAt, because("the job ended: "+j.Result.String(), j.Why)
	case j.Status == receipt.Claimed && !claims[fmt.Sprint(j.ID, j.Claims)]:
		e.Kind, e.Text = "claim", fmt.Sprintf("claim %d of the job, by the worker's term %d; no effect yet", j.Claims, j.Epoch)
	case j.Version == j.Seq:
		return // admitted, and nothing since
	}
	t.add(e)
}

func (t *Timeline) receipt(r receipt.Receipt) {
	of := Entry{Seq: r.Seq, Job: r.Job, Receipt: r.ID, Action: r.Action}
	with := func(kind string, at time.Time, status, by, text string) Entry {
		e := of
		e.Kind, e.At, e.Status, e.By, e.Text = kind, at, status, by, text
		return e
	}
	facts := "the node answered as " + r.Incarnation.String()
	if r.Baseline != nil {
		facts += fmt.Sprintf(", with %d requests validated so far", r.Baseline.Validated)
	}
	t.add(with("facts", time.Time{}, "", "node", facts))
	what := fmt.Sprintf("receipt for %s: request %s, which its node takes until %s, payload %.12s…", r.Action, r.Request, Time(r.Horizon.Time), r.Digest)
	if r.Target != "" {
		what += ", to version " + r.Target
	}
	t.add(with("receipt", r.RequestTime, receipt.Pending.String(), "", what))
	t.add(with("publish", r.RequestTime, "", "", published(r)))
	if doubted(r) {
		t.add(with("unknown", time.Time{}, receipt.Unknown.String(), "", because("nobody could say whether it took effect", unless(r.Status == receipt.Unknown, r.Why))))
	}
	for _, v := range r.Evidence {
		e := with("evidence", v.At, "", v.Source, v.String())
		e.Seq = max(v.Seq, r.Seq)
		t.add(e)
	}
	for _, d := range r.Decisions {
		e := with("verdict", d.At, "", d.By, decisionText(d))
		e.Seq = d.Seq
		t.add(e)
	}
	if !r.Status.Open() {
		e := with(settledKind(r), r.EndedAt, r.Status.String(), r.Settled, because("it is "+r.Status.String(), r.Why))
		e.Seq = settledAt(r)
		t.add(e)
	}
}

func published(r receipt.Receipt) string {
	made := "the request was made at " + Time(r.RequestTime)
	switch r.Status {
	case receipt.NotSent:
		return made + " and reached nobody"
	case receipt.Pending:
		return made + " and may have left; it is published at most once"
	default:
		return made + " and published at most once, after the receipt was durable"
	}
}

// doubted reports whether a receipt was unknown at some time. While it is open only its status tells; afterwards who settled it does.
func doubted(r receipt.Receipt) bool {
	return r.Status == receipt.Unknown || r.Status == receipt.Finishing || len(r.Decisions) > 0 || strings.HasPrefix(r.Settled, "evidence") || strings.HasPrefix(r.Settled, "verdict")
}

func settledKind(r receipt.Receipt) string {
	if r.Settled == "reply" {
		return "reply"
	}
	return "settled"
}

// settledAt is the number of the change that settled a receipt, or the last one known before it. A verdict has one of its own; else it is
// the receipt's last change, unless that was evidence which came later.
func settledAt(r receipt.Receipt) receipt.Seq {
	if n := len(r.Decisions); n > 0 && strings.HasPrefix(r.Settled, "verdict") {
		return r.Decisions[n-1].Seq
	}
	at := r.Seq
	for _, e := range r.Evidence {
		if e.Seq == r.Version {
			return max(at, r.Seq)
		}
		if !e.At.After(r.EndedAt) {
			at = max(at, e.Seq)
		}
	}
	return max(at, r.Version)
}

func decisionText(d receipt.Decision) string {
	text := fmt.Sprintf("verdict %s on version %d: %s", d.Verdict, d.Seen, d.Reason)
	if d.Supersedes > 0 {
		text += fmt.Sprintf("; it takes back the one at %d", d.Supersedes)
	}
	if d.Evidence != "" {
		text += "; seen: " + d.Evidence
	}
	if d.Contradicts != "" {
		text += "; against the evidence: " + d.Contradicts
	}
	return text
}

func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

func unless(ok bool, s string) string {
	if !ok {
		return ""
	}
	return s
}
