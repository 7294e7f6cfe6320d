package worker

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"provctl/journal"
	"provctl/receipt"
	"provctl/sequence"
)

// TestOneLookAtATime: a probe that comes while a scheduled look is under way waits for it, and both only look.
func TestOneLookAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, net := newRig(t), newCountNet("n")
		net.publish = lose(receipt.Configure)
		var inside, looks atomic.Int32
		release := make(chan struct{})
		net.conns = func(receipt.NodeID) (receipt.ConnectionsSeen, error) {
			inside.Add(1)
			looks.Add(1)
			<-release
			inside.Add(-1)
			return receipt.ConnectionsSeen{Live: 1}, nil
		}
		w, _ := r.life(nil)
		stop := r.start(w, net)
		synctest.Wait()
		if inside.Load() != 1 {
			t.Fatalf("%d looks at the lost configure, want the scheduled one", inside.Load())
		}
		id := r.theOpen().ID
		probed := make(chan error)
		for range 2 {
			go func() { _, err := w.Probe(r.ctx, id); probed <- err }()
		}
		synctest.Wait()
		if inside.Load() != 1 {
			t.Errorf("%d looks at one receipt at a time", inside.Load())
		}
		close(release)
		if err := errors.Join(<-probed, <-probed); err != nil {
			t.Errorf("a probe failed: %v", err)
		}
		synctest.Wait()
		if got := r.theOpen(); looks.Load() != 3 || got.Status != receipt.Unknown || got.Baseline.Validated != net.validated {
			t.Errorf("after %d looks the receipt is %s with baseline %+v; the last answer was %d", looks.Load(), got.Status, got.Baseline, net.validated)
		}
		if w.stopping.Load() {
			t.Error("the worker has given up")
		}
		if err := stop(); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

// unknown makes an unknown receipt for a node without a running worker.
func (r *rig) unknown(n receipt.NodeID, a receipt.Action, net *countNet) receipt.Receipt {
	r.t.Helper()
	must := func(err error) {
		r.t.Helper()
		if err != nil {
			r.t.Fatal(err)
		}
	}
	admitted, err := r.j.Admit(r.ctx, []journal.Sighting{{Node: n, Source: "discovery", At: time.Now()}}, 1)
	must(err)
	_, err = r.j.Claim(r.ctx, admitted[0].Job.ID)
	must(err)
	stats, base, err := net.Stats(r.ctx, n)
	must(err)
	prepared, err := net.Prepare(n, a, nil)
	must(err)
	p, err := r.j.Begin(r.ctx, journal.Intent{
		Job: admitted[0].Job.ID, Action: a, Incarnation: stats.Incarnation, Request: prepared.Request, RequestTime: prepared.Time,
		Horizon: prepared.Horizon, Digest: prepared.Digest, Baseline: &base,
	})
	must(err)
	must(p.MarkPublished())
	got, err := r.j.Settle(r.ctx, p, journal.Settlement{Event: receipt.Lost, Why: "no reply came", By: "horizon"})
	must(err)
	return got
}

// TestFormerCountProvesNothing crosses two looks by hand: the second counts from the baseline that the first then moves. Between
// them the effect reaches the node, and the sums happen to agree. An honest count of a request that never arrived does prove it.
func TestFormerCountProvesNothing(t *testing.T) {
	for name, ran := range map[string]bool{"it ran": true, "it never arrived": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, net := newRig(t), newCountNet()
				net.ttl = 10 * time.Second
				w, _ := r.life(nil)
				w.net = net
				rec := r.unknown("n", receipt.Configure, net)
				first, moved := w.observe(r.ctx, rec)
				if moved == nil {
					t.Fatal("a node that has not got the request does not move the baseline")
				}
				if ran {
					net.dispatch()
				}
				time.Sleep(time.Until(rec.Horizon.Add(time.Millisecond)))
				second, again := w.observe(r.ctx, rec)
				if again != nil {
					t.Error("the baseline moves past the horizon")
				}
				if got, err := r.j.Note(r.ctx, rec.ID, first, moved); err != nil || got.Baseline.ID() != moved.ID() {
					t.Fatalf("baseline is %+v, %v, want %+v", got.Baseline, err, moved)
				}
				if _, err := r.j.Note(r.ctx, rec.ID, second, nil); err != nil {
					t.Fatal(err)
				}
				if got, proof, err := r.j.Prove(r.ctx, rec.ID); err != nil || proof != nil {
					t.Errorf("a count from the former baseline proves %+v: %s, %v", proof, got.Status, err)
				}
				w.watchFor(rec)
				settled, err := w.gather(r.ctx, rec.ID)
				if err != nil || settled == ran {
					t.Errorf("a fresh look settles it: %t, %v", settled, err)
				}
			})
		})
	}
}

// TestEventOfBeforeTheRequest: the provisioned event of the configure before says nothing on a restart, whether it comes before
// the restart's request or after, and the counter still proves that the restart was never dispatched.
func TestEventOfBeforeTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, net := newRig(t), newCountNet("n")
		net.ttl = 10 * time.Second
		net.publish = lose(receipt.Restart)
		w, _ := r.life(nil)
		stop := r.start(w, net)
		synctest.Wait()
		rec := r.theOpen()
		events := func() (n int) {
			got, err := r.j.Receipt(rec.ID)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range got.Evidence {
				if e.Kind == receipt.SawEvent {
					n++
				}
			}
			return n
		}
		provisioned := receipt.EventSeen{Type: "provisioned", Component: "provision_mode_server", Time: rec.RequestTime.Unix()}
		for _, at := range []time.Time{rec.RequestTime.Add(-time.Second), rec.RequestTime} {
			w.OnEvent(Happening{Node: "n", Seen: provisioned, At: at})
			synctest.Wait()
			if events() != 0 {
				t.Fatalf("an event of %s is kept with a request of %s", at, rec.RequestTime)
			}
		}
		w.OnEvent(Happening{Node: "n", Seen: provisioned, At: rec.RequestTime.Add(time.Millisecond)})
		synctest.Wait()
		if events() != 1 {
			t.Fatal("an event of after the request is not kept")
		}
		time.Sleep(time.Until(rec.Horizon.Add(time.Second)))
		synctest.Wait()
		got, err := r.j.Receipt(rec.ID)
		if err != nil || got.Status != receipt.NotApplied || got.Settled != "evidence: counter" {
			t.Errorf("the restart is %s by %q, %v", got.Status, got.Settled, err)
		}
		want := []receipt.Action{receipt.Gen25519, receipt.Configure, receipt.Restart, receipt.Restart}
		if sent := net.effects("n"); !slices.Equal(sent, want) {
			t.Errorf("published: %v, want %v", sent, want)
		}
		if err := stop(); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

// TestNodeShowsThatItIsIdle: past the horizon a node that answers is asked, once, behind its action mutex; until it has answered there,
// not-applied is no verdict to give. A worker that does not lead does not ask.
func TestNodeShowsThatItIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, net := newRig(t), newCountNet()
		net.ttl = 10 * time.Second
		asked, busy := 0, true
		net.jwt = func(receipt.NodeID) (string, error) {
			if asked++; busy {
				return "", errors.New("no reply in time")
			}
			return "", fmt.Errorf("%w: code 1", sequence.ErrNoToken)
		}
		v := &vote{}
		w, _ := r.life(func(o *Options) { o.Leadership = v })
		w.net = net
		rec := r.unknown("n", receipt.Configure, net)
		net.dispatch() // the counter proves nothing
		look := func() {
			t.Helper()
			if settled, err := w.gather(r.ctx, rec.ID); settled || err != nil {
				t.Fatalf("settled %t, %v", settled, err)
			}
		}
		notApplied := func() error {
			now, err := r.j.Receipt(rec.ID)
			if err != nil {
				t.Fatal(err)
			}
			_, err = r.j.Decide(r.ctx, journal.Decision{Receipt: rec.ID, Seen: now.Version, Verdict: receipt.VerdictNotApplied, By: "me", Reason: "no file"})
			return err
		}
		look()
		if asked != 0 {
			t.Error("it was asked before the horizon")
		}
		time.Sleep(time.Until(rec.Horizon.Add(time.Millisecond)))
		v.set(true)
		look()
		if asked != 0 {
			t.Error("a worker that does not lead asked")
		}
		v.set(false)
		var fenced error
		w.o.Ours = func() error { return fenced }
		fenced = receipt.ErrFenced
		look()
		if asked != 0 {
			t.Error("a worker that was replaced asked")
		}
		if err := <-w.fatal; !errors.Is(err, receipt.ErrFenced) {
			t.Errorf("it goes on: %v", err)
		}
		fenced = nil
		look()
		if err := notApplied(); asked != 1 || !errors.Is(err, journal.ErrMayStillRun) {
			t.Errorf("asked %d times, verdict on a busy node: %v", asked, err)
		}
		busy = false
		look()
		look()
		if asked != 3 { // a busy node once, an idle one twice
			t.Errorf("asked %d times", asked)
		}
		if err := notApplied(); err != nil {
			t.Errorf("verdict on an idle node: %v", err)
		}
		if got := len(net.effects("n")); got != 0 {
			t.Errorf("%d effects were sent", got)
		}
	})
}
