package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"provctl/internal/helper"
	"provctl/journal"
	"provctl/receipt"
	"provctl/sequence"
)

// vote is a leadership that a test gives and takes.
type vote struct {
	mu    sync.Mutex
	other bool // somebody else leads
}

func (v *vote) Check() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.other {
		return fmt.Errorf("%w: another worker leads", receipt.ErrStandby)
	}
	return nil
}

func (v *vote) set(other bool) {
	v.mu.Lock()
	v.other = other
	v.mu.Unlock()
}

// begun runs a worker until the test ends; stop ends it earlier and says what Run returned.
func (r *rig) begun(w *Worker, net Network) (stop func() error) {
	ctx, cancel := context.WithCancel(r.ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx, net) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	r.t.Cleanup(func() { _ = stop() })
	return stop
}

// provisioned waits until a node was restarted into its configuration.
func (r *rig) provisioned(net *fakeNet, n receipt.NodeID) {
	r.t.Helper()
	if err := net.await(r.ctx, func() bool { return slices.Contains(net.effects(n), receipt.Restart) }); err != nil {
		r.t.Fatalf("%s got %v: %v", n, net.effects(n), err)
	}
}

// TestPausedWorkerBeginsNothing: neither what discovery nor what an event brings is taken; resuming takes it at once, without the
// interval, and a pause outlives the worker.
func TestPausedWorkerBeginsNothing(t *testing.T) {
	r, net := newRig(t), newFakeNet("n")
	w, _ := r.life(nil)
	if _, err := w.Pause(r.ctx, "me", "maintenance"); err != nil {
		t.Fatal(err)
	}
	stop := r.begun(w, net)
	r.until(func() bool { return w.intaking.Load() })
	w.Sight("n", "event", time.Now())
	if gate := w.gate(); gate != "standing by: paused by me at "+w.paused.Load().At.UTC().Format(time.RFC3339)+": maintenance" {
		t.Errorf("gate: %q", gate)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if got := net.effects("n"); len(got) != 0 {
		t.Fatalf("a paused worker sent %v", got)
	}
	if err := r.j.Close(); err != nil {
		t.Fatal(err)
	}

	w, _ = r.life(nil)
	r.begun(w, net)
	r.until(func() bool { return w.intaking.Load() })
	if err := w.Permit(); !errors.Is(err, receipt.ErrStandby) {
		t.Fatalf("the next worker may act: %v", err)
	}
	if was, err := w.Resume(r.ctx, "me"); err != nil || was == nil || was.Reason != "maintenance" {
		t.Fatalf("resumed %+v, %v", was, err)
	}
	r.provisioned(net, "n")
	if was, err := w.Resume(r.ctx, "me"); err != nil || was != nil {
		t.Errorf("resumed twice: %+v, %v", was, err)
	}
}

// TestPauseInAPass: what is in flight ends, the next step and the helper are not begun, and the job goes on after the pause where it was.
func TestPauseInAPass(t *testing.T) {
	for _, at := range []string{"an effect", "the helper", "a publish"} {
		t.Run(at, func(t *testing.T) {
			r, net := newRig(t), newFakeNet("n")
			var w *Worker
			paused := sync.OnceFunc(func() {
				if _, err := w.Pause(r.ctx, "me", "at "+at); err != nil {
					t.Error(err)
				}
			})
			net.publish = func(p *journal.Pending) (sequence.Outcome, error) {
				switch a := p.Receipt().Action; {
				case at == "an effect" && a == receipt.Gen25519:
					paused() // in flight already: it ends
				case at == "a publish" && a == receipt.Configure: // between the last look and the publish: the fence refuses
					paused()
					if err := w.Permit(); err != nil {
						return sequence.Outcome{}, fmt.Errorf("%w: %w: %w", sequence.ErrNotSent, receipt.ErrFenced, err)
					}
				}
				return sequence.Outcome{}, nil
			}
			w, _ = r.life(func(o *Options) {
				o.Advisor = fakeAdvisor(func() (*helper.Reply, error) {
					if at == "the helper" {
						paused()
					}
					return fakeAdvisor(nil).Ask(r.ctx, receipt.Job{}, helper.Input{})
				})
			})
			r.begun(w, net)
			r.until(func() bool {
				s, err := r.j.Snapshot()
				return err == nil && s.Info.Pause != nil && s.ByJob[receipt.Queued] == 1
			})
			if got := net.effects("n"); !slices.Equal(got, []receipt.Action{receipt.Gen25519}) {
				t.Fatalf("sent %v before the pause", got)
			}
			if _, err := w.Resume(r.ctx, "me"); err != nil {
				t.Fatal(err)
			}
			r.provisioned(net, "n")
			if got := net.effects("n"); !slices.Equal(got, []receipt.Action{receipt.Gen25519, receipt.Configure, receipt.Restart}) {
				t.Errorf("sent %v", got)
			}
		})
	}
}

// TestStandbyLeavesTheFleetAlone: a worker that does not lead neither discovers nor admits; it does both at once when it wins.
func TestStandbyLeavesTheFleetAlone(t *testing.T) {
	r, net := newRig(t), newFakeNet("n")
	v := &vote{other: true}
	w, _ := r.life(func(o *Options) { o.Leadership = v })
	r.begun(w, net)
	r.until(func() bool { return w.intaking.Load() })
	w.Sight("other", "event", time.Now())
	if live := w.Live(); live.Standby != "standing by: another worker leads" || live.Gate != live.Standby {
		t.Errorf("live: %+v", live)
	}
	s, err := r.j.Snapshot()
	if err != nil || len(s.ByJob) != 0 && s.ByJob[receipt.Queued]+s.ByJob[receipt.Claimed] != 0 {
		t.Fatalf("jobs %v, %v", s.ByJob, err)
	}
	v.set(false)
	w.OnLeadership()
	r.provisioned(net, "n")
	if got := net.effects("other"); len(got) != 0 {
		t.Errorf("a node that was seen on standby got %v", got)
	}
}

// TestKnownNodesCostNoCommit: seeing nodes again that wait already writes nothing; each would be a record of the journal at each interval.
func TestKnownNodesCostNoCommit(t *testing.T) {
	w, _ := idle(1)
	w.intaking.Store(true)
	then := time.Now()
	w.queue.push(entry{job: "J", node: "waits", seen: then})
	w.busy["works"] = &pass{job: "K"}
	later := then.Add(time.Minute)
	for _, n := range []receipt.NodeID{"waits", "works", "new"} {
		w.Sight(n, "discovery", later)
	}
	if len(w.seen) != 1 || w.seen["new"].Node != "new" {
		t.Errorf("to be written: %v", w.seen)
	}
	if e, ok, _ := w.queue.next(later); !ok || !e.seen.Equal(later) {
		t.Errorf("the waiting node was seen last at %s", e.seen)
	}
}

// TestUpgradeWithoutReply: a long download ends without a reply. The event ends the wait long before the horizon, proves the upgrade,
// and the node is new work; nothing is sent a second time, and while it lasted it was no doubt.
func TestUpgradeWithoutReply(t *testing.T) {
	r, net := newRig(t), newFakeNet("n")
	net.pending = make(chan struct{}) // never closed: no reply
	net.inventory = `{"version":"1.2.2","upgradable":true}`
	w, _ := r.life(func(o *Options) {
		o.Flow = sequence.Flow{Upgrades: true, Repository: "https://repo.example.net"}
		o.Advisor = fakeAdvisor(func() (*helper.Reply, error) {
			return helper.Decode([]byte(`{"configuration":{"plugin.choria.server.provision":"false"},"upgrade":"1.2.3"}`))
		})
	})
	r.begun(w, net)
	if err := net.await(r.ctx, func() bool { return len(net.effects("n")) == 1 }); err != nil {
		t.Fatal(err)
	}
	r.until(func() bool { return w.parked.Load() == 1 })
	if n := w.overdue.Load(); n != 0 {
		t.Errorf("a download counts as %d doubts", n)
	}
	for _, version := range []string{"1.2.2", "1.2.3"} {
		w.OnEvent(Happening{Node: "n", Seen: receipt.EventSeen{Type: "upgraded", Component: "server", Version: version}, At: time.Now()})
	}
	r.until(func() bool {
		s, err := r.j.Snapshot()
		return err == nil && s.ByResult[receipt.Upgraded] == 1 && s.Tally.Evidence == 1
	})
	if got := net.effects("n"); !slices.Equal(got, []receipt.Action{receipt.ReleaseUpdate}) {
		t.Errorf("sent %v", got)
	}
}

// TestPauseAndResumeAtOnce: whatever the order in which they are recorded, the worker does what the journal says.
func TestPauseAndResumeAtOnce(t *testing.T) {
	r := newRig(t)
	w, _ := r.life(nil)
	for range 100 {
		var both sync.WaitGroup
		both.Go(func() {
			if _, err := w.Pause(r.ctx, "me", "x"); err != nil {
				t.Error(err)
			}
		})
		both.Go(func() {
			if _, err := w.Resume(r.ctx, "you"); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		if recorded, obeyed := r.j.Info().Pause != nil, w.Permit() != nil; recorded != obeyed {
			t.Fatalf("the journal says paused %t, the worker obeys %t", recorded, obeyed)
		}
	}
}
