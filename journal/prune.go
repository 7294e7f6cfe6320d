package journal

import (
	"context"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"provctl/receipt"
)

// pruneStep is how many ended jobs, or nodes, one transaction removes.
const pruneStep = 200

// Prune forgets jobs that ended before a time, with their receipts, and nodes of which nothing is left, and returns how many
// records are gone. Nothing open goes, nothing of a node that is out or held, and nothing that belongs to the incarnation of a
// node that was busy since: that history decides what may be sent to it. A job may stay until all that were admitted before it
// are old as well. When the clock is further ahead of the newest record than half of the time that records are kept, nothing is
// forgotten on its word: that is logged, and a later call prunes once there are records of the present. It works in several
// transactions; each is durable. Without anything to prune it reads a few records.
func (j *Journal) Prune(ctx context.Context, before time.Time) (int, error) {
	p := pruning{now: j.o.Now().Round(0).UTC(), before: before}
	if err := j.view(func(s *store) error { return p.jobsIn(s) }); err != nil {
		return 0, fmt.Errorf("prune: %w", err)
	}
	if p.gap > 0 {
		j.o.Log.Warn("journal was not pruned: the clock is far ahead of the newest record; if it is right, pruning goes on after the next job",
			"path", j.path, "clock", p.now, "newest", p.newest)
		return 0, nil
	}
	total := 0
	for _, pass := range []struct {
		find func(*store) error // what the pass before has left
		keys *[]string
		prune
	}{
		{func(*store) error { return nil }, &p.jobs, p.pruneJob},
		{p.nodesIn, &p.nodes, p.pruneNode},
	} {
		if err := j.view(pass.find); err != nil {
			return total, fmt.Errorf("prune: %w", err)
		}
		n, err := j.pruneEach(ctx, *pass.keys, pass.prune)
		if total += n; err != nil {
			return total, fmt.Errorf("prune: %w", err)
		}
	}
	if err := j.witness(ctx); err != nil {
		return total, fmt.Errorf("prune: %w", err)
	}
	return total, nil
}

// prune removes what a key stands for, if that still can go, and says how many records that were.
type prune func(s *stage, key string) (int, error)

func (j *Journal) pruneEach(ctx context.Context, keys []string, prune prune) (total int, err error) {
	for len(keys) > 0 {
		step := keys[:min(pruneStep, len(keys))]
		keys = keys[len(step):]
		gone := 0
		err := j.do(ctx, func(s *stage) error {
			gone = 0
			for _, key := range step {
				n, err := prune(s, key)
				if err != nil {
					return err
				}
				gone += n
			}
			return nil
		})
		if err != nil {
			return total, err
		}
		total += gone
	}
	return total, nil
}

// witnessStep is how often it is noted that the clock went on as it should.
const witnessStep = 30 * time.Minute

// witness notes the time, so that a worker with nothing to do for weeks does not take its own clock for wrong.
func (j *Journal) witness(ctx context.Context) error {
	return j.do(ctx, func(s *stage) error {
		if d := s.now.Sub(s.meta.Witness); d >= 0 && d < witnessStep {
			return nil
		}
		s.meta.Witness = s.now
		return s.saveMeta(s.meta)
	})
}

// pruning is one run of Prune: what it found, before it removes anything.
type pruning struct {
	now, before time.Time
	newest      time.Time     // of the records that are not dated in the future
	gap         time.Duration // implausible distance of now from it; 0: plausible
	sure        receipt.Seq   // all that last changed before it is old, whatever its date says
	jobs, nodes []string      // keys of what can go
}

// jobsIn finds the ended jobs that can go. They are filed by the sequence number of their admission, so it stops at the first
// one that was admitted too late to have ended in time. Dates in the future were made while the clock was ahead, and say nothing:
// such a job is old when one that was admitted after its end is.
func (p *pruning) jobsIn(s *store) error {
	if err := p.look(s); err != nil || p.gap > 0 {
		return err
	}
	b, err := s.bucket(endedBucket)
	if err != nil {
		return err
	}
	type undated struct {
		key   string
		ended receipt.Seq
	}
	var unsure []undated
	c := b.Cursor()
	for k, v := c.Seek([]byte{endedJob}); k != nil && k[0] == endedJob; k, v = c.Next() {
		job, err := s.filed(string(k), v)
		if err != nil {
			return err
		}
		if !job.Admitted.After(p.now) {
			if !job.Admitted.Before(p.before) {
				break
			}
			p.sure = job.Seq
		}
		if job.EndedAt.Before(p.before) {
			p.jobs = append(p.jobs, string(k))
		} else if job.EndedAt.After(p.now) {
			unsure = append(unsure, undated{string(k), job.Version})
		}
	}
	for _, u := range unsure {
		if u.ended < p.sure {
			p.jobs = append(p.jobs, u.key)
		}
	}
	return nil
}

// filed reads the job that an entry of the index of what has ended refers to.
func (s *store) filed(key string, v []byte) (receipt.Job, error) {
	id, err := unsealed(endedBucket, key, v)
	if err != nil {
		return receipt.Job{}, err
	}
	return need[receipt.Job](s, jobBucket, string(id), endedBucket)
}

// look compares the clock with the newest record.
func (p *pruning) look(s *store) error {
	m, err := s.metaRecord()
	if err != nil {
		return err
	}
	jobs, err := s.activeJobs()
	if err != nil {
		return err
	}
	last, ok, err := s.lastEnded()
	if err != nil {
		return err
	}
	if ok {
		jobs = append(jobs, last)
	}
	dates := []time.Time{m.Created, m.Witness}
	for _, job := range jobs {
		dates = append(dates, job.Admitted, job.Seen) // not EndedAt: a start ends what was not seen for too long, by the same clock
	}
	for _, d := range dates {
		if d.After(p.newest) && !d.After(p.now) {
			p.newest = d
		}
	}
	kept := p.now.Sub(p.before)
	if gap := p.now.Sub(p.newest); !p.newest.IsZero() && kept > 0 && gap > kept/2 {
		p.gap = gap
	}
	return nil
}

// lastEnded is the one of the ended jobs that was admitted last.
func (s *store) lastEnded() (job receipt.Job, ok bool, err error) {
	b, err := s.bucket(endedBucket)
	if err != nil {
		return job, false, err
	}
	k, v := before(b.Cursor(), []byte{endedJob + 1})
	if k == nil || k[0] != endedJob {
		return job, false, nil
	}
	job, err = s.filed(string(k), v)
	return job, err == nil, err
}

// before is the last entry with a smaller key, or nil.
func before(c *bolt.Cursor, key []byte) (k, v []byte) {
	if k, _ := c.Seek(key); k == nil {
		return c.Last()
	}
	return c.Prev()
}

// pruneJob removes a job with its receipts, or nothing if its node still needs one of them.
func (p *pruning) pruneJob(s *stage, key string) (int, error) {
	v, err := s.get(endedBucket, key)
	if err != nil || v == nil { // a new job of the node has swept it away
		return 0, err
	}
	job, err := s.filed(key, v)
	if err != nil {
		return 0, err
	}
	n, err := s.node(job.Node)
	if err != nil {
		return 0, err
	}
	listed := map[receipt.ReceiptID]bool{}
	for _, id := range n.Receipts {
		listed[id] = true
	}
	dormant := n.Version == 0 || p.dormant(n)
	rest := len(n.Receipts)
	for _, id := range job.Receipts {
		if listed[id] {
			if !dormant {
				return 0, nil
			}
			delete(listed, id)
		}
	}
	if err := s.forgetJob(job); err != nil {
		return 0, err
	}
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
	return 1 + len(job.Receipts), save(&s.store, nodeBucket, string(n.ID), n)
}

// dormant reports that nothing happened to a node for so long that what is known of it may go.
func (p *pruning) dormant(n receipt.Node) bool {
	return n.Job == "" && n.Open == "" && n.Out == 0 && !held(n, p.now) && (n.LastEnded.Before(p.before) || n.Version < p.sure)
}

func (p *pruning) nodesIn(s *store) error {
	return s.each(nodeBucket, "", func(key string, v []byte) error {
		n, err := receipt.Decode[receipt.Node](nodeBucket+"/"+key, v)
		if err == nil && p.dormant(n) && len(n.Receipts) == 0 {
			p.nodes = append(p.nodes, key)
		}
		return err
	})
}

// pruneNode removes a node's record once no job of it is left.
func (p *pruning) pruneNode(s *stage, key string) (int, error) {
	n, err := s.node(receipt.NodeID(key))
	if err != nil || n.Version == 0 || !p.dormant(n) || len(n.Receipts) > 0 {
		return 0, err
	}
	lives, err := s.lives(receipt.Node{ID: n.ID}) // those of the last known incarnation as well
	if err != nil || len(lives) > 0 {
		return 0, err
	}
	if bare, err := s.get(endedBucket, bareKey(n.ID)); err != nil || bare != nil {
		return 0, err
	}
	s.remove(nodeBucket, key)
	s.next()
	return 1, nil
}
