// Package crashpoint names the moments of a run that leave no trace on the disk or the wire, so that a test can end the program
// at exactly one of them.
//
// In the program as it is released Here does nothing and is compiled away. Built with the tag crashpoints it obeys three
// variables of the environment:
//
//	PROVCTL_CRASHPOINT=name[#n]        at the n-th pass (1 if not said) the process kills itself, as kill -9 would
//	PROVCTL_CRASHPOINT_STOP=name[#n]   at the n-th pass the process suspends itself until it gets SIGCONT
//	PROVCTL_CRASHPOINTS_LOG=file       each passed name is appended to the file, a line in one write
//
// Each point is called at one place only; its comment says what is done there and what is not.
package crashpoint

// Point is a moment of a run.
type Point string

// The start of a worker.
const (
	// LockTaken: the lock is held; the journal was not opened and the epoch not raised.
	LockTaken Point = "lock-taken"
	// EpochRaised: this term has begun; what earlier ones left is not settled.
	EpochRaised Point = "epoch-raised"
	// Recovered: what the journal alone tells is settled; the broker was not reached.
	Recovered Point = "recovered"
	// Connected: the broker is reached; no unknown receipt was looked at.
	Connected Point = "connected"
	// Looked: every unknown receipt was looked at once; no work is taken yet.
	Looked Point = "looked"
)

// The way of a node to its effects.
const (
	// Admitted: new jobs are durable; no lane knows of them.
	Admitted Point = "admitted"
	// Claimed: the claim is durable; the node was asked nothing.
	Claimed Point = "claimed"
	// HelperAnswered: the helper has decided; no effect follows from it yet.
	HelperAnswered Point = "helper-answered"
	// Prepared: the request is signed and its time runs; there is no receipt.
	Prepared Point = "prepared"
	// Begun: the receipt's commit has returned; nothing is published.
	Begun Point = "begun"
	// FencePassed: the fence allowed the request; it is not marked as published.
	FencePassed Point = "fence-passed"
	// MarkedPublished: the request may leave only now; it has not.
	MarkedPublished Point = "marked-published"
	// Published: the request was handed to the connection; the broker has not acknowledged it.
	Published Point = "published"
	// Flushed: the broker has the request; nobody waits for the reply yet.
	Flushed Point = "flushed"
	// ReplyRead: the outcome is known; it is not settled.
	ReplyRead Point = "reply-read"
	// StepSettled: the outcome is durable and the pass goes on; the next step has not begun.
	StepSettled Point = "step-settled"
	// JobMoved: where the job stands is durable; the worker has not acted on it.
	JobMoved Point = "job-moved"
)

// One commit.
const (
	// Committed: the transaction is durable; the marker does not say so.
	Committed Point = "committed"
	// Acknowledged: transaction and marker are durable; nobody was told.
	Acknowledged Point = "acknowledged"
)

// Evidence and verdicts.
const (
	// ReplyLate: a reply that nobody waits for was heard; it is not kept.
	ReplyLate Point = "reply-late"
	// EventHeard: a lifecycle event of a node with an open receipt was heard; it is not kept.
	EventHeard Point = "event-heard"
	// EvidenceKept: what node and broker said is durable; no rule was tried on it.
	EvidenceKept Point = "evidence-kept"
	// Proved: a rule has settled the receipt; its job is not followed.
	Proved Point = "proved"
	// VerdictTaken: the running worker has recorded a verdict; the operator has no answer and the job is not followed.
	VerdictTaken Point = "verdict-taken"
	// VerdictFiled: a verdict without a worker is recorded; the operator has no answer.
	VerdictFiled Point = "verdict-filed"
)

// The end of a worker.
const (
	// StopBegun: no pass begins any more; those under way have not ended.
	StopBegun Point = "stop-begun"
	// Stopped: all is settled; journal and lock are still held.
	Stopped Point = "stopped"
)

// All lists the points in the order of a run.
func All() []Point {
	return []Point{
		LockTaken, EpochRaised, Recovered, Connected, Looked,
		Admitted, Claimed, HelperAnswered, Prepared, Begun, FencePassed, MarkedPublished, Published, Flushed, ReplyRead, StepSettled, JobMoved,
		Committed, Acknowledged,
		ReplyLate, EventHeard, EvidenceKept, Proved, VerdictTaken, VerdictFiled,
		StopBegun, Stopped,
	}
}
