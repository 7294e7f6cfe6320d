package model_test

import (
	"slices"
	"testing"

	"provctl/crashtests/model"
)

// TestTeeth: every seeded fault is found, by the invariant that it should break, in bounds within which TestProtocolHolds finds
// nothing.
func TestTeeth(t *testing.T) {
	for _, tooth := range model.Teeth() {
		t.Run(tooth.Name, func(t *testing.T) {
			t.Parallel()
			clean := func(b model.Bounds) bool { return !b.Shutdown && !b.Upgrade && tooth.Budget.Within(b.Budget) }
			if !slices.ContainsFunc(model.Runs(), clean) {
				t.Error("its bounds are within those of no run: the fault may not be what is found")
			}
			m := model.Model{Bounds: model.Bounds{Budget: tooth.Budget}, Faults: tooth.Faults, Past: tooth.Past}
			r, err := m.Search()
			switch {
			case err != nil:
				t.Fatal(err)
			case r.Trace == nil:
				t.Fatalf("not found in %d states: the check has no tooth for it", r.States)
			case r.Trace.Broken != tooth.Breaks:
				t.Fatalf("found as %q, want %q\n%s", r.Trace.Broken, tooth.Breaks, r.Trace)
			}
			t.Logf("tooth %s: found in %d steps: %s", tooth.Name, len(r.Trace.Steps), r.Trace.Broken)
		})
	}
}

// TestGuardsBackEachOther: of the guards against a worker whose right has lapsed, any single one can fail and no harm comes of it.
func TestGuardsBackEachOther(t *testing.T) {
	for name, fault := range map[string]model.Fault{
		"epoch in writes": model.NoWriteEpoch, "epoch at the fence": model.NoFenceEpoch, "lock at the fence": model.NoFenceLock,
		"journal at the fence": model.NoFenceJournal, "token at the fence": model.NoFenceToken, "time at the fence": model.NoFenceTime,
		"token at the settling": model.SettleRevoked,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := model.Model{
				Bounds: model.Bounds{Budget: model.Budget{Jobs: 1, Steals: 1, Verdicts: 1}}, Faults: []model.Fault{fault},
				Past: []model.Invariant{model.StaleWrite, model.LostLock},
			}
			r, err := m.Search()
			if err != nil || r.Trace != nil {
				t.Fatalf("%v after %d states: %v", err, r.States, r.Trace)
			}
		})
	}
}

// TestWordAgainstVerdict: where a verdict was overtaken, since it was taken too early, and the node's reply or event says so, the effect is not begun anew; the rule that
// sees to it is what does so.
func TestWordAgainstVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		faults []model.Fault
		breaks model.Invariant
	}{
		"holds": {[]model.Fault{model.NotIdle}, 0}, "without the rule": {[]model.Fault{model.NotIdle, model.NoContradiction}, model.Contradicted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := model.Model{
				Bounds: model.Bounds{
					Budget: model.Budget{Jobs: 1, Crashes: 1, Slow: 1, Verdicts: 1},
				},
				Faults: c.faults, Past: []model.Invariant{model.RanAfterOutcome, model.RepeatedEffect, model.FalseOutcome},
			}
			r, err := m.Search()
			found := model.Invariant(0)
			if r.Trace != nil {
				found = r.Trace.Broken
			}
			if err != nil || found != c.breaks {
				t.Fatalf("%v after %d states: %v, want %q", err, r.States, r.Trace, c.breaks)
			}
			if c.breaks == 0 && r.Happened["has its event arrive"] == 0 {
				t.Error("no event arrived: nothing was looked for")
			}
		})
	}
}
