package journal_test

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"provctl/journal"
	"provctl/journal/journaltest"
	"provctl/receipt"
)

// machine calls the verbs in any order, as worker, operator and crash would, and holds a model of its own beside: what was begun,
// and what became of it. It checks invariants 2, 3 and 5 of the design.
type machine struct {
	b       *journaltest.Bench
	t       *rapid.T
	pending map[receipt.ReceiptID]*journal.Pending // begun in this term, not settled
	effects []*effect                              // all that were ever begun, in order
	pruned  time.Time
}

// effect is what the model knows of a receipt.
type effect struct {
	id       receipt.ReceiptID
	node     receipt.NodeID
	life     receipt.Incarnation
	action   receipt.Action
	status   receipt.Status
	forgiven bool
}

var nodes = []receipt.NodeID{"n1", "n2"}

func TestStateMachine(t *testing.T) {
	t.Parallel()
	f := factory()
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{b: journaltest.NewBench(t, f), t: rt, pending: map[receipt.ReceiptID]*journal.Pending{}}
		actions := map[string]func(*rapid.T){
			"admit": m.admit, "claim": m.claim, "work": m.work, "begin": m.begin, "begin again": m.begin, "settle": m.settle, "settle again": m.settle, "move": m.move, "restart": m.restart,
			"see": m.see, "decide": m.decide, "by hand": m.byHand, "return": m.comeBack, "wait": m.wait, "prune": m.prune, "": m.check,
		}
		for range 5 { // some thirty steps each
			rt.Repeat(actions)
		}
		m.restart(rt)
		if err := m.b.Store.Close(); err != nil {
			rt.Fatal(err)
		}
	})
}

// may fails the test unless the error is nil or one that is allowed here; true if it is nil.
func (m *machine) may(err error, allowed ...error) bool {
	m.t.Helper()
	if err == nil {
		return true
	}
	for _, a := range allowed {
		if errors.Is(err, a) {
			return false
		}
	}
	m.t.Fatalf("unexpected: %v", err)
	return false
}

func (m *machine) node(t *rapid.T) receipt.NodeID { return rapid.SampledFrom(nodes).Draw(t, "node") }

func (m *machine) life(t *rapid.T) receipt.Incarnation {
	return journaltest.Life(int64(rapid.IntRange(1, 2).Draw(t, "life")))
}

func (m *machine) jobOf(n receipt.NodeID) (receipt.Job, bool) {
	rec, err := m.b.Store.Node(n)
	if !m.may(err, journal.ErrNotFound) || rec.Job == "" {
		return receipt.Job{}, false
	}
	job, err := m.b.Store.Job(rec.Job)
	return job, m.may(err)
}

func (m *machine) admit(t *rapid.T) {
	n := m.node(t)
	_, busy := m.jobOf(n)
	got, err := m.b.Store.Admit(m.b.Ctx(), []journal.Sighting{{Node: n, At: m.b.Clock.Now()}}, 1)
	m.may(err)
	if busy && got[0].State == journal.Admitted || m.openOf(n) != nil && got[0].State != journal.BlockedNode && got[0].State != journal.Known {
		t.Fatalf("%s: %+v", n, got[0])
	}
}

func (m *machine) claim(t *rapid.T) {
	job, ok := m.jobOf(m.node(t))
	if !ok {
		return
	}
	_, err := m.b.Store.Claim(m.b.Ctx(), job.ID)
	if m.may(err, receipt.ErrIllegalTransition) != (job.Status == receipt.Queued) {
		t.Fatalf("claim of a %s job: %v", job.Status, err)
	}
}

// work brings a node to the point where effects can begin, if anything allows it.
func (m *machine) work(t *rapid.T) {
	n := m.node(t)
	_, err := m.b.Store.Admit(m.b.Ctx(), []journal.Sighting{{Node: n, At: m.b.Clock.Now()}}, 1)
	m.may(err)
	if job, ok := m.jobOf(n); ok && job.Status == receipt.Queued {
		_, err := m.b.Store.Claim(m.b.Ctx(), job.ID)
		m.may(err)
	}
}

func (m *machine) openOf(n receipt.NodeID) *effect {
	var open *effect
	for _, e := range m.effects {
		if e.node == n && e.status.Open() {
			if open != nil {
				m.t.Fatalf("%s has two open receipts: %s and %s", n, open.id, e.id)
			}
			open = e
		}
	}
	return open
}

// allowed says in other words than package receipt what invariant 3 allows.
func (m *machine) allowed(n receipt.NodeID, life receipt.Incarnation, a receipt.Action) bool {
	failed := 0
	for _, e := range m.effects {
		if e.node == n && e.life != life && e.status == receipt.Finishing {
			return false
		}
		if e.node != n || e.life != life {
			continue
		}
		keys := a == receipt.Gen25519 || a == receipt.GenCSR
		if keys && e.action == receipt.Configure {
			return false
		}
		again := e.forgiven && (a == receipt.Restart || a == receipt.Shutdown) // the node evidently outlived it
		if keys || e.action != a || again {
			continue
		}
		switch e.status {
		case receipt.Refused, receipt.NotSent, receipt.NotApplied:
		case receipt.Failed:
			if !e.forgiven {
				failed++
			}
		case receipt.Abandoned:
			if !e.forgiven {
				return false
			}
		default:
			return false
		}
	}
	return failed < 3
}

func (m *machine) begin(t *rapid.T) {
	n, life := m.node(t), m.life(t)
	a := rapid.SampledFrom([]receipt.Action{receipt.Gen25519, receipt.Configure, receipt.Configure, receipt.Restart}).Draw(t, "action")
	job, ok := m.jobOf(n)
	if !ok {
		return
	}
	p, err := m.b.Store.Begin(m.b.Ctx(), m.b.Intent(job.ID, a, life))
	begun := m.may(err, receipt.ErrIllegalTransition, receipt.ErrRepeat, receipt.ErrFenced)
	should := job.Status == receipt.Claimed && job.Epoch == m.b.Term && m.openOf(n) == nil && m.allowed(n, life, a)
	if begun != should {
		t.Fatalf("begin %s on %s (%s): %v, but the model says %v", a, n, life, err, should)
	}
	if !begun {
		return
	}
	r := p.Receipt()
	m.pending[r.ID] = p
	m.effects = append(m.effects, &effect{id: r.ID, node: n, life: life, action: a, status: receipt.Pending})
	if rapid.Bool().Draw(t, "publish") {
		m.may(p.MarkPublished())
	}
}

func (m *machine) settle(t *rapid.T) {
	e := m.openOf(m.node(t))
	if e == nil || m.pending[e.id] == nil {
		return
	}
	event := rapid.SampledFrom([]receipt.Event{receipt.ReplyApplied, receipt.ReplyRefused, receipt.ReplyFailed, receipt.NeverSent, receipt.Lost}).Draw(t, "event")
	next := rapid.SampledFrom([]journal.Next{
		{},
		{},
		{Event: receipt.Requeue, Why: "again"},
		{Event: receipt.End, Result: receipt.FailedJob, HoldUntil: m.b.Clock.Now().Add(time.Minute)},
		{Event: receipt.End, Result: receipt.Exhausted},
	}).Draw(t, "next")
	r, err := m.b.Store.Settle(m.b.Ctx(), m.pending[e.id], journal.Settlement{Event: event, Next: next})
	m.may(err)
	_, err = m.b.Store.Settle(m.b.Ctx(), m.pending[e.id], journal.Settlement{Event: event, Next: next})
	if m.may(err, receipt.ErrIllegalTransition) {
		t.Fatal("settled twice")
	}
	m.may(m.pending[e.id].MarkPublished(), receipt.ErrRepeat)
	delete(m.pending, e.id)
	e.status, err = receipt.Pending.Apply(event)
	m.may(err)
	if r.Status != e.status {
		t.Fatalf("receipt is %s, want %s", r.Status, e.status)
	}
}

func (m *machine) move(t *rapid.T) {
	n := m.node(t)
	job, ok := m.jobOf(n)
	if !ok {
		return
	}
	next := rapid.SampledFrom([]journal.Next{{Event: receipt.Requeue}, {Event: receipt.End, Result: receipt.Deferred}}).Draw(t, "next")
	_, err := m.b.Store.Move(m.b.Ctx(), job.ID, next)
	if m.may(err, journal.ErrBlocked, receipt.ErrIllegalTransition, receipt.ErrFenced) && m.openOf(n) != nil {
		t.Fatal("a job moved while its receipt is open")
	}
}

// restart is a crash: whatever was pending is not settled by anybody.
func (m *machine) restart(t *rapid.T) {
	old := m.pending
	m.b.Reopen()
	rec, err := m.b.Store.Recover(m.b.Ctx(), journal.RecoverPolicy{MaxRequeues: 2, StaleAfter: time.Hour})
	m.may(err)
	if rec.Count(journal.MadeUnknown) != len(old) {
		t.Fatalf("%d receipts were pending, recovery made %d unknown", len(old), rec.Count(journal.MadeUnknown))
	}
	for _, e := range m.effects {
		if old[e.id] != nil {
			e.status = receipt.Unknown
		}
	}
	m.pending = map[receipt.ReceiptID]*journal.Pending{}
}

func (m *machine) see(t *rapid.T) {
	e := m.openOf(m.node(t))
	if e == nil {
		return
	}
	seen := rapid.SampledFrom([]receipt.Evidence{
		m.b.SawReply(receipt.ReplyApplied, "late"), m.b.SawReply(receipt.ReplyRefused, "late"), m.b.SawLife(journaltest.Life(3), 9, 0), m.b.SawLife(e.life, 9, 0),
		m.b.SawIdle(e.life),
	}).Draw(t, "evidence")
	_, err := m.b.Store.Note(m.b.Ctx(), e.id, []receipt.Evidence{seen}, nil)
	m.may(err)
	r, proof, err := m.b.Store.Prove(m.b.Ctx(), e.id)
	m.may(err)
	if proof != nil && e.status != receipt.Unknown || (proof == nil) != (r.Status == e.status) {
		t.Fatalf("%s receipt proved to %s by %+v", e.status, r.Status, proof)
	}
	e.status = r.Status
}

func (m *machine) decide(t *rapid.T) {
	n := m.node(t)
	e := m.openOf(n)
	if e == nil {
		m.supersede(t, n)
		return
	}
	v := rapid.SampledFrom(receipt.Verdicts()).Draw(t, "verdict")
	r, err := m.b.Store.Receipt(e.id)
	m.may(err)
	if v == receipt.VerdictFinish && r.Action != receipt.Configure {
		return
	}
	got, err := m.b.Store.Decide(m.b.Ctx(), journal.Decision{Receipt: e.id, Seen: r.Version, Verdict: v, By: "me", Reason: "x", Contradict: true})
	guess := v == receipt.VerdictNotApplied && r.MayStillRun()
	if decided := m.may(err, journal.ErrInFlight, receipt.ErrBeforeHorizon, journal.ErrMayStillRun); decided != (e.status == receipt.Unknown && r.Horizon.Passed(m.b.Clock.Now()) && !guess) {
		t.Fatalf("verdict on a %s receipt, %s left: %v", e.status, r.Horizon.Left(m.b.Clock.Now()), err)
	} else if decided {
		e.status = got.Status
	}
}

// supersede gives another verdict on a node's last receipt.
func (m *machine) supersede(t *rapid.T, n receipt.NodeID) {
	var last *effect
	for _, e := range m.effects {
		if e.node == n {
			last = e
		}
	}
	if last == nil {
		return
	}
	was, err := m.b.Store.Receipt(last.id)
	m.may(err)
	v := rapid.SampledFrom(receipt.Verdicts()).Draw(t, "other verdict")
	got, err := m.b.Store.Decide(m.b.Ctx(), journal.Decision{Receipt: last.id, Seen: was.Version, Verdict: v, By: "you", Reason: "y", Contradict: true})
	if !m.may(err, receipt.ErrStale, journal.ErrInFlight, receipt.ErrInvalid, receipt.ErrBeforeHorizon, journal.ErrMayStillRun) {
		return
	}
	if was.Settled != "verdict" || len(got.Decisions) != len(was.Decisions)+1 || got.Decisions[len(was.Decisions)].Supersedes != was.Decisions[len(was.Decisions)-1].Seq {
		t.Fatalf("%s by %s was superseded: %+v", was.Status, was.Settled, got.Decisions)
	}
	last.status = got.Status
}

// told takes over what a restart told of a configure that was waiting for it.
func (m *machine) told(e *effect, now receipt.Status) {
	if e.status == receipt.Finishing {
		e.status = now
	}
}

func (m *machine) byHand(t *rapid.T) {
	n := m.node(t)
	_, err := m.b.Store.AdmitByHand(m.b.Ctx(), n, "me", "x")
	if m.may(err, journal.ErrBlocked) != (m.openOf(n) == nil) {
		t.Fatalf("admit by hand: %v", err)
	}
	for _, e := range m.effects {
		e.forgiven = e.forgiven || err == nil && e.node == n
	}
}

func (m *machine) comeBack(t *rapid.T) {
	m.may(m.b.Store.Return(m.b.Ctx(), m.node(t), m.life(t)), journal.ErrNotFound)
}

func (m *machine) wait(t *rapid.T) {
	m.b.Clock.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)
}

func (m *machine) prune(*rapid.T) {
	m.pruned = m.b.Clock.Now().Add(-time.Hour)
	_, err := m.b.Store.Prune(m.b.Ctx(), m.pruned)
	m.may(err)
}

// check: nothing is lost, and the journal says of each receipt what the model says.
func (m *machine) check(t *rapid.T) {
	for _, n := range nodes {
		m.openOf(n)
	}
	open := 0
	for _, e := range m.effects {
		r, err := m.b.Store.Receipt(e.id)
		m.may(err)
		m.told(e, r.Status)
		if r.Status != e.status {
			t.Fatalf("receipt %s is %s, the model says %s", e.id, r.Status, e.status)
		}
		if e.status.Open() {
			open++
		}
		job, err := m.b.Store.Job(r.Job)
		m.may(err)
		if want := map[receipt.Status]receipt.JobStatus{receipt.Pending: receipt.Claimed, receipt.Unknown: receipt.Blocked}[e.status]; want != 0 && job.Status != want {
			t.Fatalf("job of a %s receipt is %s", e.status, job.Status)
		}
	}
	listed, err := m.b.Store.OpenReceipts()
	m.may(err)
	if len(listed) != open {
		t.Fatalf("%d open receipts, the model has %d", len(listed), open)
	}
}
