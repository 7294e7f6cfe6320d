package receipt_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"provctl/receipt"
)

// counted is an unknown configure with a baseline of 40 requests.
func counted(es ...receipt.Evidence) receipt.Receipt {
	r := with(sample(receipt.Configure, receipt.Unknown), es...)
	base := sampleBase
	r.Baseline = &base
	return r
}

// TestProveByCounter holds the rule from both sides, one condition at a time.
func TestProveByCounter(t *testing.T) {
	past := horizon.Add(time.Millisecond)
	still, alone := stats(past, first, 41, 1), connections(past, 1, time.Time{})
	staleBase := stats(past, first, 41, 1)
	staleBase.Stats.Base.Ordinal++
	noBase := counted(still, alone)
	noBase.Baseline = nil
	noIncarnation := counted(stats(past, receipt.Incarnation{}, 41, 1), alone)
	noIncarnation.Incarnation = receipt.Incarnation{}
	var cases []proofCase
	add := func(name string, r receipt.Receipt, now time.Time, want receipt.Event) {
		cases = append(cases, proofCase{name, r, receipt.History{}, now, want, "counter"})
	}
	add("only the probe was validated", counted(still, alone), late, receipt.ProvedNotDone)
	add("the order of evidence does not matter", counted(alone, still), late, receipt.ProvedNotDone)
	add("the probe and four of ours", counted(stats(past, first, 45, 5), alone), late, receipt.ProvedNotDone)
	add("events that prove nothing", counted(event(early, "startup"), still, alone), late, receipt.ProvedNotDone)

	add("one request more", counted(stats(past, first, 42, 1), alone), late, nothing)
	add("one request fewer", counted(stats(past, first, 40, 1), alone), late, nothing)
	add("nothing counted", counted(stats(past, first, 40, 0), alone), late, nothing)
	add("the counter ran backwards", counted(stats(past, first, 39, -1), alone), late, nothing)
	add("the counter ran over", counted(stats(past, first, math.MinInt64, math.MaxInt64), alone), late, nothing)
	add("stale baseline", counted(staleBase, alone), late, nothing)
	add("no baseline", noBase, late, nothing)
	add("no incarnation", noIncarnation, late, nothing)
	add("before the horizon", counted(still, alone), early, nothing)
	add("at the horizon", counted(still, alone), horizon.Time, nothing)
	add("counted before the horizon", counted(stats(early, first, 41, 1), alone), late, nothing)
	add("counted at the horizon", counted(stats(horizon.Time, first, 41, 1), alone), late, nothing)
	add("connections listed before the horizon", counted(still, connections(early, 1, time.Time{})), late, nothing)
	add("no connections known", counted(still), late, nothing)
	add("no counter known", counted(alone), late, nothing)
	add("two live connections", counted(still, connections(past, 2, time.Time{})), late, nothing)
	add("no live connection", counted(still, connections(past, 0, early)), late, nothing)
	add("a reply was seen, though unusable", counted(still, alone, reply(early, 0, receipt.Lost)), late, nothing)
	add("two replies were seen", counted(still, alone, reply(early, 0, receipt.ReplyApplied), reply(early, 0, receipt.ReplyApplied)), late, nothing)
	prove(t, cases)

	upgrade := counted(still, alone, event(early, "upgraded"))
	upgrade.Action = receipt.ReleaseUpdate
	for name, r := range map[string]receipt.Receipt{
		"provisioned event": counted(still, alone, event(early, "provisioned")), "upgraded event": upgrade,
		"another incarnation": counted(still, alone, stats(past, second, 41, 1)), "another incarnation before": counted(stats(past, second, 41, 1), still, alone),
		"incarnation not known": counted(still, alone, stats(past, receipt.Incarnation{}, 41, 1)),
	} {
		if p, ok := receipt.ByCounter(r, receipt.History{}, late); ok {
			t.Errorf("%s: the counter proves %s", name, p.Event)
		}
	}
}

// TestCounterForEveryEffect: the rule is not particular about the effect.
func TestCounterForEveryEffect(t *testing.T) {
	for _, a := range receipt.Actions() {
		r := counted(stats(late, first, 41, 1), connections(late, 1, time.Time{}))
		r.Action = a
		if p, ok := receipt.Prove(r, receipt.History{}, late); !ok || p.Event != receipt.ProvedNotDone {
			t.Errorf("%s: %s, %t", a, p.Event, ok)
		}
	}
}

// TestNotDispatched: the same count without the horizon, for moving the baseline along.
func TestNotDispatched(t *testing.T) {
	r := counted()
	if s := stats(early, first, 41, 1).Stats; !r.NotDispatched(*s) {
		t.Error("only the probe was validated, yet the effect counts as dispatched")
	}
	for name, s := range map[string]*receipt.StatsSeen{
		"one more": stats(early, first, 42, 1).Stats, "another incarnation": stats(early, second, 41, 1).Stats, "none": stats(early, first, 40, 0).Stats,
	} {
		if r.NotDispatched(*s) {
			t.Errorf("%s: not dispatched", name)
		}
	}
}

// TestMovingTheBaselineKeepsOldCounts: an answer that was counted from a former baseline proves nothing against a later one.
func TestMovingTheBaselineKeepsOldCounts(t *testing.T) {
	r := counted(stats(late, first, 43, 3), connections(late, 1, time.Time{}))
	if _, ok := receipt.ByCounter(r, receipt.History{}, late); !ok {
		t.Fatal("no proof to begin with")
	}
	for _, moved := range []int64{40, 41, 42, 43, 44, 50} {
		r.Baseline = &receipt.Baseline{Validated: moved, Epoch: sampleBase.Epoch, Ordinal: sampleBase.Ordinal + 1}
		if _, ok := receipt.ByCounter(r, receipt.History{}, late); ok {
			t.Errorf("an answer of 43 with 3 known proves something against a baseline of %d", moved)
		}
	}
}

// TestCounterNeverLies: whatever others ask, if the effect was dispatched the rule is silent, since what we count as ours
// never exceeds what was validated besides it.
func TestCounterNeverLies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Int64Range(0, 1<<40).Draw(t, "baseline")
		others := rapid.Int64Range(0, 20).Draw(t, "other requests validated")
		ours := rapid.Int64Range(0, others).Draw(t, "surely ours")
		dispatched := rapid.Bool().Draw(t, "effect dispatched")
		validated := base + others + 1 // the probe
		if dispatched {
			validated++
		}
		r := counted(stats(late, first, validated, ours+1), connections(late, 1, time.Time{}))
		r.Baseline.Validated = base
		_, ok := receipt.ByCounter(r, receipt.History{}, late)
		if dispatched && ok {
			t.Fatal("a dispatched effect is proved not done")
		}
		if !dispatched && ok != (ours == others) {
			t.Fatalf("proved %t with %d of %d requests known", ok, ours, others)
		}
	})
}
