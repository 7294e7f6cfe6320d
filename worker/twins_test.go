package worker

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"provctl/journal"
	"provctl/receipt"
	"provctl/sequence"
)

// TestTwinGetsNothing: a node whose questions two servers answer is held with the reason, and gets no effect. A twin of long ago is no reason.
func TestTwinGetsNothing(t *testing.T) {
	r, net := newRig(t), newFakeNet("n")
	var w *Worker
	net.jwt = func(n receipt.NodeID) (string, error) {
		w.OnTwin(n)
		return "token", nil
	}
	w, _ = r.life(nil)
	stop := r.begun(w, net)
	var s journal.Snapshot
	r.until(func() bool {
		var err error
		s, err = r.j.Snapshot()
		return err == nil && s.ByResult[receipt.FailedJob] == 1
	})
	if len(s.Nodes) != 1 || !strings.Contains(s.Nodes[0].HeldWhy, "two servers answer under its name") {
		t.Errorf("held are %+v", s.Nodes)
	}
	if got := net.effects("n"); len(got) != 0 {
		t.Errorf("published: %v", got)
	}
	w.OnTwin("n") // nobody is at it
	if err := errors.Join(w.alone("n"), stop()); err != nil {
		t.Errorf("it is still one of two: %v", err)
	}
}

// TestTwinStopsThePublish: one that shows at the last moment, when the receipt is written already, stops the effect provably unsent.
func TestTwinStopsThePublish(t *testing.T) {
	r, net := newRig(t), newFakeNet("n")
	var w *Worker
	var again error
	var once sync.Once
	net.publish = func(p *journal.Pending) (sequence.Outcome, error) {
		once.Do(func() {
			w.OnTwin("n")
			_, again = recorder{net, w}.Publish(r.ctx, p, sequence.Prepared{})
		})
		return sequence.Outcome{}, nil
	}
	w, _ = r.life(nil)
	stop := r.begun(w, net)
	r.until(func() bool { s, err := r.j.Snapshot(); return err == nil && s.ByResult[receipt.FailedJob] == 1 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(again, sequence.ErrNotSent) || !errors.Is(again, sequence.ErrTwin) {
		t.Errorf("publishing beside a twin: %v", again)
	}
	if got, want := net.effects("n"), []receipt.Action{receipt.Gen25519}; !slices.Equal(got, want) {
		t.Errorf("published: %v, want %v", got, want)
	}
}

// TestTwinConcludesNothing: what two servers say proves nothing of either. When one of them is gone, the other one's word counts.
func TestTwinConcludesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, net := newRig(t), newCountNet("n")
		net.ttl = 10 * time.Second
		net.publish = lose(receipt.Restart)
		var w *Worker
		var two atomic.Bool
		two.Store(true)
		net.conns = func(n receipt.NodeID) (receipt.ConnectionsSeen, error) {
			if two.Load() {
				w.OnTwin(n)
			}
			return receipt.ConnectionsSeen{Live: 1}, nil
		}
		w, _ = r.life(nil)
		stop := r.start(w, net)
		synctest.Wait()
		rec := r.theOpen()
		status := func(want receipt.Status) {
			t.Helper()
			synctest.Wait()
			if got, err := r.j.Receipt(rec.ID); err != nil || got.Status != want {
				t.Errorf("the restart is %s by %q, %v; want %s", got.Status, got.Settled, err, want)
			}
		}
		time.Sleep(time.Until(rec.Horizon.Add(2 * evidenceEvery)))
		status(receipt.Unknown)
		two.Store(false)
		time.Sleep(2 * evidenceEvery)
		status(receipt.NotApplied)
		if err := stop(); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

// TestEventContradictsWhatWasDecided: an event that says that an effect was done is kept although nobody waits for it any more, and the
// effect is not sent again.
func TestEventContradictsWhatWasDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, net := newRig(t), newCountNet("n")
		net.ttl = 10 * time.Second
		net.publish = lose(receipt.Configure)
		w, _ := r.life(nil)
		stop := r.start(w, net)
		synctest.Wait()
		rec := r.theOpen()
		if _, err := w.Pause(r.ctx, "me", "to look"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(rec.Horizon.Add(time.Second)))
		synctest.Wait()
		if got, err := r.j.Receipt(rec.ID); err != nil || got.Status != receipt.NotApplied {
			t.Fatalf("the configure is %s, %v", got.Status, err)
		}
		w.OnEvent(Happening{Node: "n", Seen: receipt.EventSeen{Type: "provisioned", Component: "provision_mode_server", Time: time.Now().Unix()}, At: time.Now()})
		synctest.Wait()
		if _, err := w.Resume(r.ctx, "me"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if sent, want := net.effects("n"), []receipt.Action{receipt.Gen25519, receipt.Configure}; !slices.Equal(sent, want) {
			t.Errorf("published: %v, want %v", sent, want)
		}
		if s, err := r.j.Snapshot(); err != nil || s.ByResult[receipt.Exhausted] != 1 {
			t.Errorf("jobs ended as %v, %v", s.ByResult, err)
		}
		if err := stop(); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}
