package control_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"provctl/internal/control"
	"provctl/journal"
	"provctl/receipt"
)

// fake is a worker whose answers the test sets.
type fake struct {
	mu      sync.Mutex
	err     error
	decided []journal.Decision
	by      []string
	block   chan struct{} // if set, Snapshot waits for it
	entered chan struct{}
	panics  bool
}

func (f *fake) Live() control.Live {
	return control.Live{PID: os.Getpid(), Epoch: 7, State: control.Running, Lanes: 4, Version: "test"}
}

func (f *fake) Snapshot() (journal.Snapshot, error) {
	if f.panics {
		panic("broken on purpose")
	}
	if f.block != nil {
		f.entered <- struct{}{}
		<-f.block
	}
	return journal.Snapshot{
		Info: journal.Info{ID: "J", Seq: 9}, Open: []receipt.Receipt{{ID: "R", Node: "n", Version: 5, Action: receipt.Configure, Status: receipt.Unknown}},
		Jobs: []receipt.Job{{ID: "JOB", Status: receipt.Queued}}, ByJob: map[receipt.JobStatus]int{receipt.Queued: 1},
		ByResult: map[receipt.Result]int{receipt.Provisioned: 3}, ByStatus: map[receipt.Status]int{receipt.Unknown: 1},
	}, f.err
}

func (f *fake) Decide(_ context.Context, d journal.Decision) (receipt.Receipt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.decided = append(f.decided, d)
	}
	return receipt.Receipt{ID: d.Receipt, Action: receipt.Configure, Status: receipt.Applied}, f.err
}

func (f *fake) AdmitByHand(_ context.Context, n receipt.NodeID, by, _ string) (receipt.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.by = append(f.by, by)
	return receipt.Job{ID: "JOB", Node: n, Status: receipt.Queued}, f.err
}

func (f *fake) Release(_ context.Context, n receipt.NodeID, by, reason string) (receipt.Node, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.by = append(f.by, by)
	return receipt.Node{ID: n, HeldWhy: reason}, f.err
}

func (f *fake) Pause(_ context.Context, by, reason string) (journal.Pause, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.by = append(f.by, by)
	return journal.Pause{By: by, Reason: reason}, f.err
}

func (f *fake) Drain(by string) control.Draining { return control.Draining{PID: len(by)} }

func (f *fake) Resume(_ context.Context, by string) (*journal.Pause, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.by = append(f.by, by)
	return nil, f.err
}

func (f *fake) Probe(_ context.Context, r receipt.ReceiptID) (receipt.Receipt, error) {
	return receipt.Receipt{ID: r, Action: receipt.Restart, Status: receipt.Unknown}, f.err
}

func serve(t *testing.T, dir string, w control.Worker) func() {
	t.Helper()
	stop, err := control.Serve(t.Context(), dir, w, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return stop
}

func dial(t *testing.T, dir string) *control.Client {
	t.Helper()
	c, err := control.Dial(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// me is the user that the kernel reports.
func me(t *testing.T) string {
	t.Helper()
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	return u.Username
}

func TestEveryCallGoesThrough(t *testing.T) {
	dir, w := t.TempDir(), &fake{}
	serve(t, dir, w)
	c, ctx := dial(t, dir), t.Context()

	live, err := c.Live(ctx)
	if err != nil || live.Epoch != 7 || live.State != control.Running || live.PID != os.Getpid() {
		t.Errorf("live is %+v, %v", live, err)
	}
	s, err := c.Snapshot(ctx)
	if err != nil || len(s.Open) != 1 || s.Open[0].Action != receipt.Configure || s.ByResult[receipt.Provisioned] != 3 || s.ByJob[receipt.Queued] != 1 {
		t.Errorf("snapshot is %+v, %v", s, err)
	}
	given := journal.Decision{Receipt: "R", Seen: 5, Verdict: receipt.VerdictApplied, Reason: "seen", By: "somebody else", Evidence: "its log", Contradict: true}
	r, err := c.Decide(ctx, given, "alice")
	if err != nil || r.Status != receipt.Applied {
		t.Errorf("decide gives %+v, %v", r, err)
	}
	want := given
	want.By = me(t) + " (as alice)"
	if len(w.decided) != 1 || w.decided[0] != want {
		t.Errorf("the worker was asked for %+v, want %+v: who asks is for the kernel to say", w.decided, want)
	}
	j, err := c.AdmitByHand(ctx, "n.example.net", "", "repaired")
	if err != nil || j.Node != "n.example.net" || w.by[0] != me(t) {
		t.Errorf("admit gives %+v by %v, %v", j, w.by, err)
	}
	n, err := c.Release(ctx, "n.example.net", "bob", "repaired")
	if err != nil || n.ID != "n.example.net" || n.HeldWhy != "repaired" || w.by[1] != me(t)+" (as bob)" {
		t.Errorf("release gives %+v by %v, %v", n, w.by, err)
	}
	if p, err := c.Probe(ctx, "R"); err != nil || p.ID != "R" {
		t.Errorf("probe gives %+v, %v", p, err)
	}
	if c.PID() != os.Getpid() {
		t.Errorf("the client thinks the worker is process %d, it is %d", c.PID(), os.Getpid())
	}
}

func TestErrorsKeepTheirIdentity(t *testing.T) {
	dir, w := t.TempDir(), &fake{}
	serve(t, dir, w)
	c := dial(t, dir)
	for _, want := range []error{
		receipt.ErrStale, receipt.ErrFenced, receipt.ErrInvalid, receipt.ErrRepeat, receipt.ErrIllegalTransition, receipt.ErrDamaged,
		journal.ErrInFlight, journal.ErrNotFound, journal.ErrStopped, journal.ErrBlocked, journal.ErrMissing, control.ErrUnavailable,
		journal.ErrMayStillRun, journal.ErrContradicted, journal.ErrNotHeld,
	} {
		w.err = fmt.Errorf("on the way: %w: with details", want)
		_, err := c.Decide(t.Context(), journal.Decision{Receipt: "R", Seen: 1, Verdict: receipt.VerdictApplied, Reason: "x"}, "")
		if !errors.Is(err, want) {
			t.Errorf("%v arrives as %v", want, err)
		}
		if err == nil || !strings.Contains(err.Error(), "with details") {
			t.Errorf("%v arrives without its text: %v", want, err)
		}
	}
	w.err = fmt.Errorf("wrapped: %w", &journal.BeforeHorizonError{Receipt: "R", Left: 1500 * time.Millisecond})
	_, err := c.Decide(t.Context(), journal.Decision{Receipt: "R", Seen: 1, Verdict: receipt.VerdictApplied, Reason: "x"}, "")
	var early *journal.BeforeHorizonError
	if !errors.As(err, &early) || early.Left != 1500*time.Millisecond || early.Receipt != "R" || !errors.Is(err, receipt.ErrBeforeHorizon) {
		t.Errorf("before the horizon arrives as %#v", err)
	}
	w.err = errors.New("something else")
	if _, err = c.Snapshot(t.Context()); err == nil || !strings.Contains(err.Error(), "something else") {
		t.Errorf("another error arrives as %v", err)
	}
}

func TestSocketIsForItsUserOnly(t *testing.T) {
	dir := t.TempDir()
	serve(t, dir, &fake{})
	st, err := os.Lstat(control.SocketPath(dir))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket has mode %v, %v; want 0600", st.Mode(), err)
	}
}

func TestStopRemovesTheSocketAndMayBeRepeated(t *testing.T) {
	dir := t.TempDir()
	stop := serve(t, dir, &fake{})
	stop()
	stop()
	if _, err := os.Lstat(control.SocketPath(dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after stop the socket is still there: %v", err)
	}
	if _, err := control.Dial(dir); !errors.Is(err, control.ErrNoWorker) {
		t.Errorf("after stop dialling gives %v, want ErrNoWorker", err)
	}
	serve(t, dir, &fake{}) // the next worker
	if _, err := dial(t, dir).Live(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStopLeavesASuccessorsSocket(t *testing.T) {
	dir := t.TempDir()
	stop := serve(t, dir, &fake{})
	serve(t, dir, &fake{}) // replaces the socket as after a lost lock
	stop()
	if _, err := dial(t, dir).Live(t.Context()); err != nil {
		t.Errorf("the successor's socket went with the first: %v", err)
	}
}

func TestAStoppingWorkerStillAnswers(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	stop, err := control.Serve(ctx, dir, &fake{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	cancel()
	if _, err := dial(t, dir).Decide(t.Context(), journal.Decision{Receipt: "R", Seen: 1, Verdict: receipt.VerdictApplied, Reason: "x"}, ""); err != nil {
		t.Errorf("after the worker's context has ended: %v", err)
	}
}

func TestDeadWorkersSocket(t *testing.T) {
	dir := t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: control.SocketPath(dir), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close() // as a killed worker leaves it
	if _, err := control.Dial(dir); !errors.Is(err, control.ErrNoWorker) {
		t.Fatalf("a dead socket gives %v, want ErrNoWorker", err)
	}
	serve(t, dir, &fake{})
	if _, err := dial(t, dir).Live(t.Context()); err != nil {
		t.Errorf("the dead socket was not replaced: %v", err)
	}
}

func TestSomethingElseInTheSocketsPlace(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(control.SocketPath(dir), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := control.Serve(t.Context(), dir, &fake{}, nil)
	if err == nil || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("serving gives %v, want a refusal with a remedy", err)
	}
	if b, err := os.ReadFile(control.SocketPath(dir)); err != nil || string(b) != "precious" {
		t.Errorf("the file was touched: %q, %v", b, err)
	}
}

func TestLongPaths(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120), strings.Repeat("e", 120))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	stop := serve(t, dir, &fake{})
	if live, err := dial(t, dir).Live(t.Context()); err != nil || live.Epoch != 7 {
		t.Errorf("a path of %d bytes gives %+v, %v", len(dir), live, err)
	}
	stop()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("after stop %v is left, %v", left, err)
	}
}

func TestHungWorker(t *testing.T) {
	dir, w := t.TempDir(), &fake{block: make(chan struct{}), entered: make(chan struct{}, 1)}
	serve(t, dir, w)
	defer close(w.block)
	c := dial(t, dir)
	c.Patience = 20 * time.Millisecond
	_, err := c.Snapshot(t.Context())
	var hung *control.HungError
	if !errors.As(err, &hung) || !errors.Is(err, control.ErrHung) || hung.PID != os.Getpid() {
		t.Fatalf("a worker that does not answer gives %v, want ErrHung with our pid", err)
	}
	if !strings.Contains(err.Error(), "kill -CONT") {
		t.Errorf("no remedy in %q", err)
	}
}

// A stopped process accepts nothing, but the kernel completes connections for it.
func TestWorkerThatNeverAccepts(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", control.SocketPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := control.DialPatience(dir, 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Live(t.Context()); !errors.Is(err, control.ErrHung) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("live gives %v, want ErrHung with the pid", err)
	}
}

func TestCallersOwnContext(t *testing.T) {
	dir, w := t.TempDir(), &fake{block: make(chan struct{}), entered: make(chan struct{}, 1)}
	serve(t, dir, w)
	defer close(w.block)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-w.entered; cancel() }()
	if _, err := dial(t, dir).Snapshot(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, control.ErrHung) {
		t.Errorf("a cancelled call gives %v, want context.Canceled", err)
	}
}

func TestNames(t *testing.T) {
	if got, err := control.NameOf(123456789, ""); err != nil || got != "uid 123456789" {
		t.Errorf("an unknown user is %q, %v", got, err)
	}
	for _, bad := range []string{" ", "a\nb", "\x1b[1m", "\u202eevil", strings.Repeat("x", 100), "\xff"} {
		if got, err := control.NameOf(0, bad); !errors.Is(err, receipt.ErrInvalid) {
			t.Errorf("operator %q is accepted as %q, %v", bad, got, err)
		}
	}
}
