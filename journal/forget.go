package journal

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"provctl/receipt"
)

// keptLives is how many former incarnations of a node keep their receipts when new work comes for it. One incarnation's receipts
// are bounded by receipt.History.MayBegin, so a node that restarts for ever does not grow without bound.
const keptLives = 20

// tidy makes room for a node's new job: its former job goes if it sent nothing, for all that is worth knowing of it is in the
// node's record and in the totals; of former incarnations beyond the newest keptLives, the jobs go that belong to no other one.
func (s *stage) tidy(n receipt.Node) error {
	if err := s.forgetBare(n.ID); err != nil {
		return err
	}
	return s.forgetLives(n)
}

func (s *stage) forgetBare(id receipt.NodeID) error {
	key := bareKey(id)
	b, err := s.get(endedBucket, key)
	if err != nil || b == nil {
		return err
	}
	to, err := unsealed(endedBucket, key, b)
	if err != nil {
		return err
	}
	job, err := need[receipt.Job](&s.store, jobBucket, string(to), endedBucket)
	if err != nil {
		return err
	}
	if job.Status != receipt.Ended || len(job.Receipts) > 0 || job.Node != id {
		return fmt.Errorf("%w: job %s is filed as one of %s that ended without a receipt, but is %s with %d", receipt.ErrDamaged, job.ID, id, job.Status, len(job.Receipts))
	}
	return s.forgetJob(job)
}

// life is one incarnation of a node that has receipts.
type life struct {
	incarnation receipt.Incarnation
	last        receipt.Seq // of its newest receipt
	receipts    []receipt.ReceiptID
}

// lives lists a node's former incarnations, the one with the newest receipt first. It reads keys only.
func (s *store) lives(n receipt.Node) ([]life, error) {
	prefix := string(n.ID) + "\x00"
	var out []life
	err := s.each(lifeBucket, prefix, func(key string, v []byte) error {
		id, err := unsealed(lifeBucket, key, v)
		if err != nil || len(key) != len(prefix)+24 {
			return fmt.Errorf("%s/%q: %w", lifeBucket, key, cmp.Or(err, receipt.ErrDamaged))
		}
		number := func(at int) uint64 { return binary.BigEndian.Uint64([]byte(key[len(prefix)+at:][:8])) }
		i := receipt.Incarnation{PID: int64(number(0)), Start: int64(number(8))}
		if i == n.Incarnation {
			return nil
		}
		if len(out) == 0 || out[len(out)-1].incarnation != i {
			out = append(out, life{incarnation: i})
		}
		l := &out[len(out)-1]
		l.last, l.receipts = receipt.Seq(number(16)), append(l.receipts, receipt.ReceiptID(id))
		return nil
	})
	slices.SortFunc(out, func(a, b life) int { return cmp.Compare(b.last, a.last) })
	return out, err
}

func (s *stage) forgetLives(n receipt.Node) error {
	lives, err := s.lives(n)
	if err != nil || len(lives) <= keptLives {
		return err
	}
	old := map[receipt.ReceiptID]bool{}
	for _, l := range lives[keptLives:] {
		for _, id := range l.receipts {
			old[id] = true
		}
	}
	jobs, err := s.jobsOf(lives[keptLives:])
	if err != nil {
		return err
	}
	for _, job := range jobs {
		if slices.ContainsFunc(job.Receipts, func(id receipt.ReceiptID) bool { return !old[id] }) {
			continue
		}
		if err := s.forgetJob(job); err != nil {
			return err
		}
	}
	return nil
}

// jobsOf reads the jobs that the receipts of some incarnations belong to, each once.
func (s *stage) jobsOf(lives []life) ([]receipt.Job, error) {
	var out []receipt.Job
	seen := map[receipt.JobID]bool{}
	for _, l := range lives {
		for _, id := range l.receipts {
			r, err := need[receipt.Receipt](&s.store, recBucket, string(id), lifeBucket)
			if err != nil {
				return nil, err
			}
			if seen[r.Job] {
				continue
			}
			seen[r.Job] = true
			job, err := need[receipt.Job](&s.store, jobBucket, string(r.Job), "receipt "+string(id))
			if err != nil {
				return nil, err
			}
			out = append(out, job)
		}
	}
	return out, nil
}

// forgetJob removes an ended job with its receipts and all that refers to them, except the node's record.
func (s *stage) forgetJob(job receipt.Job) error {
	for _, id := range job.Receipts {
		r, err := need[receipt.Receipt](&s.store, recBucket, string(id), "job "+string(job.ID))
		if err != nil {
			return err
		}
		if r.Status.Open() {
			return fmt.Errorf("%w: job %s has ended, but receipt %s is %s", receipt.ErrDamaged, job.ID, id, r.Status)
		}
		s.remove(recBucket, string(id))
		s.remove(endedBucket, endedKey(endedReceipt, r.Seq, uint8(r.Status)))
		s.remove(lifeBucket, lifeKey(r.Node, r.Incarnation, r.Seq))
		s.remove(tombBucket, string(r.Token))
	}
	key := bareKey(job.Node)
	if b, err := s.get(endedBucket, key); err != nil {
		return err
	} else if b != nil {
		if id, err := unsealed(endedBucket, key, b); err != nil {
			return err
		} else if string(id) == string(job.ID) {
			s.remove(endedBucket, key)
		}
	}
	s.remove(jobBucket, string(job.ID))
	s.remove(endedBucket, endedKey(endedJob, job.Seq, uint8(job.Result)))
	return nil
}
