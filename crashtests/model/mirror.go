package model

import "provctl/receipt"

// Mirror is what a search takes the journal to be, driven verb by verb and without a node, for the test that holds it against the real
// journal (journal/mirror_test.go). One worker uses it, and what it says of a node's request has already happened.
type Mirror struct{ n next }

// NewMirror is a journal with a worker that has begun its first term.
func NewMirror() *Mirror {
	const plenty = 250
	m := &Mirror{n: next{m: &Model{proved: map[string]int{}}}}
	m.n.Node = Node{Inc: 1, Mode: Answers}
	m.n.Left = Budget{Slow: plenty, Verdicts: plenty, Jobs: plenty}
	m.Restart()
	return m
}

// done forgets what a search would forget.
func (m *Mirror) done() { m.n.normalise(true) }

// Restart kills the worker and starts the next, who recovers.
func (m *Mirror) Restart() {
	defer m.done()
	m.n.giveUp(0)
	m.n.start(0)
	m.n.raise(0)
	m.n.recovers(0)
}

// NewLife restarts the node, back into provisioning mode.
func (m *Mirror) NewLife() {
	defer m.done()
	m.n.dies()
	m.n.Node.Mode = Answers
}

// Wait lets every request expire, and the longest splay end.
func (m *Mirror) Wait() {
	defer m.done()
	for i := range m.n.used() {
		for m.n.timePasses(i) { //nolint:revive // until nothing is left to pass
		}
	}
}

// Sight finds the node.
func (m *Mirror) Sight() {
	defer m.done()
	m.n.discover(0)
}

// AdmitByHand has an operator take the node.
func (m *Mirror) AdmitByHand() {
	defer m.done()
	m.n.admit(0)
}

// Claim takes the queued job.
func (m *Mirror) Claim() {
	defer m.done()
	m.n.claim(0)
}

// Move requeues or ends the claimed job.
func (m *Mirror) Move(e receipt.JobEvent, r receipt.Result) {
	defer m.done()
	m.n.move(0, e, r)
}

// Full reports whether there is no room for another effect.
func (m *Mirror) Full() bool { return m.n.used() == maxOps }

// Begin begins an effect in the node's present life and publishes it; if the history forbids it the job ends as exhausted.
func (m *Mirror) Begin(a receipt.Action) bool {
	defer m.done()
	for i := range m.n.Ops {
		m.n.Ops[i].Answer = false
	}
	me := &m.n.Workers[0]
	me.PC, me.Act, me.Inc = Looked, a, m.n.Node.Inc
	if a.Repeatable() {
		me.PC = Ready
	}
	m.n.begin(0)
	if me.PC != Begun {
		return false
	}
	me.PC, m.n.open().Wire = Waiting, Over
	return true
}

// Settle records the outcome of the effect under way and takes the job's next step.
func (m *Mirror) Settle(e receipt.Event) {
	defer m.done()
	if o := m.n.open(); o.Action == receipt.Gen25519 {
		o.Made = 1
	}
	m.n.Workers[0].PC, m.n.Workers[0].Event = Heard, e
	m.n.settleEffect(0)
}

// See adds an observation to the open receipt; false if there is no room for it.
func (m *Mirror) See(o Obs) bool {
	defer m.done()
	if m.n.Open == 0 || m.n.Seen[maxSeen-1].Kind != 0 {
		return false
	}
	o.Phase = m.n.open().Phase
	m.n.note(o)
	return true
}

// Prove tries the rules on the open receipt.
func (m *Mirror) Prove() {
	defer m.done()
	if o := m.n.open(); o != nil && o.Status == receipt.Unknown {
		m.n.prove(int(m.n.Open) - 1)
	}
}

// Decide records a verdict that is true; false if it is refused. After not-applied the node may still contradict.
func (m *Mirror) Decide(v receipt.Verdict) bool {
	defer m.done()
	o := m.n.open()
	if o == nil {
		return false
	}
	o.Ran, o.Did = 0, 0
	if v == receipt.VerdictApplied {
		o.Ran, o.Did = 1, receipt.ReplyApplied
	}
	taken := m.n.verdict(v)
	o.Answer = taken && o.denied()
	return taken
}

// Contradict adds what the node says against a verdict not-applied on the last effect; false if there is none such.
func (m *Mirror) Contradict(o Obs) bool {
	defer m.done()
	last := m.n.used() - 1
	if last < 0 || !m.n.Ops[last].denied() || !m.n.Ops[last].Answer || m.n.Ops[last].Inc != m.n.Node.Inc {
		return false
	}
	m.n.Ops[last].Answer = false
	if o.Kind == receipt.SawEvent {
		m.n.tell(o)
	} else {
		m.n.Ops[last].Heard = o.Means
	}
	return true
}

// Life is the node's present life.
func (m *Mirror) Life() uint8 { return m.n.Node.Inc }

// Job is the status of the node's job, and the life that it began effects in, 0 none; ended if there is no job.
func (m *Mirror) Job() (receipt.JobStatus, uint8) {
	if m.n.Job.Status == 0 {
		return receipt.Ended, 0
	}
	return m.n.Job.Status, m.n.Job.Inc
}

// Open is the status of the node's open receipt and its action; zero if there is none.
func (m *Mirror) Open() (receipt.Status, receipt.Action) {
	if o := m.n.open(); o != nil {
		return o.Status, o.Action
	}
	return 0, 0
}

// History is what the node's present life has been through, as far as it is remembered.
func (m *Mirror) History() receipt.History { return m.n.history(m.n.Node.Inc) }
