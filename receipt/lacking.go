package receipt

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// lacking are the rules that may still conclude something, each with what it waits for. A rule that other evidence rules out is not
// listed, nor one that has concluded.
func lacking(r Receipt, now time.Time) []Weight {
	if !r.Status.Open() {
		return nil
	}
	var out []Weight
	add := func(v Verdict, rule string, missing []string) {
		if len(missing) > 0 {
			out = append(out, Weight{Verdict: v, For: true, Source: "rule " + rule, Says: "missing: " + strings.Join(missing, "; ")})
		}
	}
	add(VerdictNotApplied, "counter", lackOfCounter(r, now))
	add(newStartSuggests(r), RuleNewStart, lackOfNewStart(r, now))
	add(VerdictAbandon, RuleLeft, lackOfLeft(r, now))
	if r.Action.Repeatable() {
		add(VerdictNotApplied, RuleRepeatable, untilHorizon(r, now))
	}
	if r.Horizon.Passed(now) && r.MayStillRun() {
		out = append(out, Weight{Verdict: VerdictNotApplied, Source: "horizon", Says: "the node has not shown since " +
			r.Horizon.UTC().Format(time.RFC3339) + " that it has done all that it accepted: the request may still wait in it"})
	}
	return out
}

func untilHorizon(r Receipt, now time.Time) []string {
	if r.Horizon.Passed(now) {
		return nil
	}
	return []string{fmt.Sprintf("the horizon, in %s", max(time.Second, r.Horizon.Left(now).Round(time.Second)))}
}

// lackOfCounter follows ByCounter, condition by condition.
func lackOfCounter(r Receipt, now time.Time) []string {
	var stats, list *Evidence
	for i, e := range r.Evidence {
		switch {
		case e.Kind == SawReply, e.Kind == SawEvent && e.Event.Tells(r.Action), e.Kind == SawStats && e.Stats.Incarnation != r.Incarnation:
			return nil
		case e.Kind == SawStats:
			stats = &r.Evidence[i]
		case e.Kind == SawConnections:
			list = &r.Evidence[i]
		}
	}
	if r.Baseline == nil || !r.Incarnation.Known() || stats != nil && r.Horizon.Passed(stats.At) && !r.NotDispatched(*stats.Stats) {
		return nil // it can conclude nothing any more
	}
	missing := untilHorizon(r, now)
	if stats == nil || !r.Horizon.Passed(stats.At) {
		missing = append(missing, "daemon_stats of the node from past the horizon")
	}
	switch {
	case list == nil, !r.Horizon.Passed(list.At):
		missing = append(missing, "the broker's connection list from past the horizon, with one connection of this name")
	case list.Connections.Live != 1:
		missing = append(missing, fmt.Sprintf("a single connection at the broker that gets this node's requests, which lists %d", list.Connections.Live))
	}
	return missing
}

// other is the process that answered last, if it is another one than the request was sent to.
func (r Receipt) other() *StatsSeen {
	i := r.lastStats()
	if i < 0 || !r.Evidence[i].Stats.Incarnation.Known() || r.Evidence[i].Stats.Incarnation == r.Incarnation {
		return nil
	}
	return r.Evidence[i].Stats
}

func newStartSuggests(r Receipt) Verdict {
	s := r.other()
	if s != nil && (r.Action == Restart || r.Action == ReleaseUpdate && SameVersion(s.Version, r.Target)) {
		return VerdictApplied
	}
	return Proof{Event: ProvedMoot}.Suggests(r.Action)
}

func lackOfNewStart(r Receipt, now time.Time) []string {
	if r.other() == nil {
		return nil
	}
	missing := untilHorizon(r, now)
	if slices.ContainsFunc(r.Evidence, func(e Evidence) bool { return e.Kind == SawConnections && e.Connections.Live > 1 }) {
		missing = append(missing, "a connection list of the broker with a single connection that gets this node's requests")
	}
	return missing
}

func lackOfLeft(r Receipt, now time.Time) []string {
	if r.Action != Restart && r.Action != Shutdown {
		return nil
	}
	at := r.Horizon.Add(LeaveSplay)
	for _, e := range r.Evidence {
		c := e.Connections
		if e.Kind == SawConnections && c.Live == 0 && c.LastClosed.After(r.RequestTime) && !r.answeredAfter(e.At) && !e.At.After(at) {
			wait := ""
			if left := at.Sub(now); left > 0 {
				wait = fmt.Sprintf(", in %s", max(time.Second, left.Round(time.Second)))
			}
			return []string{fmt.Sprintf("the broker's connection list from after %s%s, still without the node", at.UTC().Format(time.RFC3339), wait)}
		}
	}
	return nil
}
