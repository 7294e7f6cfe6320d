package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"provctl/internal/control"
	"provctl/internal/helper"
	"provctl/journal"
	"provctl/receipt"
	"provctl/sequence"
)

// rig is a journal in which workers live one after the other.
type rig struct {
	t   *testing.T
	ctx context.Context
	dir string
	j   *journal.Journal
}

func newRig(t *testing.T) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	r := &rig{t: t, ctx: ctx, dir: t.TempDir()}
	if _, err := journal.Init(r.dir); err != nil {
		t.Fatal(err)
	}
	return r
}

// life opens the journal as a start does and makes a worker on it.
func (r *rig) life(change func(*Options)) (*Worker, journal.Recovery) {
	r.t.Helper()
	j, err := journal.Open(r.dir, journal.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = j.Close() })
	r.j = j
	epoch, err := j.RaiseEpoch()
	if err != nil {
		r.t.Fatal(err)
	}
	recovery, err := j.Recover(r.ctx, journal.RecoverPolicy{MaxRequeues: 2, StaleAfter: time.Hour})
	if err != nil {
		r.t.Fatal(err)
	}
	o := Options{
		Journal: j, Advisor: fakeAdvisor(nil), Credentials: fakeCredentials{}, Flow: sequence.Flow{JWT: true, Ed25519: true}, Lanes: 2, Interval: time.Hour, StopTimeout: time.Second,
		Hold: time.Minute, Retention: time.Hour, MaxUnknown: 10, Component: "provision_mode_server",
		Epoch: epoch, Accepted: j.Info().Accepted, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	return New(o), recovery
}

// run runs a worker to its end and closes the journal.
func (r *rig) run(w *Worker, net *fakeNet) error {
	r.t.Helper()
	err := w.Run(r.ctx, net)
	if r.ctx.Err() != nil {
		r.t.Fatal("the worker did not end by itself")
	}
	if err := r.j.Close(); err != nil {
		r.t.Fatal(err)
	}
	return err
}

// snapshot is what the journal says now.
func (r *rig) snapshot() journal.Snapshot {
	r.t.Helper()
	s, err := journal.Read(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// TestPanicInAPassEndsTheWorker: the claim is interrupted, and no effect is sent after it.
func TestPanicInAPassEndsTheWorker(t *testing.T) {
	r := newRig(t)
	net := newFakeNet("n")
	boom := fakeAdvisor(func() (*helper.Reply, error) { panic("a helper reply nobody thought of") })
	for _, want := range []journal.RecoverAction{0, journal.WentOn, journal.Requeued, journal.Requeued, journal.Exhausted} {
		w, recovery := r.life(func(o *Options) { o.Advisor = boom })
		if want != 0 && recovery.Count(want) != 1 {
			t.Fatalf("the next start finds %+v, want one %s", recovery.Items, want)
		}
		if want == journal.Exhausted {
			break
		}
		if err := r.run(w, net); !errors.Is(err, ErrPanic) {
			t.Fatalf("Run returned %v", err)
		}
	}
	if got := net.effects("n"); !slices.Equal(got, []receipt.Action{receipt.Gen25519}) {
		t.Errorf("published: %v", got)
	}
}

// TestPanicElsewhereEndsTheWorker: facts, looks and loops run on goroutines of their own.
func TestPanicElsewhereEndsTheWorker(t *testing.T) {
	t.Run("in a fact", func(t *testing.T) {
		r, net := newRig(t), newFakeNet("n")
		net.jwt = func(receipt.NodeID) (string, error) { panic("an odd token") }
		w, _ := r.life(nil)
		if err := r.run(w, net); !errors.Is(err, ErrPanic) {
			t.Errorf("Run returned %v", err)
		}
	})
	t.Run("in a look", func(t *testing.T) {
		r, net := newRig(t), newFakeNet("n")
		net.conns = func(receipt.NodeID) (receipt.ConnectionsSeen, error) { panic("an odd list") }
		net.publish = func(p *journal.Pending) (sequence.Outcome, error) {
			return sequence.Outcome{Event: receipt.Lost, Why: "lost"}, nil
		}
		w, _ := r.life(nil)
		if err := r.run(w, net); !errors.Is(err, ErrPanic) {
			t.Errorf("Run returned %v", err)
		}
		if s := r.snapshot(); len(s.Open) != 1 || s.Open[0].Status != receipt.Unknown {
			t.Errorf("open: %+v", s.Open)
		}
		w, _ = r.life(nil) // the look before any work
		if err := r.run(w, net); !errors.Is(err, ErrPanic) {
			t.Errorf("the next life: Run returned %v", err)
		}
	})
}

// TestFenceRefusalEndsTheWorker: a refusal that is not about age says that the right to send is gone.
func TestFenceRefusalEndsTheWorker(t *testing.T) {
	r, net := newRig(t), newFakeNet("n")
	net.publish = func(*journal.Pending) (sequence.Outcome, error) {
		return sequence.Outcome{}, fmt.Errorf("%w: %w: the lock is another's", sequence.ErrNotSent, receipt.ErrFenced)
	}
	w, _ := r.life(nil)
	if err := r.run(w, net); !errors.Is(err, receipt.ErrFenced) {
		t.Errorf("Run returned %v", err)
	}
	if s := r.snapshot(); s.ByStatus[receipt.NotSent] != 1 || len(s.Open) != 0 || len(net.effects("n")) != 0 {
		t.Errorf("receipts %v, sent %v", s.ByStatus, net.effects("n"))
	}
}

// TestDefectAtThePublishEndsTheWorker: an error that does not say that nothing left leaves the receipt unknown.
func TestDefectAtThePublishEndsTheWorker(t *testing.T) {
	r, net := newRig(t), newFakeNet("n")
	defect := errors.New("published twice")
	net.publish = func(*journal.Pending) (sequence.Outcome, error) { return sequence.Outcome{}, defect }
	w, _ := r.life(nil)
	if err := r.run(w, net); !errors.Is(err, defect) {
		t.Errorf("Run returned %v", err)
	}
	if s := r.snapshot(); len(s.Open) != 1 || s.Open[0].Status != receipt.Unknown || s.ByJob[receipt.Blocked] != 1 {
		t.Errorf("open %+v, jobs %v", s.Open, s.ByJob)
	}
}

// TestAgedRequestIsMadeAnew: a request that grew old on its way, on a machine that slept, does not end the worker.
func TestAgedRequestIsMadeAnew(t *testing.T) {
	r, net := newRig(t), newFakeNet("n")
	net.publish = func(p *journal.Pending) (sequence.Outcome, error) {
		if p.Receipt().Action == receipt.Configure {
			return sequence.Outcome{}, fmt.Errorf("%w: %w: %w", sequence.ErrNotSent, receipt.ErrFenced, receipt.ErrExpired)
		}
		return sequence.Outcome{}, nil
	}
	w, _ := r.life(nil)
	ctx, cancel := context.WithCancel(r.ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx, net) }()
	r.until(func() bool {
		s, err := r.j.Snapshot()
		return err == nil && s.ByStatus[receipt.NotSent] >= 1 && s.ByJob[receipt.Queued] == 1
	})
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run returned %v", err)
	}
	if got := net.effects("n"); !slices.Equal(got, []receipt.Action{receipt.Gen25519}) {
		t.Errorf("published: %v", got)
	}
}

// TestBrokenConnectionIsNotTheNodesFault: a fact that fails because the connection broke gives the job back, though the connection
// stands again by then; the same failure without that holds the node.
func TestBrokenConnectionIsNotTheNodesFault(t *testing.T) {
	for name, broke := range map[string]bool{"broke": true, "stood": false} {
		t.Run(name, func(t *testing.T) {
			r, net := newRig(t), newFakeNet("n")
			begun := time.Now()
			w, _ := r.life(nil)
			net.jwt = func(receipt.NodeID) (string, error) {
				if broke {
					w.OnReconnect()
				}
				return "", errors.New("no reply")
			}
			ctx, cancel := context.WithCancel(r.ctx)
			ended := make(chan error, 1)
			go func() { ended <- w.Run(ctx, net) }()
			var s journal.Snapshot
			r.until(func() bool {
				var err error
				s, err = r.j.Snapshot()
				return err == nil && (s.ByResult[receipt.FailedJob] == 1 || len(s.Jobs) == 1 && s.Jobs[0].Claims == 1 && s.Jobs[0].Status == receipt.Queued)
			})
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run returned %v", err)
			}
			if failed := s.ByResult[receipt.FailedJob] == 1; failed == broke {
				t.Errorf("jobs %v, results %v", s.ByJob, s.ByResult)
			}
			if broke && !s.Jobs[0].NotBefore.After(begun) {
				t.Errorf("it is tried again without a pause: %+v", s.Jobs[0])
			}
		})
	}
}

// until polls what has no event.
func (r *rig) until(is func() bool) {
	r.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-r.ctx.Done():
			r.t.Fatal("waited in vain")
		}
	}
}

// TestStopTimeoutRecordsUnknown: what is in flight at the end of the stop timeout is unknown, and Live is served to the end.
func TestStopTimeoutRecordsUnknown(t *testing.T) {
	r, net := newRig(t), newFakeNet("n")
	net.pending = make(chan struct{})
	w, _ := r.life(func(o *Options) { o.StopTimeout = 50 * time.Millisecond })
	ctx, cancel := context.WithCancel(r.ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx, net) }()
	if err := net.await(r.ctx, func() bool { return len(net.effects("n")) == 1 }); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run returned %v", err)
	}
	if l := w.Live(); l.State != control.Stopped || l.Busy != 0 || l.Parked != 0 || l.Gate == "" {
		t.Errorf("live: %+v", l)
	}
	if s, err := r.j.Snapshot(); err != nil || len(s.Open) != 1 || s.Open[0].Status != receipt.Unknown || s.ByJob[receipt.Blocked] != 1 {
		t.Errorf("open %+v, jobs %v, %v", s.Open, s.ByJob, err)
	}
}

// TestStaleJobIsNotWorkedOn: a job whose node was not seen for two intervals ends, and the node is asked nothing.
func TestStaleJobIsNotWorkedOn(t *testing.T) {
	r, net := newRig(t), newFakeNet()
	w, _ := r.life(nil)
	net.jwt = func(n receipt.NodeID) (string, error) {
		t.Errorf("%s was asked", n)
		return "", errors.New("no")
	}
	old := time.Now().Add(-3 * time.Hour)
	if _, err := r.j.Admit(r.ctx, []journal.Sighting{{Node: "n", Source: "discovery", At: old}}, 1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx, net) }()
	r.until(func() bool {
		s, err := r.j.Snapshot()
		return err == nil && s.ByResult[receipt.Stale] == 1
	})
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run returned %v", err)
	}
}

// TestFullQueueLosesNoNode: a node for which there is no room is taken when it is seen again.
func TestFullQueueLosesNoNode(t *testing.T) {
	r, net := newRig(t), newFakeNet()
	w, _ := r.life(nil)
	w.net = net
	for i := range maxWaiting {
		w.queue.push(entry{node: receipt.NodeID(fmt.Sprintf("waiting-%d", i)), notBefore: time.Now().Add(time.Hour)})
	}
	w.intaking.Store(true)
	ctx, cancel := context.WithCancel(r.ctx)
	ended := make(chan struct{})
	go func() { w.intake(ctx); close(ended) }()
	w.Sight("n", "discovery", time.Now())
	r.until(func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.seen) == 0 })
	w.mu.Lock()
	w.queue.remove("waiting-0")
	w.mu.Unlock()
	r.until(func() bool {
		w.Sight("n", "discovery", time.Now())
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.queue.byNode["n"] != nil
	})
	cancel()
	<-ended
	if s, err := r.j.Snapshot(); err != nil || s.ByJob[receipt.Queued] != 1 || w.waiting() != maxWaiting {
		t.Errorf("jobs %v, %d wait, %v", s.ByJob, w.waiting(), err)
	}
}

// TestProbeBeforeTheNetwork: the control socket is served before the worker has one.
func TestProbeBeforeTheNetwork(t *testing.T) {
	r := newRig(t)
	w, _ := r.life(nil)
	if _, err := w.Probe(r.ctx, "01J00000000000000000000000"); err == nil {
		t.Error("a probe without a network succeeded")
	}
	if l := w.Live(); l.State != control.Settling || l.Gate == "" || l.Connected {
		t.Errorf("live: %+v", l)
	}
}
