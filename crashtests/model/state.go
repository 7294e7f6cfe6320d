package model

import "provctl/receipt"

const (
	maxOps  = 6 // effects remembered at a time; a state with no room left begins none
	maxSeen = 7 // observations on the open receipt
	workers = 2
)

// State is all that the search tells apart. It is comparable and has no padding, so that it can be hashed as it is.
type State struct {
	Node    Node
	Job     Job
	Epoch   uint8 // of the journal
	Lock    uint8 // who holds the lock file that is at its path: worker number + 1, 0 nobody
	Open    uint8 // the node's open receipt in the journal: effect number + 1, 0 none
	Out     bool  // the node is kept out ...
	OutOf   uint8 // ... while this incarnation lasts
	Forgave uint8 // receipts before this number were forgiven when the node was admitted by hand; 0 none
	Meter   Meter // of the open receipt
	Workers [workers]Worker
	Ops     [maxOps]Op // in the order they were begun
	Seen    [maxSeen]Obs
	Left    Budget    // what may still go wrong
	Broken  Invariant // the first invariant that did not hold on the way here
}

// Mode is where the node is.
type Mode uint8

// The modes of a node.
const (
	Answers Mode = iota + 1 // in provisioning mode
	Away                    // between two lives
	Gone                    // it left provisioning mode for good
)

// Node is what is true of the node, whatever anybody thinks.
type Node struct {
	Inc    uint8 // incarnation, from 1
	Mode   Mode
	Key    uint8 // number of its key on disk, 0 none
	Conf   uint8 // number of the key that its live configuration goes with, 0 none
	Splay  bool  // an accepted restart or shutdown waits its splay, under the action mutex
	Off    bool  // that was a shutdown: it stays away until somebody starts it
	Due    bool  // its program was replaced: it restarts soon, and answers until then
	Latest bool  // it runs the version that the helper wants
	Closed bool  // its connection closed since the open receipt's request was made

	Configured, Restarted, Upgraded bool // this effect succeeded in this incarnation
	Touched                         bool // any configure began to change this incarnation
}

// Job is the node's one job that has not ended; its status is 0 before the first.
type Job struct {
	Status   receipt.JobStatus
	Epoch    uint8
	Inc      uint8 // 0 not known
	Requeues uint8 // claims that died before any receipt
	Begun    bool  // the present claim wrote a receipt
	Finish   uint8 // the configure that its restart is to find out about: effect number + 1, 0 none
}

// Phase is how much of a request's time is over.
type Phase uint8

// The phases.
const (
	Fresh   Phase = iota // before the horizon
	Expired              // past the horizon
	Late                 // past the horizon and the longest splay
)

// Wire is where a request is.
type Wire uint8

// The places.
const (
	Unsent   Wire = iota
	Flying        // published, not at the node
	Accepted      // validated; waits for the node's action mutex
	Over          // it ran, was dropped, or had expired
)

// Op is one effect: its receipt in the journal, and what is true of its request.
type Op struct {
	Action  receipt.Action
	Status  receipt.Status // 0: the journal at its path has no receipt of it
	Epoch   uint8
	Inc     uint8 // incarnation that the receipt names
	Key     uint8 // configure: the key it goes with; gen25519: the key kept with the receipt, 0 none
	Phase   Phase
	Revoked bool // its token has a tombstone

	Wire   Wire
	Ran    uint8         // how often it was executed
	Did    receipt.Event // what the execution did, in terms of its reply
	Lives  bool          // it failed, and yet its configuration is live
	Made   uint8         // gen25519: number of the key it made
	Answer bool          // a reply is on its way
	Event  bool          // a provisioned or upgraded event is on its way
	Moved  bool          // the node restarted by itself between the look before it and the end of its flight

	Heard receipt.Event // what its reply said after its receipt was taken for not begun, 0 nothing
	Told  bool          // an event said then that it was done

	Said receipt.Verdict // the verdict that settled it, as long as it may be taken back
	Idle bool            // its node had shown then that it had done all that it accepted
	Over bool            // its job has ended since
}

// Meter counts requests that the node validated since a baseline; see receipt.ByCounter. Requests that the present term knows to be
// its own are on both sides of the rule's sum and need no count.
type Meter struct {
	Excess uint8 // validated, and not known to the present term; 2 stands for more
	Asked  bool  // the present term asked since the baseline: unknown to the next
}

// PC is where a worker process stands.
type PC uint8

// The places of a worker.
const (
	Down   PC = iota
	Locked    // has the lock and the open journal
	Raised    // began its term
	Idle
	Claimed // a lane has the job
	Met     // knows the incarnation and its history
	Ready   // the node showed that nothing accepted earlier still runs; Act is next
	Looked  // looked right before the effect
	Begun   // the receipt is durable
	Fenced  // the fence let it pass; here a stopped process is dangerous
	Waiting // published
	Heard   // knows the outcome, did not settle it
)

// Worker is one process: all of it is lost in a crash.
type Worker struct {
	PC     PC
	Epoch  uint8
	Orphan bool // the journal it has open is no longer the one at its path
	Inc    uint8
	Act    receipt.Action // the next effect
	Key    uint8
	Op     uint8         // the effect under way: number + 1
	Base   Meter         // since its last look
	Moved  bool          // Looked: the node restarted by itself since
	Event  receipt.Event // Heard: what it will settle
	Look   uint8         // a look at a blocked node: effect number + 1 once the node was asked
	Saw    Obs           // what the node said then; empty if nothing
}

// Obs is an observation on the open receipt.
type Obs struct {
	Kind   receipt.EvidenceKind // 0: none
	Phase  Phase                // when it was asked for
	Inc    uint8                // stats, idle
	Excess uint8                // stats
	Latest bool                 // stats: it runs the wanted version; event: it is of an upgrade
	Former bool                 // stats: counted from a baseline that has moved since
	Live   uint8                // connections
	Closed bool                 // connections: one closed since the request
	Means  receipt.Event        // reply
	Keeps  bool                 // reply to a restart: the node would come back in provisioning mode
}

// Budget bounds what may happen in one run.
type Budget struct {
	Crashes  uint8 // of a worker
	Lost     uint8 // requests or replies that vanish
	Slow     uint8 // requests that are not over at their horizon
	Steals   uint8 // times the lock file is replaced
	Verdicts uint8 // and nodes admitted by hand
	Odd      uint8 // answers other than success, and configured nodes that come back
	Restarts uint8 // of the node by itself, or by somebody after a shutdown
	Foreign  uint8 // requests of others that the node validates
	Disk     uint8 // commits that fail, recorded or not
	Jobs     uint8
}

// open is the open receipt's effect, or nil.
func (s *State) open() *Op {
	if s.Open == 0 {
		return nil
	}
	return &s.Ops[s.Open-1]
}

// used is how many effects are remembered.
func (s *State) used() int {
	for i := range s.Ops {
		if s.Ops[i].Action == 0 {
			return i
		}
	}
	return maxOps
}

// current reports whether a worker is up and past its start.
func (w Worker) current() bool { return w.PC >= Idle }

// last is the phase after which time changes nothing for an effect.
func (o *Op) last() Phase {
	if o.leaves() {
		return Late
	}
	return Expired
}

// inUse reports whether anything can still depend on an effect's request, reply or time.
func (s *State) inUse(i int) bool {
	o := &s.Ops[i]
	return o.Status.Open() || o.Wire == Flying || o.Wire == Accepted || s.held(i) || o.denied() && (o.Answer || o.Event) ||
		int(s.Job.Finish) == i+1 || s.retractable(i)
}

// retractable reports whether the verdict that settled an effect may still be taken back: nothing was begun after it.
func (s *State) retractable(i int) bool {
	return s.Ops[i].Said != 0 && i == s.used()-1 && s.Ops[i].Inc == s.Node.Inc && s.Left.Verdicts > 0
}

// held reports whether a worker is at an effect.
func (s *State) held(i int) bool {
	for _, w := range s.Workers {
		if int(w.Op) == i+1 || int(w.Look) == i+1 {
			return true
		}
	}
	return false
}

// denied reports whether an effect was taken for not begun, which what comes later may contradict.
func (o *Op) denied() bool { return o.Status == receipt.NotApplied && !o.Action.Repeatable() }

// remembered reports whether an effect can still be part of a history that somebody asks for.
func (s *State) remembered(i int) bool {
	inc := s.Ops[i].Inc
	if inc == s.Node.Inc || s.Job.Status != receipt.Ended && inc == s.Job.Inc {
		return true
	}
	for _, w := range s.Workers {
		if w.Inc == inc {
			return true
		}
	}
	return false
}

// outdated reports whether an effect that ended changes no answer of receipt.History any more, given those around it.
func (s *State) outdated(i int) bool {
	o := s.Ops[i]
	if o.Heard != 0 || o.Told {
		return false
	}
	if o.Status.Harmless() && o.Action != receipt.Configure {
		return true
	}
	for k := range s.used() {
		other := s.Ops[k]
		if k == i || other.Status == 0 || other.Status.Open() || other.Action != o.Action || other.Inc != o.Inc {
			continue
		}
		switch {
		case o.Action == receipt.Configure && o.Status.Harmless(): // one is enough to show that there was one
			return true
		case o.Action == receipt.Gen25519 && k > i && !other.Status.Harmless(): // the last one counts
			return true
		}
	}
	return false
}

// normalise makes states that differ in nothing that matters equal. staleEnds says that the journal refuses an idle worker of an
// earlier epoch everything.
func (s *State) normalise(staleEnds bool) {
	for i := range s.Workers {
		w := &s.Workers[i]
		if w.PC == Idle && w.Look == 0 && w.Epoch != s.Epoch && staleEnds {
			*w = Worker{} // whatever it does next ends it
			if int(s.Lock) == i+1 {
				s.Lock = 0
			}
		}
		if w.PC <= Idle {
			w.Inc, w.Act, w.Key, w.Op, w.Event, w.Base, w.Moved = 0, 0, 0, 0, 0, Meter{}, false
		}
	}
	for i := range s.used() {
		o := &s.Ops[i]
		if o.Wire == Unsent && !s.held(i) {
			o.Wire = Over // whoever would have sent it is gone
		}
		o.Moved = o.Moved && o.Wire < Accepted
	}
	for i := 0; i < s.used(); i++ {
		if s.inUse(i) {
			continue
		}
		o := &s.Ops[i]
		*o = Op{
			Action: o.Action, Status: o.Status, Inc: o.Inc, Key: o.Key, Wire: Over, Phase: o.last(), Heard: o.Heard, Told: o.Told,
		}
		if o.Status == 0 || !s.remembered(i) || s.outdated(i) {
			s.forget(i)
			i--
		}
	}
	if s.Open == 0 {
		s.Node.Closed, s.Meter, s.Seen = false, Meter{}, [maxSeen]Obs{}
	}
}

// forget removes an effect and closes the gap.
func (s *State) forget(i int) {
	copy(s.Ops[i:], s.Ops[i+1:])
	s.Ops[maxOps-1] = Op{}
	shift := func(n *uint8) {
		if int(*n) > i+1 {
			*n--
		}
	}
	shift(&s.Open)
	shift(&s.Forgave)
	shift(&s.Job.Finish)
	for j := range s.Workers {
		shift(&s.Workers[j].Op)
		shift(&s.Workers[j].Look)
	}
}
