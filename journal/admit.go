package journal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"provctl/receipt"
)

// Admit decides about each sighting and queues jobs for those admitted, in one transaction: durable when it returns without an
// error. Room is how many may be admitted; the rest is Full and nothing is remembered of it. The answers are in the order of
// the sightings. A node that waits, works or is blocked has its last sighting noted.
func (j *Journal) Admit(ctx context.Context, sightings []Sighting, room int) ([]Admission, error) {
	var out []Admission
	err := j.do(ctx, func(s *stage) error {
		out = make([]Admission, 0, len(sightings))
		left := room
		for _, sight := range sightings {
			a, err := s.admit(sight, left > 0)
			if err != nil {
				return fmt.Errorf("admit %s: %w", sight.Node, err)
			}
			if a.State == Admitted {
				left--
			}
			out = append(out, a)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *stage) admit(sight Sighting, room bool) (Admission, error) {
	a := Admission{Node: sight.Node}
	if _, err := receipt.ParseNodeID(string(sight.Node)); err != nil {
		a.State = Invalid
		return a, nil //nolint:nilerr // one bad name must not keep the others out
	}
	n, err := s.node(sight.Node)
	if err != nil {
		return a, err
	}
	if n.Version > 0 {
		a.NodeRecord = n
	}
	seen := wall(sight.At)
	if seen.IsZero() || seen.After(s.now) {
		seen = s.now
	}
	switch {
	case n.Job != "":
		a.State, a.Job, err = s.sighted(n, seen)
		return a, err
	case n.Out != 0:
		a.State = Out
	case held(n, s.now):
		a.State = Held
	case !room:
		a.State = Full
	default:
		a.State = Admitted
		a.Job, a.NodeRecord, err = s.newJob(n, clip(sight.Source), "", seen)
	}
	return a, err
}

// seenStep is how much newer a sighting must be to be worth a write.
const seenStep = time.Second

// sighted notes that a node with a job was seen. That does not change the job's version: nothing was decided.
func (s *stage) sighted(n receipt.Node, seen time.Time) (AdmitState, receipt.Job, error) {
	job, err := need[receipt.Job](&s.store, jobBucket, string(n.Job), "node "+string(n.ID))
	if err != nil {
		return 0, job, err
	}
	if seen.Sub(job.Seen) >= seenStep || job.Seen.After(s.now.Add(clockStep)) {
		job.Seen = seen
		err = save(&s.store, jobBucket, string(job.ID), job)
	}
	if job.Status == receipt.Blocked {
		return BlockedNode, job, err
	}
	return Known, job, err
}

// newJob queues a job for a node that has none, and makes room for it.
func (s *stage) newJob(n receipt.Node, source, why string, seen time.Time) (receipt.Job, receipt.Node, error) {
	if err := s.tidy(n); err != nil {
		return receipt.Job{}, n, err
	}
	seq := s.next()
	job := receipt.Job{
		ID: receipt.JobID(s.j.o.NewID()), Node: n.ID, Seq: seq, Status: receipt.Queued, Source: source, Why: why, Admitted: s.now, Seen: seen,
	}
	n.Job = job.ID
	return job, n, errors.Join(s.fresh(jobBucket, string(job.ID)), s.saveJob(&job), s.saveNode(&n))
}

// fresh refuses a new id that is in use: it would overwrite a record.
func (s *stage) fresh(bucket, id string) error {
	if b, err := s.get(bucket, id); err != nil || b != nil {
		return errors.Join(err, fmt.Errorf("new id %q in %s: %w: it is empty or in use", id, bucket, receipt.ErrInvalid))
	}
	return nil
}

// AdmitByHand takes a node that is held or out: holds are cleared, and what failed or was abandoned before no longer stands in
// the way. It queues a new job, or returns the one that has not ended. ErrBlocked while the node has an open receipt: that needs
// a verdict. The journal need not know the node yet.
func (j *Journal) AdmitByHand(ctx context.Context, id receipt.NodeID, by, reason string) (receipt.Job, error) {
	if _, err := receipt.ParseNodeID(string(id)); err != nil {
		return receipt.Job{}, fmt.Errorf("admit by hand: %w", err)
	}
	if strings.TrimSpace(reason) == "" || strings.TrimSpace(by) == "" {
		return receipt.Job{}, fmt.Errorf("admit %s by hand: %w: a name and a reason are needed", id, receipt.ErrInvalid)
	}
	var job receipt.Job
	err := j.do(ctx, func(s *stage) error {
		n, err := s.node(id)
		if err != nil {
			return err
		}
		if n.Open != "" {
			return fmt.Errorf("%w: %s: give a verdict on it first", ErrBlocked, n.Open)
		}
		was := standing(n, s.now)
		n.Out, n.OutOf, n.HeldUntil, n.HeldWhy = 0, receipt.Incarnation{}, time.Time{}, ""
		enter := func() error {
			return s.enter(Act{Did: DidAdmit, By: by, Reason: reason, Node: id, Job: job.ID, Result: fmt.Sprintf("%s, was %s", job.Status, was)})
		}
		if n.Job == "" {
			n.Forgiven = s.meta.Seq + 1
			if job, _, err = s.newJob(n, "operator", clip("admitted by "+by+": "+reason), s.now); err != nil {
				return err
			}
			return enter()
		}
		n.Forgiven = s.next()
		if job, err = need[receipt.Job](&s.store, jobBucket, string(n.Job), "node "+string(id)); err != nil {
			return err
		}
		if job.Status == receipt.Queued {
			job.NotBefore, job.Seen, job.Why = time.Time{}, s.now, clip("admitted by "+by+": "+reason)
			err = s.saveJob(&job)
		}
		return errors.Join(err, s.saveNode(&n), enter())
	})
	if err != nil {
		return receipt.Job{}, fmt.Errorf("admit %s by hand: %w", id, err)
	}
	return job, nil
}

// standing says in words how a node stands.
func standing(n receipt.Node, now time.Time) string {
	switch {
	case n.Version == 0:
		return "not known"
	case n.Job != "":
		return "at work or waiting"
	case n.Out != 0:
		return "out: " + n.Out.String()
	case held(n, now):
		return "held: " + n.HeldWhy
	default:
		return "free"
	}
}

// Return tells the journal in which incarnation a node that is out was seen. Another one than the one it went out with clears
// Out. If that one was never observed, the first one seen counts as it.
func (j *Journal) Return(ctx context.Context, id receipt.NodeID, now receipt.Incarnation) error {
	if !now.Known() {
		return fmt.Errorf("return of %s: %w: its incarnation is not known", id, receipt.ErrInvalid)
	}
	err := j.do(ctx, func(s *stage) error {
		n, err := load[receipt.Node](&s.store, nodeBucket, string(id))
		if err != nil || n.Out == 0 || n.OutOf == now {
			return err
		}
		if n.OutOf.Known() {
			n.Out, n.OutOf, n.HeldUntil, n.HeldWhy = 0, receipt.Incarnation{}, time.Time{}, ""
		} else {
			n.OutOf = now
		}
		s.next()
		return s.saveNode(&n)
	})
	if err != nil {
		return fmt.Errorf("return of %s: %w", id, err)
	}
	return nil
}
