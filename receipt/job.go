package receipt

import (
	"fmt"
	"time"
)

// JobStatus is where a job stands. Values are stored: append only, never renumber.
type JobStatus uint8

// The statuses of a job.
const (
	Queued  JobStatus = 1 // admitted, waiting for a lane
	Claimed JobStatus = 2 // a worker's epoch is at it
	Blocked JobStatus = 3 // its node has an unknown receipt
	Ended   JobStatus = 4 // final: see its Result
)

var jobStatusNames = map[JobStatus]string{Queued: "queued", Claimed: "claimed", Blocked: "blocked", Ended: "ended"}

// JobStatuses lists every job status, in the order of their numbers.
func JobStatuses() []JobStatus { return []JobStatus{Queued, Claimed, Blocked, Ended} }

// String is the status's name in output and in the journal.
func (s JobStatus) String() string { return nameOf(jobStatusNames, s, "job status") }

// MarshalText stores the status by name.
func (s JobStatus) MarshalText() ([]byte, error) { return marshalName(jobStatusNames, s, "job status") }

// UnmarshalText reads a status's name; an unknown one is an error.
func (s *JobStatus) UnmarshalText(b []byte) error {
	return unmarshalName(jobStatusNames, s, b, "job status")
}

// JobEvent is what happens to a job.
type JobEvent uint8

// The events of a job.
const (
	Claim   JobEvent = 1 // a lane takes it
	Requeue JobEvent = 2 // it goes back to the queue: nothing of this claim is open
	Block   JobEvent = 3 // its receipt became unknown
	Resume  JobEvent = 4 // the unknown receipt was settled and the job goes on
	End     JobEvent = 5 // it is over
)

var jobEventNames = map[JobEvent]string{Claim: "claim", Requeue: "requeue", Block: "block", Resume: "resume", End: "end"}

// JobEvents lists every job event, in the order of their numbers.
func JobEvents() []JobEvent { return []JobEvent{Claim, Requeue, Block, Resume, End} }

// String is the event's name.
func (e JobEvent) String() string { return nameOf(jobEventNames, e, "job event") }

var jobTransitions = map[JobStatus]map[JobEvent]JobStatus{
	Queued:  {Claim: Claimed, End: Ended},
	Claimed: {Requeue: Queued, Block: Blocked, End: Ended},
	Blocked: {Resume: Queued, End: Ended},
}

// Apply moves a job's status by an event; anything the table does not hold is ErrIllegalTransition.
func (s JobStatus) Apply(e JobEvent) (JobStatus, error) {
	if to, ok := jobTransitions[s][e]; ok {
		return to, nil
	}
	return s, fmt.Errorf("job %s on %s: %w", s, e, ErrIllegalTransition)
}

// Result says how a job ended. Values are stored: append only, never renumber.
type Result uint8

// The results of a job.
const (
	Provisioned Result = 1  // configured, and its restart was accepted
	ShutDown    Result = 2  // the helper asked for it and the node accepted
	Deferred    Result = 3  // the helper wants the node to be asked again later
	FailedJob   Result = 4  // a step failed or was refused; the node is held and taken again
	Stale       Result = 5  // not seen for two intervals while it waited
	Superseded  Result = 6  // the node came back as another incarnation
	Left        Result = 7  // the node left provisioning mode before its last step was proved
	Exhausted   Result = 8  // too many tries; stays out until its incarnation changes or it is admitted by hand
	GivenUp     Result = 9  // a verdict abandon ended it; stays out likewise
	Upgraded    Result = 10 // its server was replaced and restarts: new work at once
)

var resultNames = map[Result]string{
	Provisioned: "provisioned", ShutDown: "shutdown", Deferred: "deferred", FailedJob: "failed", Stale: "stale",
	Superseded: "superseded", Left: "left", Exhausted: "exhausted", GivenUp: "abandoned", Upgraded: "upgraded",
}

// Results lists every result, in the order of their numbers.
func Results() []Result {
	return []Result{Provisioned, ShutDown, Deferred, FailedJob, Stale, Superseded, Left, Exhausted, GivenUp, Upgraded}
}

// String is the result's name in output and in the journal.
func (r Result) String() string { return nameOf(resultNames, r, "result") }

// MarshalText stores the result by name.
func (r Result) MarshalText() ([]byte, error) { return marshalName(resultNames, r, "result") }

// UnmarshalText reads a result's name; an unknown one is an error.
func (r *Result) UnmarshalText(b []byte) error { return unmarshalName(resultNames, r, b, "result") }

// StaysOut reports whether a node whose job ended so is kept out until its incarnation changes or it is admitted by hand.
func (r Result) StaysOut() bool { return r == Exhausted || r == GivenUp }

// Job is the work of provisioning one node once, from admission to end.
type Job struct {
	ID          JobID       `json:"id"`
	Node        NodeID      `json:"node"`
	Seq         Seq         `json:"seq"`     // when it was admitted
	Version     Seq         `json:"version"` // when it last changed
	Status      JobStatus   `json:"status"`
	Source      string      `json:"source"`               // what brought it: discovery, event, operator
	Admitted    time.Time   `json:"admitted"`             // wall clock, for people and for staleness
	Seen        time.Time   `json:"seen"`                 // last sighting
	Claims      int         `json:"claims,omitzero"`      // attempts so far, this one included
	Begun       int         `json:"begun,omitzero"`       // receipts written in the current claim
	Requeues    int         `json:"requeues,omitzero"`    // claims that a dying worker left without any receipt
	Epoch       Epoch       `json:"epoch,omitzero"`       // of the last claim
	Incarnation Incarnation `json:"incarnation,omitzero"` // once known
	Receipts    []ReceiptID `json:"receipts,omitempty"`   // in sequence order
	Result      Result      `json:"result,omitzero"`      // once ended
	Why         string      `json:"why,omitempty"`        // the reason of the last change, for people
	EndedAt     time.Time   `json:"ended_at,omitzero"`    // wall clock
	NotBefore   time.Time   `json:"not_before,omitzero"`  // a requeued job waits until then
	Finish      ReceiptID   `json:"finish,omitempty"`     // the configure that its restart is to settle: see VerdictFinish
}
