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
