package journal

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"provctl/receipt"
)

// Recover settles what earlier terms left behind, as far as the journal alone tells, in one transaction: pending receipts become
// unknown and block their nodes; claims that died before any receipt are queued again, or end as exhausted after MaxRequeues;
// claims whose receipts all have an outcome are queued for their next step; queued jobs not seen for too long end. Dates that lie
// in the future are set right: see redate. It is called once, after RaiseEpoch and before any claim; jobs claimed and receipts
// begun in this term are left alone. Durable when it returns without an error.
func (j *Journal) Recover(ctx context.Context, p RecoverPolicy) (Recovery, error) {
	if p.Hold <= 0 {
		p.Hold = j.o.Hold
	}
	var out Recovery
	err := j.do(ctx, func(s *stage) error {
		out = Recovery{}
		jobs, err := s.activeJobs()
		if err != nil {
			return err
		}
		for _, job := range jobs {
			item, err := s.recoverJob(job, p)
			if err != nil {
				return fmt.Errorf("job %s of %s: %w", job.ID, job.Node, err)
			}
			if item.Did != 0 {
				out.Items = append(out.Items, item)
			}
		}
		return nil
	})
	if err != nil {
		return Recovery{}, fmt.Errorf("recover: %w", err)
	}
	return out, nil
}

// activeJobs reads all jobs that have not ended, in sequence order.
func (s *store) activeJobs() ([]receipt.Job, error) {
	var out []receipt.Job
	err := s.each(activeBuck, "", func(key string, v []byte) error {
		if _, err := unsealed(activeBuck, key, v); err != nil {
			return err
		}
		job, err := need[receipt.Job](s, jobBucket, key, activeBuck)
		out = append(out, job)
		return err
	})
	slices.SortFunc(out, func(a, b receipt.Job) int { return cmp.Compare(a.Seq, b.Seq) })
	return out, err
}

func (s *stage) recoverJob(job receipt.Job, p RecoverPolicy) (Recovered, error) {
	n, err := s.nodeOf(job.Node, "job "+string(job.ID))
	if err != nil {
		return Recovered{}, err
	}
	switch {
	case job.Status == receipt.Queued:
		return s.recoverQueued(job, n, p)
	case job.Status == receipt.Blocked:
		return s.recoverBlocked(job, n)
	case job.Status != receipt.Claimed || job.Epoch == s.term:
		return Recovered{}, nil
	case n.Open != "":
		return s.recoverPending(job, n)
	case job.Begun > 0:
		why := fmt.Sprintf("the worker of epoch %d ended; all that it sent has an outcome", job.Epoch)
		s.next()
		err = s.step(&job, &n, receipt.Requeue, Next{Why: why})
		return Recovered{Did: WentOn, Job: job, Why: why}, err
	default:
		return s.recoverBare(job, n, p)
	}
}

func (s *stage) recoverPending(job receipt.Job, n receipt.Node) (Recovered, error) {
	r, err := need[receipt.Receipt](&s.store, recBucket, string(n.Open), "node "+string(n.ID))
	if err != nil {
		return Recovered{}, err
	}
	why := fmt.Sprintf("the worker of epoch %d ended while %s was in flight", r.Epoch, r.Action)
	if note := s.redate(&r); note != "" {
		why += "; " + note
	}
	s.next()
	if err := s.settle(&r, &n, receipt.Lost, why, ""); err != nil {
		return Recovered{}, err
	}
	err = s.step(&job, &n, receipt.Block, Next{Why: why})
	return Recovered{Did: MadeUnknown, Job: job, Receipt: &r, Why: why}, err
}

// recoverBlocked leaves a blocked job as it is; its receipt may have a horizon that would not pass in years.
func (s *stage) recoverBlocked(job receipt.Job, n receipt.Node) (Recovered, error) {
	r, err := need[receipt.Receipt](&s.store, recBucket, string(n.Open), "node "+string(n.ID))
	if err != nil || r.Epoch == s.term {
		return Recovered{}, err
	}
	note := s.redate(&r)
	if note == "" {
		return Recovered{}, nil
	}
	s.next()
	r.Why = clip(r.Why + "; " + note)
	err = s.saveReceipt(&r)
	return Recovered{Did: Redated, Job: job, Receipt: &r, Why: note}, err
}

// recoverBare handles a claim that died before any receipt: nothing was sent, but whatever killed the worker may do so again.
func (s *stage) recoverBare(job receipt.Job, n receipt.Node, p RecoverPolicy) (Recovered, error) {
	job.Requeues++
	s.next()
	if job.Requeues <= p.MaxRequeues {
		why := fmt.Sprintf("the worker of epoch %d ended before any effect (%d of %d times)", job.Epoch, job.Requeues, p.MaxRequeues)
		err := s.step(&job, &n, receipt.Requeue, Next{Why: why})
		return Recovered{Did: Requeued, Job: job, Why: why}, err
	}
	why := fmt.Sprintf("the worker ended %d times while it worked on this node, before any effect", job.Requeues)
	err := s.step(&job, &n, receipt.End, Next{Result: receipt.Exhausted, Why: why, HoldUntil: s.now.Add(p.Hold)})
	return Recovered{Did: Exhausted, Job: job, Why: why}, err
}

func (s *stage) recoverQueued(job receipt.Job, n receipt.Node, p RecoverPolicy) (Recovered, error) {
	if err := s.redateJob(&job, max(p.StaleAfter, p.Hold)); err != nil {
		return Recovered{}, err
	}
	// One that was claimed before keeps the count of the workers that ended at it: a new job would begin at none, and a node whose
	// work kills the worker would kill it for ever. If the node has gone, the next look at it ends the job.
	if job.Claims > 0 || job.Finish != "" {
		return Recovered{}, nil
	}
	fresh := job.Seen
	if job.NotBefore.After(fresh) {
		fresh = job.NotBefore
	}
	if p.StaleAfter <= 0 || s.now.Sub(fresh) <= p.StaleAfter {
		return Recovered{}, nil
	}
	why := fmt.Sprintf("not seen for %s", s.now.Sub(job.Seen).Round(1e9))
	s.next()
	err := s.step(&job, &n, receipt.End, Next{Result: receipt.Stale, Why: why})
	return Recovered{Did: Staled, Job: job, Why: why}, err
}
