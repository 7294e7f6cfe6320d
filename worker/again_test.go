package worker

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"provctl/internal/helper"
	"provctl/journal"
	"provctl/receipt"
	"provctl/sequence"
)

// TestGateIsAskedAgain closes the gate after a pass went through it: before the configure's receipt and between the receipt and the
// publish. Nothing leaves, and the job is given back.
func TestGateIsAskedAgain(t *testing.T) {
	for cause, c := range map[string]struct {
		nodes  []receipt.NodeID
		happen func(*Worker, *countNet)
		ends   error
	}{
		"the fleet is blocked": {[]receipt.NodeID{"a", "b"}, func(*Worker, *countNet) { synctest.Wait() }, nil}, // a is lost meanwhile
		"the worker gave up":   {[]receipt.NodeID{"b"}, func(w *Worker, _ *countNet) { w.giveUp(ErrPanic) }, ErrPanic},
		"the broker went away": {[]receipt.NodeID{"b"}, func(_ *Worker, n *countNet) { n.cut() }, nil},
	} {
		for place, receipts := range map[string]int{"before the receipt": 0, "before the publish": 1} {
			t.Run(cause+" "+place, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, net := newRig(t), newCountNet(c.nodes...)
					var w *Worker
					arrived, passed := make(chan struct{}), make(chan struct{})
					meet := func(node string, where string) {
						if node == "b" && where == place {
							close(arrived)
							c.happen(w, net)
							close(passed)
						}
					}
					net.onPrepare = func(n receipt.NodeID, a receipt.Action) {
						if a == receipt.Configure {
							meet(string(n), "before the receipt")
						}
					}
					log := onLog{does: func(message string, attrs map[string]string) {
						if message == "effect begins" && attrs["action"] == receipt.Configure.String() {
							meet(attrs["node"], "before the publish")
						}
					}}
					net.publish = func(p *journal.Pending) (sequence.Outcome, error) {
						if rec := p.Receipt(); rec.Node == "a" && rec.Action == receipt.Configure {
							<-arrived
							return sequence.Outcome{Event: receipt.Lost, Why: "no reply came"}, nil
						}
						return sequence.Outcome{}, nil
					}
					w, _ = r.life(func(o *Options) { o.FleetBlocks, o.Log = true, slog.New(log) })
					stop := r.start(w, net)
					<-passed
					synctest.Wait()
					r.gaveBack(net, receipts)
					if err := stop(); !errors.Is(err, c.ends) {
						t.Errorf("Run returned %v, want %v", err, c.ends)
					}
				})
			})
		}
	}
}

// gaveBack checks that b's pass sent its key request alone, left so many receipts of a configure, all not sent, and that b's job
// waits again.
func (r *rig) gaveBack(net *countNet, configures int) {
	r.t.Helper()
	if got := net.effects("b"); !slices.Equal(got, []receipt.Action{receipt.Gen25519}) {
		r.t.Errorf("published: %v", got)
	}
	got := 0
	for _, rec := range r.receipts("b") {
		if rec.Action != receipt.Configure {
			continue
		}
		got++
		if rec.Status != receipt.NotSent {
			r.t.Errorf("the configure is %s: %s", rec.Status, rec.Why)
		}
	}
	if got != configures {
		r.t.Errorf("%d receipts of a configure, want %d", got, configures)
	}
	if job := r.job("b"); job.Status != receipt.Queued || job.Claims != 1 || job.Why == "" {
		r.t.Errorf("the job is %+v", job)
	}
}

// TestReplyDoesNotWaitForALane has one lane, which b's helper holds when the reply to a's parked configure comes.
func TestReplyDoesNotWaitForALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, net := newRig(t), newCountNet("a")
		replied, helperEnds := make(chan struct{}), make(chan struct{})
		net.held = map[receipt.Action]chan struct{}{receipt.Configure: replied}
		asked := 0
		advisor := fakeAdvisor(func() (*helper.Reply, error) {
			if asked++; asked == 2 {
				<-helperEnds
			}
			return fakeAdvisor(nil).Ask(t.Context(), receipt.Job{}, helper.Input{})
		})
		w, _ := r.life(func(o *Options) { o.Lanes, o.Advisor = 1, advisor })
		stop := r.start(w, net)
		time.Sleep(2 * patience)
		synctest.Wait()
		w.Sight("b", "event", time.Now())
		synctest.Wait()
		if rec := r.theOpen(); rec.Node != "a" || rec.Action != receipt.Configure || len(w.slots) != 1 || asked != 2 {
			t.Fatalf("open is %s of %s, %d lanes are taken, the helper was asked %d times", rec.Action, rec.Node, len(w.slots), asked)
		}
		close(replied)
		synctest.Wait()
		applied := []receipt.Action{receipt.Gen25519, receipt.Configure}
		if rs := r.receipts("a"); len(rs) != 2 || rs[1].Status != receipt.Applied {
			t.Errorf("the reply is there, and the receipts are %+v", rs)
		}
		if got := net.effects("a"); !slices.Equal(got, applied) {
			t.Errorf("without a lane it published %v", got)
		}
		close(helperEnds)
		synctest.Wait()
		for _, n := range []receipt.NodeID{"a", "b"} {
			if got := net.effects(n); !slices.Equal(got, append(applied[:2:2], receipt.Restart)) {
				t.Errorf("in the end %s was sent %v", n, got)
			}
		}
		if err := stop(); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

// TestQueuedJobInNoQueue: the journal has a queued job of which the worker's queue knows nothing. The next sighting finds it.
func TestQueuedJobInNoQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, net := newRig(t), newCountNet()
		w, _ := r.life(nil)
		stop := r.start(w, net)
		synctest.Wait()
		if _, err := r.j.Admit(r.ctx, []journal.Sighting{{Node: "n", Source: "discovery", At: time.Now()}}, 1); err != nil {
			t.Fatal(err)
		}
		lost := r.job("n").ID
		w.Sight("n", "discovery", time.Now())
		synctest.Wait()
		if job, err := r.j.Job(lost); err != nil || job.Result != receipt.Provisioned || job.Claims != 1 {
			t.Errorf("the job is %+v, %v", job, err)
		}
		if n := w.waiting(); n != 0 {
			t.Errorf("%d jobs wait", n)
		}
		if err := stop(); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}
