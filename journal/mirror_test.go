package journal_test

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"provctl/crashtests/model"
	"provctl/journal"
	"provctl/journal/journaltest"
	"provctl/receipt"
)

// twin drives the real journal and the one that package model searches with by the same verbs, on one node.
type twin struct {
	told    int64 // events after a verdict
	b       *journaltest.Bench
	m       *model.Mirror
	t       *rapid.T
	pending *journal.Pending
	last    receipt.Receipt // the effect begun last
	upgrade int             // how many were begun
}

// TestModelMirrorsJournal: whatever a worker, its successors and an operator do, the journal and the model's mirror of it agree on the job,
// on the open receipt, and on what may be begun next.
func TestModelMirrorsJournal(t *testing.T) {
	t.Parallel()
	f := factory()
	rapid.Check(t, func(rt *rapid.T) {
		w := &twin{b: journaltest.NewBench(t, f), m: model.NewMirror(), t: rt}
		actions := map[string]func(*rapid.T){
			"go on": w.goOn, "go on again": w.goOn, "and again": w.goOn, "and once more": w.goOn, "see": w.see, "prove": w.prove,
			"move": w.move, "contradict": w.contradict, "by hand": w.byHand, "wait": w.wait, "restart": w.restart,
			"new life": func(*rapid.T) { w.m.NewLife() }, "": w.agree,
		}
		for range 2 { // some thirty steps each
			rt.Repeat(actions)
		}
		if err := w.b.Store.Close(); err != nil {
			rt.Fatal(err)
		}
	})
}

// goOn does what is next for the node.
func (w *twin) goOn(t *rapid.T) {
	open, _ := w.m.Open()
	switch {
	case open == receipt.Unknown:
		rapid.SampledFrom([]func(*rapid.T){w.see, w.see, w.prove, w.decide, w.wait}).Draw(t, "about it")(t)
	case open == receipt.Pending:
		w.settle(t)
	case w.free():
		w.effect(t)
	default:
		w.work(t)
	}
}

// may fails the test unless the error is nil or one that is allowed here; true if it is nil.
func (w *twin) may(err error, allowed ...error) bool {
	w.t.Helper()
	for _, a := range allowed {
		if errors.Is(err, a) {
			return false
		}
	}
	if err != nil {
		w.t.Fatalf("unexpected: %v", err)
	}
	return true
}

func (w *twin) life() receipt.Incarnation { return journaltest.Life(int64(w.m.Life())) }

// node is the real journal's record of the node.
func (w *twin) node() receipt.Node {
	n, err := w.b.Store.Node("n1")
	w.may(err, journal.ErrNotFound)
	return n
}

// agree compares the two.
func (w *twin) agree(t *rapid.T) {
	n, job := w.node(), receipt.Job{Status: receipt.Ended}
	var open receipt.Receipt
	var err error
	if n.Job != "" {
		job, err = w.b.Store.Job(n.Job)
		w.may(err)
	}
	if n.Open != "" {
		open, err = w.b.Store.Receipt(n.Open)
		w.may(err)
	}
	if status, _ := w.m.Job(); status != job.Status {
		t.Fatalf("the job is %s, in the model %s (%s)", job.Status, status, job.Why)
	}
	if status, action := w.m.Open(); status != open.Status || action != open.Action {
		t.Fatalf("the open receipt is %s %s, in the model %s %s", open.Action, open.Status, action, status)
	}
	real, err := w.b.Store.History("n1", w.life())
	w.may(err)
	for _, a := range receipt.Actions() {
		want, got := real.MayBegin(a), w.m.History().MayBegin(a)
		if (want == nil) != (got == nil) {
			t.Fatalf("%s: the journal says %v, the model %v", a, want, got)
		}
		done, mirrored := real.Done(a), w.m.History().Done(a)
		if (done == nil) != (mirrored == nil) || done != nil && (done.Key == nil) != (mirrored.Key == nil) {
			t.Fatalf("%s done: %v, in the model %v", a, done, mirrored)
		}
	}
}

// work finds the node and claims its job, as far as the node is free.
func (w *twin) work(*rapid.T) {
	switch status, _ := w.m.Job(); status {
	case receipt.Ended:
		w.may(w.b.Store.Return(w.b.Ctx(), "n1", w.life()), journal.ErrNotFound)
		for range 2 { // the model knows no holds: they end at any time
			got, err := w.b.Store.Admit(w.b.Ctx(), []journal.Sighting{{Node: "n1", At: w.b.Clock.Now()}}, 1)
			if w.may(err); got[0].State != journal.Held {
				break
			}
			w.b.Clock.Add(2 * time.Minute)
		}
		w.m.Sight()
	case receipt.Queued:
		_, err := w.b.Store.Claim(w.b.Ctx(), w.node().Job)
		w.may(err)
		w.m.Claim()
	}
}

// free reports whether a job is claimed and nothing is under way.
func (w *twin) free() bool {
	job, _ := w.m.Job()
	open, _ := w.m.Open()
	return job == receipt.Claimed && open == 0
}

func (w *twin) move(t *rapid.T) {
	if !w.free() {
		return
	}
	next := rapid.SampledFrom([]journal.Next{
		{Event: receipt.Requeue}, {Event: receipt.End, Result: receipt.FailedJob}, {Event: receipt.End, Result: receipt.Exhausted},
	}).Draw(t, "next")
	w.moveTo(next)
}

func (w *twin) moveTo(next journal.Next) {
	_, err := w.b.Store.Move(w.b.Ctx(), w.node().Job, next)
	w.may(err)
	w.m.Move(next.Event, next.Result)
}

// effect begins one. A node that came back as another incarnation is another job's, and one that may not have it ends exhausted, as
// package sequence has it.
func (w *twin) effect(t *rapid.T) {
	if !w.free() || w.m.Full() {
		return
	}
	if _, life := w.m.Job(); life != 0 && life != w.m.Life() {
		w.moveTo(journal.Next{Event: receipt.End, Result: receipt.Superseded})
		return
	}
	a := rapid.SampledFrom([]receipt.Action{
		receipt.Gen25519, receipt.Gen25519, receipt.Configure, receipt.Configure, receipt.Restart, receipt.Shutdown, receipt.ReleaseUpdate,
	}).Draw(t, "action")
	if a == receipt.ReleaseUpdate {
		if w.upgrade++; w.upgrade > 2 { // a third would ask for the node's earlier lives, which the model forgets
			return
		}
	}
	p, err := w.b.Store.Begin(w.b.Ctx(), w.b.Intent(w.node().Job, a, w.life()))
	begun := w.may(err, receipt.ErrRepeat)
	if begun {
		w.pending, w.last = p, p.Receipt()
		w.may(p.MarkPublished())
	} else {
		_, err := w.b.Store.Move(w.b.Ctx(), w.node().Job, journal.Next{Event: receipt.End, Result: receipt.Exhausted})
		w.may(err)
	}
	if w.m.Begin(a) != begun {
		t.Fatalf("%s begun: %t, in the model %t", a, begun, !begun)
	}
}

func (w *twin) settle(t *rapid.T) {
	if w.pending == nil {
		return
	}
	event := rapid.SampledFrom([]receipt.Event{
		receipt.ReplyApplied, receipt.ReplyRefused, receipt.ReplyFailed, receipt.NeverSent, receipt.Lost, receipt.Lost,
	}).Draw(t, "event")
	_, err := w.b.Store.Settle(w.b.Ctx(), w.pending, journal.Settlement{Event: event, By: "reply", Key: w.key(event), Next: w.next(event)})
	w.may(err)
	w.pending = nil
	w.m.Settle(event)
}

// key is what a reply to key generation gives.
func (w *twin) key(e receipt.Event) *receipt.Key {
	if w.last.Action == receipt.Gen25519 && e == receipt.ReplyApplied {
		return &receipt.Key{}
	}
	return nil
}

// next is what package sequence asks for then.
func (w *twin) next(e receipt.Event) journal.Next {
	results := map[receipt.Action]receipt.Result{
		receipt.Restart: receipt.Provisioned, receipt.Shutdown: receipt.ShutDown, receipt.ReleaseUpdate: receipt.Upgraded,
	}
	switch {
	case e == receipt.NeverSent:
		return journal.Next{Event: receipt.Requeue}
	case e == receipt.ReplyRefused || e == receipt.ReplyFailed:
		return journal.Next{Event: receipt.End, Result: receipt.FailedJob}
	case e == receipt.ReplyApplied && results[w.last.Action] != 0:
		return journal.Next{Event: receipt.End, Result: results[w.last.Action]}
	default:
		return journal.Next{}
	}
}

// see adds an observation to the open receipt.
func (w *twin) see(t *rapid.T) {
	r := w.last
	if status, _ := w.m.Open(); status != receipt.Unknown {
		return
	}
	w.b.Clock.Add(time.Millisecond)
	o := model.Obs{Inc: w.m.Life(), Excess: uint8(rapid.IntRange(0, 1).Draw(t, "excess")), Latest: rapid.Bool().Draw(t, "latest")}
	e := receipt.Evidence{Source: "test", At: w.b.Clock.Now()}
	switch o.Kind = rapid.SampledFrom([]receipt.EvidenceKind{
		receipt.SawReply, receipt.SawEvent, receipt.SawStats, receipt.SawStats, receipt.SawConnections, receipt.SawIdle,
	}).Draw(t, "kind"); o.Kind {
	case receipt.SawReply:
		o.Means = rapid.SampledFrom([]receipt.Event{receipt.ReplyApplied, receipt.ReplyRefused, receipt.ReplyFailed}).Draw(t, "means")
		e.Reply = &receipt.ReplySeen{Means: o.Means}
	case receipt.SawEvent:
		e.Event = &receipt.EventSeen{Type: "provisioned", Component: "server"}
		if o.Latest {
			e.Event = &receipt.EventSeen{Type: "upgraded", Component: "server", Version: r.Target}
		}
	case receipt.SawStats:
		e.Stats = &receipt.StatsSeen{
			Incarnation: w.life(), Validated: r.Baseline.Validated + 1 + int64(o.Excess), Known: 1, Base: r.Baseline.ID(), Epoch: w.b.Term,
		}
		if o.Latest {
			e.Stats.Version = r.Target
		}
	case receipt.SawConnections:
		o.Live, o.Closed = uint8(rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "live")), rapid.Bool().Draw(t, "closed")
		e.Connections = &receipt.ConnectionsSeen{Live: int(o.Live)}
		if o.Closed {
			e.Connections.LastClosed = r.RequestTime.Add(time.Second)
		}
	case receipt.SawIdle:
		e.Idle = &receipt.IdleSeen{Incarnation: w.life()}
	}
	if e.Kind = o.Kind; w.m.See(o) {
		_, err := w.b.Store.Note(w.b.Ctx(), r.ID, []receipt.Evidence{e}, nil)
		w.may(err)
	}
}

func (w *twin) prove(*rapid.T) {
	if status, _ := w.m.Open(); status == receipt.Unknown {
		w.b.Clock.Add(time.Millisecond)
		_, _, err := w.b.Store.Prove(w.b.Ctx(), w.last.ID)
		w.may(err)
		w.m.Prove()
	}
}

func (w *twin) decide(t *rapid.T) {
	if status, _ := w.m.Open(); status != receipt.Unknown {
		return
	}
	v := rapid.SampledFrom(receipt.Verdicts()).Draw(t, "verdict")
	if v == receipt.VerdictFinish {
		return // what a restart tells comes from the node, which this has none of; the searches have it
	}
	now, err := w.b.Store.Receipt(w.last.ID)
	w.may(err)
	d := journal.Decision{Receipt: now.ID, Seen: now.Version, Verdict: v, By: "ops", Reason: "seen", Contradict: true}
	_, err = w.b.Store.Decide(w.b.Ctx(), d)
	taken := w.may(err, receipt.ErrBeforeHorizon, journal.ErrMayStillRun)
	if w.m.Decide(v) != taken {
		t.Fatalf("verdict %s taken: %t (%v), in the model %t", v, taken, err, !taken)
	}
	if taken && rapid.Bool().Draw(t, "too early") {
		w.contradict(t)
	}
}

// contradict has the node say otherwise after a verdict not-applied.
func (w *twin) contradict(t *rapid.T) {
	o := model.Obs{Kind: receipt.SawReply, Means: rapid.SampledFrom([]receipt.Event{receipt.ReplyApplied, receipt.ReplyRefused}).Draw(t, "means")}
	e := receipt.Evidence{Kind: o.Kind, Source: "node", At: w.b.Clock.Now(), Reply: &receipt.ReplySeen{Means: o.Means}}
	if w.last.Action == receipt.Configure && rapid.Bool().Draw(t, "event") {
		o = model.Obs{Kind: receipt.SawEvent}
		w.told++ // one that was heard before the verdict is no news
		e.Kind, e.Reply, e.Event = o.Kind, nil, &receipt.EventSeen{Type: "provisioned", Component: "server", Time: w.told}
	}
	if w.m.Contradict(o) {
		_, err := w.b.Store.Note(w.b.Ctx(), w.last.ID, []receipt.Evidence{e}, nil)
		w.may(err)
	}
}

func (w *twin) byHand(*rapid.T) {
	if status, _ := w.m.Job(); status != receipt.Ended || w.node().ID == "" { // the model begins with discovery
		return
	}
	_, err := w.b.Store.AdmitByHand(w.b.Ctx(), "n1", "ops", "again")
	w.may(err)
	w.m.AdmitByHand()
}

func (w *twin) wait(*rapid.T) {
	w.b.Clock.Add(journaltest.TTL + journaltest.Skew + receipt.LeaveSplay + time.Second)
	w.m.Wait()
}

func (w *twin) restart(*rapid.T) {
	w.pending = nil
	w.b.Reopen()
	_, err := w.b.Store.Recover(w.b.Ctx(), journal.RecoverPolicy{MaxRequeues: 2})
	w.may(err)
	w.m.Restart()
}
