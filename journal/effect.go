package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"provctl/receipt"
)

// Pending is a receipt whose effect may be published once and settled once. Only Begin makes one; the zero value refuses
// every call. It is safe for concurrent use.
type Pending struct {
	j *Journal
	r receipt.Receipt

	mu                           sync.Mutex
	published, settling, settled bool
}

// Receipt is the receipt as it was begun.
func (p *Pending) Receipt() receipt.Receipt {
	if p == nil {
		return receipt.Receipt{}
	}
	return p.r
}

// MarkPublished must be called right before the request leaves. The second call is receipt.ErrRepeat, and so is a call after
// Settle: a request is published at most once.
func (p *Pending) MarkPublished() error {
	if p == nil || p.j == nil {
		return fmt.Errorf("%w: no receipt was begun", receipt.ErrFenced)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.published || p.settling {
		return fmt.Errorf("receipt %s of %s: %w: its request was published or settled already", p.r.ID, p.r.Node, receipt.ErrRepeat)
	}
	p.published = true
	return nil
}

// Published reports whether the request may have left.
func (p *Pending) Published() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.published
}

// Claim gives a queued job to a lane of this worker's term. A job that ended and was forgotten is receipt.ErrStale as well as
// ErrNotFound. Durable when it returns without an error.
func (j *Journal) Claim(ctx context.Context, id receipt.JobID) (receipt.Job, error) {
	var job receipt.Job
	err := j.do(ctx, func(s *stage) (err error) {
		if job, err = s.job(id); errors.Is(err, ErrNotFound) {
			return fmt.Errorf("%w: %w", receipt.ErrStale, err)
		} else if err != nil {
			return err
		}
		if job.Status, err = job.Status.Apply(receipt.Claim); err != nil {
			return err
		}
		job.Claims++
		job.Begun, job.Epoch = 0, s.term
		s.next()
		return s.saveJob(&job)
	})
	if err != nil {
		return receipt.Job{}, fmt.Errorf("claim job %s: %w", id, err)
	}
	return job, nil
}

// Begin writes the receipt of an effect; only after it may the request leave. The job must be claimed in this worker's term and
// the node must have no open receipt, and what its incarnation has been through must allow the effect (receipt.ErrRepeat).
// Durable when it returns without an error. Once the commit has begun, the end of the context changes nothing.
func (j *Journal) Begin(ctx context.Context, in Intent) (*Pending, error) {
	var r receipt.Receipt
	err := j.do(ctx, func(s *stage) (err error) {
		r, err = s.begin(in)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("begin %s: %w", in.Action, err)
	}
	return &Pending{j: j, r: r}, nil
}

func (s *stage) begin(in Intent) (receipt.Receipt, error) {
	var none receipt.Receipt
	job, err := s.job(in.Job)
	if err != nil {
		return none, err
	}
	if err := s.mine(job); err != nil {
		return none, err
	}
	n, err := s.nodeOf(job.Node, "job "+string(job.ID))
	if err != nil {
		return none, err
	}
	if n.Job != job.ID {
		return none, fmt.Errorf("%w: job %s is claimed, but node %s is at %q", receipt.ErrDamaged, job.ID, n.ID, n.Job)
	}
	if n.Open != "" {
		return none, fmt.Errorf("%s: %w: receipt %s is open", n.ID, receipt.ErrRepeat, n.Open)
	}
	h, err := s.history(n.ID, in.Incarnation)
	if err != nil {
		return none, err
	}
	if err := h.MayBegin(in.Action); err != nil {
		return none, err
	}
	if job.Finish != "" && in.Incarnation != job.Incarnation {
		return none, fmt.Errorf("%s on %s: %w: the job is to find out about receipt %s of another life, %s", in.Action, n.ID, receipt.ErrRepeat, job.Finish, job.Incarnation)
	}
	if in.Action == receipt.ReleaseUpdate {
		if err := s.mayUpgrade(n.ID, in.Target); err != nil {
			return none, err
		}
	}
	r := receipt.Receipt{
		ID: receipt.ReceiptID(s.j.o.NewID()), Token: receipt.Token(s.j.o.NewID()), Seq: s.next(), Job: job.ID, ClaimNo: job.Claims, Epoch: s.term,
		Node: n.ID, Incarnation: in.Incarnation, Action: in.Action, Request: in.Request, RequestTime: wall(in.RequestTime),
		Horizon: receipt.Horizon{Time: wall(in.Horizon.Time)}, Digest: in.Digest, Target: in.Target, Status: receipt.Pending,
	}
	if in.Baseline != nil {
		base := *in.Baseline
		r.Baseline = &base
	}
	if n.Incarnation != in.Incarnation {
		n.Incarnation, n.Receipts = in.Incarnation, nil
		for _, earlier := range h.Receipts {
			n.Receipts = append(n.Receipts, earlier.ID)
		}
	}
	n.Open, n.Receipts = r.ID, append(n.Receipts, r.ID)
	job.Incarnation, job.Receipts = in.Incarnation, append(job.Receipts, r.ID)
	job.Begun++
	s.refer(lifeBucket, lifeKey(n.ID, r.Incarnation, r.Seq), string(r.ID))
	return r, errors.Join(s.fresh(recBucket, string(r.ID)), s.saveReceipt(&r), s.saveJob(&job), s.saveNode(&n))
}

// mine refuses a job that this worker's term has not claimed.
func (s *stage) mine(job receipt.Job) error {
	switch {
	case job.Status != receipt.Claimed:
		return fmt.Errorf("job %s of %s is %s, not claimed: %w", job.ID, job.Node, job.Status, receipt.ErrIllegalTransition)
	case job.Epoch != s.term:
		return fmt.Errorf("%w: job %s of %s was claimed in epoch %d, this worker is of %d", receipt.ErrFenced, job.ID, job.Node, job.Epoch, s.term)
	}
	return nil
}

// Settle records an effect's outcome and its job's next step in one transaction, and consumes the Pending: a second call is
// receipt.ErrIllegalTransition. Lost makes the receipt unknown and blocks the job, whatever Next says. A token that a verdict
// revoked and a receipt of an older epoch are receipt.ErrFenced. Durable when it returns without an error; if it returns one
// although the context had not ended, the receipt is still pending and the next start makes it unknown.
func (j *Journal) Settle(ctx context.Context, p *Pending, st Settlement) (receipt.Receipt, error) {
	var none receipt.Receipt
	if p == nil || p.j == nil || p.j != j {
		return none, fmt.Errorf("settle: %w: this receipt was not begun by this journal", receipt.ErrFenced)
	}
	p.mu.Lock()
	settled := p.settled
	p.settling = true // from here on its request may not leave any more
	p.mu.Unlock()
	if settled {
		return none, fmt.Errorf("settle receipt %s of %s: %w: it was settled already", p.r.ID, p.r.Node, receipt.ErrIllegalTransition)
	}
	var r receipt.Receipt
	err := j.do(ctx, func(s *stage) (err error) {
		r, err = s.settleEffect(p.r, st)
		return err
	})
	if err != nil {
		return none, fmt.Errorf("settle receipt %s of %s: %w", p.r.ID, p.r.Node, err)
	}
	p.mu.Lock()
	p.settled = true
	p.mu.Unlock()
	return r, nil
}

func (s *stage) settleEffect(begun receipt.Receipt, st Settlement) (receipt.Receipt, error) {
	r, err := s.receipt(begun.ID)
	if err != nil {
		return r, err
	}
	revoked, err := s.revoked(r.Token)
	if err != nil {
		return r, err
	}
	if revoked || r.Token != begun.Token {
		return r, fmt.Errorf("%w: its token was revoked by a verdict", receipt.ErrFenced)
	}
	if r.Epoch != s.term {
		return r, fmt.Errorf("%w: it is of epoch %d, this worker is of %d", receipt.ErrFenced, r.Epoch, s.term)
	}
	job, n, err := s.around(r)
	if err != nil {
		return r, err
	}
	s.next()
	if st.Key != nil {
		key := *st.Key
		r.Key = &key
	}
	if err := s.settle(&r, &n, st.Event, st.Why, st.By); err != nil {
		return r, err
	}
	if r.Status.Open() {
		return r, s.step(&job, &n, receipt.Block, Next{Why: st.Why})
	}
	return r, s.goOn(&job, &n, st.Next)
}

// goOn takes a job's next step outside of blocking: nothing, back to the queue, or its end.
func (s *stage) goOn(job *receipt.Job, n *receipt.Node, next Next) error {
	switch next.Event {
	case 0:
		if next.Result != 0 {
			return fmt.Errorf("job %s: %w: result %s without an end", job.ID, receipt.ErrInvalid, next.Result)
		}
		if !next.HoldUntil.IsZero() {
			n.HeldUntil, n.HeldWhy = wall(next.HoldUntil), clip(next.Why)
		}
		return s.saveNode(n)
	case receipt.Requeue, receipt.End:
		return s.step(job, n, next.Event, next)
	default:
		return fmt.Errorf("job %s of %s on %s: %w: only requeue and end can be asked for", job.ID, job.Node, next.Event, receipt.ErrIllegalTransition)
	}
}

// around reads the job and the node that a receipt belongs to.
func (s *stage) around(r receipt.Receipt) (job receipt.Job, n receipt.Node, err error) {
	from := "receipt " + string(r.ID)
	if job, err = need[receipt.Job](&s.store, jobBucket, string(r.Job), from); err != nil {
		return job, n, err
	}
	n, err = s.nodeOf(r.Node, from)
	return job, n, err
}

// Move ends or requeues a job when no effect was just settled. ErrBlocked while its node has an open receipt;
// receipt.ErrFenced if an earlier term claimed it. A result that stays out keeps the node out. Durable when it returns without
// an error.
func (j *Journal) Move(ctx context.Context, id receipt.JobID, next Next) (receipt.Job, error) {
	var job receipt.Job
	err := j.do(ctx, func(s *stage) (err error) {
		if job, err = s.job(id); err != nil {
			return err
		}
		if job.Status == receipt.Claimed && job.Epoch != s.term {
			return s.mine(job)
		}
		n, err := s.nodeOf(job.Node, "job "+string(id))
		if err != nil {
			return err
		}
		if n.Open != "" {
			return fmt.Errorf("%w: %s", ErrBlocked, n.Open)
		}
		if next.Event == 0 {
			return fmt.Errorf("%w: no event was given", receipt.ErrIllegalTransition)
		}
		s.next()
		return s.goOn(&job, &n, next)
	})
	if err != nil {
		return receipt.Job{}, fmt.Errorf("move job %s: %w", id, err)
	}
	return job, nil
}
