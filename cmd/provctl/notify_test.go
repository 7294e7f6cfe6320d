package main

import (
	"strings"
	"testing"
	"time"

	"provctl/internal/control"
)

func TestStatusLine(t *testing.T) {
	for _, c := range []struct {
		live    control.Live
		unknown int
		want    string
	}{
		{control.Live{State: control.Settling}, 0, "waiting for the broker"},
		{control.Live{State: control.Settling, Connected: true}, 2, "settling what an earlier run left; 2 nodes blocked, see provctl inspect"},
		{control.Live{State: control.Running}, 0, "idle"},
		{control.Live{State: control.Running, Lanes: 4, Busy: 1, Queue: 7}, 1, "1 of 4 lanes at work, 7 queued; 1 node blocked, see provctl inspect"},
		{control.Live{State: control.Running, Gate: "the broker is not connected"}, 0, "takes no new work: the broker is not connected"},
		{control.Live{State: control.Stopping, Parked: 1}, 0, "stopping, 1 effect in flight"},
		{control.Live{State: control.Stopped}, 0, "stopped"},
	} {
		if got := statusLine(c.live, c.unknown); got != c.want {
			t.Errorf("%+v with %d unknown: %q, want %q", c.live, c.unknown, got, c.want)
		}
	}
}

// TestConditionBeforeTheWorker: a start gets more time while it is at something, and not for ever.
func TestConditionBeforeTheWorker(t *testing.T) {
	c := newCondition()
	c.at("checking the journal")
	if r := c.report(); r.Ready || r.Stalled != nil || r.Status != "checking the journal" {
		t.Errorf("it reports %+v", r)
	}
	c.phase.Store(&phase{text: "checking the journal", since: time.Now().Add(-maxPhase - time.Second)})
	if r := c.report(); r.Stalled == nil || !strings.Contains(r.Stalled.Error(), "checking the journal") {
		t.Errorf("it reports %+v", r)
	}
}
