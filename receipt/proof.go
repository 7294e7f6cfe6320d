package receipt

import (
	"fmt"
	"slices"
	"time"
)

// Proof is what a rule concludes about an unknown receipt.
type Proof struct {
	Event Event  // one of the Proved events
	Rule  string // the rule's name, kept with the receipt
	Why   string // the conclusion in words, for people
	Key   *Key   // what a late gen25519 reply gave
}

// Rule is one named proof rule: given an unknown receipt with its evidence, the history of its incarnation and the time, it
// concludes something or stays silent. Absence of an observation never proves anything, and nothing proves "not done" before
// the horizon has passed.
type Rule struct {
	Name string
	Says string // what it looks for, for the inspector
	Try  func(r Receipt, h History, now time.Time) (Proof, bool)
}

// Names of the rules after which something else than usual becomes of the job.
const (
	RuleNewStart   = "new-start"
	RuleLeft       = "left"
	RuleRepeatable = "repeatable"
)

// Rules lists every rule in the order in which they are tried. The table they follow is in docs/design.md, "Proof rules".
func Rules() []Rule {
	return []Rule{
		{"late-reply", "exactly one reply to this request, though late", ByLateReply},
		{"provisioned-event", "a provisioned event of the node after a configure was published", ByProvisionedEvent},
		{"upgraded-event", "an upgraded event of the node, to the wanted version, after an upgrade was published", ByUpgradedEvent},
		{RuleNewStart, "the node answers as another incarnation, in provisioning mode", ByNewIncarnation},
		{RuleLeft, "the node's connection closed after a restart or shutdown, and it did not come back", ByLeaving},
		{"counter", "the same incarnation validated no request but those we know of, and only one process has this name", ByCounter},
		{RuleRepeatable, "key generation whose request has expired, while nothing was configured", ByRepeatable},
	}
}

// Prove tries every rule and returns the first conclusion. A receipt that is not unknown proves nothing.
func Prove(r Receipt, h History, now time.Time) (Proof, bool) {
	if r.Status != Unknown {
		return Proof{}, false
	}
	for _, rule := range Rules() {
		if p, ok := rule.Try(r, h, now); ok {
			p.Rule = rule.Name
			return p, true
		}
	}
	return Proof{}, false
}

// provedBy maps what a reply means to the proof of the same.
var provedBy = map[Event]Event{ReplyApplied: ProvedApplied, ReplyRefused: ProvedRefused, ReplyFailed: ProvedFailed}

// ByLateReply accepts a single decodable reply that came after the worker gave up or died. Two replies contradict the rule
// that a request runs once, so they prove nothing.
func ByLateReply(r Receipt, _ History, _ time.Time) (Proof, bool) {
	var only *ReplySeen
	for _, e := range r.Evidence {
		if e.Kind != SawReply {
			continue
		}
		if only != nil {
			return Proof{}, false
		}
		only = e.Reply
	}
	if only == nil {
		return Proof{}, false
	}
	event, ok := provedBy[only.Means]
	return Proof{Event: event, Why: fmt.Sprintf("a late reply says: %.200s", only.Text), Key: only.Key}, ok
}

// ByProvisionedEvent accepts the event that the configure action publishes when all of it is done
// (go-choria v0.30.2 providers/agent/mcorpc/golang/provision/configure_action.go:108).
func ByProvisionedEvent(r Receipt, _ History, _ time.Time) (Proof, bool) {
	for _, e := range r.Evidence {
		if r.Action == Configure && e.Kind == SawEvent && e.Event.Tells(r.Action) {
			return Proof{Event: ProvedApplied, Why: "the node published its provisioned event after the request"}, true
		}
	}
	return Proof{}, false
}

// ByUpgradedEvent accepts the event that release_update publishes once the binary is replaced, before it schedules the restart
// (go-choria v0.30.2 providers/agent/mcorpc/golang/provision/release_update_action.go:64). It names the version that was asked for.
func ByUpgradedEvent(r Receipt, _ History, _ time.Time) (Proof, bool) {
	for _, e := range r.Evidence {
		if r.Action == ReleaseUpdate && e.Kind == SawEvent && e.Event.Tells(r.Action) && SameVersion(e.Event.Version, r.Target) {
			return Proof{Event: ProvedApplied, Why: fmt.Sprintf("the node published its upgraded event to %s after the request", r.Target)}, true
		}
	}
	return Proof{}, false
}

// ByNewIncarnation: for a restart another start time is the effect itself, and so it is for an upgrade together with the wanted
// version. For any other effect, and an upgrade that left another version, a new incarnation in provisioning mode makes the question
// moot. All of it counts only once the request has expired: a node can restart by itself, and the request arrive in its new life. Two
// live processes of one name void it: the other one may simply have answered.
func ByNewIncarnation(r Receipt, _ History, now time.Time) (Proof, bool) {
	var last *StatsSeen // a former answer may have come from a twin that is gone
	for _, e := range r.Evidence {
		switch {
		case e.Kind == SawConnections && e.Connections.Live > 1:
			return Proof{}, false
		case e.Kind == SawStats:
			last = e.Stats
		}
	}
	switch {
	case last == nil, !last.Incarnation.Known(), last.Incarnation == r.Incarnation, !r.Horizon.Passed(now):
		return Proof{}, false
	case r.Action == Restart:
		return Proof{Event: ProvedApplied, Why: fmt.Sprintf("the node runs as a new incarnation, %s", last.Incarnation)}, true
	case r.Action == ReleaseUpdate && SameVersion(last.Version, r.Target):
		return Proof{Event: ProvedApplied, Why: fmt.Sprintf("the node runs version %s as a new incarnation, %s", r.Target, last.Incarnation)}, true
	default:
		return Proof{Event: ProvedMoot, Why: fmt.Sprintf("the node came back in provisioning mode, %s", last.Incarnation)}, true
	}
}

// LeaveSplay is the longest that a node waits before it acts on an accepted shutdown or on a restart with splay 1: 9 s and
// 2 s (go-choria v0.30.2 prov/shutdown_action.go:40, prov/restart_action.go:63).
const LeaveSplay = 10 * time.Second

// ByLeaving: after a restart or a shutdown the node has left the provisioning account and stayed away beyond the horizon.
// The cause is unproven, but nothing more can be asked of it, and if it returns it is new work.
func ByLeaving(r Receipt, _ History, now time.Time) (Proof, bool) {
	if r.Action != Restart && r.Action != Shutdown {
		return Proof{}, false
	}
	for _, e := range r.Evidence {
		c := e.Connections
		if e.Kind != SawConnections || c.Live != 0 || !c.LastClosed.After(r.RequestTime) || r.answeredAfter(e.At) {
			continue
		}
		if at := r.Horizon.Add(LeaveSplay); e.At.After(at) && now.After(at) {
			return Proof{Event: ProvedMoot, Why: "the node left the provisioning account after the request and did not return (cause unproven)"}, true
		}
	}
	return Proof{}, false
}

// answeredAfter reports whether the node answered daemon_stats since: then it did come back, whatever the broker listed before.
func (r Receipt) answeredAfter(t time.Time) bool {
	return slices.ContainsFunc(r.Evidence, func(e Evidence) bool { return e.Kind == SawStats && e.At.After(t) })
}

// ByCounter: daemon_stats counts every request that passed validation (go-choria v0.30.2 server/processor.go:67). If, past
// the horizon, the same incarnation has validated exactly the requests that we know to be others, the effect was never
// dispatched and never will be. Two live processes of one name void it, so the broker must list exactly one.
func ByCounter(r Receipt, _ History, now time.Time) (Proof, bool) {
	var stats *Evidence
	alone := false
	for i, e := range r.Evidence {
		switch {
		case e.Kind == SawStats && e.Stats.Incarnation != r.Incarnation:
			return Proof{}, false
		case e.Kind == SawStats:
			stats = &r.Evidence[i]
		case e.Kind == SawConnections:
			alone = e.Connections.Live == 1 && r.Horizon.Passed(e.At)
		case e.Kind == SawReply, e.Kind == SawEvent && e.Event.Tells(r.Action):
			return Proof{}, false
		}
	}
	if stats == nil || !alone || !r.Horizon.Passed(stats.At) || !r.Horizon.Passed(now) || !r.NotDispatched(*stats.Stats) {
		return Proof{}, false
	}
	return Proof{Event: ProvedNotDone, Why: "the node's request counter shows that this request never reached the agent"}, true
}

// Tells reports whether the event says that such an effect was done. A late event of the effect before is no word on this one.
func (e *EventSeen) Tells(a Action) bool {
	return a == Configure && e.Type == "provisioned" || a == ReleaseUpdate && e.Type == "upgraded"
}

// NotDispatched reports whether an answer of daemon_stats shows that the receipt's request had not been dispatched when it
// was given: every request validated since the baseline is one that we know of. Before the horizon that is not final.
func (r Receipt) NotDispatched(s StatsSeen) bool {
	return r.Baseline != nil && s.Base == r.Baseline.ID() && r.Incarnation.Known() && s.Incarnation == r.Incarnation &&
		s.Known > 0 && s.Validated-r.Baseline.Validated == s.Known
}

// ByRepeatable: key generation may be repeated while no configure receipt exists for the incarnation, so once its request can
// no longer arrive the unknown outcome holds nothing up.
func ByRepeatable(r Receipt, h History, now time.Time) (Proof, bool) {
	if !r.Action.Repeatable() || h.Configured() || !r.Horizon.Passed(now) {
		return Proof{}, false
	}
	return Proof{Event: ProvedMoot, Why: "the request has expired, nothing was configured with its key, and keys may be made again"}, true
}
