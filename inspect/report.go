package inspect

import (
	"time"

	"provctl/internal/control"
	"provctl/journal"
	"provctl/receipt"
)

// Schema names the report's form. It changes when a field changes its meaning or goes; new fields do not change it.
// The form is documented in docs/inspect-schema.json.
const Schema = "provctl.inspect/1"

// Report is what inspect shows: one consistent moment. All times are UTC.
type Report struct {
	Schema  string        `json:"schema"`
	Taken   time.Time     `json:"taken"`
	Source  Source        `json:"source"`
	Worker  *control.Live `json:"worker"` // null without a worker
	Journal Journal       `json:"journal"`
	Counts  Counts        `json:"counts"`
	Blocked int           `json:"blocked"` // items that need somebody, before any filter
	Items   []Item        `json:"items"`   // open receipts, oldest first
	Nodes   []Node        `json:"nodes"`   // held or out, by name
	Jobs    []Job         `json:"jobs,omitempty"`

	Asked    *Item     `json:"asked,omitempty"`    // the ended receipt that was asked for
	Timeline *Timeline `json:"timeline,omitempty"` // of the one node that was asked for
	Damage   *Damage   `json:"damage,omitempty"`   // the journal is damaged: the rest is what can be read

	Unanswered []string `json:"unanswered,omitempty"` // what a probe without a worker asked in vain, and why
}

// Damage says why a journal cannot be trusted, and what of it cannot be read.
type Damage struct {
	Why        string         `json:"why"`
	Unreadable []journal.Lost `json:"unreadable"`
}

// Journal says which journal was read.
type Journal struct {
	ID      string        `json:"id"`
	Format  int           `json:"format"`
	Epoch   receipt.Epoch `json:"epoch"`
	Seq     receipt.Seq   `json:"seq"`
	Created time.Time     `json:"created"`
	Path    string        `json:"path"`
	Paused  *Pause        `json:"paused,omitempty"` // nil: not paused

	Accepted time.Time `json:"accepted,omitzero"` // when somebody went on with it though newer work is lost
}

// Pause says who has the worker begin nothing, since when and why.
type Pause struct {
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// Counts are over the journal's whole life, pruned work included. Every status and result is present, zeros too.
type Counts struct {
	Jobs              map[string]int `json:"jobs"`
	Results           map[string]int `json:"results"`
	Receipts          map[string]int `json:"receipts"`
	SettledByEvidence int64          `json:"settled_by_evidence"` // unknown receipts that a proof rule settled
	SettledByVerdict  int64          `json:"settled_by_verdict"`  // unknown receipts that an operator settled
	Requeues          int64          `json:"requeues"`            // times a job went back to the queue
}

// Item is one receipt: an open one, unless it was asked for by its id.
type Item struct {
	Receipt     receipt.ReceiptID   `json:"receipt"`
	Version     receipt.Seq         `json:"version"` // what --seen wants
	Node        receipt.NodeID      `json:"node"`
	Action      receipt.Action      `json:"action"`
	Status      receipt.Status      `json:"status"`  // of an open one: unknown or pending
	Blocked     bool                `json:"blocked"` // it is unknown: nothing but evidence or a verdict ends it
	Since       time.Time           `json:"since"`   // when the request was made
	AgeSeconds  int64               `json:"age_seconds"`
	Why         string              `json:"why"`
	Job         receipt.JobID       `json:"job"`
	Claim       int                 `json:"claim"`
	Epoch       receipt.Epoch       `json:"epoch"`
	Request     receipt.RequestID   `json:"request"`
	Horizon     time.Time           `json:"horizon"`
	HorizonLeft int64               `json:"horizon_left_seconds"` // seconds until a verdict is taken; 0: now
	Incarnation receipt.Incarnation `json:"incarnation"`
	Evidence    []Evidence          `json:"evidence"`
	Weights     []receipt.Weight    `json:"weights"`              // what speaks for and against each verdict
	Settled     string              `json:"settled,omitempty"`    // of one that has ended: by what
	Ended       time.Time           `json:"ended,omitzero"`       // ... and when
	Proposed    *Proposal           `json:"proposed"`             // null: no rule concludes anything
	FirstLine   string              `json:"first_line,omitempty"` // how the node's configuration file begins if a configure was applied
	Look        []string            `json:"look"`
	Commands    []Command           `json:"commands"`
}

// Evidence is one observation in words.
type Evidence struct {
	Kind   receipt.EvidenceKind `json:"kind"`
	Source string               `json:"source"`
	At     time.Time            `json:"at"`
	Text   string               `json:"text"`
}

// Proposal is what a proof rule concludes, as advice.
type Proposal struct {
	Verdict receipt.Verdict `json:"verdict"`
	Rule    string          `json:"rule"`
	Why     string          `json:"why"`
}

// Command is something to type, and what it brings about.
type Command struct {
	Verdict receipt.Verdict `json:"verdict"`
	Run     string          `json:"run"`
	Then    string          `json:"then"`
}

// Node is one that is not taken at present.
type Node struct {
	Node   receipt.NodeID `json:"node"`
	State  string         `json:"state"` // held or out
	Until  time.Time      `json:"until,omitzero"`
	Why    string         `json:"why"`
	Result receipt.Result `json:"result,omitzero"` // out: why it stays out
	Run    string         `json:"run"`             // takes it at once
}

// Job is active work; only in a filtered report.
type Job struct {
	Job      receipt.JobID     `json:"job"`
	Node     receipt.NodeID    `json:"node"`
	Status   receipt.JobStatus `json:"status"`
	Admitted time.Time         `json:"admitted"`
	Claims   int               `json:"claims"`
	Why      string            `json:"why"`
}
