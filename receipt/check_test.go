package receipt_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"provctl/receipt"
)

// spoiled is one way to spoil a good record.
type spoiled[T any] struct {
	name  string
	spoil func(*T)
}

func refusesEach[T interface{ Check() error }](t *testing.T, good func() T, ways []spoiled[T]) {
	t.Helper()
	if err := good().Check(); err != nil {
		t.Fatalf("the good record: %v", err)
	}
	for _, w := range ways {
		v := good()
		w.spoil(&v)
		if err := v.Check(); !errors.Is(err, receipt.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", w.name, err)
		}
	}
}

// TestReceiptCheck spoils one field at a time.
func TestReceiptCheck(t *testing.T) {
	type R = receipt.Receipt
	refusesEach(t, fullReceipt, []spoiled[R]{
		{"id", func(r *R) { r.ID = "" }},
		{"job", func(r *R) { r.Job = "" }},
		{"request", func(r *R) { r.Request = "" }},
		{"token", func(r *R) { r.Token = "" }},
		{"node", func(r *R) { r.Node = "a b" }},
		{"no node", func(r *R) { r.Node = "" }},
		{"sequence", func(r *R) { r.Seq = 0 }},
		{"version before the sequence", func(r *R) { r.Version = r.Seq - 1 }},
		{"epoch", func(r *R) { r.Epoch = 0 }},
		{"no action", func(r *R) { r.Action = 0 }},
		{"action", func(r *R) { r.Action = 7 }},
		{"no status", func(r *R) { r.Status = 0 }},
		{"status", func(r *R) { r.Status = 11 }},
		{"incarnation", func(r *R) { r.Incarnation = receipt.Incarnation{} }},
		{"incarnation without a start", func(r *R) { r.Incarnation.Start = 0 }},
		{"incarnation without a pid", func(r *R) { r.Incarnation.PID = -1 }},
		{"request time", func(r *R) { r.RequestTime = time.Time{} }},
		{"no horizon", func(r *R) { r.Horizon = receipt.Horizon{} }},
		{"horizon at the request", func(r *R) { r.Horizon.Time = r.RequestTime }},
		{"digest", func(r *R) { r.Digest = r.Digest[1:] }},
		{"target of something else than an upgrade", func(r *R) { r.Target = "1.2.3" }},
		{"upgrade without a target", func(r *R) { r.Action = receipt.ReleaseUpdate }},
		{"no digest", func(r *R) { r.Digest = "" }},
		{"evidence without content", func(r *R) { r.Evidence[1].Event = nil }},
		{"evidence of no kind", func(r *R) { r.Evidence[3].Kind = 0 }},
		{"evidence of a reply without meaning", func(r *R) { r.Evidence[0].Reply.Means = 0 }},
		{"decision", func(r *R) { r.Decisions[0].Verdict = 5 }},
		{"decision without a sequence", func(r *R) { r.Decisions[0].Seq = 0 }},
	})
}

// TestJobCheck spoils one field at a time.
func TestJobCheck(t *testing.T) {
	type J = receipt.Job
	refusesEach(t, sampleJob, []spoiled[J]{
		{"id", func(j *J) { j.ID = "" }},
		{"node", func(j *J) { j.Node = "x>" }},
		{"sequence", func(j *J) { j.Seq = 0 }},
		{"version", func(j *J) { j.Version = j.Seq - 1 }},
		{"no status", func(j *J) { j.Status = 0 }},
		{"status", func(j *J) { j.Status = 5 }},
		{"ended without a result", func(j *J) { j.Status = receipt.Ended }},
		{"a result before the end", func(j *J) { j.Result = receipt.Provisioned }},
		{"unknown result", func(j *J) { j.Status, j.Result = receipt.Ended, 11 }},
		{"claims", func(j *J) { j.Claims = -1 }},
		{"requeues", func(j *J) { j.Requeues = -1 }},
		{"begun", func(j *J) { j.Begun = -1 }},
	})
}

// TestNodeCheck spoils one field at a time.
func TestNodeCheck(t *testing.T) {
	type N = receipt.Node
	refusesEach(t, sampleNode, []spoiled[N]{
		{"no id", func(n *N) { n.ID = "" }},
		{"id", func(n *N) { n.ID = "*" }},
		{"version", func(n *N) { n.Version = 0 }},
		{"open receipt without a job", func(n *N) { n.Job = "" }},
		{"out for a result that keeps nobody out", func(n *N) { n.Out = receipt.Provisioned }},
	})
	n := sampleNode()
	n.Out = receipt.GivenUp
	if err := n.Check(); err != nil {
		t.Errorf("a node that was given up: %v", err)
	}
}

// TestChecksBoundWhatTheyQuote: a huge identity does not become a huge message.
func TestChecksBoundWhatTheyQuote(t *testing.T) {
	huge := receipt.NodeID(strings.Repeat("x\n", 1<<20))
	r, j, n := sample(receipt.Restart, receipt.Unknown), sampleJob(), sampleNode()
	r.Node, j.Node, n.ID = huge, huge, huge
	for _, err := range []error{r.Check(), j.Check(), n.Check()} {
		if err == nil || len(err.Error()) > 500 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%d bytes", len(err.Error()))
		}
	}
}
