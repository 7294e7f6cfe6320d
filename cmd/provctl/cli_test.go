package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"provctl/fence"
	"provctl/inspect/inspecttest"
	"provctl/internal/config"
	"provctl/internal/control"
	"provctl/journal"
	"provctl/receipt"
	"provctl/worker"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"provctl": main})
}

func TestScripts(t *testing.T) {
	s := scenes{books: map[string]*inspecttest.Book{}}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"state":   s.state,
			"blocked": s.blocked,
			"pending": s.pending,
			"replied": s.replied,
			"out":     s.out,
			"held":    s.held,
			"leave":   s.leave,
			"serve":   s.serve,
			"hang":    s.hang,
			"dead":    s.dead,
			"lock":    s.lock,
			"exits":   exits,
		},
		RequireExplicitExec: false,
		RequireUniqueNames:  true,
	})
}

// exits runs a command line and checks its exit code exactly: exits CODE ARG...
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec("provctl", args[1:]...)
	got := 0
	var status interface{ ExitCode() int }
	if errors.As(err, &status) {
		got = status.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// scenes are the state directories of the scripts, by path.
type scenes struct {
	mu    sync.Mutex
	books map[string]*inspecttest.Book
}

// scriptTB lets inspecttest fail a script.
type scriptTB struct{ *testscript.TestScript }

func (scriptTB) Helper()            {}
func (s scriptTB) Fatal(a ...any)   { s.Fatalf("%s", fmt.Sprint(a...)) }
func (s scriptTB) Cleanup(f func()) { s.Defer(f) }

func (s *scenes) book(ts *testscript.TestScript, dir string) *inspecttest.Book {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.books[ts.MkAbs(dir)]
	if !ok {
		ts.Fatalf("no state in %s", dir)
	}
	return b
}

// state DIR: a journal that the script's own process has open.
func (s *scenes) state(ts *testscript.TestScript, _ bool, args []string) {
	dir := ts.MkAbs(args[0])
	b := inspecttest.New(scriptTB{ts}, dir, time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.books[dir] = b
}

func duration(ts *testscript.TestScript, s string) time.Duration {
	d, err := time.ParseDuration(s)
	ts.Check(err)
	return d
}

func action(ts *testscript.TestScript, s string) (a receipt.Action) {
	ts.Check(a.UnmarshalText([]byte(s)))
	return a
}

func name(ts *testscript.TestScript, variable string, r receipt.Receipt) {
	ts.Setenv(variable, string(r.ID))
	ts.Setenv(variable+"_V", strconv.FormatUint(uint64(r.Version), 10))
}

// blocked DIR NODE ACTION AGO VARIABLE
func (s *scenes) blocked(ts *testscript.TestScript, _ bool, a []string) {
	name(ts, a[4], s.book(ts, a[0]).Unknown(receipt.NodeID(a[1]), action(ts, a[2]), duration(ts, a[3])))
}

// pending DIR NODE ACTION AGO VARIABLE
func (s *scenes) pending(ts *testscript.TestScript, _ bool, a []string) {
	name(ts, a[4], s.book(ts, a[0]).Pending(receipt.NodeID(a[1]), action(ts, a[2]), duration(ts, a[3])).Receipt())
}

// replied DIR RECEIPT VARIABLE: the node's answer came late, and says that it took effect.
func (s *scenes) replied(ts *testscript.TestScript, _ bool, a []string) {
	name(ts, a[2], s.book(ts, a[0]).See(receipt.ReceiptID(a[1]), receipt.Evidence{
		Kind: receipt.SawReply, Source: "node", Reply: &receipt.ReplySeen{Means: receipt.ReplyApplied, Text: "Done"},
	}))
}

// out DIR NODE
func (s *scenes) out(ts *testscript.TestScript, _ bool, a []string) {
	s.book(ts, a[0]).Out(receipt.NodeID(a[1]))
}

// held DIR NODE FOR
func (s *scenes) held(ts *testscript.TestScript, _ bool, a []string) {
	s.book(ts, a[0]).HeldFor(receipt.NodeID(a[1]), duration(ts, a[2]))
}

// leave DIR: the worker has ended.
func (s *scenes) leave(ts *testscript.TestScript, _ bool, a []string) {
	ts.Check(s.book(ts, a[0]).Close())
}

// serve DIR: a worker runs.
func (s *scenes) serve(ts *testscript.TestScript, _ bool, a []string) { s.book(ts, a[0]).Serve() }

// hang DIR: a worker has the socket and never answers.
func (s *scenes) hang(ts *testscript.TestScript, _ bool, a []string) {
	l, err := net.Listen("unix", control.SocketPath(ts.MkAbs(a[0])))
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
	ts.Setenv("PID", strconv.Itoa(os.Getpid()))
}

// dead DIR: the socket of a worker that was killed.
func (s *scenes) dead(ts *testscript.TestScript, _ bool, a []string) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: control.SocketPath(ts.MkAbs(a[0])), Net: "unix"})
	ts.Check(err)
	l.SetUnlinkOnClose(false)
	ts.Check(l.Close())
}

// lock DIR: somebody holds the worker lock and serves no socket.
func (s *scenes) lock(ts *testscript.TestScript, _ bool, a []string) {
	l, err := fence.Acquire(ts.MkAbs(a[0]))
	ts.Check(err)
	ts.Defer(func() { _ = l.Release() })
	ts.Setenv("PID", strconv.Itoa(os.Getpid()))
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("anything"), 1},
		{fs.ErrPermission, 1},
		{control.ErrHung, 1},
		{receipt.ErrBeforeHorizon, 1},
		{journal.ErrExists, 1},
		{journal.ErrNotFound, 1},
		{journal.ErrInFlight, 1},
		{usagef("x"), 2},
		{usagef("x: %w", receipt.ErrInvalid), 2},
		{errBlocked, 3},
		{receipt.ErrStale, 4},
		{told{receipt.ErrStale}, 4},
		{told{journal.ErrContradicted}, 1},
		{fence.ErrHeld, 5},
		{&fence.HeldError{PID: 1}, 5},
		{fmt.Errorf("%w: %w", fence.ErrHeld, control.ErrHung), 5},
		{receipt.ErrDamaged, 6},
		{journal.ErrMissing, 6},
		{fmt.Errorf("run: %w", worker.ErrDrained), 75},
		{&config.Invalid{}, 78},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%v exits %d, want %d", c.err, got, c.want)
		}
		if c.err == nil {
			continue
		}
		if got := exitCode(fmt.Errorf("wrapped: %w", c.err)); got != c.want {
			t.Errorf("%v wrapped exits %d, want %d", c.err, got, c.want)
		}
	}
}

func TestInterleave(t *testing.T) {
	app := newApp(nil, nil)
	for _, c := range []struct{ in, want []string }{
		{[]string{"reconcile", "R", "--verdict", "applied", "--json"}, []string{"reconcile", "--verdict", "applied", "--json", "--", "R"}},
		{[]string{"reconcile", "--json", "R", "--reason=a b"}, []string{"reconcile", "--json", "--reason=a b", "--", "R"}},
		{[]string{"reconcile", "R", "--reason", "--odd"}, []string{"reconcile", "--reason", "--odd", "--", "R"}},
		{[]string{"reconcile", "--", "--odd"}, []string{"reconcile", "--", "--odd"}},
		{[]string{"reconcile", "--yes", "R", "-"}, []string{"reconcile", "--yes", "--", "R", "-"}},
		{[]string{"reconcile", "R", "--yes=2", "Q"}, []string{"reconcile", "--yes=2", "--", "R", "Q"}},
		{[]string{"reconcile", "R", "--reason"}, []string{"reconcile", "--reason"}},
		{[]string{"nothing", "a", "--b"}, []string{"nothing", "a", "--b"}},
		{[]string{"--help"}, []string{"--help"}},
		{nil, nil},
	} {
		if got := interleave(app, c.in); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%q becomes %q, want %q", c.in, got, c.want)
		}
	}
}
