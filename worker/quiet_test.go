package worker

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"provctl/journal"
	"provctl/receipt"
)

// accepted has somebody go on although the journal is lost.
func (r *rig) accepted() {
	r.t.Helper()
	if err := os.Remove(filepath.Join(r.dir, "journal.db")); err != nil {
		r.t.Fatal(err)
	}
	if _, err := journal.Accept(r.dir, journal.Acceptance{By: "me", Reason: "the disk broke"}); err != nil {
		r.t.Fatal(err)
	}
}

// TestQuietAfterAcceptance: a worker begins nothing while requests of the time that is lost may arrive, and then takes up work by itself.
func TestQuietAfterAcceptance(t *testing.T) {
	r, net := newRig(t), newFakeNet("n")
	r.accepted()
	w, _ := r.life(func(o *Options) { o.Horizon = time.Hour })
	stop := r.begun(w, net)
	r.until(func() bool { return w.intaking.Load() })
	w.Sight("n", "event", time.Now())
	if err := w.Permit(); !errors.Is(err, receipt.ErrStandby) || !strings.Contains(err.Error(), "nothing is sent for another") {
		t.Errorf("it may act: %v", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if got := net.effects("n"); len(got) != 0 {
		t.Fatalf("it sent %v", got)
	}
	if err := r.j.Close(); err != nil {
		t.Fatal(err)
	}
	w, _ = r.life(func(o *Options) { o.Horizon = time.Second }) // over in a moment: no event but the time wakes it
	r.begun(w, net)
	r.provisioned(net, "n")
}

// TestQuietByAClockSetBack: the wait is never longer than one horizon.
func TestQuietByAClockSetBack(t *testing.T) {
	r := newRig(t)
	r.accepted()
	back := func() time.Time { return time.Now().Add(-24 * time.Hour) }
	w, _ := r.life(func(o *Options) { o.Horizon, o.Now = time.Minute, back })
	if left := w.quiet.Sub(back()); left <= 0 || left > time.Minute {
		t.Errorf("%s are left", left)
	}
}
