package journal

import (
	"log/slog"
	"time"

	"provctl/receipt"
)

// Options are what a journal needs from outside. The zero value works.
type Options struct {
	Now     func() time.Time        // nil: time.Now
	NewID   func() string           // nil: ULIDs; must never repeat
	Log     *slog.Logger            // nil: nothing is logged
	Verify  func(path string) error // the full check of Open; nil: Verify in this process
	Observe func(CommitStats)       // called after each commit, on the committer's goroutine: must not block
	Hold    time.Duration           // a node is not taken again for so long after its job ended well by evidence or verdict; 0: 60 s

	fault func(point string) error // nil outside of tests
}

// Info says which journal it is and how far it has come.
type Info struct {
	ID      string        `json:"id"`
	Format  int           `json:"format"`
	Epoch   receipt.Epoch `json:"epoch"`
	Seq     receipt.Seq   `json:"seq"`
	Created time.Time     `json:"created"`
	Path    string        `json:"path"`
	Pause   *Pause        `json:"pause,omitempty"` // nil: not paused

	Accepted time.Time `json:"accepted,omitzero"` // when somebody went on with it though newer work is lost: see Accept
}

// CommitStats describes one commit.
type CommitStats struct {
	Operations int           // changes that were committed together
	Took       time.Duration // from the first byte to the marker's sync
	Moves
}

// Moves are what changes decided about receipts and jobs. Each is told once, after it is durable.
type Moves struct {
	Settled []Settled        // receipts that got their outcome
	Unknown int              // receipts that became unknown
	Ended   []receipt.Result // of jobs that ended
}

// Settled is a receipt's outcome and by what it was settled: evidence and verdicts begin with that word.
type Settled struct {
	By     string
	Status receipt.Status
}

func (m *Moves) add(more Moves) {
	m.Settled = append(m.Settled, more.Settled...)
	m.Unknown += more.Unknown
	m.Ended = append(m.Ended, more.Ended...)
}

// Stats sums up the commits since Open.
type Stats struct {
	Commits     int64
	Operations  int64
	LastCommit  time.Duration
	MaxCommit   time.Duration
	LostNotes   int64 // evidence of NoteSoon that could not be kept
	LastSuccess time.Time
}

// Sighting is one node that asks to be provisioned.
type Sighting struct {
	Node   receipt.NodeID
	Source string    // what brought it: discovery, event
	At     time.Time // when it was seen; zero: now
}

// AdmitState says what became of a sighting.
type AdmitState uint8

// The states of a sighting.
const (
	Admitted    AdmitState = 1 // a new job is queued
	Known       AdmitState = 2 // its job is queued or claimed already
	BlockedNode AdmitState = 3 // it has an open receipt that nobody waits for
	Held        AdmitState = 4 // it is not taken before NodeRecord.HeldUntil
	Out         AdmitState = 5 // it stays out until its incarnation changes (see Return) or it is admitted by hand
	Full        AdmitState = 6 // there was no room: nothing is remembered, the next sighting counts
	Invalid     AdmitState = 7 // the identity is not allowed
)

var admitNames = [...]string{"", "admitted", "known", "blocked", "held", "out", "full", "invalid"}

// String is the state's name in logs.
func (s AdmitState) String() string {
	if int(s) < len(admitNames) && s > 0 {
		return admitNames[s]
	}
	return "admit state ?"
}

// Admission is the answer to one sighting.
type Admission struct {
	Node       receipt.NodeID
	State      AdmitState
	Job        receipt.Job  // Admitted, Known, BlockedNode
	NodeRecord receipt.Node // as it is now; zero if nothing is remembered
}

// Intent is an effect about to be sent. Its request is built already: the TTL clock runs.
type Intent struct {
	Job         receipt.JobID
	Action      receipt.Action
	Incarnation receipt.Incarnation // as observed just now
	Request     receipt.RequestID
	RequestTime time.Time
	Horizon     receipt.Horizon
	Digest      string // SHA-256 of the payload, hex
	Target      string // of a release_update: the version asked for; no other effect has one
	Baseline    *receipt.Baseline
}

// Next is a job's next step.
type Next struct {
	Event     receipt.JobEvent // 0: the claim goes on; Requeue or End otherwise
	Result    receipt.Result   // with End
	Why       string
	HoldUntil time.Time     // the node is not taken before; zero: no hold
	NotBefore time.Time     // with Requeue: the job waits until then
	Told      receipt.Event // of a restart that was to find out about a configure: what it proves of it; 0: nothing
}

// Settlement ends the waiting for an effect.
type Settlement struct {
	Event receipt.Event // a Reply event, NeverSent or Lost
	Why   string        // the reason, for people
	By    string        // by what: reply, flush, no-responders, horizon
	Key   *receipt.Key  // of a gen25519
	Next  Next          // Lost blocks the job whatever this says
}

// Decision is an operator's verdict on an unknown receipt.
type Decision struct {
	Receipt receipt.ReceiptID
	Seen    receipt.Seq // the version that was decided on
	Verdict receipt.Verdict
	By      string // who, as the system knows it
	Reason  string // why; not empty

	Evidence   string // what the operator saw beyond what the receipt holds; may be empty
	Contradict bool   // give it although evidence says otherwise
}

// RecoverPolicy are the limits of Recover.
type RecoverPolicy struct {
	MaxRequeues int           // claims that may die without any receipt
	StaleAfter  time.Duration // a queued job not seen for longer ends; 0: none does
	Hold        time.Duration // hold of a node whose job ended as exhausted; 0: Options.Hold
}

// RecoverAction says what Recover did with an item. Values are for logs, not stored.
type RecoverAction uint8

// What Recover does.
const (
	MadeUnknown RecoverAction = 1 // a pending receipt nobody waits for: its node is blocked
	Requeued    RecoverAction = 2 // a claim that died before any receipt, counted
	WentOn      RecoverAction = 3 // a claim whose receipts all have an outcome: queued for its next step
	Exhausted   RecoverAction = 4 // a claim that died before any receipt too often
	Staled      RecoverAction = 5 // a queued job not seen for too long
	Redated     RecoverAction = 6 // an unknown receipt from a clock that was ahead: it has a horizon that can pass
)

var recoverNames = [...]string{"", "unknown", "requeued", "goes-on", "exhausted", "stale", "redated"}

// String is the action's name in logs.
func (a RecoverAction) String() string {
	if int(a) < len(recoverNames) && a > 0 {
		return recoverNames[a]
	}
	return "recover action ?"
}

// Recovered is one item that Recover moved.
type Recovered struct {
	Did     RecoverAction
	Job     receipt.Job      // as it is now
	Receipt *receipt.Receipt // MadeUnknown, Redated: as it is now
	Why     string
}

// Recovery lists what Recover did, in sequence order of the jobs.
type Recovery struct{ Items []Recovered }

// Count is how many items were moved that way.
func (r Recovery) Count(a RecoverAction) int {
	n := 0
	for _, i := range r.Items {
		if i.Did == a {
			n++
		}
	}
	return n
}

// Tally counts over the journal's whole life, pruned work included.
type Tally struct {
	Evidence int64 `json:"evidence"` // unknown receipts that a proof rule settled
	Verdicts int64 `json:"verdicts"` // unknown receipts that an operator settled
	Requeues int64 `json:"requeues"` // times a job went back to the queue
}

// Snapshot is a consistent copy of what matters to a reader. No transaction stays open behind it.
type Snapshot struct {
	Info     Info                      `json:"info"`
	Taken    time.Time                 `json:"taken"`
	Jobs     []receipt.Job             `json:"jobs"`      // active, in sequence order
	Open     []receipt.Receipt         `json:"open"`      // in sequence order
	Nodes    []receipt.Node            `json:"nodes"`     // held or out, by name
	ByJob    map[receipt.JobStatus]int `json:"by_job"`    // active jobs, and all that ever ended
	ByResult map[receipt.Result]int    `json:"by_result"` // all jobs that ever ended, forgotten ones included
	Tally    Tally                     `json:"tally"`
	ByStatus map[receipt.Status]int    `json:"by_status"` // open receipts, and all that ever ended
}
