package model

import (
	"time"

	"provctl/receipt"
)

// This file turns what a state holds into the real types, for the real tables and rules to judge. All requests are made at one
// moment: rules never compare two of them.
var (
	asked   = time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
	horizon = receipt.HorizonOf(asked, time.Minute, 10*time.Second)
	moments = [...]time.Time{
		Fresh: asked.Add(30 * time.Second), Expired: horizon.Add(time.Second), Late: horizon.Add(receipt.LeaveSplay + time.Second),
	}
	base   = receipt.Baseline{Validated: 100, Epoch: 1, Ordinal: 1}
	former = receipt.Baseline{Validated: 90, Epoch: 1, Ordinal: 0}
)

var ids = [maxOps]receipt.ReceiptID{"R1", "R2", "R3", "R4", "R5", "R6"}

// at is a moment of a phase; what happened later in one phase has a higher order.
func at(p Phase, order int) time.Time { return moments[p].Add(time.Duration(order) * time.Millisecond) }

// now is later than all that was observed in its phase.
func now(p Phase) time.Time { return at(p, 500) }

func life(inc uint8) receipt.Incarnation {
	return receipt.Incarnation{PID: 7, Start: 1740000000 + int64(inc)}
}

// receipt is the real form of an effect's receipt.
func (s *State) receipt(i int) receipt.Receipt {
	o := &s.Ops[i]
	r := receipt.Receipt{
		ID: ids[i], Seq: receipt.Seq(i + 1), Version: receipt.Seq(i + 1), Node: "n1", Epoch: receipt.Epoch(o.Epoch),
		Action: o.Action, Status: o.Status, Incarnation: life(o.Inc), RequestTime: asked, Horizon: horizon,
	}
	if o.Action == receipt.Gen25519 && o.Key != 0 {
		r.Key = &receipt.Key{}
	}
	if o.Action == receipt.ReleaseUpdate {
		r.Target = target
	}
	o.contradict(&r)
	if int(s.Open) == i+1 {
		r.Baseline = &base
		for n, seen := range s.Seen {
			if seen.Kind != 0 {
				r.Evidence = append(r.Evidence, seen.evidence(n))
			}
		}
	}
	return r
}

// decided is the place of every verdict in the order of all writes; what contradicts it comes after.
const decided = 100

// contradict adds what was noted on a receipt after it was taken for not begun.
func (o *Op) contradict(r *receipt.Receipt) {
	if !o.denied() {
		return
	}
	r.Decisions = []receipt.Decision{{Verdict: receipt.VerdictNotApplied, Seq: decided}}
	for _, seen := range []Obs{
		{Kind: receipt.SawReply, Means: o.Heard}, {Kind: receipt.SawEvent, Latest: o.Action == receipt.ReleaseUpdate},
	} {
		if seen.Means != 0 || seen.Kind == receipt.SawEvent && o.Told {
			e := seen.evidence(0)
			e.Seq = decided + 1
			r.Evidence = append(r.Evidence, e)
		}
	}
}

// known is the real form of all receipts of the node that are remembered.
func (s *State) known() []receipt.Receipt {
	var all []receipt.Receipt
	for i := range s.used() {
		if s.Ops[i].Status != 0 {
			all = append(all, s.receipt(i))
		}
	}
	return all
}

// history is the real form of what an incarnation has been through.
func (s *State) history(inc uint8) receipt.History {
	h := receipt.History{Forgiven: receipt.Seq(s.Forgave)}
	for i := range s.used() {
		if o := &s.Ops[i]; o.Status != 0 && o.Inc == inc {
			h.Receipts = append(h.Receipts, s.receipt(i))
		}
	}
	return h
}

// evidence is the real form of the observation at place n. Its sequence number leads back to the place.
func (o Obs) evidence(n int) receipt.Evidence {
	e := receipt.Evidence{Kind: o.Kind, Source: "model", At: at(o.Phase, n), Seq: receipt.Seq(n + 1)}
	switch o.Kind {
	case receipt.SawStats:
		b := base
		if o.Former {
			b = former
		}
		e.Stats = &receipt.StatsSeen{
			Incarnation: life(o.Inc), Validated: b.Validated + 1 + int64(o.Excess), Known: 1, Base: b.ID(), Epoch: 1, Ordinal: 9,
		}
		if o.Latest {
			e.Stats.Version = target
		}
	case receipt.SawConnections:
		e.Connections = &receipt.ConnectionsSeen{Live: int(o.Live)}
		if o.Closed {
			e.Connections.LastClosed = asked.Add(time.Second)
		}
	case receipt.SawIdle:
		e.Idle = &receipt.IdleSeen{Incarnation: life(o.Inc)}
	case receipt.SawReply:
		e.Reply = &receipt.ReplySeen{Means: o.Means}
		if o.Keeps {
			e.Reply.Text = keepsProvisioning
		}
	case receipt.SawEvent:
		e.Event = &receipt.EventSeen{Type: "provisioned", Component: "server"}
		if o.Latest {
			e.Event = &receipt.EventSeen{Type: "upgraded", Component: "server", Version: target}
		}
	}
	return e
}

// successes are what the node says of what it did; gen25519 answers with its key instead.
var successes = map[receipt.Action]string{
	receipt.Configure: "Wrote 9 lines to /etc/choria/server.conf", receipt.Restart: "Restarting Choria Server after 2s",
	receipt.Shutdown: "Shutting Choria Server down after 5s", receipt.ReleaseUpdate: "Restarting Choria Server after 2s",
}

// target is the version that the helper wants.
const target = "2.0.0"

// keepsProvisioning is how a node refuses to restart into provisioning mode.
const keepsProvisioning = "Configuration /etc/choria/server.conf" + receipt.RestartKeepsProvisioning

// keeps reports whether an effect is a restart that its node refuses for want of a configuration.
func (o *Op) keeps() bool {
	return o.Action == receipt.Restart && o.Did == receipt.ReplyRefused && !o.Lives
}

// answer is what receipt.Classify makes of what a node says.
func (o *Op) answer() receipt.Event {
	event, _ := receipt.Classify(o.Action, o.reply())
	return event
}

// reply is what a node says when it has done, refused or failed an effect.
func (o *Op) reply() receipt.Reply {
	r := receipt.Reply{Code: 1, Text: "Could not obtain provisioning lock"}
	switch {
	case o.Did == receipt.ReplyApplied:
		r = receipt.Reply{Text: successes[o.Action], Usable: true}
	case o.Did == receipt.ReplyFailed && o.Lives:
		r.Text = "Could not save Action Policies: no space left on device"
	case o.Did == receipt.ReplyFailed:
		r.Text = "Could not write key: no space left on device"
	case o.Action == receipt.Shutdown:
		r.Text = "Cannot shutdown a server that is not in provisioning mode or with no token set"
	case o.Action == receipt.Restart:
		r.Text = "Cannot restart a server that is not in provisioning mode or with no token set"
		if o.keeps() {
			r.Text = keepsProvisioning
		}
	}
	return r
}
