package sequence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"provctl/internal/agent"
	"provctl/internal/crashpoint"
	"provctl/internal/helper"
	"provctl/journal"
	"provctl/receipt"
)

// Flow says which steps a pass has.
type Flow struct {
	JWT      bool // the node's provisioning token is verified and shown to the helper
	Ed25519  bool // the node makes an ed25519 key and gets a server token; excludes PKI
	PKI      bool // the node makes a key and a certificate signing request
	Upgrades bool // the helper may ask for another version of the server

	Repository      string // where upgrades come from: a URL that may hold credentials
	UpgradeOptional bool   // a node that cannot be upgraded is configured as it is
}

// Cycle provisions nodes. All fields are required.
type Cycle struct {
	Journal     Journal
	Wire        Wire
	Advisor     Advisor
	Credentials Credentials
	Flow        Flow
	Token       string        // provisioning token of the site, "" if none; secret
	Hold        time.Duration // how long a node is left alone after a pass
	Retry       time.Duration // how long a job waits after its request provably did not leave
	Now         func() time.Time
	Log         *slog.Logger
}

// restartSplay is the splay asked of a restart, in seconds: the node adds 2 s of its own
// (go-choria v0.30.2 providers/agent/mcorpc/golang/provision/restart_action.go:61).
const restartSplay = 1

// stop ends a pass early; it is how a step says what becomes of the job.
type stop struct{ next journal.Next }

func (s stop) Error() string { return s.next.Why }

// pass is one claim of one job.
type pass struct {
	*Cycle
	job     receipt.Job
	lane    Lane
	facts   context.Context // ends when the worker stops
	effects context.Context // ends when the stop timeout is over
	log     *slog.Logger

	incarnation receipt.Incarnation
	base        receipt.Baseline
	history     receipt.History
	claims      []byte      // of the node's verified token; nil without Flow.JWT
	ecdh        string      // the node's public key for secrets
	inventory   []byte      // as the node sent it
	key         receipt.Key // of the flow; zero if it makes none
}

// Run makes one pass over a claimed job. The Next it returns is what the caller must record with the job; an Event of 0 says
// that a settlement already did. facts ends when the worker wants to stop: the pass then gives the job back at the next step.
// effects ends when an effect in flight may be waited for no longer. An error means that the worker must not go on at all.
func (c *Cycle) Run(facts, effects context.Context, lane Lane, job receipt.Job) (journal.Next, error) {
	p := &pass{
		Cycle: c, job: job, lane: lane, facts: facts, effects: effects,
		log: c.Log.With("node", job.Node, "job", job.ID),
	}
	err := p.provision()
	var s stop
	switch {
	case errors.As(err, &s):
		return s.next, nil
	case err != nil:
		return journal.Next{}, err
	default:
		return journal.Next{}, errors.New("a pass ended without saying what becomes of its job: this is a defect of provctl")
	}
}

func (p *pass) provision() error {
	if err := p.meet(); err != nil {
		return err
	}
	if err := p.introduce(); err != nil {
		return err
	}
	if p.history.Done(receipt.Configure) != nil {
		p.log.Info("the node is configured already; going on with its restart")
		return p.effect(receipt.Restart, agent.Restart{Token: p.Token, Splay: restartSplay})
	}
	if r := p.history.Finishing(); r != nil {
		p.log.Info("an operator has the node restarted to find out whether it is configured", "configure", r.ID)
		return p.effect(receipt.Restart, agent.Restart{Token: p.Token, Splay: restartSplay})
	}
	if err := p.gather(); err != nil {
		return err
	}
	advice, err := p.ask()
	if err != nil {
		return err
	}
	switch advice.Decision() {
	case helper.Defer:
		return p.end(receipt.Deferred, "the helper defers it: "+advice.Msg)
	case helper.Shutdown:
		return p.effect(receipt.Shutdown, agent.Shutdown{Token: p.Token})
	case helper.Configure:
	default:
		return p.fail("understand the helper", fmt.Errorf("it decided %s", advice.Decision()))
	}
	input, err := p.configuration(advice)
	if err != nil {
		return p.fail("build its configuration", err)
	}
	if err := p.upgrade(advice.Upgrade); err != nil {
		return err
	}
	if err := p.effect(receipt.Configure, input); err != nil {
		return err
	}
	return p.effect(receipt.Restart, agent.Restart{Token: p.Token, Splay: restartSplay})
}

// meet learns which incarnation of the node is there and what it has been through.
func (p *pass) meet() error {
	stats, base, err := p.stats()
	if err != nil {
		return p.unmet(err)
	}
	if p.job.Incarnation.Known() && p.job.Incarnation != stats.Incarnation {
		return p.superseded(stats.Incarnation)
	}
	p.incarnation, p.base = stats.Incarnation, base
	if p.history, err = p.Journal.History(p.job.Node, p.incarnation); err != nil {
		return err
	}
	for _, r := range p.history.Receipts {
		if r.Status.Open() {
			return fmt.Errorf("node %s has open receipt %s while its job %s is claimed: %w", r.Node, r.ID, p.job.ID, receipt.ErrIllegalTransition)
		}
	}
	return p.awaitUpgrade()
}

// introduce asks the node for its token. No effect comes before its answer.
func (p *pass) introduce() error {
	// The question replaces the node's key for secrets: it is not for a worker that may not act to ask it.
	if err := p.gate(); err != nil {
		return err
	}
	var node Introduction
	err := p.fact(func(ctx context.Context) (err error) {
		if node, err = p.Wire.JWT(ctx, p.job.Node); p.history.Doubtful() && (err == nil || errors.Is(err, ErrNoToken)) {
			// A mutex lets a newcomer pass at the very moment of its release, but not twice.
			node, err = p.Wire.JWT(ctx, p.job.Node)
		}
		return err
	})
	if errors.Is(err, ErrNoToken) && !p.Flow.JWT {
		return nil // none is needed
	}
	if err != nil {
		return p.fail("ask for its provisioning token", err)
	}
	p.ecdh = node.ECDH
	if !p.Flow.JWT {
		return nil
	}
	if p.claims, err = p.Credentials.VerifyNode(node.Token); err != nil {
		return p.fail("verify its provisioning token", err)
	}
	return nil
}

// gather makes the node's key as the flow has it and asks for its inventory.
func (p *pass) gather() error {
	if p.Flow.Ed25519 {
		if err := p.makeKey(receipt.Gen25519, agent.Gen25519{Token: p.Token}); err != nil {
			return err
		}
	}
	err := p.fact(func(ctx context.Context) (err error) {
		p.inventory, err = p.Wire.Inventory(ctx, p.job.Node)
		return err
	})
	if err != nil {
		return p.fail("ask for its inventory", err)
	}
	if !p.Flow.PKI {
		return nil
	}
	if err := p.makeKey(receipt.GenCSR, agent.GenCSR{Token: p.Token, CN: string(p.job.Node)}); err != nil {
		return err
	}
	if err := p.Credentials.CheckCSR(p.job.Node, p.key.CSR); err != nil {
		return p.fail("accept its certificate signing request", err)
	}
	return nil
}

// makeKey has the node make its key, unless this incarnation already made one.
func (p *pass) makeKey(a receipt.Action, input any) error {
	if r := p.history.Done(a); r != nil && r.Key != nil {
		p.key = *r.Key
		return nil
	}
	return p.effect(a, input)
}

// ask runs the helper.
func (p *pass) ask() (*helper.Reply, error) {
	in := helper.Input{Identity: string(p.job.Node), Inventory: string(p.inventory), JWT: p.claims}
	if p.Flow.Ed25519 {
		in.Ed25519 = &helper.Ed25519{PublicKey: p.key.Public, Directory: p.key.Directory, Signature: p.key.Signature}
	}
	if p.Flow.PKI {
		in.CSR = &helper.CSR{CSR: p.key.CSR, PublicKey: p.key.Public, SSLDir: p.key.Directory}
	}
	if err := p.gate(); err != nil {
		return nil, err
	}
	reply, err := p.Advisor.Ask(p.facts, p.job, in)
	if err != nil {
		return nil, p.fail("run the helper", err)
	}
	crashpoint.Here(crashpoint.HelperAnswered)
	return reply, nil
}

// fact runs a request that leaves nothing behind, off the lane while it lasts.
func (p *pass) fact(ask func(context.Context) error) error {
	var err error
	var panicked any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		err = ask(p.facts)
	}()
	p.lane.Park(context.WithoutCancel(p.facts), done)
	p.lane.Retake()
	if panicked != nil {
		panic(panicked) // here, where the worker's guard stands
	}
	return err
}

func (p *pass) stats() (stats receipt.StatsSeen, base receipt.Baseline, err error) {
	err = p.fact(func(ctx context.Context) (err error) {
		stats, base, err = p.Wire.Stats(ctx, p.job.Node)
		return err
	})
	if err == nil && !stats.Incarnation.Known() {
		err = fmt.Errorf("daemon_stats names no incarnation (pid %d, starttime %d)", stats.Incarnation.PID, stats.Incarnation.Start)
	}
	return stats, base, err
}

// gate gives the job back when the worker may begin no effect, and ends it when two servers would take it.
func (p *pass) gate() error {
	switch err := p.lane.Gate(); {
	case err == nil:
		return nil
	case errors.Is(err, ErrTwin):
		p.log.Error("the node is left alone", "error", err)
		return p.end(receipt.FailedJob, err.Error())
	default:
		return stop{journal.Next{Event: receipt.Requeue, Why: err.Error()}}
	}
}

// fail ends the pass without an open receipt: the node is held and taken again later. If the node is not to blame, because the
// worker is stopping or its connection broke, the job is given back instead.
func (p *pass) fail(doing string, err error) error {
	if gate := p.gate(); gate != nil {
		return gate
	}
	cut := p.lane.Disturbed()
	if cut == nil && errors.Is(err, ErrCut) {
		cut = ErrCut
	}
	if cut != nil {
		p.log.Info("could not "+doing+"; trying again", "error", err, "why", cut)
		return stop{journal.Next{Event: receipt.Requeue, Why: cut.Error(), NotBefore: p.Now().Add(p.Retry)}}
	}
	if errors.Is(err, ErrAbsent) { // no blame and no hold: it is taken again when it is seen again
		return stop{journal.Next{Event: receipt.End, Result: receipt.Left, Why: fmt.Sprintf("could not %s: %v", doing, err)}}
	}
	p.log.Warn("could not "+doing, "error", err)
	return p.end(receipt.FailedJob, fmt.Sprintf("could not %s: %v", doing, err))
}

func (p *pass) end(result receipt.Result, why string) error {
	return stop{p.ending(result, why)}
}

func (p *pass) ending(result receipt.Result, why string) journal.Next {
	next := journal.Next{Event: receipt.End, Result: result, Why: why}
	if !result.StaysOut() && result != receipt.Superseded {
		next.HoldUntil = p.Now().Add(p.Hold)
	}
	return next
}

func (p *pass) superseded(now receipt.Incarnation) error {
	return p.end(receipt.Superseded, fmt.Sprintf("the node came back as another incarnation, %s", now))
}
