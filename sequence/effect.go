package sequence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"provctl/internal/agent"
	"provctl/internal/crashpoint"
	"provctl/internal/helper"
	"provctl/journal"
	"provctl/receipt"
)

// configuration builds the input of configure.
func (p *pass) configuration(advice *helper.Reply) (agent.Configure, error) {
	in := agent.Configure{
		Token: p.Token, Config: advice.Configuration, ActionPolicies: advice.ActionPolicies, OPAPolicies: advice.OPAPolicies,
		Certificate: advice.Certificate, CA: advice.CA, SSLDir: advice.SSLDir,
	}
	var err error
	if p.Flow.Ed25519 {
		if in.ServerJWT, err = p.Credentials.ServerJWT(p.job.Node, p.key.Public, advice); err != nil {
			return agent.Configure{}, err
		}
	}
	if advice.Certificate != "" {
		if err := p.Credentials.CheckIssued(p.job.Node, p.key.CSR, advice); err != nil {
			return agent.Configure{}, err
		}
	}
	if advice.Key == "" {
		return in, nil
	}
	if p.ecdh == "" {
		return agent.Configure{}, errors.New("the helper delivers a private key and the node made no key to encrypt it to: its provisioning agent is too old, or it has no provisioning token")
	}
	in.Key, in.ECDHPublic, err = p.Credentials.SealKey(advice.Key, p.ecdh)
	return in, err
}

// effect changes the node once. It returns nil if it took effect and the pass goes on, a stop otherwise, and any other error
// only if the worker must send nothing more. The order of its steps is the protocol; see docs/design.md, "One effect".
func (p *pass) effect(a receipt.Action, input any) error {
	if err := p.gate(); err != nil {
		return err
	}
	base, err := p.look(a)
	if err != nil {
		return err
	}
	nonce := ""
	if in, ok := input.(agent.Gen25519); ok {
		if nonce, err = newNonce(); err != nil {
			return err
		}
		in.Nonce = nonce
		input = in
	}
	prepared, err := p.Wire.Prepare(p.job.Node, a, input)
	if err != nil {
		return p.fail(fmt.Sprintf("build its %s request", a), err)
	}
	crashpoint.Here(crashpoint.Prepared)
	if err := p.gate(); err != nil { // the look and the signing may have taken their time
		return err
	}
	intent := journal.Intent{
		Job: p.job.ID, Action: a, Incarnation: p.incarnation, Request: prepared.Request, RequestTime: prepared.Time,
		Horizon: prepared.Horizon, Digest: prepared.Digest, Baseline: &base,
	}
	if in, ok := input.(agent.ReleaseUpdate); ok {
		intent.Target = in.Version
	}
	pending, err := p.Journal.Begin(context.WithoutCancel(p.effects), intent)
	switch {
	case errors.Is(err, receipt.ErrRepeat):
		return p.end(receipt.Exhausted, err.Error())
	case err != nil:
		return err
	}
	crashpoint.Here(crashpoint.Begun)
	return p.send(pending, prepared, nonce)
}

// look asks the node once more right before an effect: the counter rule needs its baseline, and a node that came back
// meanwhile is another job's. For a key the look at the start of the pass serves, since no effect came after it and a key
// made in another incarnation harms nothing.
func (p *pass) look(a receipt.Action) (receipt.Baseline, error) {
	if a.Repeatable() {
		return p.base, nil
	}
	stats, base, err := p.stats()
	switch {
	case err != nil:
		return base, p.fail("ask for its daemon_stats", err)
	case stats.Incarnation != p.incarnation:
		return base, p.superseded(stats.Incarnation)
	}
	return base, nil
}

func (p *pass) send(pending *journal.Pending, prepared Prepared, nonce string) error {
	r := pending.Receipt()
	log := p.log.With("action", r.Action, "receipt", r.ID, "request", r.Request)
	log.Info("effect begins", "horizon", r.Horizon, "incarnation", r.Incarnation)
	call, err := p.Wire.Publish(p.effects, pending, prepared)
	if err != nil {
		if !errors.Is(err, ErrNotSent) {
			_ = p.settle(pending, receipt.Lost, err.Error(), nil, 0) // the worker ends either way
			return err
		}
		log.Warn("the request was not sent", "error", err)
		settleErr := p.settle(pending, receipt.NeverSent, err.Error(), nil, 0)
		if errors.Is(err, receipt.ErrFenced) && !errors.Is(err, receipt.ErrExpired) && !errors.Is(err, receipt.ErrStandby) {
			return err // our right to send anything has lapsed
		}
		return settleErr
	}
	if early := p.lane.Await(p.effects, call.Done(), r); early != nil {
		call.GiveUp()
		<-call.Done() // at once: a reply that was there already counts
		if call.Outcome().Event == receipt.Lost {
			return p.settle(pending, receipt.Lost, early.Error(), nil, 0)
		}
	}
	out := call.Outcome()
	event, why, key := p.read(r.Action, out, nonce)
	crashpoint.Here(crashpoint.ReplyRead)
	return p.settle(pending, event, why, key, p.told(r.Action, event, out))
}

// told is what a restart's outcome proves of the configure that it was to find out about; 0: nothing, or there is none.
func (p *pass) told(a receipt.Action, event receipt.Event, out Outcome) receipt.Event {
	if a != receipt.Restart || p.history.Finishing() == nil || out.Reply == nil {
		return 0
	}
	return receipt.ToldByRestart(event, out.Reply.Text)
}

// read turns an outcome into the receipt's event.
func (p *pass) read(a receipt.Action, out Outcome, nonce string) (receipt.Event, string, *receipt.Key) {
	if out.Reply == nil {
		return out.Event, out.Why, nil
	}
	reply := *out.Reply
	var key *receipt.Key
	if a.Repeatable() && reply.Code == 0 && reply.Trouble == "" {
		k, err := p.Credentials.ReadKey(a, out.Data, nonce)
		if err != nil {
			reply.Trouble = err.Error()
		} else {
			reply.Usable, key = true, &k
		}
	}
	event, why := receipt.Classify(a, reply)
	return event, why, key
}

// settle records what came of an effect together with what becomes of the job, and says whether the pass goes on.
func (p *pass) settle(pending *journal.Pending, event receipt.Event, why string, key *receipt.Key, told receipt.Event) error {
	r := pending.Receipt()
	next := p.next(r.Action, event, why)
	if next.Told = told; told == receipt.ProvedNotDone || told == receipt.ProvedFailed { // now it may be configured
		next.Event, next.Result, next.HoldUntil = receipt.Requeue, 0, time.Time{}
	}
	settled, err := p.Journal.Settle(context.WithoutCancel(p.effects), pending, journal.Settlement{Event: event, Why: why, By: "reply", Key: key, Next: next})
	if err != nil {
		return fmt.Errorf("settle receipt %s of %s: %w", r.ID, r.Node, err)
	}
	log := p.log.With("action", r.Action, "receipt", r.ID, "request", r.Request, "status", settled.Status)
	if settled.Status == receipt.Unknown {
		log.Error("effect unknown: the node is blocked", "why", why, "hint", "provctl inspect "+string(r.ID))
	} else {
		log.Info("effect ended", "why", why)
	}
	p.history.Receipts = append(p.history.Receipts, settled)
	if next.Event == 0 {
		if key != nil {
			p.key = *key
		}
		crashpoint.Here(crashpoint.StepSettled)
		// Only now, and only to go on: neither a reply in hand nor what follows from an end may wait for a lane.
		p.lane.Retake()
		return nil
	}
	return stop{} // recorded together with the outcome
}

// next is what becomes of the job after an effect ended with the given event.
func (p *pass) next(a receipt.Action, e receipt.Event, why string) journal.Next {
	switch {
	case e == receipt.Lost:
		return journal.Next{Event: receipt.Block, Why: why}
	case e == receipt.NeverSent:
		return journal.Next{Event: receipt.Requeue, Why: why, NotBefore: p.Now().Add(p.Retry)}
	case a == receipt.ReleaseUpdate:
		return p.afterUpgrade(e, why)
	case e != receipt.ReplyApplied:
		return p.ending(receipt.FailedJob, why)
	case a == receipt.Restart:
		return p.ending(receipt.Provisioned, why)
	case a == receipt.Shutdown:
		return p.ending(receipt.ShutDown, why)
	default:
		return journal.Next{}
	}
}
