package reconcile_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"provctl/inspect/inspecttest"
	"provctl/receipt"
	"provctl/reconcile"
)

func idle(b *inspecttest.Book, r receipt.Receipt) {
	b.See(r.ID, receipt.Evidence{Kind: receipt.SawIdle, Source: "node", Idle: &receipt.IdleSeen{Incarnation: r.Incarnation}})
}

// The horizon is a few seconds ahead; no lock is held until it has passed.
func TestWaitForTheHorizon(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), time.Now())
	early := b.Unknown("n1.example.net", receipt.Configure, inspecttest.TTL+inspecttest.Skew-4*time.Second)
	late := b.Unknown("n2.example.net", receipt.Configure, time.Hour)
	_ = b.Close()
	_, items := resolve(t, b.Dir, receipt.VerdictAbandon, string(early.ID), string(late.ID))
	waits := 0
	got, err := all(t, b.Dir, items, reconcile.Wait{Till: func(n int, next time.Time) {
		waits++
		if n != 1 || time.Until(next) > 10*time.Second {
			t.Errorf("%d wait until %s", n, next)
		}
		if s, err := reconcile.Look(t.Context(), b.Dir); err != nil || len(s.Open) != 1 {
			t.Errorf("what need not wait is not recorded first: %+v, %v", s.Open, err)
		}
	}})
	if err != nil || waits == 0 || !slices.Equal(codesOf(got), []reconcile.Code{reconcile.Recorded, reconcile.Recorded}) || got[1].Item.Found.ID != early.ID {
		t.Errorf("%v after %d waits, %v", codesOf(got), waits, err)
	}
}

// That the node shows itself idle is what is waited for: the verdict follows it. Anything else has changed what was seen.
func TestWaitUntilIdle(t *testing.T) {
	for name, c := range map[string]struct {
		comes func(b *inspecttest.Book, r receipt.Receipt)
		want  reconcile.Code
	}{
		"idle":                 {idle, reconcile.Recorded},
		"idle and still there": {func(b *inspecttest.Book, r receipt.Receipt) { idle(b, r); stats(b, r, r.Incarnation) }, reconcile.Recorded},
		"another process": {func(b *inspecttest.Book, r receipt.Receipt) {
			stats(b, r, receipt.Incarnation{PID: 1, Start: r.Incarnation.Start + 99})
		}, reconcile.Changed},
		"a late reply": {func(b *inspecttest.Book, r receipt.Receipt) { said(b, r, receipt.ReplyApplied); idle(b, r) }, reconcile.Changed},
	} {
		t.Run(name, func(t *testing.T) {
			b := inspecttest.New(t, t.TempDir(), time.Now())
			r := b.Busy("n1.example.net", receipt.Configure, time.Hour)
			b.Serve()
			_, items := resolve(t, b.Dir, receipt.VerdictNotApplied, string(r.ID))
			waits := 0
			got, err := all(t, b.Dir, items, reconcile.Wait{Till: func(int, time.Time) {
				if waits++; waits == 1 {
					c.comes(b, r)
				}
			}})
			if err != nil || waits != 1 || len(got) != 1 || got[0].Code != c.want {
				t.Errorf("%+v after %d waits, %v; want %s", got, waits, err, c.want)
			}
		})
	}
}

func stats(b *inspecttest.Book, r receipt.Receipt, i receipt.Incarnation) {
	b.See(r.ID, receipt.Evidence{Kind: receipt.SawStats, Source: "node", Stats: &receipt.StatsSeen{Incarnation: i, Validated: 9, Known: 2, Base: r.Baseline.ID()}})
}

// Without a worker nobody asks the node: there is nothing to wait for.
func TestNobodyAsksWithoutAWorker(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), time.Now())
	r := b.Busy("n1.example.net", receipt.Configure, time.Hour)
	_ = b.Close()
	_, items := resolve(t, b.Dir, receipt.VerdictNotApplied, string(r.ID))
	got, err := all(t, b.Dir, items, reconcile.Wait{Till: func(int, time.Time) { t.Error("it waits") }})
	if err != nil || len(got) != 1 || got[0].Code != reconcile.MayStillRun {
		t.Errorf("%+v, %v", got, err)
	}
}

// The end of waiting is a result of each item that still waits, and of none twice.
func TestWaitingEnds(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), time.Now())
	early := b.Unknown("n1.example.net", receipt.Configure, time.Second)
	late := b.Unknown("n2.example.net", receipt.Configure, time.Hour)
	b.Serve()
	_, items := resolve(t, b.Dir, receipt.VerdictAbandon, string(early.ID), string(late.ID))
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	var got []reconcile.Result
	err := reconcile.DecideAll(ctx, b.Dir, items, reconcile.Wait{Till: func(int, time.Time) { cancel(enough) }}, func(r reconcile.Result) { got = append(got, r) })
	if !errors.Is(err, enough) || !slices.Equal(codesOf(got), []reconcile.Code{reconcile.Recorded, reconcile.NotTried}) || !errors.Is(got[1].Err, enough) {
		t.Errorf("%+v, %v", got, err)
	}
}
