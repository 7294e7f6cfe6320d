package control

import (
	"context"
	"time"

	"provctl/journal"
	"provctl/receipt"
)

// SocketName is the socket's name inside the state directory.
const SocketName = "worker.sock"

// State is what a worker is at.
type State string

// The states of a worker, in the order in which it goes through them.
const (
	Settling State = "settling" // it settles what an earlier worker left; no work is taken yet
	Running  State = "running"
	Stopping State = "stopping" // no new work; effects in flight end or reach their horizon
	Stopped  State = "stopped"  // a commit failed or the work is over: it only answers
)

// Live is what a worker says of itself.
type Live struct {
	PID       int           `json:"pid"`
	Epoch     receipt.Epoch `json:"epoch"`
	State     State         `json:"state"`
	Connected bool          `json:"connected"` // to the broker
	Lanes     int           `json:"lanes"`
	Busy      int           `json:"busy"`              // lanes at work
	Parked    int           `json:"parked"`            // effects that wait for a reply or their horizon without a lane
	Queue     int           `json:"queue"`             // jobs waiting for a lane
	Gate      string        `json:"gate"`              // why no new work is taken; empty if it is
	Standby   string        `json:"standby,omitempty"` // why it does not lead; empty if it does, or if there is no election
	Started   time.Time     `json:"started"`
	Version   string        `json:"version"`
}

// Reader is what the socket serves of the journal besides the snapshot, as the journal's methods of the same names do.
type Reader interface {
	Story(node receipt.NodeID) (journal.Story, error)
	Find(prefix string) ([]receipt.Receipt, error)
	Audit(from receipt.Seq) ([]journal.Act, error)
	Standings(after receipt.NodeID, most int) ([]journal.Standing, error)
}

// Worker is what the socket serves. Every method may be called at any time and by several at once; none may block for longer
// than its context, or than a commit where it has none.
type Worker interface {
	Reader
	// Live never fails and never waits.
	Live() Live
	// Snapshot copies the journal's state as of now.
	Snapshot() (journal.Snapshot, error)
	// Decide records a verdict; when it returns without an error that is durable.
	Decide(ctx context.Context, d journal.Decision) (receipt.Receipt, error)
	// AdmitByHand queues a node; when it returns without an error that is durable.
	AdmitByHand(ctx context.Context, node receipt.NodeID, by, reason string) (receipt.Job, error)
	// Release ends a node's hold; when it returns without an error that is durable.
	Release(ctx context.Context, node receipt.NodeID, by, reason string) (receipt.Node, error)
	// Pause has the worker begin no effect and no helper; when it returns without an error that is durable.
	Pause(ctx context.Context, by, reason string) (journal.Pause, error)
	// Resume ends a pause and returns it, nil if there was none; when it returns without an error that is durable.
	Resume(ctx context.Context, by string) (*journal.Pause, error)
	// Probe gathers evidence about an open receipt now and settles it if a rule allows; it returns the receipt as it then is.
	Probe(ctx context.Context, r receipt.ReceiptID) (receipt.Receipt, error)
	// Drain has the worker take no new work and exit once what is at work has ended. It does not wait.
	Drain(by string) Draining
}

// The requests as they travel. By is absent on purpose: the server takes it from the peer's credentials.
type (
	decideRequest struct {
		Receipt    receipt.ReceiptID `json:"receipt"`
		Seen       receipt.Seq       `json:"seen"`
		Verdict    receipt.Verdict   `json:"verdict"`
		Reason     string            `json:"reason"`
		Operator   string            `json:"operator,omitempty"`
		Evidence   string            `json:"evidence,omitempty"`
		Contradict bool              `json:"contradict,omitzero"`
	}
	admitRequest struct {
		Node     receipt.NodeID `json:"node"`
		Reason   string         `json:"reason"`
		Operator string         `json:"operator,omitempty"`
	}
	releaseRequest struct {
		Node     receipt.NodeID `json:"node"`
		Reason   string         `json:"reason"`
		Operator string         `json:"operator,omitempty"`
	}
	pauseRequest struct {
		Reason   string `json:"reason"`
		Operator string `json:"operator,omitempty"`
	}
	resumeRequest struct {
		Operator string `json:"operator,omitempty"`
	}
	probeRequest struct {
		Receipt receipt.ReceiptID `json:"receipt"`
	}
)

// The limits of one exchange.
const (
	maxRequest  = 64 << 10  // bytes of a request's body
	maxResponse = 512 << 20 // bytes of an answer: a snapshot of 100,000 open receipts has its place
	maxMessage  = 4 << 10   // bytes of an error's text
	maxAtOnce   = 16        // requests served at the same time
)
