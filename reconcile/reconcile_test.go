package reconcile_test

import (
	"context"
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"provctl/fence"
	"provctl/inspect/inspecttest"
	"provctl/internal/control"
	"provctl/journal"
	"provctl/receipt"
	"provctl/reconcile"
)

// both runs a test through a worker and without one: the results must be the same.
func both(t *testing.T, test func(t *testing.T, b *inspecttest.Book, leave func())) {
	t.Helper()
	for name, leave := range map[string]func(b *inspecttest.Book){
		"through a worker": func(b *inspecttest.Book) { b.Serve() },
		"offline":          func(b *inspecttest.Book) { _ = b.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			b := inspecttest.New(t, t.TempDir(), time.Now())
			test(t, b, func() { leave(b) })
		})
	}
}

// read is a receipt as the journal has it, whoever has the journal open.
func read(t *testing.T, b *inspecttest.Book, id receipt.ReceiptID) receipt.Receipt {
	t.Helper()
	r, err := b.Receipt(id)
	if err == nil {
		return r
	}
	j, err := journal.Open(b.Dir, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if r, err = j.Receipt(id); err != nil {
		t.Fatal(err)
	}
	return r
}

func me(t *testing.T) string {
	t.Helper()
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	return u.Username
}

func TestVerdicts(t *testing.T) {
	for verdict, want := range map[receipt.Verdict]receipt.Status{
		receipt.VerdictApplied: receipt.Applied, receipt.VerdictNotApplied: receipt.NotApplied, receipt.VerdictAbandon: receipt.Abandoned,
		receipt.VerdictFinish: receipt.Finishing,
	} {
		t.Run(verdict.String(), func(t *testing.T) {
			both(t, func(t *testing.T, b *inspecttest.Book, leave func()) {
				seen := b.Unknown("n1.example.net", receipt.Configure, time.Hour)
				leave()
				got, err := one(t, b.Dir, reconcile.Request{
					Receipt: string(seen.ID), Verdict: verdict, Reason: "looked at the node", Operator: "alice", Evidence: "its server.conf",
				})
				if err != nil {
					t.Fatal(err)
				}
				if got.Item.Found.ID != seen.ID || got.Was != receipt.Unknown || got.Is != want || got.Code != reconcile.Recorded {
					t.Errorf("the result is %+v", got)
				}
				for what, r := range map[string]receipt.Receipt{"answer": got.Receipt, "journal": read(t, b, seen.ID)} {
					if r.Status != want || len(r.Decisions) != 1 {
						t.Fatalf("%s: receipt is %s with %d decisions, want %s with one", what, r.Status, len(r.Decisions), want)
					}
					d := r.Decisions[0]
					if d.By != me(t)+" (as alice)" || d.Reason != "looked at the node" || d.Seen != seen.Version || d.Verdict != verdict || d.At.IsZero() || d.Evidence != "its server.conf" {
						t.Errorf("%s: decision is %+v", what, d)
					}
				}
			})
		})
	}
}

// one looks, resolves and decides, as the command does.
func one(t *testing.T, dir string, q reconcile.Request) (reconcile.Result, error) {
	t.Helper()
	s, err := reconcile.Look(t.Context(), dir)
	if err != nil {
		return reconcile.Result{}, err
	}
	items, err := s.Resolve(t.Context(), []reconcile.Request{q})
	if err != nil {
		return reconcile.Result{}, err
	}
	var out reconcile.Result
	if err := reconcile.DecideAll(t.Context(), dir, items, reconcile.Wait{}, func(r reconcile.Result) { out = r }); err != nil {
		return out, err
	}
	return out, out.Err
}

func decide(t *testing.T, b *inspecttest.Book, q reconcile.Request) error {
	t.Helper()
	if q.Reason == "" {
		q.Reason = "because"
	}
	if q.Verdict == 0 {
		q.Verdict = receipt.VerdictNotApplied
	}
	_, err := one(t, b.Dir, q)
	return err
}

func TestRefusals(t *testing.T) {
	both(t, func(t *testing.T, b *inspecttest.Book, leave func()) {
		early := b.Unknown("early.example.net", receipt.Configure, 20*time.Second)
		old := b.Unknown("old.example.net", receipt.Configure, time.Hour)
		leave()

		var left *journal.BeforeHorizonError
		if err := decide(t, b, reconcile.Request{Receipt: string(early.ID)}); !errors.As(err, &left) || left.Left <= 0 || left.Left > 50*time.Second {
			t.Errorf("before the horizon: %v, want how long is left", err)
		}
		if err := decide(t, b, reconcile.Request{Receipt: string(old.ID), Seen: old.Version + 1}); !errors.Is(err, receipt.ErrStale) {
			t.Errorf("another version: %v, want ErrStale", err)
		}
		if err := decide(t, b, reconcile.Request{Receipt: string(old.ID)[:6]}); !errors.Is(err, reconcile.ErrAmbiguous) {
			t.Errorf("a prefix of both: %v, want ErrAmbiguous", err)
		}
		if err := decide(t, b, reconcile.Request{Receipt: "01ZZZZ"}); !errors.Is(err, journal.ErrNotFound) {
			t.Errorf("a prefix of none: %v, want ErrNotFound", err)
		}
		if err := decide(t, b, reconcile.Request{Receipt: "01ZZZZZZZZZZZZZZZZZZZZZZZZ"}); !errors.Is(err, journal.ErrNotFound) {
			t.Errorf("an id of none: %v, want ErrNotFound", err)
		}
		for _, r := range []receipt.Receipt{early, old} {
			if now := read(t, b, r.ID); now.Version != r.Version || now.Status != receipt.Unknown {
				t.Errorf("a refusal changed receipt %s to version %d, %s", r.ID, now.Version, now.Status)
			}
		}
		if err := decide(t, b, reconcile.Request{Receipt: strings.ToLower(string(old.ID)), Seen: old.Version}); err != nil {
			t.Errorf("the right version, in small letters: %v", err)
		}
		if err := decide(t, b, reconcile.Request{Receipt: string(old.ID), Seen: old.Version}); !errors.Is(err, receipt.ErrStale) || !strings.Contains(err.Error(), "it is not-applied") {
			t.Errorf("a second verdict: %v, want ErrStale that names the first", err)
		}
	})
}

func TestBadRequestsNeedNoJournal(t *testing.T) {
	good := reconcile.Request{Receipt: "01ABCDEF", Verdict: receipt.VerdictApplied, Reason: "x", Seen: 1}
	for name, spoil := range map[string]func(*reconcile.Request){
		"short id":   func(q *reconcile.Request) { q.Receipt = "01ABC" },
		"long id":    func(q *reconcile.Request) { q.Receipt = strings.Repeat("A", 27) },
		"odd id":     func(q *reconcile.Request) { q.Receipt = "01AB/../x" },
		"no verdict": func(q *reconcile.Request) { q.Verdict = 0 },
		"verdict 9":  func(q *reconcile.Request) { q.Verdict = 9 },
		"no reason":  func(q *reconcile.Request) { q.Reason = " \t" },
		"escapes":    func(q *reconcile.Request) { q.Reason = "\x1b[2J" },
		"evidence":   func(q *reconcile.Request) { q.Evidence = "\x9b2J" },
		"operator":   func(q *reconcile.Request) { q.Operator = "a\nb" },
	} {
		t.Run(name, func(t *testing.T) {
			q := good
			spoil(&q)
			if err := reconcile.DecideAll(t.Context(), "/nonexistent", []reconcile.Item{{Request: q}}, reconcile.Wait{}, nil); !errors.Is(err, receipt.ErrInvalid) {
				t.Errorf("%v, want ErrInvalid", err)
			}
		})
	}
}

func TestPendingThroughAWorkerIsInFlight(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), time.Now())
	p := b.Pending("n1.example.net", receipt.Configure, time.Hour)
	b.Serve()
	if err := decide(t, b, reconcile.Request{Receipt: string(p.Receipt().ID)}); !errors.Is(err, journal.ErrInFlight) {
		t.Errorf("an effect in flight: %v, want ErrInFlight", err)
	}
}

// What a dead worker left pending was shown with that version, and must be decidable with it.
func TestPendingOfADeadWorker(t *testing.T) {
	for name, seen := range map[string]func(receipt.Receipt) receipt.Seq{
		"as shown":        func(r receipt.Receipt) receipt.Seq { return r.Version },
		"without version": func(receipt.Receipt) receipt.Seq { return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			b := inspecttest.New(t, t.TempDir(), time.Now())
			r := b.Pending("n1.example.net", receipt.Configure, time.Hour).Receipt()
			_ = b.Close()
			if err := decide(t, b, reconcile.Request{Receipt: string(r.ID), Seen: seen(r), Verdict: receipt.VerdictAbandon}); err != nil {
				t.Fatal(err)
			}
			if now := read(t, b, r.ID); now.Status != receipt.Abandoned {
				t.Errorf("receipt is %s, want abandoned", now.Status)
			}
		})
	}
	t.Run("another version", func(t *testing.T) {
		b := inspecttest.New(t, t.TempDir(), time.Now())
		r := b.Pending("n1.example.net", receipt.Configure, time.Hour).Receipt()
		_ = b.Close()
		if err := decide(t, b, reconcile.Request{Receipt: string(r.ID), Seen: r.Version - 1}); !errors.Is(err, receipt.ErrStale) {
			t.Errorf("%v, want ErrStale", err)
		}
	})
}

func TestTwoAtOnce(t *testing.T) {
	both(t, func(t *testing.T, b *inspecttest.Book, leave func()) {
		r := b.Unknown("n1.example.net", receipt.Configure, time.Hour)
		leave()
		errs := make([]error, 2)
		var wg sync.WaitGroup
		for i, v := range []receipt.Verdict{receipt.VerdictApplied, receipt.VerdictAbandon} {
			wg.Go(func() {
				_, errs[i] = one(t, b.Dir, reconcile.Request{Receipt: string(r.ID), Verdict: v, Reason: "x", Seen: r.Version})
			})
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs...), receipt.ErrStale) {
			t.Errorf("two at once end with %v and %v, want one success and one ErrStale", errs[0], errs[1])
		}
		if now := read(t, b, r.ID); len(now.Decisions) != 1 {
			t.Errorf("%d decisions are recorded, want 1", len(now.Decisions))
		}
	})
}

func TestAdmit(t *testing.T) {
	both(t, func(t *testing.T, b *inspecttest.Book, leave func()) {
		b.Out("out.example.net")
		b.HeldFor("held.example.net", time.Hour)
		b.Unknown("blocked.example.net", receipt.Restart, time.Hour)
		leave()
		for _, node := range []string{"out.example.net", "held.example.net", "new.example.net"} {
			j, err := reconcile.Admit(t.Context(), b.Dir, node, "alice", "repaired")
			if err != nil || j.Status != receipt.Queued || string(j.Node) != node {
				t.Errorf("%s: %+v, %v", node, j, err)
			}
		}
		if _, err := reconcile.Admit(t.Context(), b.Dir, "blocked.example.net", "", "repaired"); !errors.Is(err, journal.ErrBlocked) {
			t.Errorf("a blocked node: %v, want ErrBlocked", err)
		}
		for _, bad := range []string{"", "a b", "x>"} {
			if _, err := reconcile.Admit(t.Context(), b.Dir, bad, "", "repaired"); !errors.Is(err, receipt.ErrInvalid) {
				t.Errorf("node %q: %v, want ErrInvalid", bad, err)
			}
		}
	})
}

// A holder of the lock that serves no socket, and does not go away.
func TestHeld(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), time.Now())
	r := b.Unknown("n1.example.net", receipt.Configure, time.Hour)
	_ = b.Close()
	lock, err := fence.Acquire(b.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	err = decide(t, b, reconcile.Request{Receipt: string(r.ID)})
	var held *fence.HeldError
	if !errors.As(err, &held) || held.PID != os.Getpid() {
		t.Errorf("%v, want HeldError with our pid", err)
	}
}

// The lock of something short, such as another reconcile, is waited for.
func TestHeldForAMoment(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), time.Now())
	r := b.Unknown("n1.example.net", receipt.Configure, time.Hour)
	_ = b.Close()
	lock, err := fence.Acquire(b.Dir)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(150*time.Millisecond, func() { _ = lock.Release() })
	if err := decide(t, b, reconcile.Request{Receipt: string(r.ID)}); err != nil {
		t.Error(err)
	}
}

func TestMissingAndDamaged(t *testing.T) {
	q := reconcile.Request{Receipt: "01ABCDEF"}
	dir := t.TempDir()
	if err := decide(t, &inspecttest.Book{Dir: dir}, q); !errors.Is(err, journal.ErrMissing) {
		t.Errorf("no journal: %v, want ErrMissing", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("something was made where no journal is: %v", left)
	}
	b := inspecttest.New(t, t.TempDir(), time.Now())
	path := b.Info().Path
	_ = b.Close()
	if err := os.Truncate(path, 5000); err != nil {
		t.Fatal(err)
	}
	if err := decide(t, b, q); !errors.Is(err, receipt.ErrDamaged) {
		t.Errorf("a cut journal: %v, want ErrDamaged", err)
	}
	if _, err := os.Lstat(filepath.Join(b.Dir, control.SocketName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a socket was left: %v", err)
	}
}

// stuck is a worker that hangs once it is asked to decide.
type stuck struct {
	control.Worker
	release chan struct{}
}

func (s stuck) Decide(context.Context, journal.Decision) (receipt.Receipt, error) {
	<-s.release
	return receipt.Receipt{}, errors.New("too late")
}

func TestWorkerHangsWhileDeciding(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), time.Now())
	r := b.Unknown("n1.example.net", receipt.Configure, time.Hour)
	w := stuck{b.Worker(), make(chan struct{})}
	stop, err := control.Serve(t.Context(), b.Dir, w, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	defer close(w.release)
	if err := decide(t, b, reconcile.Request{Receipt: string(r.ID)}); !errors.Is(err, fence.ErrHeld) || !errors.Is(err, control.ErrHung) || !strings.Contains(err.Error(), "not known") {
		t.Errorf("%v, want ErrHeld and ErrHung, and that the outcome is not known", err)
	}
}
