package receipt

import "fmt"

// Status is where a receipt stands. Values are stored: append only, never renumber.
type Status uint8

// The statuses of a receipt. Pending and Unknown are open; all others are final, except that an operator may take back his verdict, and
// that the restart which he has sent to find out may settle what is Finishing.
const (
	Pending    Status = 1  // durable; its request may have left
	Unknown    Status = 2  // nobody can say whether it took effect: the node is blocked
	Applied    Status = 3  // it took effect
	Refused    Status = 4  // rejected before any change
	Failed     Status = 5  // the node answered, and may have changed something
	NotSent    Status = 6  // provably never published, or delivered to nobody
	NotApplied Status = 7  // proved, or decided by an operator, not to have begun
	Moot       Status = 8  // whether it took effect no longer matters: its incarnation is gone, or it may simply be repeated
	Abandoned  Status = 9  // ended by an operator without a claim about the node
	Finishing  Status = 10 // an operator has the node restarted to find out: the node's answer settles it
)

var statusNames = map[Status]string{
	Pending: "pending", Unknown: "unknown", Applied: "applied", Refused: "refused", Failed: "failed", NotSent: "not-sent",
	NotApplied: "not-applied", Moot: "moot", Abandoned: "abandoned",
	Finishing: "finishing",
}

// Statuses lists every status, in the order of their numbers.
func Statuses() []Status {
	return []Status{Pending, Unknown, Applied, Refused, Failed, NotSent, NotApplied, Moot, Abandoned, Finishing}
}

// String is the status's name in output and in the journal.
func (s Status) String() string { return nameOf(statusNames, s, "status") }

// MarshalText stores the status by name.
func (s Status) MarshalText() ([]byte, error) { return marshalName(statusNames, s, "status") }

// UnmarshalText reads a status's name; an unknown one is an error.
func (s *Status) UnmarshalText(b []byte) error { return unmarshalName(statusNames, s, b, "status") }

// Open reports whether the receipt still lacks an outcome. While it is open no effect may be sent to its node.
func (s Status) Open() bool { return s == Pending || s == Unknown }

// Harmless reports whether the status says for certain that nothing on the node changed.
func (s Status) Harmless() bool { return s == Refused || s == NotSent || s == NotApplied }

// Event is what happens to a receipt. Values are stored: append only, never renumber.
type Event uint8

// The events of a receipt.
const (
	ReplyApplied  Event = 1  // the one reply says it took effect
	ReplyRefused  Event = 2  // the one reply says it was rejected before any change
	ReplyFailed   Event = 3  // the one reply says it failed, perhaps half way
	NeverSent     Event = 4  // provably never published, or delivered to nobody
	Lost          Event = 5  // no usable reply, or the worker died: unknown
	ProvedApplied Event = 6  // evidence proves it took effect
	ProvedRefused Event = 7  // evidence proves it was rejected
	ProvedFailed  Event = 8  // evidence proves it failed after it may have changed something
	ProvedNotDone Event = 9  // evidence proves it never began
	ProvedMoot    Event = 10 // evidence proves it no longer matters
	SaidApplied   Event = 11 // verdict applied
	SaidNotDone   Event = 12 // verdict not-applied
	SaidAbandon   Event = 13 // verdict abandon
	SaidFinish    Event = 14 // verdict finish
	Withdrawn     Event = 15 // an operator takes his verdict back, or the restart that was to find out told nothing
)

var eventNames = map[Event]string{
	ReplyApplied: "reply-applied", ReplyRefused: "reply-refused", ReplyFailed: "reply-failed", NeverSent: "never-sent", Lost: "lost",
	ProvedApplied: "proved-applied", ProvedRefused: "proved-refused", ProvedFailed: "proved-failed", ProvedNotDone: "proved-not-done",
	ProvedMoot: "proved-moot", SaidApplied: "said-applied", SaidNotDone: "said-not-done", SaidAbandon: "said-abandon",
	SaidFinish: "said-finish", Withdrawn: "withdrawn",
}

// Events lists every receipt event, in the order of their numbers.
func Events() []Event {
	out := make([]Event, 0, len(eventNames))
	for e := ReplyApplied; e <= Withdrawn; e++ {
		out = append(out, e)
	}
	return out
}

// String is the event's name in output and in the journal.
func (e Event) String() string { return nameOf(eventNames, e, "event") }

// MarshalText stores the event by name.
func (e Event) MarshalText() ([]byte, error) { return marshalName(eventNames, e, "event") }

// UnmarshalText reads an event's name; an unknown one is an error.
func (e *Event) UnmarshalText(b []byte) error { return unmarshalName(eventNames, e, b, "event") }

// transitions is the only way a receipt moves, live and at replay.
var transitions = map[Status]map[Event]Status{
	Pending: {
		ReplyApplied: Applied, ReplyRefused: Refused, ReplyFailed: Failed, NeverSent: NotSent, Lost: Unknown,
	},
	Unknown: {
		ProvedApplied: Applied, ProvedRefused: Refused, ProvedFailed: Failed, ProvedNotDone: NotApplied, ProvedMoot: Moot,
		SaidApplied: Applied, SaidNotDone: NotApplied, SaidAbandon: Abandoned, SaidFinish: Finishing,
	},
	Finishing: {
		ProvedApplied: Applied, ProvedFailed: Failed, ProvedNotDone: NotApplied, ProvedMoot: Moot, Withdrawn: Unknown,
	},
	Applied:    {Withdrawn: Unknown},
	NotApplied: {Withdrawn: Unknown},
	Abandoned:  {Withdrawn: Unknown},
}

// Apply moves a status by an event. Anything the table does not hold is ErrIllegalTransition; in particular only Withdrawn
// moves a final status, so a late settle cannot overwrite a verdict nor a verdict an outcome. Whose verdict may be withdrawn is for the
// journal to say.
func (s Status) Apply(e Event) (Status, error) {
	if to, ok := transitions[s][e]; ok {
		return to, nil
	}
	return s, fmt.Errorf("receipt %s on %s: %w", s, e, ErrIllegalTransition)
}

// Verdict is an operator's decision on an unknown receipt. Values are stored: append only, never renumber.
type Verdict uint8

// The verdicts.
const (
	VerdictApplied    Verdict = 1 // it took effect: the job goes on with its next step
	VerdictNotApplied Verdict = 2 // it did not: the job is queued again
	VerdictAbandon    Verdict = 3 // nobody will find out: the job ends, the node stays out
	VerdictFinish     Verdict = 4 // of a configure alone: restart the node, and take from its answer what became of it
)

var verdictNames = map[Verdict]string{VerdictApplied: "applied", VerdictNotApplied: "not-applied", VerdictAbandon: "abandon", VerdictFinish: "finish"}

// Verdicts lists every verdict, in the order of their numbers.
func Verdicts() []Verdict {
	return []Verdict{VerdictApplied, VerdictNotApplied, VerdictAbandon, VerdictFinish}
}

// String is the verdict's name on the command line.
func (v Verdict) String() string { return nameOf(verdictNames, v, "verdict") }

// MarshalText stores the verdict by name.
func (v Verdict) MarshalText() ([]byte, error) { return marshalName(verdictNames, v, "verdict") }

// UnmarshalText reads a verdict's name; an unknown one is an error.
func (v *Verdict) UnmarshalText(b []byte) error { return unmarshalName(verdictNames, v, b, "verdict") }

// Event is what the verdict does to its receipt.
func (v Verdict) Event() Event {
	return map[Verdict]Event{VerdictApplied: SaidApplied, VerdictNotApplied: SaidNotDone, VerdictAbandon: SaidAbandon, VerdictFinish: SaidFinish}[v]
}
