package model

import "provctl/receipt"

// Invariant is one thing that must hold in every state.
type Invariant uint8

// The invariants. The first eleven are outcomes, the others are what the protocol promises about its own mechanisms.
const (
	RanTwice          Invariant = iota + 1 // a request was executed twice
	RepeatedEffect                         // an effect succeeded twice in one incarnation
	KeyAfterConfigure                      // a key was made in an incarnation that a configure had begun to change
	WrongKey                               // the live configuration goes with another key than the node has
	WrongLife                              // an effect that may not repeat ran in another incarnation than its receipt names
	RanAfterOutcome                        // a request was executed although its receipt had an outcome
	FalseOutcome                           // a receipt's outcome is not what happened
	OutcomeChanged                         // a receipt that had an outcome got another
	JobLost                                // no path leads to an end: the job is neither ended, nor queued, nor blocked
	OverBlocked                            // a node stays blocked although nothing is ambiguous
	NoReceipt                              // a request left, or was executed, without a durable receipt
	TwoOpen                                // a request left, or a receipt was begun, while another receipt of the node was open
	EarlyVerdict                           // a verdict was taken before the horizon
	StaleWrite                             // the journal took a write of an earlier epoch
	LostLock                               // the fence passed a worker that has lost its lock
	EpochBack                              // an epoch was not above all before
	Contradicted                           // an effect was begun anew although the node had said, against a verdict, that it did it
	IllegalMove                            // the program asked for a transition that its tables do not hold
)

var invariantNames = [...]string{
	RanTwice:          "a request runs at most once",
	RepeatedEffect:    "an effect succeeds at most once in an incarnation",
	KeyAfterConfigure: "no key is made after a configure",
	WrongKey:          "a configuration goes with the node's key",
	WrongLife:         "an effect runs in the incarnation that its receipt names",
	RanAfterOutcome:   "nothing runs after its receipt has an outcome",
	FalseOutcome:      "an outcome says what happened",
	OutcomeChanged:    "an outcome is final",
	JobLost:           "no job is lost",
	OverBlocked:       "a node is blocked only if in doubt",
	NoReceipt:         "no effect without a durable receipt",
	TwoOpen:           "one open receipt of a node at most",
	EarlyVerdict:      "no verdict before the horizon",
	StaleWrite:        "no write of an earlier epoch",
	LostLock:          "no effect passes the fence without the lock",
	EpochBack:         "epochs rise",
	Contradicted:      "no effect is begun anew against the node's word",
	IllegalMove:       "only transitions of the tables",
}

// String is the invariant as a sentence.
func (i Invariant) String() string {
	if int(i) < len(invariantNames) && invariantNames[i] != "" {
		return invariantNames[i]
	}
	return "no invariant"
}

// must notes that an invariant does not hold, unless it holds or the run looks past it. The first one counts.
func (n *next) must(holds bool, i Invariant) {
	if !holds && n.Broken == 0 && !n.m.past[i] {
		n.Broken = i
	}
}

// onPublish is asked when a request leaves. One that is past its time no longer counts: its node drops it.
func (n *next) onPublish(i int) {
	n.must(n.Ops[i].Status != 0, NoReceipt)
	n.must(n.Open == 0 || int(n.Open) == i+1 || n.Ops[i].Phase != Fresh && !n.m.has(NoTTL), TwoOpen)
}

// onBegin is asked when an effect is about to get a receipt.
func (n *next) onBegin(a receipt.Action, inc uint8) {
	for i := range n.used() {
		o := &n.Ops[i]
		said := o.Told || o.Heard == receipt.ReplyApplied || o.Heard == receipt.ReplyFailed
		n.must(!said || o.Action != a || o.Inc != inc, Contradicted)
	}
}

// onRun is asked when the node begins to execute a request.
func (n *next) onRun(i int) {
	o := &n.Ops[i]
	n.must(o.Ran == 0, RanTwice)
	n.must(o.Status != 0, NoReceipt)
	n.must(o.Action.Repeatable() || o.Inc == n.Node.Inc, WrongLife)
	switch o.Status {
	case receipt.Pending, receipt.Unknown:
	case receipt.Abandoned, receipt.Finishing: // it claims nothing
	case receipt.Moot, receipt.NotApplied: // keys may be made again: one accepted in time may still wait for the node's mutex
		n.must(o.Action.Repeatable(), RanAfterOutcome)
	default:
		n.must(false, RanAfterOutcome)
	}
}

// onDone is asked when an execution has changed the node. A restart counts as done once it is accepted.
func (n *next) onDone(i int) {
	o := &n.Ops[i]
	done := o.Did == receipt.ReplyApplied
	switch o.Action {
	case receipt.Gen25519:
		n.must(!n.Node.Touched, KeyAfterConfigure)
	case receipt.Configure:
		n.must(!done || !n.Node.Configured, RepeatedEffect)
		n.Node.Configured, n.Node.Touched = n.Node.Configured || done, true
	case receipt.ReleaseUpdate:
		n.must(!done || !n.Node.Upgraded, RepeatedEffect)
		n.Node.Upgraded = n.Node.Upgraded || done
	case receipt.Restart, receipt.Shutdown:
		n.must(!n.Node.Restarted, RepeatedEffect)
		n.Node.Restarted = true
	}
	n.must(n.Node.Conf == 0 || n.Node.Conf == n.Node.Key, WrongKey)
}

// onOutcome is asked when a receipt gets its outcome, however it came by it. What a restart finds out is whether a configuration is live.
func (n *next) onOutcome(i int, e receipt.Event, was receipt.Status) {
	o := &n.Ops[i]
	canRun := o.Wire == Accepted || o.Wire == Flying && o.Phase == Fresh
	did := func(what receipt.Event) bool { return o.Ran > 0 && o.Did == what }
	switch {
	case was == receipt.Finishing && e == receipt.ProvedApplied:
		n.must(did(receipt.ReplyApplied) || o.Lives, FalseOutcome)
		return
	case was == receipt.Finishing && e == receipt.ProvedNotDone:
		n.must(!did(receipt.ReplyApplied) && !o.Lives && !canRun, FalseOutcome)
		return
	}
	switch e {
	case receipt.ReplyApplied, receipt.ProvedApplied:
		restarted := o.Action == receipt.Restart && n.Node.Inc > o.Inc && !canRun
		n.must(did(receipt.ReplyApplied) || restarted, FalseOutcome)
	case receipt.ReplyRefused, receipt.ProvedRefused:
		n.must(did(receipt.ReplyRefused), FalseOutcome)
	case receipt.ReplyFailed, receipt.ProvedFailed:
		n.must(did(receipt.ReplyFailed), FalseOutcome)
	case receipt.NeverSent, receipt.ProvedNotDone:
		n.must(o.Ran == 0 && !canRun, FalseOutcome)
	case receipt.ProvedMoot:
		n.must(!canRun || o.Action.Repeatable() && o.Wire == Accepted, FalseOutcome)
	}
}

// onVerdict is asked when a verdict is recorded.
func (n *next) onVerdict(i int) { n.must(n.Ops[i].Phase != Fresh, EarlyVerdict) }

// final reports whether a state is one that work may rest in: nothing is under way, and the job ended, waits, or is blocked.
func (m *Model) final(s *State) bool {
	for _, w := range s.Workers {
		if w.PC > Idle || w.Look != 0 {
			return false
		}
	}
	for i := range s.used() {
		if o := &s.Ops[i]; o.Wire == Flying || o.Wire == Accepted || o.Answer || o.Event {
			return false
		}
	}
	switch s.Job.Status {
	case receipt.Blocked:
		return m.lookedAt(s)
	case receipt.Claimed:
		return false
	default:
		return !s.Node.Splay && !s.Node.Due && (s.Node.Mode != Away || s.Node.Off)
	}
}

// lookedAt reports whether another look at a blocked node, however late, would change nothing: no rule settles its receipt.
func (m *Model) lookedAt(s *State) bool {
	o := s.open()
	if o == nil || o.Phase != o.last() {
		return false
	}
	for w := range s.Workers {
		n := &next{State: *s, m: m}
		if n.showIdle(w) {
			return false
		}
		if n.lookAsk(w) && n.lookNote(w) {
			n.normalise(!m.has(NoWriteEpoch))
			return n.State == *s
		}
	}
	return false
}

// overBlocked reports whether a node rests blocked although all that a look can find out says that its effect was never
// dispatched: it answers in the same life, and nobody else's requests blur its counter.
func (s *State) overBlocked() bool {
	o := s.open()
	return o != nil && s.Node.Mode == Answers && s.Node.Inc == o.Inc && o.Ran == 0 && s.Meter.Excess == 0
}
