package model_test

import (
	"flag"
	"sync"
	"testing"
	"time"

	"provctl/crashtests/model"
	"provctl/receipt"
)

var deep = flag.Bool("deep", false, "search the deep bounds as well; takes minutes")

// TestProtocolHolds searches all bounds without a seeded fault. Together they take every step there is, and every proof rule that
// a cycle without an upgrade can need concludes somewhere.
func TestProtocolHolds(t *testing.T) {
	runs := model.Runs()
	if *deep {
		runs = append(runs, model.DeepRuns()...)
	}
	happened, proved, states := map[string]int{}, map[string]int{}, 0
	var mu sync.Mutex
	t.Run("all", func(t *testing.T) {
		holds(t, runs, func(r model.Result) {
			mu.Lock()
			defer mu.Unlock()
			states += r.States
			for says, n := range r.Happened {
				happened[says] += n
			}
			for name, n := range r.Proved {
				proved[name] += n
			}
		})
	})
	t.Logf("model states: %d", states)
	t.Logf("%d searches; rules concluded: %v", len(runs), proved)
	for says, n := range happened {
		if n == 0 {
			t.Errorf("nowhere: %s", says)
		}
	}
	for _, rule := range receipt.Rules() {
		if proved[rule.Name] == 0 {
			t.Errorf("rule %s concluded nowhere", rule.Name)
		}
	}
}

func holds(t *testing.T, runs []model.Bounds, done func(model.Result)) {
	for _, bounds := range runs {
		t.Run(bounds.Name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			m := model.Model{Bounds: bounds}
			r, err := m.Search()
			t.Logf("model %s: %d states, %d edges, %d final of which %d blocked, %d full, %s",
				bounds.Name, r.States, r.Edges, r.Finals, r.Blocked, r.Full, time.Since(begun).Round(time.Millisecond))
			switch {
			case err != nil:
				t.Fatal(err)
			case r.Trace != nil:
				t.Fatal(r.Trace)
			case r.Finals == 0 || r.Blocked == 0:
				t.Errorf("no final or no blocked state was reached: these bounds test little")
			}
			done(r)
		})
	}
}

// TestAssumptionsAreNeeded: without each assumption the search finds what docs/design.md says stays open.
func TestAssumptionsAreNeeded(t *testing.T) {
	const one = 1
	for _, c := range []struct {
		name    string
		without model.Assumption
		budget  model.Budget
		past    []model.Invariant
		breaks  model.Invariant
	}{
		{"an effect reaches the next life", model.SteadyWindow, model.Budget{Jobs: 1, Restarts: one}, nil, model.WrongLife},
		{
			"a node that took a configure in its next life is enrolled anew", model.SteadyWindow,
			model.Budget{Jobs: 2, Restarts: one, Odd: one},
			[]model.Invariant{model.WrongLife, model.FalseOutcome},
			model.KeyAfterConfigure,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := model.Model{Bounds: model.Bounds{Budget: c.budget, Without: []model.Assumption{c.without}}, Past: c.past}
			r, err := m.Search()
			if err != nil {
				t.Fatal(err)
			}
			if r.Trace == nil || r.Trace.Broken != c.breaks {
				t.Fatalf("%d states; found %v, want %q", r.States, r.Trace, c.breaks)
			}
			t.Logf("found in %d steps: %s", len(r.Trace.Steps), r.Trace.Broken)
		})
	}
}
