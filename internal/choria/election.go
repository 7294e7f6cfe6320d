package choria

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"provctl/receipt"
)

// The roles of a worker in the election.
const (
	Leading = "leader"  // the key is ours and the waiting is over
	Waiting = "waiting" // the key is ours, but the former leader's last requests may still be accepted
	Standby = "standby" // anything else
)

// maxElectionName leaves room for headers in the 1,024 bytes that the bucket allows (broker/network/network_jetstream.go:170).
const maxElectionName = 512

var errNoElection = errors.New("no election runs")

// ElectionOptions says for whom an election campaigns. Only Engine is required.
type ElectionOptions struct {
	Engine *Engine
	// Name is the value that is put into the key, for people to read, at most 512 bytes. The default is the identity of the
	// Choria configuration, the process id and a random part.
	Name string
	// Wait is how long a new leader does nothing: until the former one's last request can be accepted no more, so its TTL
	// and the clock skew. It is never less than the lease, during which a leader that was not told may go on.
	Wait time.Duration
	// Changed is told the role at each change, on the goroutine of Run. It must not block. A lapse can be told late by the
	// length of one request, or not at all if that request mended it; Check is exact.
	Changed func(role string)

	Log *slog.Logger     // default: the engine's
	Now func() time.Time // default: the engine's
}

// Election campaigns for the leadership among workers that share no journal, over the key that Choria's own election uses for
// the existing provisioner, so that the two never lead at the same time: whoever creates the key leads for as long as he
// updates it at the revision that he wrote himself, and the bucket forgets a key that nobody updates within its TTL.
//
// Leadership is a lease with a deadline of our own. It counts from the moment before the write was sent, and for three quarters
// of the bucket's TTL: the rest is for clocks that run at different speeds and for the time between Check and the publish that
// it allowed. It is measured on the monotonic and on the wall clock, since the former may stand still while a virtual machine is
// suspended: whichever says lapsed, lapsed. A lapsed lease comes back without another wait if the key still has our revision:
// an unbroken chain of our own revisions proves that nobody led in between. Every other win waits.
//
// The key cannot be read in the provisioning account, nor deleted so that another can create it: what a delete leaves looks
// taken for the whole TTL (broker/network/network_accounts.go:52-79 imports neither). So a worker that stops tells the revision
// to the others, and one of them continues there; see releaseSubject.
//
// Make it with NewElection. The zero value and a nil Election never lead.
type Election struct {
	opt    ElectionOptions
	broken error // why it can never lead

	notes    chan released  // revisions that were given up
	watching watching       // of Run alone
	failures map[string]int // by text, since the last success; of Run alone

	mu      sync.Mutex
	running bool
	leaving bool // Run is about to end
	held    lease
	ttl     time.Duration // of the bucket, as last seen
	taken   bool          // the last answer was that somebody else has the key
	err     error         // of the last attempt; nil after any answer
	rival   string        // who updated the key last, by his own words
	rivalAt time.Time
	role    string // as last told
	since   time.Time
}

// ElectionState is a look at an election.
type ElectionState struct {
	Role   string    // Leading, Waiting or Standby
	Since  time.Time // of the role; zero before the first attempt
	Until  time.Time // leading: when the lease ends unless it is renewed; waiting: when the waiting ends; else zero
	Leader string    // who leads, by his own words, made safe to print; empty if that is not known
	Err    error     // of the last attempt, nil if it had an answer
}

// NewElection makes an election. It campaigns once Run is called. What makes it impossible is told by Check and logged by Run.
func NewElection(o ElectionOptions) *Election {
	e := &Election{role: Standby, notes: make(chan released, 1), failures: map[string]int{}}
	if o.Engine == nil {
		e.broken = fmt.Errorf("%w: the election has no engine", ErrMisuse)
	} else {
		o = o.withDefaults()
	}
	if len(o.Name) > maxElectionName {
		e.broken = fmt.Errorf("%w: the election's name has %d bytes; use at most %d", ErrMisuse, len(o.Name), maxElectionName)
	}
	e.opt = o
	return e
}

func (o ElectionOptions) withDefaults() ElectionOptions {
	if o.Log == nil {
		o.Log = o.Engine.log
	}
	if o.Now == nil {
		o.Now = o.Engine.opt.Now
	}
	if o.Changed == nil {
		o.Changed = func(string) {}
	}
	if o.Name == "" {
		o.Name = fmt.Sprintf("%.255s %d %s", o.Engine.fw.Config.Identity, os.Getpid(), rand.Text()[:8])
	}
	return o
}

// Check returns nil only while we surely lead and the waiting is over. Otherwise the error is receipt.ErrStandby and says why.
// It costs no request and may be called at any time, by any goroutine.
func (e *Election) Check() error {
	if e == nil || e.opt.Now == nil {
		return fmt.Errorf("%w: %w", receipt.ErrStandby, errNoElection)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.opt.Now()
	switch e.roleAt(now) {
	case Leading:
		return nil
	case Waiting:
		return fmt.Errorf("%w: won, waits until %s for the former leader's last requests", receipt.ErrStandby, stamp(e.held.ready))
	default:
		return fmt.Errorf("%w: %w", receipt.ErrStandby, e.whyStandby(now))
	}
}

func (e *Election) whyStandby(now time.Time) error {
	lapsed := e.held.revision != 0 // kept until an answer says that it is somebody else's
	switch {
	case e.broken != nil:
		return e.broken
	case !e.running:
		return errNoElection
	case e.leaving:
		return errors.New("it leaves the election")
	case e.err != nil && lapsed:
		return fmt.Errorf("leadership lapsed at %s: %w", stamp(e.held.end()), e.err)
	case e.err != nil:
		return fmt.Errorf("no election yet: %w", e.err)
	case e.taken && e.leader(now) != "":
		return fmt.Errorf("another worker leads: %s", e.leader(now))
	case e.taken:
		return errors.New("another worker leads; its name is known once it renews")
	case lapsed:
		return fmt.Errorf("leadership lapsed at %s", stamp(e.held.end()))
	default:
		return errors.New("no election yet: the first attempt is under way")
	}
}

// State tells the role, since when, who leads as far as that is known, and what last went wrong.
func (e *Election) State() ElectionState {
	if e == nil || e.opt.Now == nil {
		return ElectionState{Role: Standby, Err: errNoElection}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.opt.Now()
	s := ElectionState{Role: e.roleAt(now), Since: e.since, Err: e.err}
	if e.broken != nil {
		s.Err = e.broken
	}
	switch s.Role {
	case Leading:
		s.Until, s.Leader = e.held.end(), clean(e.opt.Name)
	case Waiting:
		s.Until, s.Leader = e.held.ready, clean(e.opt.Name)
	default:
		s.Leader = e.leader(now)
	}
	if s.Role != e.role { // not told yet
		s.Since = now
	}
	return s
}

func (e *Election) roleAt(now time.Time) string {
	switch {
	case !e.running || !e.held.valid(now):
		return Standby
	case now.Before(e.held.ready):
		return Waiting
	default:
		return Leading
	}
}

// leader is who was last seen to renew the key, if that was not too long ago for him to lead still.
func (e *Election) leader(now time.Time) string {
	if e.rival == "" || elapsed(e.rivalAt, now) > e.ttl {
		return ""
	}
	return e.rival
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
