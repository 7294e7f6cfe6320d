package worker

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"provctl/internal/helper"
	"provctl/receipt"
)

// TestDrainEndsTheWorkAtHand: a job at work goes on to its last effect, though the drain came before its first; one that waits is not taken.
func TestDrainEndsTheWorkAtHand(t *testing.T) {
	r, net := newRig(t), newFakeNet("first", "second")
	var w *Worker
	asked := make(chan struct{})
	drained := make(chan struct{})
	w, _ = r.life(func(o *Options) {
		o.Lanes = 1
		o.Advisor = fakeAdvisor(func() (*helper.Reply, error) {
			close(asked) // twice would panic: the second node is never asked about
			<-drained
			return fakeAdvisor(nil).Ask(r.ctx, receipt.Job{}, helper.Input{})
		})
	})
	ended := make(chan error, 1)
	go func() { ended <- r.run(w, net) }()
	<-asked
	r.until(func() bool {
		s, err := r.j.Snapshot()
		return err == nil && s.ByJob[receipt.Claimed] == 1 && s.ByJob[receipt.Queued] == 1
	})
	if d := w.Drain("somebody"); d.Busy != 1 || d.PID == 0 {
		t.Errorf("it says %+v", d)
	}
	if g := w.Live().Gate; !strings.Contains(g, "draining, as somebody asked") {
		t.Errorf("its gate is %q", g)
	}
	w.Drain("another")
	close(drained)
	if err := <-ended; !errors.Is(err, ErrDrained) {
		t.Errorf("Run returned %v", err)
	}
	var worked []receipt.NodeID
	for _, n := range net.nodes {
		got := net.effects(n)
		if len(got) == 0 {
			continue
		}
		worked = append(worked, n)
		if want := []receipt.Action{receipt.Gen25519, receipt.Configure, receipt.Restart}; !slices.Equal(got, want) {
			t.Errorf("%s got %v", n, got)
		}
	}
	if len(worked) != 1 {
		t.Errorf("these nodes were worked on: %v", worked)
	}
	if c := r.snapshot().ByJob; c[receipt.Queued] != 1 || c[receipt.Ended] != 1 {
		t.Errorf("the journal holds %v", c)
	}
}

// TestDrainWithNothingAtWork ends at once, and a signal that comes meanwhile is a stop all the same.
func TestDrainWithNothingAtWork(t *testing.T) {
	r, net := newRig(t), newFakeNet()
	w, _ := r.life(nil)
	w.Drain("somebody")
	if err := r.run(w, net); !errors.Is(err, ErrDrained) {
		t.Errorf("Run returned %v", err)
	}
}

// TestStalled: what hangs is named, what waits is not.
func TestStalled(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := newRig(t)
	w, _ := r.life(func(o *Options) { o.Now = func() time.Time { return now } })
	if err := w.Stalled(); err != nil {
		t.Errorf("an idle worker is stalled: %v", err)
	}
	expect := func(what string) {
		t.Helper()
		if err := w.Stalled(); what == "" && err != nil || what != "" && (err == nil || !strings.Contains(err.Error(), what)) {
			t.Errorf("it says %v, want %q", err, what)
		}
	}
	for _, l := range []struct {
		*pulse
		name string
	}{
		{&w.pulses.dispatch, "dispatch"},
		{&w.pulses.intake, "intake"},
		{&w.pulses.discover, "discovery"},
		{&w.pulses.watch, "the watch"},
	} {
		l.work(now)
		expect("")
		now = now.Add(maxTurn + time.Second)
		expect(l.name)
		l.rest()
		expect("")
	}
	w.busy["n"] = &pass{job: "J", due: now}
	expect("")
	now = now.Add(time.Second)
	expect("job J of n has made no step")
	w.stepped("n", time.Time{})
	expect("")
	w.stepped("n", now.Add(time.Hour)) // an effect that is waited for
	now = now.Add(59 * time.Minute)
	expect("")
	now = now.Add(2 * time.Minute)
	expect("job J of n")
	w.waits("n")
	now = now.Add(24 * time.Hour)
	expect("")
	w.stepped("another", now) // no pass of it: nothing to note
	if len(w.busy) != 1 {
		t.Errorf("busy with %v", w.busy)
	}
}

// TestEndWithoutABroker: a worker that waits for its broker ends when it is drained, and when it has to give up.
func TestEndWithoutABroker(t *testing.T) {
	broken := errors.New("the disk broke")
	for name, c := range map[string]struct {
		end  func(*Worker)
		want error
	}{
		"drained": {func(w *Worker) { w.Drain("somebody") }, ErrDrained},
		"gave up": {func(w *Worker) { w.giveUp(broken) }, broken},
	} {
		t.Run(name, func(t *testing.T) {
			r, net := newRig(t), newFakeNet()
			net.unreached = make(chan struct{})
			w, _ := r.life(nil)
			ended := make(chan error, 1)
			go func() { ended <- r.run(w, net) }()
			<-net.unreached
			c.end(w)
			if err := <-ended; !errors.Is(err, c.want) {
				t.Errorf("Run returned %v", err)
			}
		})
	}
}

// TestClockThatJumps: a waiting pass is judged by the time that passes, not by the wall clock that its horizon is on.
func TestClockThatJumps(t *testing.T) {
	r := newRig(t)
	w, _ := r.life(nil)
	now := time.Now()
	w.busy["n"] = &pass{job: "J", due: now}
	horizon := receipt.HorizonOf(now, time.Minute, time.Second)
	l := &lane{w: w, node: "n"}
	done := make(chan struct{})
	close(done)
	if err := l.Await(r.ctx, done, receipt.Receipt{ID: "R", Node: "n", Horizon: horizon}); err != nil {
		t.Fatal(err)
	}
	if due := w.busy["n"].due; due.Round(0) == due || due.Sub(now) < maxStep+time.Minute {
		t.Errorf("it is due at %v, %s from now: a moment of the wall clock", due, due.Sub(now))
	}
}
