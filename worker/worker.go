package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"provctl/internal/control"
	"provctl/internal/crashpoint"
	"provctl/journal"
	"provctl/receipt"
	"provctl/sequence"
)

// Network is what the worker needs of the wire besides what a pass needs.
type Network interface {
	sequence.Wire
	// Connect waits until the broker is reached or ctx ends.
	Connect(context.Context) error
	// Connected reports whether a publish can reach the broker now.
	Connected() bool
	// Discover asks all nodes in provisioning mode to answer, once.
	Discover(ctx context.Context, found func(receipt.NodeID)) error
	// Expect has replies to an earlier process's request reported as late.
	Expect(receipt.Receipt)
	// Connections asks the broker about connections under the node's name; of the closed ones, those since a moment.
	Connections(ctx context.Context, node receipt.NodeID, since time.Time) (receipt.ConnectionsSeen, error)
	// KnownSince counts the requests since a baseline that a probe's counter must include and that were surely ours.
	KnownSince(receipt.NodeID, receipt.Baseline, receipt.StatsSeen) int64
}

// Late is a reply that came when nobody waited for it any more, or besides the first.
type Late struct {
	Request receipt.RequestID
	Node    receipt.NodeID
	Reply   receipt.Reply
	Second  bool // another reply to the same request had come before
	At      time.Time
}

// Happening is a lifecycle event of a node.
type Happening struct {
	Node receipt.NodeID
	Seen receipt.EventSeen
	At   time.Time
}

// Options configure a worker. All durations are positive; nothing has a default here.
type Options struct {
	Journal     *journal.Journal
	Advisor     sequence.Advisor
	Credentials sequence.Credentials
	Leadership  Leadership // nil: there is no election, this worker always leads
	// Ours returns an error once the lock or the journal are no longer this worker's; nil: nobody is asked. It must not block.
	Ours  func() error
	Flow  sequence.Flow
	Token string // provisioning token of the site; secret

	Lanes       int
	Interval    time.Duration // between discoveries; what was not seen for two of them is stale
	StopTimeout time.Duration // how long a stop waits for effects in flight
	Hold        time.Duration // how long a node is left alone after a pass
	Accepted    time.Time     // when the journal was accepted though newer work is lost; zero: it was not
	Horizon     time.Duration // after it no request of a former worker can be accepted any more
	Retention   time.Duration // how long ended work stays in the journal
	AdviceTime  time.Duration // how long the advisor takes at most
	MaxUnknown  int           // so many unknown receipts stop new claims
	FleetBlocks bool          // one unknown receipt stops every effect
	Manual      bool          // evidence never settles by itself
	Component   string        // lifecycle component of servers in provisioning mode

	Version string
	Epoch   receipt.Epoch
	Now     func() time.Time
	Log     *slog.Logger
	Meter   Meter // nil: nobody is told
}

// Leadership says whether this worker may act. It must not block.
type Leadership interface {
	// Check returns nil only while this worker surely leads and no request of a former leader can still arrive. Its errors are
	// receipt.ErrStandby.
	Check() error
}

// Meter is told what shows neither in the journal nor in Live. Its methods are called by several goroutines at a time and must
// not block.
type Meter interface {
	// Discovered tells of a node that became new work; source is what brought it: discovery or event.
	Discovered(source string)
	// Cycle tells of a discovery that ended, and its error.
	Cycle(err error)
}

type noMeter struct{}

func (noMeter) Discovered(string) {}
func (noMeter) Cycle(error)       {}

// Fixed bounds, with the reason for each.
const (
	maxWaiting    = 100_000          // jobs waiting for a lane; beyond it nodes are not admitted, and seen again later
	maxByEvent    = 10_000           // jobs waiting beyond which nodes are taken from discovery alone
	patience      = time.Second      // a wait longer than this gives its lane to others
	retryUnsent   = 5 * time.Second  // before a request that provably did not leave is made anew
	evidenceEvery = 15 * time.Second // between looks at a blocked node when nothing else prompts one
	looksAtOnce   = 8                // looks at blocked nodes at a time
	factTimeout   = 10 * time.Second // of one look
	pruneEvery    = time.Hour
	restartTime   = 5 * time.Second // an upgraded server restarts 2 s after its reply
	replyGrace    = 2 * time.Second // between the event of an upgrade and its reply, if there is to be one
)

// Worker runs. Its zero value is of no use; see New.
type Worker struct {
	o     Options
	j     *journal.Journal
	net   Network
	cycle *sequence.Cycle
	log   *slog.Logger

	started  time.Time
	facts    context.Context // ends when the worker stops
	effects  context.Context // ends when the stop timeout is over
	slots    chan struct{}   // one token per lane
	running  sync.WaitGroup  // passes
	parked   atomic.Int64    // passes that wait without a lane
	quiet    time.Time       // nothing is begun before: what was sent under a journal that is lost may still arrive
	overdue  atomic.Int64    // those of them whose effect is in flight
	fatal    chan error      // what the worker cannot go on after; holds the first
	stopping atomic.Bool
	intaking atomic.Bool
	paused   atomic.Pointer[journal.Pause] // as the journal has it; nil: not paused
	pausing  sync.Mutex                    // makes a pause's commit and its being obeyed one step: else a resume could come in between
	// reconnects counts the times that the connection to the broker came back.
	reconnects atomic.Int64

	mu       sync.Mutex
	state    control.State
	queue    *queue
	draining string                              // who had the worker drain; empty: nobody
	over     bool                                // drained is closed
	seen     map[receipt.NodeID]journal.Sighting // not yet admitted
	busy     map[receipt.NodeID]*pass            // nodes with a pass under way
	watches  map[receipt.ReceiptID]*watch        // unknown receipts
	requests map[receipt.RequestID]sent          // whose replies may still come
	outLooks map[receipt.NodeID]bool             // nodes kept out that are being looked at
	hints    map[receipt.ReceiptID]func()        // effects in flight: ends the wait for a reply that will not come

	wakeLanes, wakeIntake, wakeWatch, wakeDiscover chan struct{}

	drained chan struct{} // closed once nothing is at work and nothing will be
	pulses  pulses
}

// sent remembers which receipt a request belongs to.
type sent struct {
	receipt receipt.ReceiptID
	action  receipt.Action
	horizon receipt.Horizon
}

// New makes a worker on an open journal whose epoch has been raised and which has been recovered.
func New(o Options) *Worker {
	if o.Meter == nil {
		o.Meter = noMeter{}
	}
	return &Worker{
		o: o, j: o.Journal, log: o.Log, started: o.Now(), state: control.Settling,
		slots: make(chan struct{}, o.Lanes), fatal: make(chan error, 1),
		queue: newQueue(), seen: map[receipt.NodeID]journal.Sighting{}, busy: map[receipt.NodeID]*pass{},
		watches: map[receipt.ReceiptID]*watch{}, requests: map[receipt.RequestID]sent{}, outLooks: map[receipt.NodeID]bool{},
		hints:     map[receipt.ReceiptID]func(){},
		wakeLanes: make(chan struct{}, 1), wakeIntake: make(chan struct{}, 1), wakeWatch: make(chan struct{}, 1),
		wakeDiscover: make(chan struct{}, 1), quiet: quietUntil(o),
		drained: make(chan struct{}),
	}
}

// Run works until ctx ends, then stops in order: no new work, effects in flight end or reach the stop timeout, all is settled.
// It returns nil after such a stop, and ErrDrained if Drain ended it. Another error means that the worker had to give up: the journal failed, its lock or epoch was
// lost, or a pass broke an invariant; nothing was sent after that.
func (w *Worker) Run(ctx context.Context, net Network) error {
	// Neither may end with ctx at once: stopping is a sequence of its own.
	facts, cancelFacts := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelFacts()
	effects, cancelEffects := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelEffects()
	w.mu.Lock()
	w.net = net
	w.mu.Unlock()
	w.facts, w.effects = facts, effects
	w.recallPause()
	w.beQuiet()
	w.cycle = &sequence.Cycle{
		Journal: w.j, Wire: recorder{net, w}, Advisor: w.o.Advisor, Credentials: w.o.Credentials, Flow: w.o.Flow, Token: w.o.Token,
		Hold: w.o.Hold, Retry: retryUnsent, Now: w.o.Now, Log: w.log,
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	var loops sync.WaitGroup
	ctx, over := w.untilOver(ctx)
	err := w.settle(ctx)
	if err == nil && ctx.Err() == nil {
		crashpoint.Here(crashpoint.Looked)
		w.intaking.Store(true)
		w.log.Info("ready", "epoch", w.o.Epoch, "lanes", w.o.Lanes, "queued", w.waiting(), "unknown", w.Unknown())
		w.setState(control.Running) // which a service manager may be told from now on
		for _, loop := range []func(context.Context){w.dispatch, w.intake, w.discover, w.watch, w.keepHouse} {
			loops.Go(func() {
				defer w.guard("the worker")
				loop(ctx)
			})
		}
		<-ctx.Done()
	}
	w.stop(cancel, cancelFacts, cancelEffects, &loops)
	why := <-over
	if err == nil && !errors.Is(why, ErrDrained) {
		err = why
	}
	if err == nil {
		select {
		case err = <-w.fatal:
		default:
			err = w.j.Failed()
		}
	}
	if err == nil {
		return why
	}
	return err
}

// untilOver returns a context that ends with whatever ends the worker, and then why: nil if it was told to stop or the journal failed. That
// it settles is no reason to wait: a broker that is away can keep that up for long.
func (w *Worker) untilOver(parent context.Context) (context.Context, <-chan error) {
	ctx, cancel := context.WithCancel(parent)
	over := make(chan error, 1)
	go func() {
		var why error
		select {
		case <-ctx.Done():
		case why = <-w.fatal:
		case <-w.drained:
			why = ErrDrained
		case <-w.j.Stopped(): // by a change that nobody waits for
		}
		cancel()
		over <- why
	}()
	return ctx, over
}

// stop ends the worker's loops and waits for what is in flight.
func (w *Worker) stop(cancel, cancelFacts, cancelEffects func(), loops *sync.WaitGroup) {
	w.stopping.Store(true)
	w.setState(control.Stopping)
	cancel()
	loops.Wait() // no pass starts after this
	crashpoint.Here(crashpoint.StopBegun)
	cancelFacts()
	done := make(chan struct{})
	go func() {
		w.running.Wait()
		close(done)
	}()
	if n := w.parked.Load(); n > 0 {
		w.log.Info("stopping: waiting for effects in flight", "parked", n, "timeout", w.o.StopTimeout)
	}
	select {
	case <-done:
	case <-time.After(w.o.StopTimeout):
		w.log.Warn("stop_timeout is over: effects still in flight are recorded as unknown")
		cancelEffects()
		<-done
	}
	w.setState(control.Stopped)
}

// giveUp stops the worker for good; the first error counts.
func (w *Worker) giveUp(err error) {
	w.stopping.Store(true)
	select {
	case w.fatal <- err:
	default:
	}
}

// settle does what design "Start" asks for before any work is taken: the broker is reached, and every unknown receipt is looked
// at once. What only the journal is needed for was done by journal.Recover.
func (w *Worker) settle(ctx context.Context) error {
	open, err := w.j.OpenReceipts()
	if err != nil {
		return err
	}
	for _, r := range open {
		if r.Status != receipt.Unknown {
			return fmt.Errorf("receipt %s is %s after the journal was recovered: %w", r.ID, r.Status, receipt.ErrIllegalTransition)
		}
		w.remember(r)
		w.watchFor(r)
		w.net.Expect(r)
	}
	queued, err := w.j.QueuedJobs()
	if err != nil {
		return err
	}
	w.mu.Lock()
	for _, job := range queued {
		w.queue.push(entryOf(job, job.Seen))
	}
	w.mu.Unlock()
	if err := w.net.Connect(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	crashpoint.Here(crashpoint.Connected)
	if len(open) > 0 {
		w.log.Info("looking at unknown receipts before taking work", "count", len(open))
	}
	w.lookAtAll(ctx)
	return nil
}

func (w *Worker) setState(s control.State) {
	w.mu.Lock()
	w.state = s
	w.mu.Unlock()
}

// guard, deferred, turns a panic into the end of the worker: what panicked is a defect, and nothing may be sent after it.
func (w *Worker) guard(what string) {
	if p := recover(); p != nil {
		w.log.Error(what+" panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		w.giveUp(fmt.Errorf("%w: %s: %v", ErrPanic, what, p))
	}
}

// waiting is how many jobs wait for a lane.
func (w *Worker) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.len()
}

// ErrPanic is returned by Run when a pass or a loop panicked. The pass's job counts as interrupted at the next start.
var ErrPanic = errors.New("a panic: this is a defect of provctl")

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
