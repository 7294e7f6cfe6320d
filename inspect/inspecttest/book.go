// Package inspecttest makes state directories in known states for tests, through the journal's own verbs, and serves them as a
// worker would.
package inspecttest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"provctl/internal/control"
	"provctl/journal"
	"provctl/receipt"
)

// TTL and Skew are those of every request here.
const (
	TTL  = 60 * time.Second
	Skew = 10 * time.Second
)

// TB is what this package needs of a test; testing.TB has it.
type TB interface {
	Helper()
	Fatal(args ...any)
	Cleanup(f func())
}

// Book is an open journal in a state directory of its own.
type Book struct {
	*journal.Journal
	Dir   string
	Epoch receipt.Epoch

	t   TB
	now time.Time
	ids int
}

// New makes a journal whose clock stands at now. Its ids count up, so that output is the same each time.
func New(t TB, dir string, now time.Time) *Book {
	t.Helper()
	b := &Book{Dir: dir, t: t, now: now}
	_, err := journal.Init(dir)
	b.must(err)
	b.open()
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func (b *Book) open() {
	b.t.Helper()
	var err error
	b.Journal, err = journal.Open(b.Dir, journal.Options{Now: func() time.Time { return b.now }, NewID: b.newID})
	b.must(err)
	b.Epoch, err = b.RaiseEpoch()
	b.must(err)
}

func (b *Book) newID() string {
	b.ids++
	return fmt.Sprintf("01KTEST%019d", b.ids)
}

func (b *Book) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// Claimed admits a node and claims its job.
func (b *Book) Claimed(node receipt.NodeID) receipt.Job {
	b.t.Helper()
	a, err := b.Admit(context.Background(), []journal.Sighting{{Node: node, Source: "discovery", At: b.now}}, 1)
	b.must(err)
	j, err := b.Claim(context.Background(), a[0].Job.ID)
	b.must(err)
	return j
}

// Pending begins an effect whose request was made some time ago, as a worker does that then dies.
func (b *Book) Pending(node receipt.NodeID, a receipt.Action, ago time.Duration) *journal.Pending {
	b.t.Helper()
	j := b.Claimed(node)
	p, err := b.Begin(context.Background(), b.intent(j, a, ago, fmt.Sprintf("%032x", b.ids)))
	b.must(err)
	return p
}

func (b *Book) intent(j receipt.Job, a receipt.Action, ago time.Duration, request string) journal.Intent {
	made := b.now.Add(-ago)
	target := ""
	if a == receipt.ReleaseUpdate {
		target = "1.2.3"
	}
	return journal.Intent{
		Target: target, Job: j.ID, Action: a, Incarnation: Incarnation(made), Request: receipt.RequestID(request),
		RequestTime: made, Horizon: receipt.HorizonOf(made, TTL, Skew), Digest: strings.Repeat("0123456789abcdef", 4),
		Baseline: &receipt.Baseline{Validated: 3, Epoch: b.Epoch, Ordinal: 1},
	}
}

// idle has the worker have seen, of a request that has expired, that its node has done all it accepted.
func (b *Book) idle(r receipt.Receipt) receipt.Receipt {
	if !r.Horizon.Passed(b.now) {
		return r
	}
	return b.See(r.ID, receipt.Evidence{Kind: receipt.SawIdle, Source: "node", Idle: &receipt.IdleSeen{Incarnation: r.Incarnation}})
}

// Busy makes a blocked node that has not shown that it is idle.
func (b *Book) Busy(node receipt.NodeID, a receipt.Action, ago time.Duration) receipt.Receipt {
	b.t.Helper()
	r, err := b.Settle(context.Background(), b.Pending(node, a, ago), journal.Settlement{Event: receipt.Lost, Why: "no reply until the horizon", By: "horizon"})
	b.must(err)
	return r
}

// Incarnation is the process that every node here runs as, half an hour before a moment.
func Incarnation(t time.Time) receipt.Incarnation {
	return receipt.Incarnation{PID: 4711, Start: t.Add(-30 * time.Minute).Unix()}
}

// Unknown makes a blocked node: its effect's reply never came. If the request has expired, the node has shown that it is idle.
func (b *Book) Unknown(node receipt.NodeID, a receipt.Action, ago time.Duration) receipt.Receipt {
	b.t.Helper()
	return b.idle(b.Busy(node, a, ago))
}

// Out makes a node that stays out.
func (b *Book) Out(node receipt.NodeID) {
	b.t.Helper()
	_, err := b.Move(context.Background(), b.Claimed(node).ID, journal.Next{Event: receipt.End, Result: receipt.Exhausted, Why: "the helper failed three times"})
	b.must(err)
}

// HeldFor makes a node that was provisioned just now and is left alone for a while.
func (b *Book) HeldFor(node receipt.NodeID, d time.Duration) {
	b.t.Helper()
	_, err := b.Move(context.Background(), b.Claimed(node).ID, journal.Next{Event: receipt.End, Result: receipt.Deferred, Why: "the helper defers it", HoldUntil: b.now.Add(d)})
	b.must(err)
}

// See adds an observation to a receipt.
func (b *Book) See(id receipt.ReceiptID, e receipt.Evidence) receipt.Receipt {
	b.t.Helper()
	e.At = b.now
	r, err := b.Note(context.Background(), id, []receipt.Evidence{e}, nil)
	b.must(err)
	return r
}

// Worker serves the journal as a worker without nodes. Its Probe sees nothing.
func (b *Book) Worker() control.Worker { return worker{b} }

// Serve does that on the state directory's socket until the test ends or stop is called.
func (b *Book) Serve() (stop func()) {
	b.t.Helper()
	stop, err := control.Serve(context.Background(), b.Dir, b.Worker(), nil)
	b.must(err)
	b.t.Cleanup(stop)
	return stop
}

type worker struct{ *Book }

// Drain says that nothing is at work, and ends nothing.
func (w worker) Drain(string) control.Draining { return control.Draining{PID: os.Getpid()} }

func (w worker) Live() control.Live {
	return control.Live{
		PID: os.Getpid(), Epoch: w.Epoch, State: control.Running, Connected: true, Lanes: 4, Busy: 1, Parked: 2, Queue: 3,
		Started: w.now.Add(-time.Hour), Version: "test",
	}
}

func (w worker) Pause(ctx context.Context, by, reason string) (journal.Pause, error) {
	return w.SetPause(ctx, by, reason)
}

func (w worker) Probe(_ context.Context, id receipt.ReceiptID) (receipt.Receipt, error) {
	return w.Receipt(id)
}
