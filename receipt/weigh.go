package receipt

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Weight is one thing that speaks for or against a verdict: an observation, or a proof rule that concludes or lacks something. What
// speaks for applied speaks against not-applied, and the other way round; it is listed once.
type Weight struct {
	Verdict Verdict   `json:"verdict"`
	For     bool      `json:"for"`
	Firm    bool      `json:"firm"` // it says so outright; else it is a hint, or a rule that still lacks something
	Source  string    `json:"source"`
	At      time.Time `json:"at,omitzero"` // of an observation
	Says    string    `json:"says"`
}

// against reports whether the weight speaks against a verdict.
func (w Weight) against(v Verdict) bool {
	opposite := w.For && (w.Verdict == VerdictApplied && v == VerdictNotApplied || w.Verdict == VerdictNotApplied && v == VerdictApplied)
	return opposite || w.Verdict == v && !w.For
}

// Suggests is the verdict that comes closest to what a proof concludes. After a failure not-applied is the one that has the effect sent
// again, as a failed reply in time would have; an upgrade that failed is not repeated on a guess.
func (p Proof) Suggests(a Action) Verdict {
	switch {
	case p.Event == ProvedApplied:
		return VerdictApplied
	case p.Event == ProvedRefused, p.Event == ProvedNotDone:
		return VerdictNotApplied
	case p.Event == ProvedFailed && a != ReleaseUpdate:
		return VerdictNotApplied
	case p.Event == ProvedMoot && a.Repeatable():
		return VerdictNotApplied
	default:
		return VerdictAbandon
	}
}

// Contradiction says why evidence speaks against a verdict: what a proof rule concludes otherwise, or an observation that says
// otherwise outright although no rule accepts it. Empty: nothing does. It is a pure function of what the receipt holds, whatever its
// status, and takes any receipt: content that fails Evidence.Check counts for nothing. Abandon and finish claim nothing about the node,
// so nothing contradicts them. Before the horizon only what can no longer change counts.
func Contradiction(r Receipt, v Verdict, now time.Time) string {
	switch v {
	case VerdictAbandon, VerdictFinish:
		return ""
	case VerdictApplied, VerdictNotApplied:
	default:
		return fmt.Sprintf("%s is no verdict", v)
	}
	r = r.checked()
	for _, w := range slices.Concat(concluded(r, now), observed(r, now)) {
		// Keys may be made again whatever became of the request: only a conclusion stands against saying so.
		if w.At.IsZero() || v != VerdictNotApplied || !r.Action.Repeatable() {
			if w.Firm && w.against(v) {
				return w.Source + ": " + w.Says
			}
		}
	}
	return ""
}

// Weigh lists what speaks for and against each verdict, conclusions of rules first, then observations in the order in which they came,
// then what rules still lack. It is as pure and as total as Contradiction.
func Weigh(r Receipt, now time.Time) []Weight {
	r = r.checked()
	return slices.Concat(concluded(r, now), observed(r, now), lacking(r, now))
}

// checked is the receipt with only the evidence that can be used.
func (r Receipt) checked() Receipt {
	r.Evidence = slices.DeleteFunc(slices.Clone(r.Evidence), func(e Evidence) bool { return e.Check() != nil })
	return r
}

// concluded are the rules that fire. Only key generation asks for the incarnation's history, and the receipt alone tells it: none is
// begun once a configure receipt exists, and no other effect begins while it is open.
func concluded(r Receipt, now time.Time) []Weight {
	var out []Weight
	for _, rule := range Rules() {
		if p, ok := rule.Try(r, History{Receipts: []Receipt{r}}, now); ok {
			says := p.Why
			if p.Event == ProvedFailed { // of one that failed, that it took effect is wrong and nothing else is sure
				out = append(out, Weight{Verdict: VerdictApplied, Firm: true, Source: "rule " + rule.Name, Says: says})
				says = "it failed, perhaps half way: look at the node"
			}
			v := p.Suggests(r.Action)
			firm := p.Event != ProvedMoot && p.Event != ProvedFailed
			out = append(out, Weight{Verdict: v, For: true, Firm: firm, Source: "rule " + rule.Name, Says: says})
		}
	}
	return out
}

// observed is what each observation says by itself.
func observed(r Receipt, now time.Time) []Weight {
	var out []Weight
	last := r.lastStats()
	for i, e := range r.Evidence {
		add := func(v Verdict, speaksFor, firm bool, format string, args ...any) {
			out = append(out, Weight{v, speaksFor, firm, e.Source, e.At, fmt.Sprintf(format, args...)})
		}
		switch e.Kind {
		case SawReply:
			weighReply(r, *e.Reply, add)
		case SawEvent:
			weighEvent(r, *e.Event, add)
		case SawStats:
			weighStats(r, e, i == last, now, add)
		case SawConnections:
			weighConnections(r, e, add)
		case SawIdle:
			weighOld(r, e.Idle.Incarnation, e.At, add)
		}
	}
	return out
}

type adder func(v Verdict, speaksFor, firm bool, format string, args ...any)

func weighReply(r Receipt, s ReplySeen, add adder) {
	text := fmt.Sprintf("the node answered, though late: code %d %.200q", s.Code, s.Text)
	switch s.Means {
	case ReplyApplied, ProvedApplied:
		add(VerdictApplied, true, true, "%s", text)
	case ReplyRefused, ProvedRefused, NeverSent, ProvedNotDone:
		add(VerdictNotApplied, true, true, "%s", text)
	case ReplyFailed, ProvedFailed:
		add(VerdictApplied, false, true, "%s", text)
		if r.Action == ReleaseUpdate && strings.Contains(s.Text, UpgradeBroken) {
			add(VerdictNotApplied, false, true, "the server's program may be gone")
		}
	default: // it cannot be read: no word on either
	}
}

func weighEvent(r Receipt, s EventSeen, add adder) {
	switch {
	case r.Action == ReleaseUpdate && s.Type == "upgraded" && !SameVersion(s.Version, r.Target):
		add(VerdictNotApplied, false, true, "the node says that it was upgraded, to %.80q instead of %s", s.Version, r.Target)
	case s.Tells(r.Action):
		add(VerdictApplied, true, true, "the node published its %s event after the request", s.Type)
	case r.Action == Restart && s.Type == "startup", r.Action == Shutdown && s.Type == "shutdown":
		add(VerdictApplied, true, false, "the node published a %s event after the request (its cause is unproven)", s.Type)
	}
}

// weighStats weighs an answer of the node's process. Of several processes only the one that answered last is the node as it is now.
func weighStats(r Receipt, e Evidence, last bool, now time.Time, add adder) {
	s := *e.Stats
	switch {
	case !last || !s.Incarnation.Known() || !r.Incarnation.Known():
	case s.Incarnation != r.Incarnation && r.Action == Restart:
		add(VerdictApplied, true, true, "the node answers as another process, %s", s.Incarnation)
	case s.Incarnation != r.Incarnation && r.Action == ReleaseUpdate && s.Version != "":
		if SameVersion(s.Version, r.Target) {
			add(VerdictApplied, true, true, "the node runs version %.80q as another process, %s", s.Version, s.Incarnation)
		} else if r.Horizon.Passed(now) {
			add(VerdictApplied, false, true, "the node runs version %.80q as another process, and %s was asked for", s.Version, r.Target)
		}
	case s.Incarnation != r.Incarnation:
		add(VerdictAbandon, true, false, "the node answers as another process, %s, in provisioning mode", s.Incarnation)
	default:
		weighOld(r, s.Incarnation, e.At, add)
	}
	switch {
	case s.Incarnation != r.Incarnation || r.Baseline == nil || s.Base != r.Baseline.ID() || s.Known <= 0:
	case r.NotDispatched(s) && r.Horizon.Passed(e.At):
		add(VerdictNotApplied, true, false, "requests validated since the baseline: %d, all of them known to be others", s.Known)
	case !r.NotDispatched(s):
		add(VerdictNotApplied, false, false, "requests validated since the baseline: %d, of which %d are known to be others; this one may be among the rest", s.Validated-r.Baseline.Validated, s.Known)
	}
}

// weighOld weighs an answer of the process that was there before, after all that it may have waited for.
func weighOld(r Receipt, i Incarnation, at time.Time, add adder) {
	if (r.Action == Restart || r.Action == Shutdown) && i == r.Incarnation && at.After(r.Horizon.Add(LeaveSplay)) {
		add(VerdictApplied, false, true, "the node still answers as the process that was to end, %s", i)
	}
}

func weighConnections(r Receipt, e Evidence, add adder) {
	c := *e.Connections
	switch {
	case r.Action != Restart && r.Action != Shutdown:
	case c.Live == 0 && c.LastClosed.After(r.RequestTime):
		add(VerdictApplied, true, false, "the node's connection closed at %s, after the request, and it did not come back (the cause is unproven)", c.LastClosed.UTC().Format(time.RFC3339))
	case r.Action == Shutdown && c.Live == 1 && !c.LastClosed.After(r.RequestTime) && e.At.After(r.Horizon.Add(LeaveSplay)):
		add(VerdictApplied, false, false, "the node has been connected since before the request")
	}
}

// lastStats is the place of the newest answer of daemon_stats, or -1.
func (r Receipt) lastStats() int {
	for i, e := range slices.Backward(r.Evidence) {
		if e.Kind == SawStats {
			return i
		}
	}
	return -1
}
