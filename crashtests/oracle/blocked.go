package oracle

import (
	"fmt"
	"time"

	"provctl/internal/fleet"
)

// The times that evidence is given. A worker looks when a reply or a lifecycle event comes, when it connects, shortly after the
// horizon, and 10 s after that; a look takes milliseconds if the node answers, and 10 s if it does not.
const (
	grace = 5 * time.Second
	leave = 10 * time.Second // the longest splay of a restart or shutdown, and the longest look
)

// needless is invariant 6: no node is blocked where evidence was to be had and had time. A receipt that is unknown in a look of a
// connected worker, which had been there for the grace time, is needlessly so if by the nodes' logs
//
//   - its node ended the request, no fault kept the reply, and the worker was there from the request to a second after; or
//   - its horizon is over for the grace time, and the node has joined again in provisioning mode: whatever it was is moot; or
//   - ... and it makes keys, and nothing was configured by that process: keys may be made again; or
//   - its horizon is over for the grace time and the 10 s until the next look, and it never reached its node, whose process is still the
//     same, and the worker is the one that sent it or the first since: the counter shows it, if not at the first look then at the next.
//     (A worker in between, which was killed, has blurred it with questions that nobody knows of.) Or
//   - its horizon is over as long, it is a restart or a shutdown, and the node has left, of which the broker knows.
func needless(r Run) []Violation {
	if r.Manual {
		return nil
	}
	var out []Violation
	told := map[string]bool{}
	for _, l := range r.Looks {
		if !r.attentive(l) {
			continue
		}
		for _, i := range l.Report.Items {
			if i.Status != unknown || told[i.Receipt] {
				continue
			}
			if why := r.evidence(i, l.From); why != "" {
				told[i.Receipt] = true
				out = append(out, Violation{6, i.Node, fmt.Sprintf("receipt %s (%s) blocks it needlessly: %s", i.Receipt, i.Action, why)})
			}
		}
	}
	return out
}

// attentive tells whether a worker had been there for the grace time when the look was taken.
func (r Run) attentive(l Look) bool {
	w := l.Report.Worker
	if w == nil || !w.Connected || w.State != "running" {
		return false
	}
	return r.undisturbed(l.From.Add(-grace), l.From)
}

// undisturbed tells whether one life of the worker covers the time, with the broker there.
func (r Run) undisturbed(from, to time.Time) bool {
	for _, o := range r.Outages {
		if o.From.Before(to) && (o.To.IsZero() || o.To.Add(grace).After(from)) {
			return false
		}
	}
	for _, l := range r.Lives {
		if l.covers(from) && l.covers(to) {
			return true
		}
	}
	return false
}

// evidence says what should have settled an unknown receipt by then; "" if nothing was there.
func (r Run) evidence(i Item, now time.Time) string {
	log := r.of(i, now)
	patience := grace
	if !log.same {
		patience += leave
	}
	if e := log.end; e != nil && log.arrived != nil && e.Fault == "" && now.After(e.Time.Add(patience)) && r.heard(i, e.Time.Add(time.Second)) {
		return fmt.Sprintf("its node ended it with status %d, and nothing kept the reply away", e.Status)
	}
	past := now.Sub(i.Horizon)
	switch {
	case past < grace:
		return ""
	case log.next != nil && log.next.Mode == fleet.Provisioning && now.After(log.next.Time.Add(grace)):
		return "the node came back in provisioning mode"
	case (i.Action == "gen25519" || i.Action == "gencsr") && !log.configured:
		return "keys may be made again"
	case past < grace+leave:
		return ""
	case log.arrived == nil && log.next == nil && log.same && r.successor(i, now):
		return "its request never reached the node, which is the same process still"
	case log.left != nil && now.After(log.left.Time.Add(grace+leave)) && !r.brokerForgot(i.Since):
		return "the node left, as it was asked to"
	}
	return ""
}

// brokerForgot tells whether the broker ended since a moment: a new one knows of no connection that was closed before.
func (r Run) brokerForgot(since time.Time) bool {
	for _, o := range r.Outages {
		if o.From.After(since) {
			return true
		}
	}
	return false
}

// heard tells whether the worker that made the request, and so had a connection for its reply, was there from then to a moment.
func (r Run) heard(i Item, to time.Time) bool {
	for n := len(r.Lives) - 1; n >= 0; n-- {
		if !r.Lives[n].From.After(i.Since) {
			return r.Lives[n].covers(i.Since) && r.undisturbed(i.Since, to)
		}
	}
	return false
}

// successor tells whether at most one worker followed the one that made the request.
func (r Run) successor(i Item, now time.Time) bool {
	later := 0
	for _, l := range r.Lives {
		if l.From.After(i.Since) && l.From.Before(now) {
			later++
		}
	}
	return later <= 1
}

// story is what a node's log tells about one receipt up to a moment.
type story struct {
	arrived, end *fleet.Entry
	next         *fleet.Entry // how a later process joined
	same         bool         // the receipt's process has joined, and no later one booted
	configured   bool         // its process has begun a configure
	left         *fleet.Entry // how its node left after it: joined as provisioned by a restart, or told to shut down
}

func (r Run) of(i Item, now time.Time) story {
	var s story
	for n := range r.Entries {
		e := &r.Entries[n]
		if e.Node != i.Node || e.Time.After(now) {
			continue
		}
		mine := int64(e.PID) == i.Incarnation.PID && e.Start/int64(time.Second) == i.Incarnation.Start
		switch {
		case e.RequestID == i.Request && e.Phase == fleet.PhaseReceived:
			s.arrived = e
		case e.RequestID == i.Request && e.Phase == fleet.PhaseEnd:
			s.end = e
			if e.Action == "shutdown" && e.Status == 0 {
				s.left = e
			}
		case mine && e.Phase == fleet.PhaseJoined:
			s.same = true
		case mine && e.Phase == fleet.PhaseBegin && e.Action == "configure":
			s.configured = true
		case s.same && e.Phase == fleet.PhaseBoot:
			s.same = false
		case !mine && e.Phase == fleet.PhaseJoined && e.Start/int64(time.Second) > i.Incarnation.Start:
			s.next = e
			if i.Action == "restart" && s.arrived != nil && e.Mode == fleet.Provisioned {
				s.left = e
			}
		}
	}
	return s
}
