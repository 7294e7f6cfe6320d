package worker

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"provctl/receipt"
)

// idle is a worker without a journal that has not been started; its network is connected.
func idle(lanes int) (*Worker, *fakeNet) {
	net := newFakeNet()
	w := New(Options{
		Lanes: lanes, MaxUnknown: 3, Interval: time.Minute, StopTimeout: time.Minute,
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	w.net = net
	return w, net
}

func (w *Worker) blockFor(n int) {
	for i := range n {
		w.watches[receipt.ReceiptID(rune('a'+i))] = &watch{}
	}
}

func TestGate(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(*Worker, *fakeNet)
		claims  string // part of the reason why nothing is claimed; "" if it is
		effects string // ... why no effect is begun
	}{
		{"open", func(*Worker, *fakeNet) {}, "", ""},
		{"stopping", func(w *Worker, _ *fakeNet) { w.stopping.Store(true) }, "stopping", "stopping"},
		{"no broker", func(_ *Worker, n *fakeNet) { n.cut() }, "broker is not connected", "broker is not connected"},
		{"some unknown", func(w *Worker, _ *fakeNet) { w.blockFor(2) }, "", ""},
		{"max_unknown", func(w *Worker, _ *fakeNet) { w.blockFor(3) }, "max_unknown is 3", ""},
		{"with overdue", func(w *Worker, _ *fakeNet) { w.blockFor(2); w.overdue.Add(1) }, "2 effects are unknown and 1 overdue", ""},
		{"overdue alone", func(w *Worker, _ *fakeNet) { w.overdue.Add(3) }, "0 effects are unknown and 3 overdue", ""},
		{"fleet", func(w *Worker, _ *fakeNet) { w.o.FleetBlocks = true; w.blockFor(1) }, "on_unknown is fleet", "on_unknown is fleet"},
		{"fleet, none unknown", func(w *Worker, _ *fakeNet) { w.o.FleetBlocks = true }, "", ""},
		{"nobody answers", func(w *Worker, _ *fakeNet) { w.parked.Add(maxParked) }, "do not answer", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, net := idle(1)
			c.prepare(w, net)
			if got := w.gate(); (got == "") != (c.claims == "") || !strings.Contains(got, c.claims) {
				t.Errorf("claims: %q, want %q", got, c.claims)
			}
			got := ""
			if err := (&lane{w: w}).Gate(); err != nil {
				got = err.Error()
			}
			if (got == "") != (c.effects == "") || !strings.Contains(got, c.effects) {
				t.Errorf("effects: %q, want %q", got, c.effects)
			}
		})
	}
}

func TestDisturbedTellsAReconnect(t *testing.T) {
	w, net := idle(1)
	l := &lane{w: w, links: w.reconnects.Load()}
	if err := l.Disturbed(); err != nil {
		t.Errorf("nothing happened: %v", err)
	}
	net.cut()
	if l.Disturbed() == nil {
		t.Error("the broker is away, and the lane does not say so")
	}
	net.mend()
	w.OnReconnect()
	if l.Disturbed() == nil {
		t.Error("the broker was away, and the lane does not say so")
	}
	if err := (&lane{w: w, links: w.reconnects.Load()}).Disturbed(); err != nil {
		t.Errorf("a pass that began later: %v", err)
	}
}

func TestNextLook(t *testing.T) {
	now := time.Unix(10_000, 0)
	const soon = 50 * time.Millisecond
	for _, c := range []struct {
		name    string
		horizon time.Duration // from now
		want    time.Duration
	}{
		{"horizon far ahead", time.Hour, evidenceEvery},
		{"horizon near", 4 * time.Second, 4*time.Second + soon},
		{"horizon now", 0, soon},
		{"just over: next is when a node has left for good", -time.Second, receipt.LeaveSplay - time.Second + soon},
		{"all over", -time.Hour, evidenceEvery},
	} {
		if got := nextLook(now, receipt.Horizon{Time: now.Add(c.horizon)}).Sub(now); got != c.want {
			t.Errorf("%s: in %s, want %s", c.name, got, c.want)
		}
	}
}

// TestParkGivesTheLaneAway has one lane: a short wait keeps it, a long one gives it away, returns
// without one, so that a reply is recorded at once, and goes on only with one again.
func TestParkGivesTheLaneAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := idle(1)
		l := &lane{w: w}
		w.slots <- struct{}{}
		done := make(chan struct{})
		returned, retaken := make(chan struct{}), make(chan struct{})
		go func() {
			_ = l.Await(context.Background(), done, receipt.Receipt{ID: "R", Action: receipt.Configure})
			close(returned)
			l.Retake()
			close(retaken)
		}()
		time.Sleep(patience - time.Millisecond)
		synctest.Wait()
		if len(w.slots) != 1 || w.parked.Load() != 0 || w.overdue.Load() != 0 {
			t.Errorf("a wait shorter than %s gave its lane away", patience)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if len(w.slots) != 0 || w.parked.Load() != 1 || w.overdue.Load() != 1 {
			t.Errorf("a long wait keeps its lane: slots %d, parked %d, overdue %d", len(w.slots), w.parked.Load(), w.overdue.Load())
		}
		w.slots <- struct{}{} // another job has the lane when the reply comes
		close(done)
		synctest.Wait()
		select {
		case <-returned:
		default:
			t.Error("the reply waits for a lane")
		}
		select {
		case <-retaken:
			t.Error("it went on without a lane")
		default:
		}
		<-w.slots
		<-retaken
		l.Retake() // it has one
		if len(w.slots) != 1 || w.parked.Load() != 0 || w.overdue.Load() != 0 {
			t.Errorf("afterwards: slots %d, parked %d, overdue %d", len(w.slots), w.parked.Load(), w.overdue.Load())
		}
	})
}

func TestParkEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := idle(1)
		for _, before := range []time.Duration{0, 10 * patience} {
			w.slots <- struct{}{}
			ctx, cancel := context.WithTimeout(context.Background(), before)
			l := &lane{w: w}
			l.Park(ctx, make(chan struct{}))
			cancel()
			l.giveAway()
			l.giveAway() // it has none any more
			if w.parked.Load() != 0 || w.overdue.Load() != 0 {
				t.Errorf("after %s: parked %d, overdue %d", before, w.parked.Load(), w.overdue.Load())
			}
		}
	})
}

// TestJobThatIsTakenIsNotQueuedAgain has an operator's admission cross a pass that has just taken the job.
func TestJobThatIsTakenIsNotQueuedAgain(t *testing.T) {
	w, _ := idle(1)
	w.queue.push(entry{job: "j", node: "n"})
	if _, ok := w.take(); !ok {
		t.Fatal("nothing was taken")
	}
	if err := w.follow(receipt.Job{ID: "j", Node: "n", Status: receipt.Queued}); err != nil {
		t.Fatal(err)
	}
	if w.queue.len() != 0 {
		t.Error("the job is at work and in the queue")
	}
	w.release(entry{job: "j", node: "n"})
	if err := w.follow(receipt.Job{ID: "j", Node: "n", Status: receipt.Queued}); err != nil {
		t.Fatal(err)
	}
	if w.queue.len() != 1 {
		t.Error("a job that was given back is not in the queue")
	}
}
