package journal

import (
	"context"
	"fmt"
	"time"

	"provctl/receipt"
)

// pruneStep is how many ended jobs, or nodes, one transaction looks at.
const pruneStep = 200

// Prune forgets jobs that ended before a time, with their receipts, and nodes of which nothing is left, and returns how many
// records are gone. Nothing open goes, nothing of a node that is out or held, and nothing that belongs to the incarnation of a
// node that was busy since: that history decides what may be sent to it. It works in several transactions; each is durable.
func (j *Journal) Prune(ctx context.Context, before time.Time) (int, error) {
	total := 0
	for _, pass := range []func(*stage, string) (pruned, error){
		func(s *stage, after string) (pruned, error) { return s.pruneJobs(after, before) },
		func(s *stage, after string) (pruned, error) { return s.pruneNodes(after, before) },
	} {
		for after, more := "", true; more; {
			var got pruned
			err := j.do(ctx, func(s *stage) (err error) {
				got, err = pass(s, after)
				return err
			})
			if err != nil {
				return total, fmt.Errorf("prune: %w", err)
			}
			total, after, more = total+got.gone, got.last, got.more
		}
	}
	return total, nil
}

// pruned says how far one transaction came.
type pruned struct {
	gone int
	last string // the key it looked at last
	more bool
}

// after lists up to pruneStep keys of a bucket behind a key.
func (s *store) after(bucket, prefix, after string) (keys, values []string, more bool, err error) {
	b, err := s.bucket(bucket)
	if err != nil {
		return nil, nil, false, err
	}
	c := b.Cursor()
	k, v := c.Seek([]byte(max(prefix, after)))
	for ; k != nil && (prefix == "" || k[0] == prefix[0]); k, v = c.Next() {
		if after != "" && string(k) == after {
			continue
		}
		if len(keys) == pruneStep {
			return keys, values, true, nil
		}
		keys, values = append(keys, string(k)), append(values, string(v))
	}
	return keys, values, false, nil
}

func (s *stage) pruneJobs(after string, before time.Time) (pruned, error) {
	keys, values, more, err := s.after(endedBucket, string(endedJob), after)
	out := pruned{last: after, more: more}
	if err != nil {
		return out, err
	}
	for i, key := range keys {
		out.last = key
		id, err := unsealed(endedBucket, key, []byte(values[i]))
		if err != nil {
			return out, err
		}
		job, err := need[receipt.Job](&s.store, jobBucket, string(id), endedBucket)
		if err != nil {
			return out, err
		}
		if !job.EndedAt.Before(before) {
			continue
		}
		n, err := s.pruneJob(key, job, before)
		if err != nil {
			return out, err
		}
		out.gone += n
	}
	return out, nil
}

// pruneJob removes a job with its receipts, or nothing if its node still needs one of them.
func (s *stage) pruneJob(key string, job receipt.Job, before time.Time) (int, error) {
	n, err := s.node(job.Node)
	if err != nil {
		return 0, err
	}
	listed := map[receipt.ReceiptID]bool{}
	for _, id := range n.Receipts {
		listed[id] = true
	}
	dormant := n.Version == 0 || s.dormant(n, before)
	rest := len(n.Receipts)
	for _, id := range job.Receipts {
		if listed[id] {
			if !dormant {
				return 0, nil
			}
			delete(listed, id)
		}
	}
	for _, id := range job.Receipts {
		r, err := need[receipt.Receipt](&s.store, recBucket, string(id), "job "+string(job.ID))
		if err != nil {
			return 0, err
		}
		if r.Status.Open() {
			return 0, fmt.Errorf("%w: job %s has ended, but receipt %s is %s", receipt.ErrDamaged, job.ID, id, r.Status)
		}
		s.remove(recBucket, string(id))
		s.remove(endedBucket, endedKey(endedReceipt, r.Seq, uint8(r.Status)))
		s.remove(lifeBucket, lifeKey(r.Node, r.Incarnation, r.Seq))
		s.remove(tombBucket, string(r.Token))
	}
	s.remove(jobBucket, string(job.ID))
	s.remove(endedBucket, key)
	s.next()
	if len(listed) == rest {
		return 1 + len(job.Receipts), nil
	}
	kept := n.Receipts[:0:0]
	for _, id := range n.Receipts {
		if listed[id] {
			kept = append(kept, id)
		}
	}
	n.Receipts = kept
	return 1 + len(job.Receipts), s.saveNode(&n)
}

// dormant reports that nothing happened to a node for so long that what is known of it may go.
func (s *stage) dormant(n receipt.Node, before time.Time) bool {
	return n.Job == "" && n.Open == "" && n.Out == 0 && !n.HeldUntil.After(s.now) && n.LastEnded.Before(before)
}

func (s *stage) pruneNodes(after string, before time.Time) (pruned, error) {
	keys, values, more, err := s.after(nodeBucket, "", after)
	out := pruned{last: after, more: more}
	if err != nil {
		return out, err
	}
	for i, key := range keys {
		out.last = key
		n, err := receipt.Decode[receipt.Node](nodeBucket+"/"+key, []byte(values[i]))
		if err != nil {
			return out, err
		}
		if !s.dormant(n, before) || len(n.Receipts) > 0 {
			continue
		}
		s.remove(nodeBucket, key)
		s.next()
		out.gone++
	}
	return out, nil
}
