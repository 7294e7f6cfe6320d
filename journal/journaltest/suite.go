package journaltest

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"provctl/journal"
	"provctl/receipt"
)

// Run runs the suite.
func Run(t *testing.T, f Factory) {
	for _, tc := range []struct {
		name string
		test func(*Bench)
	}{
		{"epoch", testEpoch},
		{"admission", testAdmission},
		{"no room", testNoRoom},
		{"sightings refresh", testSightings},
		{"one cycle", testCycle},
		{"begin is refused", testBeginRefused},
		{"history survives another process under the same name", testFlapping},
		{"repeats", testRepeats},
		{"pending", testPending},
		{"lost blocks", testLost},
		{"settle is refused", testSettleRefused},
		{"move", testMove},
		{"cancelled context", testCancelled},
		{"recover", testRecover},
		{"exhausted", testExhausted},
		{"exhausted before any effect stays out", testExhaustedOut},
		{"stale", testStale},
		{"proofs", testProofs},
		{"evidence", testEvidence},
		{"a count from a former baseline", testFormerBaseline},
		{"verdicts", testVerdicts},
		{"verdict refused", testVerdictRefused},
		{"verdict that may be a guess", testGuess},
		{"verdict finish", testFinish},
		{"verdict finish whose restart is unknown", testFinishUnknown},
		{"verdict finish of something else", testFinishMisplaced},
		{"verdict superseded", testSupersede},
		{"verdict superseded too late", testSupersedeTooLate},
		{"verdict superseded after new work came", testSupersedeNewWork},
		{"verdict against evidence", testContradict},
		{"audit", testAudit},
		{"release", testRelease},
		{"out until another incarnation", testOut},
		{"admit by hand", testByHand},
		{"prune", testPrune},
		{"prune by a wrong clock", testPruneByClock},
		{"growth", testGrowth},
		{"many incarnations", testLives},
		{"upgrades in vain", testUpgrades},
		{"upgrade proved", testUpgradeProved},
		{"pause", testPause},
		{"held by a wrong clock", testHeldByClock},
		{"redate", testRedate},
		{"seen by a wrong clock", testSeenByClock},
		{"snapshot", testSnapshot},
		{"not found", testNotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.test(NewBench(t, f))
		})
	}
}

func (b *Bench) is(err, want error) {
	b.T.Helper()
	if !errors.Is(err, want) {
		b.T.Fatalf("error is %v, want %v", err, want)
	}
}

func (b *Bench) same(got, want any) {
	b.T.Helper()
	if !reflect.DeepEqual(got, want) {
		b.T.Fatalf("got  %+v\nwant %+v", got, want)
	}
}

func testEpoch(b *Bench) {
	b.ok(b.Store.Current())
	b.ok(b.Store.Close())
	b.open()
	before := b.Store.Info()
	_, err := b.Store.Admit(b.Ctx(), []journal.Sighting{{Node: "n1"}}, 1)
	b.is(err, receipt.ErrFenced)
	b.is(b.Store.Current(), receipt.ErrFenced)
	b.same(b.Store.Info(), before)
	b.raise()
	b.ok(b.Store.Current())
	if got := b.Store.Info(); got.Epoch != b.Term || got.Seq <= before.Seq || got.ID != before.ID {
		b.T.Errorf("info is %+v after %+v", got, before)
	}
}

func testAdmission(b *Bench) {
	a := b.Admit("n1", journal.Admitted)
	if a.Job.Status != receipt.Queued || a.Job.Source != "discovery" || a.NodeRecord.Job != a.Job.ID {
		b.T.Errorf("admission is %+v", a)
	}
	again := b.Admit("n1", journal.Known)
	b.same(again.Job, a.Job)
	_, err := b.Store.Claim(b.Ctx(), a.Job.ID)
	b.ok(err)
	b.Admit("n1", journal.Known)
	_, err = b.Store.Move(b.Ctx(), a.Job.ID, journal.Next{Event: receipt.End, Result: receipt.FailedJob, Why: "x", HoldUntil: b.Clock.Now().Add(time.Minute)})
	b.ok(err)
	held := b.Admit("n1", journal.Held)
	if held.NodeRecord.HeldWhy != "x" || held.NodeRecord.LastResult != receipt.FailedJob {
		b.T.Errorf("held node is %+v", held.NodeRecord)
	}
	b.Reopen()
	b.Admit("n1", journal.Held)
	b.Clock.Add(time.Minute)
	if next := b.Admit("n1", journal.Admitted); next.Job.ID == a.Job.ID {
		b.T.Error("the old job came back")
	}
}

func testNoRoom(b *Bench) {
	sightings := []journal.Sighting{{Node: "n1"}, {Node: "n 2"}, {Node: "n3"}, {Node: "n1"}, {Node: "n4"}, {Node: "n5"}}
	got, err := b.Store.Admit(b.Ctx(), sightings, 2)
	b.ok(err)
	var states []journal.AdmitState
	for _, a := range got {
		states = append(states, a.State)
	}
	b.same(states, []journal.AdmitState{journal.Admitted, journal.Invalid, journal.Admitted, journal.Known, journal.Full, journal.Full})
	_, err = b.Store.Node("n4")
	b.is(err, journal.ErrNotFound)
	queued, err := b.Store.QueuedJobs()
	b.ok(err)
	if len(queued) != 2 || queued[0].Node != "n1" || queued[1].Node != "n3" || queued[0].Seq >= queued[1].Seq {
		b.T.Errorf("queued: %+v", queued)
	}
	b.Admit("n4", journal.Admitted) // it was not forgotten
}

func testSightings(b *Bench) {
	a := b.Admit("n1", journal.Admitted)
	seq := b.Store.Info().Seq
	b.Clock.Add(10 * time.Millisecond)
	b.Admit("n1", journal.Known)
	b.Clock.Add(time.Minute)
	b.Admit("n1", journal.Known)
	job := b.Job(a.Job.ID, receipt.Queued, 0)
	if !job.Seen.Equal(b.Clock.Now()) || job.Version != a.Job.Version || b.Store.Info().Seq != seq {
		b.T.Errorf("job %+v; sequence %d, was %d", job, b.Store.Info().Seq, seq)
	}
	got, err := b.Store.Admit(b.Ctx(), []journal.Sighting{{Node: "n1", At: b.Clock.Now().Add(time.Hour)}}, 0)
	b.ok(err)
	if got[0].Job.Seen.After(b.Clock.Now()) {
		b.T.Errorf("seen in the future: %s", got[0].Job.Seen)
	}
}

func testCycle(b *Bench) {
	job := b.Claimed("n1")
	if job.Claims != 1 || job.Epoch != b.Term {
		b.T.Errorf("claimed job is %+v", job)
	}
	key := &receipt.Key{Public: "p", Directory: "/d", Signature: "s"}
	p := b.Begun(job.ID, receipt.Gen25519, Life(1))
	stored, err := b.Store.Receipt(p.Receipt().ID)
	b.ok(err)
	b.same(p.Receipt(), stored)
	r, err := b.Store.Settle(b.Ctx(), p, journal.Settlement{Event: receipt.ReplyApplied, Why: "key", By: "reply", Key: key})
	b.ok(err)
	stored, err = b.Store.Receipt(r.ID)
	b.ok(err)
	b.same(r, stored)
	if *r.Key != *key || r.Settled != "reply" || !r.EndedAt.Equal(b.Clock.Now()) {
		b.T.Errorf("settled receipt is %+v", r)
	}
	b.Job(job.ID, receipt.Claimed, 0)
	b.Done(job.ID, receipt.Configure, Life(1), receipt.ReplyApplied, journal.Next{})
	hold := b.Clock.Now().Add(time.Minute)
	b.Done(job.ID, receipt.Restart, Life(1), receipt.ReplyApplied, journal.Next{Event: receipt.End, Result: receipt.Provisioned, Why: "done", HoldUntil: hold})
	end := b.Job(job.ID, receipt.Ended, receipt.Provisioned)
	n := b.Node("n1")
	if len(end.Receipts) != 3 || end.Begun != 3 || n.Job != "" || n.Open != "" || n.LastResult != receipt.Provisioned || !n.HeldUntil.Equal(hold) {
		b.T.Errorf("job %+v, node %+v", end, n)
	}
	b.same(n.Receipts, end.Receipts)
	h, err := b.Store.History("n1", Life(1))
	b.ok(err)
	if len(h.Receipts) != 3 || h.Done(receipt.Gen25519) == nil || !h.Configured() {
		b.T.Errorf("history is %+v", h)
	}
	b.Reopen()
	again, err := b.Store.History("n1", Life(1))
	b.ok(err)
	b.same(again, h)
	open, err := b.Store.OpenReceipts()
	b.ok(err)
	if len(open) != 0 {
		b.T.Errorf("open: %+v", open)
	}
}

func testBeginRefused(b *Bench) {
	queued := b.Admit("n0", journal.Admitted)
	begin := func(in journal.Intent, want error) {
		b.T.Helper()
		seq := b.Store.Info().Seq
		p, err := b.Store.Begin(b.Ctx(), in)
		b.is(err, want)
		if p != nil || b.Store.Info().Seq != seq {
			b.T.Errorf("refused, but %v came back and the sequence is %d after %d", p, b.Store.Info().Seq, seq)
		}
	}
	begin(b.Intent("nobody", receipt.Restart, Life(1)), journal.ErrNotFound)
	begin(b.Intent(queued.Job.ID, receipt.Restart, Life(1)), receipt.ErrIllegalTransition)
	job := b.Claimed("n1")
	begin(b.Intent(job.ID, receipt.Restart, receipt.Incarnation{}), receipt.ErrInvalid)
	begin(b.Intent(job.ID, 0, Life(1)), receipt.ErrInvalid)
	for _, spoil := range []func(*journal.Intent){
		func(in *journal.Intent) { in.Request = "" },
		func(in *journal.Intent) { in.Digest = "short" },
		func(in *journal.Intent) { in.RequestTime = time.Time{} },
		func(in *journal.Intent) { in.Horizon.Time = in.RequestTime },
	} {
		in := b.Intent(job.ID, receipt.Restart, Life(1))
		spoil(&in)
		begin(in, receipt.ErrInvalid)
	}
	p := b.Begun(job.ID, receipt.Configure, Life(1))
	for _, a := range receipt.Actions() {
		begin(b.Intent(job.ID, a, Life(1)), receipt.ErrRepeat)
		begin(b.Intent(job.ID, a, Life(2)), receipt.ErrRepeat) // whatever the incarnation
	}
	_, err := b.Store.Settle(b.Ctx(), p, journal.Settlement{Event: receipt.ReplyApplied})
	b.ok(err)
	begin(b.Intent(job.ID, receipt.Configure, Life(1)), receipt.ErrRepeat)
	begin(b.Intent(job.ID, receipt.Gen25519, Life(1)), receipt.ErrRepeat)
	b.Reopen()
	begin(b.Intent(job.ID, receipt.Restart, Life(1)), receipt.ErrFenced) // claimed in an earlier term
}

func testFlapping(b *Bench) {
	first := b.Claimed("n1")
	b.Done(first.ID, receipt.Configure, Life(1), receipt.ReplyApplied, journal.Next{Event: receipt.End, Result: receipt.Superseded})
	second := b.Claimed("n1")
	b.Done(second.ID, receipt.Configure, Life(2), receipt.ReplyApplied, journal.Next{Event: receipt.End, Result: receipt.Superseded})
	if n := b.Node("n1"); n.Incarnation != Life(2) || len(n.Receipts) != 1 {
		b.T.Errorf("node is %+v", n)
	}
	third := b.Claimed("n1")
	_, err := b.Store.Begin(b.Ctx(), b.Intent(third.ID, receipt.Configure, Life(1)))
	b.is(err, receipt.ErrRepeat)
	b.Done(third.ID, receipt.Restart, Life(1), receipt.ReplyApplied, journal.Next{})
	if n := b.Node("n1"); n.Incarnation != Life(1) || len(n.Receipts) != 2 {
		b.T.Errorf("node is %+v", n)
	}
	h, err := b.Store.History("n1", Life(3))
	b.ok(err)
	if len(h.Receipts) != 0 {
		b.T.Errorf("a new incarnation has a history: %+v", h)
	}
}

func testRepeats(b *Bench) {
	job := b.Claimed("n1")
	for range 2 { // keys may be made again, and what was refused may be asked again
		b.Done(job.ID, receipt.Gen25519, Life(1), receipt.ReplyApplied, journal.Next{})
		b.Done(job.ID, receipt.Restart, Life(1), receipt.ReplyRefused, journal.Next{})
	}
	b.Done(job.ID, receipt.Configure, Life(1), receipt.ReplyRefused, journal.Next{})
	b.Done(job.ID, receipt.Configure, Life(1), receipt.ReplyApplied, journal.Next{})
	_, err := b.Store.Begin(b.Ctx(), b.Intent(job.ID, receipt.Gen25519, Life(1)))
	b.is(err, receipt.ErrRepeat)
	for range 3 {
		b.Done(b.Claimed("n2").ID, receipt.Configure, Life(1), receipt.ReplyFailed, journal.Next{Event: receipt.End, Result: receipt.FailedJob})
	}
	fourth := b.Claimed("n2")
	_, err = b.Store.Begin(b.Ctx(), b.Intent(fourth.ID, receipt.Configure, Life(1)))
	b.is(err, receipt.ErrRepeat)
	_, err = b.Store.Move(b.Ctx(), fourth.ID, journal.Next{Event: receipt.End, Result: receipt.Exhausted, Why: "failed too often"})
	b.ok(err)
	b.Admit("n2", journal.Out)
}

func testCancelled(b *Bench) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	seq := b.Store.Info().Seq
	_, err := b.Store.Admit(ctx, []journal.Sighting{{Node: "n1"}}, 1)
	b.is(err, context.Canceled)
	_, err = b.Store.Node("n1")
	b.is(err, journal.ErrNotFound)
	if got := b.Store.Info().Seq; got != seq {
		b.T.Errorf("sequence %d after %d", got, seq)
	}
}

func testNotFound(b *Bench) {
	_, err := b.Store.Job("x")
	b.is(err, journal.ErrNotFound)
	_, err = b.Store.Receipt("x")
	b.is(err, journal.ErrNotFound)
	_, err = b.Store.Claim(b.Ctx(), "x")
	b.is(err, journal.ErrNotFound)
	_, err = b.Store.Move(b.Ctx(), "x", journal.Next{Event: receipt.Requeue})
	b.is(err, journal.ErrNotFound)
	_, err = b.Store.Note(b.Ctx(), "x", nil, nil)
	b.is(err, journal.ErrNotFound)
	_, _, err = b.Store.Prove(b.Ctx(), "x")
	b.is(err, journal.ErrNotFound)
	_, err = b.Store.Decide(b.Ctx(), journal.Decision{Receipt: "x", Verdict: receipt.VerdictApplied, By: "me", Reason: "seen"})
	b.is(err, journal.ErrNotFound)
	b.is(b.Store.Return(b.Ctx(), "x", Life(1)), journal.ErrNotFound)
	h, err := b.Store.History("x", Life(1))
	b.ok(err)
	b.same(h, receipt.History{})
}
