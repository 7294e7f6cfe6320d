// Package journaltest is the conformance suite for implementations of the journal: what each verb promises, across reopening
// and across terms.
package journaltest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"provctl/journal"
	"provctl/receipt"
)

// Store is what the suite calls. *journal.Journal provides it.
type Store interface {
	Info() journal.Info
	RaiseEpoch() (receipt.Epoch, error)
	Current() error
	Revoked(receipt.Token) bool
	Recover(context.Context, journal.RecoverPolicy) (journal.Recovery, error)
	Admit(context.Context, []journal.Sighting, int) ([]journal.Admission, error)
	AdmitByHand(context.Context, receipt.NodeID, string, string) (receipt.Job, error)
	Return(context.Context, receipt.NodeID, receipt.Incarnation) error
	Claim(context.Context, receipt.JobID) (receipt.Job, error)
	Begin(context.Context, journal.Intent) (*journal.Pending, error)
	Settle(context.Context, *journal.Pending, journal.Settlement) (receipt.Receipt, error)
	Move(context.Context, receipt.JobID, journal.Next) (receipt.Job, error)
	Note(context.Context, receipt.ReceiptID, []receipt.Evidence, *receipt.Baseline) (receipt.Receipt, error)
	NoteSoon(receipt.ReceiptID, receipt.Evidence)
	Prove(context.Context, receipt.ReceiptID) (receipt.Receipt, *receipt.Proof, error)
	Decide(context.Context, journal.Decision) (receipt.Receipt, error)
	MayUpgrade(receipt.NodeID, string) error
	SetPause(ctx context.Context, by, reason string) (journal.Pause, error)
	Resume(context.Context, string) (*journal.Pause, error)
	Release(ctx context.Context, id receipt.NodeID, by, reason string) (receipt.Node, error)
	Audit(from receipt.Seq) ([]journal.Act, error)
	Prune(context.Context, time.Time) (int, error)
	History(receipt.NodeID, receipt.Incarnation) (receipt.History, error)
	Job(receipt.JobID) (receipt.Job, error)
	Receipt(receipt.ReceiptID) (receipt.Receipt, error)
	Node(receipt.NodeID) (receipt.Node, error)
	OpenReceipts() ([]receipt.Receipt, error)
	QueuedJobs() ([]receipt.Job, error)
	Snapshot() (journal.Snapshot, error)
	Close() error
}

// Factory makes and opens stores.
type Factory struct {
	Create func(dir string) error
	Open   func(dir string, o journal.Options) (Store, error)
	Verify func(dir string) error // of a closed one
}

// Clock is a clock that stands still until it is moved.
type Clock struct {
	mu sync.Mutex
	t  time.Time
}

// NewClock starts at a fixed moment.
func NewClock() *Clock { return &Clock{t: time.Date(2031, 5, 6, 7, 8, 9, 123456789, time.UTC)} }

// Now is the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

// Add moves the clock.
func (c *Clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// TTL and Skew are those of the suite's requests.
const (
	TTL  = time.Minute
	Skew = 10 * time.Second
)

// Bench is a store under test with its clock.
type Bench struct {
	T     testing.TB
	Store Store
	Clock *Clock
	Term  receipt.Epoch

	factory Factory
	dir     string
	request int
}

// NewBench creates a store and raises its first epoch.
func NewBench(t testing.TB, f Factory) *Bench {
	t.Helper()
	b := &Bench{T: t, Clock: NewClock(), factory: f, dir: t.TempDir()}
	b.ok(f.Create(b.dir))
	b.open()
	_, err := b.Store.Admit(b.Ctx(), []journal.Sighting{{Node: "n1"}}, 1)
	b.is(err, receipt.ErrFenced) // no term has begun, not even the first
	b.raise()
	t.Cleanup(func() {
		b.ok(b.Store.Close())
		b.ok(f.Verify(b.dir))
	})
	return b
}

func (b *Bench) ok(err error) {
	b.T.Helper()
	if err != nil {
		b.T.Fatal(err)
	}
}

func (b *Bench) open() {
	b.T.Helper()
	s, err := b.factory.Open(b.dir, journal.Options{Now: b.Clock.Now})
	b.ok(err)
	b.Store = s
}

func (b *Bench) raise() {
	b.T.Helper()
	term, err := b.Store.RaiseEpoch()
	b.ok(err)
	if term != b.Term+1 {
		b.T.Fatalf("epoch %d after %d", term, b.Term)
	}
	b.Term = term
}

// Reopen closes the store, verifies it, opens it again and raises the epoch.
func (b *Bench) Reopen() {
	b.T.Helper()
	b.ok(b.Store.Close())
	b.ok(b.factory.Verify(b.dir))
	b.open()
	b.raise()
}

// Ctx ends when the test has taken far too long.
func (b *Bench) Ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	b.T.Cleanup(cancel)
	return ctx
}

// Admit sights a node and expects what becomes of it.
func (b *Bench) Admit(node receipt.NodeID, want journal.AdmitState) journal.Admission {
	b.T.Helper()
	got, err := b.Store.Admit(b.Ctx(), []journal.Sighting{{Node: node, Source: "discovery", At: b.Clock.Now()}}, 1)
	b.ok(err)
	if len(got) != 1 || got[0].State != want || got[0].Node != node {
		b.T.Fatalf("admit %s = %+v, want %s", node, got, want)
	}
	return got[0]
}

// Claimed admits and claims a node.
func (b *Bench) Claimed(node receipt.NodeID) receipt.Job {
	b.T.Helper()
	job, err := b.Store.Claim(b.Ctx(), b.Admit(node, journal.Admitted).Job.ID)
	b.ok(err)
	return job
}

// Life is the n-th incarnation of a node.
func Life(n int64) receipt.Incarnation {
	return receipt.Incarnation{PID: 100, Start: 1_900_000_000 + n}
}

// Intent is an effect of a job in an incarnation.
func (b *Bench) Intent(job receipt.JobID, a receipt.Action, i receipt.Incarnation) journal.Intent {
	b.request++
	target := ""
	if a == receipt.ReleaseUpdate {
		target = "1.2.3"
	}
	return journal.Intent{
		Target: target,
		Job:    job, Action: a, Incarnation: i, Request: receipt.RequestID(fmt.Sprintf("%032d", b.request)), RequestTime: b.Clock.Now(),
		Horizon: receipt.HorizonOf(b.Clock.Now(), TTL, Skew), Digest: strings.Repeat("ab", 32),
		Baseline: &receipt.Baseline{Validated: 5, Epoch: b.Term, Ordinal: 1},
	}
}

// Begun begins and publishes an effect.
func (b *Bench) Begun(job receipt.JobID, a receipt.Action, i receipt.Incarnation) *journal.Pending {
	b.T.Helper()
	p, err := b.Store.Begin(b.Ctx(), b.Intent(job, a, i))
	b.ok(err)
	b.ok(p.MarkPublished())
	return p
}

// Done has an effect end with an event, and the claim go on or take a next step.
func (b *Bench) Done(job receipt.JobID, a receipt.Action, i receipt.Incarnation, e receipt.Event, next journal.Next) receipt.Receipt {
	b.T.Helper()
	r, err := b.Store.Settle(b.Ctx(), b.Begun(job, a, i), journal.Settlement{Event: e, Why: "because", By: "reply", Next: next})
	b.ok(err)
	return r
}

// Unknown leaves a node with an unknown receipt.
func (b *Bench) Unknown(node receipt.NodeID, a receipt.Action) receipt.Receipt {
	b.T.Helper()
	return b.Done(b.Claimed(node).ID, a, Life(1), receipt.Lost, journal.Next{})
}

// Job reads a job and expects its status.
func (b *Bench) Job(id receipt.JobID, want receipt.JobStatus, result receipt.Result) receipt.Job {
	b.T.Helper()
	job, err := b.Store.Job(id)
	b.ok(err)
	if job.Status != want || job.Result != result {
		b.T.Fatalf("job %s is %s (%d), want %s (%d); %s", id, job.Status, job.Result, want, result, job.Why)
	}
	return job
}

// Node reads a node.
func (b *Bench) Node(id receipt.NodeID) receipt.Node {
	b.T.Helper()
	n, err := b.Store.Node(id)
	b.ok(err)
	return n
}

// SawLife is an answer of daemon_stats.
func (b *Bench) SawLife(i receipt.Incarnation, validated, known int64) receipt.Evidence {
	return receipt.Evidence{Kind: receipt.SawStats, Source: "node", At: b.Clock.Now(), Stats: &receipt.StatsSeen{
		Incarnation: i, Validated: validated, Known: known, Base: receipt.BaseID{Epoch: b.Term, Ordinal: 1}, Epoch: b.Term,
	}}
}

// SawIdle is an answer from behind the node's action mutex.
func (b *Bench) SawIdle(i receipt.Incarnation) receipt.Evidence {
	return receipt.Evidence{Kind: receipt.SawIdle, Source: "node", At: b.Clock.Now(), Idle: &receipt.IdleSeen{Incarnation: i}}
}

// SawReply is a late reply.
func (b *Bench) SawReply(e receipt.Event, text string) receipt.Evidence {
	return receipt.Evidence{Kind: receipt.SawReply, Source: "node", At: b.Clock.Now(), Reply: &receipt.ReplySeen{Text: text, Means: e}}
}

// Fill puts some of everything into a store, and enough of it for trees of pages: for those who damage its file.
func (b *Bench) Fill() {
	b.T.Helper()
	for i := range 40 {
		b.Admit(receipt.NodeID(fmt.Sprintf("waits-%d", i)), journal.Admitted)
	}
	for i := range 10 {
		job := b.Claimed(receipt.NodeID(fmt.Sprintf("done-%d", i)))
		b.Done(job.ID, receipt.Configure, Life(1), receipt.ReplyApplied, journal.Next{Event: receipt.End, Result: receipt.Provisioned})
	}
	_, err := b.Store.AdmitByHand(b.Ctx(), "by-hand", "me", "it was left out")
	b.ok(err)
	b.Unknown("blocked", receipt.Configure)
}
