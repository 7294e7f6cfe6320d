package main

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"provctl/internal/control"
	"provctl/internal/service"
	"provctl/worker"
)

// Bounds on the time before the service manager is told that the worker is ready.
const (
	maxPhase    = 15 * time.Minute // what comes before the worker takes much less, even with a large journal
	brokerGrace = 30 * time.Second // for a broker that does not answer; with its journal settled the worker waits for it as it does later
)

// condition is what the service manager is told of a run.
type condition struct {
	phase  atomic.Pointer[phase]
	worker atomic.Pointer[hired]
}

type phase struct {
	text  string
	since time.Time
}

type hired struct {
	*worker.Worker
	away atomic.Pointer[time.Time] // since when it has no broker; nil: it has one
}

// awayFor is how long the worker has been without its broker.
func (h *hired) awayFor(connected bool) time.Duration {
	now := time.Now()
	switch since := h.away.Load(); {
	case connected:
		h.away.Store(nil)
		return 0
	case since == nil:
		h.away.Store(&now)
		return 0
	default:
		return now.Sub(*since)
	}
}

func newCondition() *condition {
	c := &condition{}
	c.at("starting")
	return c
}

// at says what a run that has no worker yet is at.
func (c *condition) at(text string) { c.phase.Store(&phase{text: text, since: time.Now()}) }

// hire hands over to the worker.
func (c *condition) hire(w *worker.Worker) { c.worker.Store(&hired{Worker: w}) }

// report is cheap, and blocks where the worker is stuck.
func (c *condition) report() service.Report {
	w := c.worker.Load()
	if w == nil {
		p := c.phase.Load()
		r := service.Report{Status: p.text}
		if d := time.Since(p.since); d > maxPhase {
			r.Stalled = fmt.Errorf("%s takes longer than %s", p.text, maxPhase)
		}
		return r
	}
	live := w.Live()
	r := service.Report{Status: statusLine(live, w.Unknown()), Stalled: w.Stalled()}
	switch live.State {
	case control.Settling:
		r.Ready = w.awayFor(live.Connected) > brokerGrace
	case control.Running:
		r.Ready = true
	default:
		r.Stopping = true
	}
	return r
}

// statusLine says in one line how a worker is, what needs a person included.
func statusLine(live control.Live, unknown int) string {
	var parts []string
	switch {
	case live.State == control.Settling && !live.Connected:
		parts = append(parts, "waiting for the broker")
	case live.State == control.Settling:
		parts = append(parts, "settling what an earlier run left")
	case live.State == control.Stopping && live.Parked > 0:
		parts = append(parts, fmt.Sprintf("stopping, %s in flight", count(live.Parked, "effect")))
	case live.State != control.Running:
		parts = append(parts, string(live.State))
	case live.Gate != "":
		parts = append(parts, "takes no new work: "+live.Gate)
	case live.Busy > 0 || live.Queue > 0:
		parts = append(parts, fmt.Sprintf("%d of %s at work, %d queued", live.Busy, count(live.Lanes, "lane"), live.Queue))
	default:
		parts = append(parts, "idle")
	}
	if unknown > 0 {
		parts = append(parts, fmt.Sprintf("%s blocked, see provctl inspect", count(unknown, "node")))
	}
	return strings.Join(parts, "; ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
