package journal

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"provctl/receipt"
)

// stage is one change: what it reads is consistent, what it writes reaches the transaction whole or not at all.
type stage struct {
	store
	j    *Journal
	meta meta // with the sequence number used last
	now  time.Time
	term receipt.Epoch

	moves Moves
}

// next takes a new sequence number.
func (s *stage) next() receipt.Seq {
	s.meta.Seq++
	return s.meta.Seq
}

func (s *stage) job(id receipt.JobID) (receipt.Job, error) {
	return load[receipt.Job](&s.store, jobBucket, string(id))
}

func (s *stage) receipt(id receipt.ReceiptID) (receipt.Receipt, error) {
	return load[receipt.Receipt](&s.store, recBucket, string(id))
}

// nodeOf reads the record of a job's or receipt's node.
func (s *stage) nodeOf(id receipt.NodeID, from string) (receipt.Node, error) {
	return need[receipt.Node](&s.store, nodeBucket, string(id), from)
}

// node reads a node's record, or makes a new one.
func (s *stage) node(id receipt.NodeID) (receipt.Node, error) {
	n, err := load[receipt.Node](&s.store, nodeBucket, string(id))
	if errors.Is(err, ErrNotFound) {
		return receipt.Node{ID: id}, nil
	}
	return n, err
}

// saveJob stores a job as changed now, and keeps the indexes right.
func (s *stage) saveJob(j *receipt.Job) error {
	j.Version = s.meta.Seq
	if j.Status == receipt.Ended {
		s.remove(activeBuck, string(j.ID))
		if len(j.Receipts) == 0 {
			s.refer(endedBucket, bareKey(j.Node), string(j.ID))
		}
		if err := s.file(endedKey(endedJob, j.Seq, uint8(j.Result)), string(j.ID)); err != nil {
			return err
		}
	} else {
		s.refer(activeBuck, string(j.ID), string(j.Node))
	}
	return save(&s.store, jobBucket, string(j.ID), *j)
}

// saveReceipt stores a receipt as changed now, and keeps the indexes right.
func (s *stage) saveReceipt(r *receipt.Receipt) error {
	r.Version = s.meta.Seq
	if r.Status.Open() {
		s.refer(openBucket, string(r.ID), string(r.Node))
	} else {
		s.remove(openBucket, string(r.ID))
		if err := s.file(endedKey(endedReceipt, r.Seq, uint8(r.Status)), string(r.ID)); err != nil {
			return err
		}
	}
	return save(&s.store, recBucket, string(r.ID), *r)
}

func (s *stage) saveNode(n *receipt.Node) error {
	n.Version = s.meta.Seq
	return save(&s.store, nodeBucket, string(n.ID), *n)
}

// step moves a job, and what its node's record says of it, by the transition table. Both are stored.
func (s *stage) step(j *receipt.Job, n *receipt.Node, event receipt.JobEvent, next Next) (err error) {
	if j.Finish != "" {
		if event, next, err = s.tell(j, n, event, next); err != nil {
			return err
		}
	}
	to, err := j.Status.Apply(event)
	if err != nil {
		return fmt.Errorf("job %s of %s: %w", j.ID, j.Node, err)
	}
	if (to == receipt.Ended) != (next.Result != 0) {
		return fmt.Errorf("job %s of %s: %w: %s with result %d", j.ID, j.Node, receipt.ErrInvalid, event, next.Result)
	}
	j.Status, j.Why, j.Result = to, clip(next.Why), next.Result
	j.NotBefore = time.Time{}
	if to == receipt.Queued {
		s.meta.Tally.Requeues++
		j.NotBefore = wall(next.NotBefore)
	}
	if to == receipt.Ended {
		s.moves.Ended = append(s.moves.Ended, next.Result)
		j.EndedAt = s.now
		n.Job, n.LastResult, n.LastEnded = "", next.Result, s.now
		if next.Result.StaysOut() {
			n.HeldWhy = j.Why
			n.Out, n.OutOf = next.Result, j.Incarnation // unknown if the job never got so far: then the first one seen counts as it
		}
	}
	if !next.HoldUntil.IsZero() {
		n.HeldUntil, n.HeldWhy = wall(next.HoldUntil), j.Why
	}
	return errors.Join(s.saveJob(j), s.saveNode(n))
}

// settle moves a receipt by the transition table and stores it; the node's record only in memory, since a step of its job
// follows.
func (s *stage) settle(r *receipt.Receipt, n *receipt.Node, event receipt.Event, why, by string) error {
	to, err := r.Status.Apply(event)
	if err != nil {
		return fmt.Errorf("receipt %s of %s: %w", r.ID, r.Node, err)
	}
	r.Status, r.Why = to, clip(why)
	if to.Open() {
		s.moves.Unknown++
	} else {
		r.Settled, r.EndedAt = clip(by), s.now
		n.Open = ""
		if to != receipt.Finishing { // it is told once its outcome is known
			s.moves.Settled = append(s.moves.Settled, Settled{By: r.Settled, Status: to})
		}
	}
	return s.saveReceipt(r)
}

// history reads what an incarnation has been through, in sequence order.
func (s *store) history(n receipt.NodeID, i receipt.Incarnation) (receipt.History, error) {
	var h receipt.History
	node, err := load[receipt.Node](s, nodeBucket, string(n))
	if errors.Is(err, ErrNotFound) {
		return h, nil
	}
	if err != nil {
		return h, err
	}
	h.Forgiven = node.Forgiven
	err = s.each(lifeBucket, lifePrefix(n, i), func(key string, v []byte) error {
		id, err := unsealed(lifeBucket, key, v)
		if err != nil {
			return err
		}
		r, err := need[receipt.Receipt](s, recBucket, string(id), "the history of "+string(n))
		h.Receipts = append(h.Receipts, r)
		return err
	})
	return h, err
}

// mayUpgrade asks all that is known of a node whether it may be upgraded to a version once more.
func (s *store) mayUpgrade(n receipt.NodeID, target string) error {
	if err := receipt.CheckVersion(target); err != nil {
		return err
	}
	node, err := load[receipt.Node](s, nodeBucket, string(n))
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var all []receipt.Receipt
	err = s.each(lifeBucket, string(n)+"\x00", func(key string, v []byte) error {
		id, err := unsealed(lifeBucket, key, v)
		if err != nil {
			return err
		}
		r, err := need[receipt.Receipt](s, recBucket, string(id), "the history of "+string(n))
		all = append(all, r)
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b receipt.Receipt) int { return cmp.Compare(a.Seq, b.Seq) })
	return receipt.MayUpgrade(all, target, node.Forgiven)
}

// wall strips the monotonic clock reading and the zone, so that what is returned equals what is read back.
func wall(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.Round(0).UTC()
}
