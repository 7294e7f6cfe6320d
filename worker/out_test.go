package worker

import (
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

// out makes a node that an exhausted job keeps out, though nothing was begun in that job.
func (r *rig) out(n receipt.NodeID) {
	r.t.Helper()
	a := r.admit(n)
	if a.State != journal.Admitted {
		r.t.Fatalf("%s is %s", n, a.State)
	}
	if _, err := r.j.Claim(r.ctx, a.Job.ID); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.j.Move(r.ctx, a.Job.ID, journal.Next{Event: receipt.End, Result: receipt.Exhausted, Why: "it ends the worker"}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) admit(n receipt.NodeID) journal.Admission {
	r.t.Helper()
	got, err := r.j.Admit(r.ctx, []journal.Sighting{{Node: n, Source: "discovery", At: time.Now()}}, 1)
	if err != nil || len(got) != 1 {
		r.t.Fatalf("admit %s: %+v, %v", n, got, err)
	}
	return got[0]
}

// TestOutNodesAreLookedAtOnce: however often a node that is kept out is seen, one look at it is under way, and few in all.
func TestOutNodesAreLookedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, net := newRig(t), newCountNet()
		var looks atomic.Int32
		release := make(chan struct{})
		net.onStats = func(receipt.NodeID) error { looks.Add(1); <-release; return nil }
		w, _ := r.life(nil)
		w.net = net
		var outs []journal.Admission
		for i := range 2 * looksAtOnce {
			n := receipt.NodeID(fmt.Sprintf("n%d", i))
			r.out(n)
			outs = append(outs, r.admit(n))
		}
		for range 5 {
			w.admitted(r.ctx, outs[0])
		}
		synctest.Wait()
		if looks.Load() != 1 {
			t.Errorf("%d looks at one node", looks.Load())
		}
		for _, a := range outs {
			w.admitted(r.ctx, a)
		}
		synctest.Wait()
		if looks.Load() != looksAtOnce {
			t.Errorf("%d looks at a time, want %d", looks.Load(), looksAtOnce)
		}
		close(release)
		w.running.Wait()
		w.admitted(r.ctx, outs[0])
		w.running.Wait()
		if looks.Load() != looksAtOnce+1 || len(w.outLooks) != 0 {
			t.Errorf("afterwards %d looks were made, and %d are under way", looks.Load(), len(w.outLooks))
		}
	})
}

// TestExhaustedStaysOutForWhatItMet: the node's record knows a former life; the job that is exhausted met none. The first life
// that is looked at afterwards is the one that stays out, and the next one is new work.
func TestExhaustedStaysOutForWhatItMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, net := newRig(t), newCountNet("n")
		w, _ := r.life(func(o *Options) { o.Hold = time.Millisecond })
		if err := func() error { stop := r.start(w, net); synctest.Wait(); return stop() }(); err != nil {
			t.Fatal(err)
		}
		if n := r.node("n"); n.Incarnation != firstLife || n.LastResult != receipt.Provisioned {
			t.Fatalf("node is %+v", n)
		}
		time.Sleep(time.Second)
		r.out("n")
		now, next := receipt.Incarnation{PID: 8, Start: 1_700_001_000}, receipt.Incarnation{PID: 9, Start: 1_700_002_000}
		net.comeBack(now)
		for range 3 {
			a := r.admit("n")
			if a.State != journal.Out {
				t.Fatalf("the life that it was exhausted in is %s", a.State)
			}
			w.checkOut(r.ctx, a)
			if len(w.seen) != 0 {
				t.Fatal("it counts as come back")
			}
		}
		net.comeBack(next)
		w.checkOut(r.ctx, r.admit("n"))
		if _, ok := w.seen["n"]; !ok || r.admit("n").State != journal.Admitted {
			t.Errorf("it came back as another life: sightings %v, node %+v", w.seen, r.node("n"))
		}
	})
}

// TestEventsAreBounded: anybody may claim by event that nodes started. What waits, in the queue or for admission, leaves room
// for discovery.
func TestEventsAreBounded(t *testing.T) {
	w, _ := idle(1)
	w.intaking.Store(true)
	const queued = 100
	for i := range queued {
		w.queue.push(entry{node: receipt.NodeID(fmt.Sprintf("queued-%d", i))})
	}
	for i := range maxByEvent + 50 {
		w.Sight(receipt.NodeID(fmt.Sprintf("claimed-%d", i)), "event", time.Now())
	}
	if got := len(w.seen); got != maxByEvent-queued {
		t.Errorf("%d sightings by event beside %d queued jobs, want %d in all", got, queued, maxByEvent)
	}
	w.Sight("real", "discovery", time.Now())
	if w.seen["real"].Node != "real" {
		t.Error("a node that answered a discovery is not noted")
	}
	if w.Sight("late", "event", time.Now()); w.seen["late"].Node != "" {
		t.Error("one more sighting by event is noted")
	}
}

// TestAbsentNodeIsNotBlamed: whichever fact finds that nobody is there, the job ends as left, and the node is taken as soon as it
// is seen again.
func TestAbsentNodeIsNotBlamed(t *testing.T) {
	for _, fact := range []string{"daemon_stats", "jwt", "inventory"} {
		t.Run(fact, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, net := newRig(t), newCountNet("n")
				var away atomic.Bool
				away.Store(true)
				gone := func(which string) error {
					if which == fact && away.Load() {
						return fmt.Errorf("no responders: %w", sequence.ErrAbsent)
					}
					return nil
				}
				net.onStats = func(receipt.NodeID) error { return gone("daemon_stats") }
				net.jwt = func(receipt.NodeID) (string, error) { return "token", gone("jwt") }
				net.onInventory = func(receipt.NodeID) error { return gone("inventory") }
				w, _ := r.life(nil)
				stop := r.start(w, net)
				synctest.Wait()
				if n := r.node("n"); n.LastResult != receipt.Left || n.Job != "" || n.Out != 0 || !n.HeldUntil.IsZero() || n.HeldWhy != "" {
					t.Errorf("the node is %+v", n)
				}
				away.Store(false)
				w.Sight("n", "event", time.Now())
				synctest.Wait()
				if n := r.node("n"); n.LastResult != receipt.Provisioned {
					t.Errorf("seen again, it is %+v", n)
				}
				want := []receipt.Action{receipt.Gen25519, receipt.Configure, receipt.Restart}
				if sent := net.effects("n"); !slices.Equal(sent, want) {
					t.Errorf("published: %v, want %v", sent, want)
				}
				if err := stop(); err != nil {
					t.Errorf("Run returned %v", err)
				}
			})
		})
	}
}
