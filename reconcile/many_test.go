package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"provctl/inspect/inspecttest"
	"provctl/internal/control"
	"provctl/journal"
	"provctl/receipt"
	"provctl/reconcile"
)

// resolve looks and resolves, with the same verdict on each name unless a request brings its own.
func resolve(t *testing.T, dir string, v receipt.Verdict, names ...string) (reconcile.Sight, []reconcile.Item) {
	t.Helper()
	s, err := reconcile.Look(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var qs []reconcile.Request
	for _, n := range names {
		qs = append(qs, reconcile.Request{Receipt: n, Verdict: v, Reason: "because"})
	}
	items, err := s.Resolve(t.Context(), qs)
	if err != nil {
		t.Fatal(err)
	}
	return s, items
}

func all(t *testing.T, dir string, items []reconcile.Item, wait reconcile.Wait) ([]reconcile.Result, error) {
	t.Helper()
	var out []reconcile.Result
	err := reconcile.DecideAll(t.Context(), dir, items, wait, func(r reconcile.Result) { out = append(out, r) })
	return out, err
}

func codesOf(rs []reconcile.Result) []reconcile.Code {
	out := make([]reconcile.Code, 0, len(rs))
	for _, r := range rs {
		out = append(out, r.Code)
	}
	return out
}

// said makes a late reply that says a receipt's effect was applied.
func said(b *inspecttest.Book, r receipt.Receipt, means receipt.Event) receipt.Receipt {
	return b.See(r.ID, receipt.Evidence{Kind: receipt.SawReply, Source: "node", Reply: &receipt.ReplySeen{Means: means, Text: "done"}})
}

// scene holds a receipt in each state that decides differently.
func scene(b *inspecttest.Book) map[string]string {
	restart := b.Unknown("r.example.net", receipt.Restart, time.Hour)
	return map[string]string{
		"plain":   string(b.Unknown("plain.example.net", receipt.Configure, time.Hour).ID),
		"restart": string(restart.ID),
		"keys":    string(b.Busy("keys.example.net", receipt.Gen25519, time.Hour).ID),
		"busy":    string(b.Busy("busy.example.net", receipt.Configure, time.Hour).ID),
		"early":   string(b.Unknown("early.example.net", receipt.Configure, 10*time.Second).ID),
		"applied": string(said(b, b.Unknown("done.example.net", receipt.Configure, time.Hour), receipt.ReplyApplied).ID),
		"pending": string(b.Pending("left.example.net", receipt.Configure, time.Hour).Receipt().ID),
		"nothing": "01ZZZZ",
	}
}

// TestPredictionHolds: a dry run says of every verdict in every state what giving it then does, and writes nothing.
func TestPredictionHolds(t *testing.T) {
	for _, v := range receipt.Verdicts() {
		for _, contradict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,%v", v, contradict), func(t *testing.T) {
				both(t, func(t *testing.T, b *inspecttest.Book, leave func()) {
					named := scene(b)
					leave()
					s, items := resolve(t, b.Dir, v, slices.Collect(mapsValues(named))...)
					for n := range items {
						items[n].Contradict = contradict
						if items[n].Found.Action == receipt.Restart {
							items[n].Seen++ // it changed since
						}
					}
					var predicted []reconcile.Result
					for _, i := range items {
						predicted = append(predicted, s.Predict(i))
					}
					got, err := all(t, b.Dir, items, reconcile.Wait{})
					if err != nil || len(got) != len(items) {
						t.Fatalf("%d results of %d, %v", len(got), len(items), err)
					}
					for n, p := range predicted {
						want, is := p.Code, got[n]
						if want == reconcile.WouldRecord {
							want = reconcile.Recorded
						}
						if is.Code != want || is.Is != p.Is || is.Item.Found.ID != p.Item.Found.ID {
							t.Errorf("%s on %s: predicted %s %s (%v), it is %s %s (%v)", v, p.Item.Found.Node, p.Code, p.Is, p.Err, is.Code, is.Is, is.Err)
						}
					}
				})
			})
		}
	}
}

func mapsValues(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for _, v := range m {
			if !yield(v) {
				return
			}
		}
	}
}

// TestOneRefusalStopsNoOther also looks at the order of the results, and at what is on record afterwards.
func TestOneRefusalStopsNoOther(t *testing.T) {
	both(t, func(t *testing.T, b *inspecttest.Book, leave func()) {
		named := scene(b)
		ended := b.Unknown("ended.example.net", receipt.Configure, time.Hour)
		if _, err := b.Decide(t.Context(), journal.Decision{Receipt: ended.ID, Seen: ended.Version, Verdict: receipt.VerdictApplied, By: "x", Reason: "x"}); err != nil {
			t.Fatal(err)
		}
		leave()
		_, items := resolve(t, b.Dir, receipt.VerdictNotApplied, named["early"], named["nothing"], named["applied"], string(ended.ID), named["busy"], named["plain"])
		got, err := all(t, b.Dir, items, reconcile.Wait{})
		want := []reconcile.Code{reconcile.BeforeTime, reconcile.NotFound, reconcile.Contradicted, reconcile.Changed, reconcile.MayStillRun, reconcile.Recorded}
		if err != nil || !slices.Equal(codesOf(got), want) {
			t.Fatalf("results are %v, %v; want %v", codesOf(got), err, want)
		}
		for name, n := range map[string]int{"early": 0, "applied": 0, "busy": 0, "plain": 1} {
			if r := read(t, b, receipt.ReceiptID(named[name])); len(r.Decisions) != n {
				t.Errorf("%s has %d decisions, want %d", name, len(r.Decisions), n)
			}
		}
	})
}

func TestInsistingIsPutOnRecord(t *testing.T) {
	both(t, func(t *testing.T, b *inspecttest.Book, leave func()) {
		named := scene(b)
		leave()
		_, items := resolve(t, b.Dir, receipt.VerdictNotApplied, named["applied"])
		items[0].Contradict = true
		got, err := all(t, b.Dir, items, reconcile.Wait{})
		if err != nil || got[0].Code != reconcile.Recorded {
			t.Fatalf("%+v, %v", got, err)
		}
		if d := got[0].Receipt.Decisions[0]; !strings.Contains(d.Contradicts, "a late reply says") {
			t.Errorf("the decision does not say what it contradicts: %+v", d)
		}
	})
}

// TestVerdictIsTakenBack: a later verdict supersedes a former one that was seen, and both stay.
func TestVerdictIsTakenBack(t *testing.T) {
	both(t, func(t *testing.T, b *inspecttest.Book, leave func()) {
		r := b.Unknown("n1.example.net", receipt.Configure, time.Hour)
		leave()
		first, err := one(t, b.Dir, reconcile.Request{Receipt: string(r.ID), Verdict: receipt.VerdictAbandon, Reason: "x"})
		if err != nil {
			t.Fatal(err)
		}
		again := reconcile.Request{Receipt: string(r.ID), Verdict: receipt.VerdictApplied, Reason: "it came back", Seen: first.Receipt.Version}
		second, err := one(t, b.Dir, again)
		if err != nil || second.Is != receipt.Applied || len(second.Receipt.Decisions) != 2 {
			t.Fatalf("%+v, %v", second, err)
		}
		if d := second.Receipt.Decisions[1]; d.Supersedes != first.Receipt.Decisions[0].Seq {
			t.Errorf("it supersedes %d, want %d", d.Supersedes, first.Receipt.Decisions[0].Seq)
		}
		if _, err := one(t, b.Dir, again); !errors.Is(err, receipt.ErrStale) {
			t.Errorf("once more: %v, want ErrStale", err)
		}
	})
}

func TestResolve(t *testing.T) {
	open := func(ids ...string) (s reconcile.Sight) {
		for n, id := range ids {
			s.Open = append(s.Open, receipt.Receipt{ID: receipt.ReceiptID(id), Version: receipt.Seq(n + 5), Status: receipt.Unknown})
		}
		return s
	}
	s := open("01BBBBBBB2", "01AAAAAAA1", "01AAAAAAA2")
	whole := "01ZZZZZZZZZZZZZZZZZZZZZZZZ"
	items, err := s.Resolve(t.Context(), []reconcile.Request{{Receipt: "01bbbb"}, {Receipt: "01AAAAAAA1", Seen: 3}, {Receipt: whole}, {Receipt: "01ZZZZ"}})
	if err != nil || len(items) != 4 {
		t.Fatalf("%+v, %v", items, err)
	}
	if items[0].Found.ID != "01BBBBBBB2" || items[0].Seen != 5 {
		t.Errorf("a prefix gives %+v", items[0])
	}
	if items[1].Seen != 3 {
		t.Errorf("the version that was seen became %d", items[1].Seen)
	}
	if string(items[2].Found.ID) != whole || items[2].Found.Status != 0 || items[3].Found.ID != "" {
		t.Errorf("what is not open gives %+v and %+v", items[2], items[3])
	}
	if _, err = s.Resolve(t.Context(), []reconcile.Request{{Receipt: "01AAAA"}}); !errors.Is(err, reconcile.ErrAmbiguous) || !strings.Contains(err.Error(), "01AAAAAAA1, 01AAAAAAA2") {
		t.Errorf("a prefix of two: %v, want both candidates", err)
	}
	if _, err = s.Resolve(t.Context(), []reconcile.Request{{Receipt: "01BBBB"}, {Receipt: "01BBBBBBB2"}}); !errors.Is(err, reconcile.ErrTwice) {
		t.Errorf("twice the same: %v", err)
	}
}

// fickle is a worker that answers some decisions with an error.
type fickle struct {
	control.Worker
	calls atomic.Int64
	err   func(call int64) error
}

func (f *fickle) Decide(ctx context.Context, d journal.Decision) (receipt.Receipt, error) {
	if err := f.err(f.calls.Add(1)); err != nil {
		return receipt.Receipt{}, err
	}
	return f.Worker.Decide(ctx, d)
}

func serveAs(t *testing.T, b *inspecttest.Book, w control.Worker) {
	t.Helper()
	stop, err := control.Serve(t.Context(), b.Dir, w, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
}

func blockedNodes(b *inspecttest.Book, n int) (names []string) {
	for i := range n {
		names = append(names, string(b.Unknown(receipt.NodeID(fmt.Sprintf("n%02d.example.net", i)), receipt.Configure, time.Hour).ID))
	}
	return names
}

func TestAnOverloadedWorkerIsAskedAgain(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), time.Now())
	names := blockedNodes(b, 12)
	serveAs(t, b, &fickle{Worker: b.Worker(), err: func(n int64) error {
		if n%3 == 0 {
			return control.ErrOverloaded
		}
		return nil
	}})
	_, items := resolve(t, b.Dir, receipt.VerdictApplied, names...)
	got, err := all(t, b.Dir, items, reconcile.Wait{})
	if err != nil || slices.ContainsFunc(got, func(r reconcile.Result) bool { return r.Code != reconcile.Recorded }) {
		t.Errorf("%v, %v", codesOf(got), err)
	}
}

// A worker that stops in the middle: no item is without a result, and those that were not tried say so.
func TestTheWorkerStopsHalfWay(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), time.Now())
	names := blockedNodes(b, 20)
	serveAs(t, b, &fickle{Worker: b.Worker(), err: func(n int64) error {
		if n > 3 {
			return fmt.Errorf("disk full: %w", journal.ErrStopped)
		}
		return nil
	}})
	_, items := resolve(t, b.Dir, receipt.VerdictApplied, names...)
	got, err := all(t, b.Dir, items, reconcile.Wait{})
	count := map[reconcile.Code]int{}
	for n, r := range got {
		count[r.Code]++
		if r.Item.Found.ID != receipt.ReceiptID(names[n]) {
			t.Fatalf("result %d is of %s, want %s", n, r.Item.Found.ID, names[n])
		}
	}
	if !errors.Is(err, journal.ErrStopped) || len(got) != 20 || count[reconcile.Recorded] != 3 || count[reconcile.NotTried] == 0 {
		t.Errorf("%v, %v", count, err)
	}
}

// Two of them on the same receipts at once: each receipt gets one verdict.
func TestTwoManyAtOnce(t *testing.T) {
	both(t, func(t *testing.T, b *inspecttest.Book, leave func()) {
		names := blockedNodes(b, 30)
		leave()
		_, items := resolve(t, b.Dir, receipt.VerdictApplied, names...)
		results := make([][]reconcile.Result, 2)
		var wg sync.WaitGroup
		for n := range results {
			wg.Go(func() { results[n], _ = all(t, b.Dir, items, reconcile.Wait{}) })
		}
		wg.Wait()
		for n := range names {
			won := 0
			for _, rs := range results {
				if len(rs) != len(names) {
					t.Fatalf("%d results", len(rs))
				}
				switch rs[n].Code {
				case reconcile.Recorded:
					won++
				case reconcile.Changed:
				default:
					t.Errorf("%s: %s (%v)", names[n], rs[n].Code, rs[n].Err)
				}
			}
			if won != 1 {
				t.Errorf("%s has %d verdicts recorded, want 1", names[n], won)
			}
		}
	})
}

// What evidence settles between the look and the verdict has changed.
func TestEvidenceWasQuicker(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), time.Now())
	names := blockedNodes(b, 2)
	b.Serve()
	_, items := resolve(t, b.Dir, receipt.VerdictNotApplied, names...)
	said(b, items[0].Found, receipt.ReplyApplied)
	got, err := all(t, b.Dir, items, reconcile.Wait{})
	if err != nil || !slices.Equal(codesOf(got), []reconcile.Code{reconcile.Changed, reconcile.Recorded}) {
		t.Errorf("%v, %v", codesOf(got), err)
	}
}

func TestInterruptedBeforeItBegan(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), time.Now())
	names := blockedNodes(b, 3)
	b.Serve()
	_, items := resolve(t, b.Dir, receipt.VerdictApplied, names...)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	var got []reconcile.Result
	err := reconcile.DecideAll(ctx, b.Dir, items, reconcile.Wait{}, func(r reconcile.Result) { got = append(got, r) })
	if err == nil || len(got) != 3 || got[2].Code != reconcile.NotTried {
		t.Errorf("%v, %v", codesOf(got), err)
	}
	for _, n := range names {
		if r := read(t, b, receipt.ReceiptID(n)); r.Status != receipt.Unknown {
			t.Errorf("%s is %s", n, r.Status)
		}
	}
}
