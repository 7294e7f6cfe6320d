package journal

import (
	"context"
	"fmt"
	"strings"

	"provctl/receipt"
)

// Revoked reports whether a verdict revoked an operation token. If that cannot be read it is true: what cannot be checked may
// not be published.
func (j *Journal) Revoked(t receipt.Token) bool {
	revoked := true
	err := j.view(func(s *store) (err error) {
		revoked, err = s.revoked(t)
		return err
	})
	return err != nil || revoked
}

func (s *store) revoked(t receipt.Token) (bool, error) {
	b, err := s.get(tombBucket, string(t))
	return b != nil, err
}

// Note adds observations to a receipt, ended ones included, and moves its baseline to a given one if the observations, counted from
// the stored one, show that the request was not dispatched before it; else the baseline stays. What changes nothing writes
// nothing. The receipt's version rises only with news: a refreshed answer that says the same as before does not make an
// operator's look stale. Durable when it returns without an error.
func (j *Journal) Note(ctx context.Context, id receipt.ReceiptID, seen []receipt.Evidence, base *receipt.Baseline) (receipt.Receipt, error) {
	var r receipt.Receipt
	err := j.do(ctx, func(s *stage) (err error) {
		r, err = s.note(id, seen, base)
		return err
	})
	if err != nil {
		return receipt.Receipt{}, fmt.Errorf("note evidence on receipt %s: %w", id, err)
	}
	return r, nil
}

func (s *stage) note(id receipt.ReceiptID, seen []receipt.Evidence, base *receipt.Baseline) (receipt.Receipt, error) {
	r, err := s.receipt(id)
	if err != nil {
		return r, err
	}
	before := r
	changed := false
	for _, e := range seen {
		if err := e.Check(); err != nil {
			return r, err
		}
		e = cleaned(e)
		e.Seq = s.meta.Seq + 1
		changed = r.Note(e) || changed
	}
	if base != nil && movesBaseline(before, seen, *base) {
		b := *base
		r.Baseline, changed = &b, true
	}
	if !changed {
		return r, nil
	}
	s.next()
	if news(before, r) {
		return r, s.saveReceipt(&r)
	}
	return r, save(&s.store, recBucket, string(r.ID), r)
}

// movesBaseline reports whether the baseline may move along: the answer that it is of comes with it, was asked for before the
// horizon, and shows against the stored baseline that the request had not been dispatched. A baseline that moved past the effect
// would make the counter prove what is not so.
func movesBaseline(r receipt.Receipt, seen []receipt.Evidence, base receipt.Baseline) bool {
	for _, e := range seen {
		if e.Kind == receipt.SawStats && e.Stats.Validated == base.Validated && !r.Horizon.Passed(e.At) && r.NotDispatched(*e.Stats) {
			return true
		}
	}
	return false
}

// news reports whether evidence says more than before. An answer of daemon_stats that replaces one of the same incarnation does
// not, unless it turns the counter's verdict.
func news(before, after receipt.Receipt) bool {
	if len(before.Evidence) != len(after.Evidence) {
		return true
	}
	was := map[receipt.Incarnation]bool{}
	for _, e := range before.Evidence {
		if e.Kind == receipt.SawStats {
			was[e.Stats.Incarnation] = before.NotDispatched(*e.Stats)
		}
	}
	newest := receipt.Seq(0)
	for _, e := range before.Evidence {
		newest = max(newest, e.Seq)
	}
	for _, e := range after.Evidence {
		if e.Seq <= newest {
			continue
		}
		if e.Kind != receipt.SawStats || was[e.Stats.Incarnation] != after.NotDispatched(*e.Stats) {
			return true
		}
	}
	return false
}

// cleaned makes what a node or the broker said storable, and owns all that it points to.
func cleaned(e receipt.Evidence) receipt.Evidence {
	e.Source, e.At = clip(e.Source), wall(e.At)
	if e.Reply != nil {
		c := *e.Reply
		c.Text = clip(c.Text)
		e.Reply = &c
	}
	if e.Event != nil {
		c := *e.Event
		c.Type, c.Component, c.Version = clip(c.Type), clip(c.Component), clip(c.Version)
		e.Event = &c
	}
	if e.Stats != nil {
		c := *e.Stats
		c.Version = clip(c.Version)
		e.Stats = &c
	}
	if e.Idle != nil {
		c := *e.Idle
		e.Idle = &c
	}
	if e.Connections != nil {
		c := *e.Connections
		c.Reason, c.LastClosed = clip(c.Reason), wall(c.LastClosed)
		e.Connections = &c
	}
	return e
}

// maxSoon bounds the evidence that waits without anybody waiting for it.
const maxSoon = 4096

// NoteSoon adds an observation with the next commit and does not wait. If it cannot be kept that is logged and counted in
// Stats.LostNotes: evidence can be gathered again.
func (j *Journal) NoteSoon(id receipt.ReceiptID, e receipt.Evidence) {
	lost := func(err error) {
		j.mu.Lock()
		j.stats.LostNotes++
		j.mu.Unlock()
		j.o.Log.Warn("journal: evidence was not kept", "receipt", string(id), "error", err.Error())
	}
	if j.queue.length() >= maxSoon {
		lost(fmt.Errorf("%d changes are waiting already", maxSoon))
		return
	}
	o := &op{done: make(chan struct{}), lost: lost, apply: func(s *stage) error {
		_, err := s.note(id, []receipt.Evidence{e}, nil)
		return err
	}}
	if err := j.queue.add(o); err != nil {
		lost(err)
	}
}

// Prove tries the proof rules on an unknown receipt and, if one concludes, settles it and moves its job, in one transaction.
// Without a conclusion, or if the receipt is not unknown, the proof is nil and nothing is written. Durable when it returns
// without an error.
func (j *Journal) Prove(ctx context.Context, id receipt.ReceiptID) (receipt.Receipt, *receipt.Proof, error) {
	var r receipt.Receipt
	var proof *receipt.Proof
	err := j.do(ctx, func(s *stage) (err error) {
		proof = nil
		if r, err = s.receipt(id); err != nil || r.Status != receipt.Unknown {
			return err
		}
		h, err := s.history(r.Node, r.Incarnation)
		if err != nil {
			return err
		}
		p, ok := receipt.Prove(r, h, s.now)
		if !ok {
			return nil
		}
		s.next()
		if p.Key != nil {
			key := *p.Key
			r.Key = &key
		}
		s.meta.Tally.Evidence++
		proof = &p
		return s.resolve(&r, p.Event, p.Why, "evidence: "+p.Rule, s.afterProof(r, p))
	})
	if err != nil {
		return receipt.Receipt{}, nil, fmt.Errorf("prove receipt %s: %w", id, err)
	}
	return r, proof, nil
}

// resolve settles an unknown receipt and moves its blocked job.
func (s *stage) resolve(r *receipt.Receipt, event receipt.Event, why, by string, next Next) error {
	job, n, err := s.around(*r)
	if err != nil {
		return err
	}
	if err := s.settle(r, &n, event, why, by); err != nil {
		return err
	}
	next.Why = why
	if next.Event == receipt.Resume {
		job.Seen = s.now // the blocked time does not make it stale
	}
	return s.step(&job, &n, next.Event, next)
}

// afterProof is what becomes of the job when evidence settles its receipt.
func (s *stage) afterProof(r receipt.Receipt, p receipt.Proof) Next {
	a := r.Action
	switch {
	case p.Rule == receipt.RuleNewStart && (a != receipt.ReleaseUpdate || p.Event != receipt.ProvedApplied):
		return Next{Event: receipt.End, Result: receipt.Superseded} // it is back in provisioning mode: new work
	case p.Event == receipt.ProvedApplied:
		return s.afterApplied(a)
	case a == receipt.ReleaseUpdate && p.Event == receipt.ProvedFailed && strings.Contains(p.Why, receipt.UpgradeBroken):
		return Next{Event: receipt.End, Result: receipt.Exhausted} // as when the reply is in time: nothing is to be sent to it
	case p.Rule == receipt.RuleLeft:
		next := s.ended(receipt.Left)
		next.Told = receipt.ProvedMoot // if it was to find out about a configure: nothing more can be asked of this life
		return next
	default:
		return Next{Event: receipt.Resume, Told: r.Tells()}
	}
}

// afterApplied is what becomes of the job when its effect turns out to have taken effect: a cycle's last effects end it.
func (s *stage) afterApplied(a receipt.Action) Next {
	switch a {
	case receipt.Restart:
		return s.ended(receipt.Provisioned)
	case receipt.Shutdown:
		return s.ended(receipt.ShutDown)
	case receipt.ReleaseUpdate:
		return Next{Event: receipt.End, Result: receipt.Upgraded} // it restarts into it: new work at once
	default:
		return Next{Event: receipt.Resume}
	}
}

// ended is an end after which the node may still answer for a while and must not be taken.
func (s *stage) ended(r receipt.Result) Next {
	return Next{Event: receipt.End, Result: r, HoldUntil: s.now.Add(s.j.o.Hold)}
}
