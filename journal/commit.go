package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"provctl/internal/crashpoint"
	"provctl/receipt"
)

// maxBatch bounds the changes of one commit, so that nobody waits for a transaction without end.
const maxBatch = 512

// errUnchanged ends a transaction in which nothing is to be written.
var errUnchanged = errors.New("nothing to write")

// op is one change on its way to the disk. It belongs to its caller until the committer has taken it, then to the committer.
type op struct {
	raise bool // begins a new epoch; any other is refused before that
	apply func(*stage) error
	lost  func(error) // told of a failure that nobody waits for
	err   error
	done  chan struct{}

	mu              sync.Mutex
	taken, withdrew bool
}

// take claims the change for a commit; false if its caller has withdrawn it.
func (o *op) take() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.taken = !o.withdrew
	return o.taken
}

// withdraw takes the change back; false if a commit with it has begun.
func (o *op) withdraw() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.withdrew = !o.taken
	return o.withdrew
}

// queue holds the changes that wait for a commit.
type queue struct {
	mu     sync.Mutex
	ops    []*op
	wake   chan struct{} // holds one token while there is something to do
	closed bool
}

func (q *queue) add(o *op) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrClosed
	}
	q.ops = append(q.ops, o)
	q.signal()
	return nil
}

func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.ops)
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}

// next waits for changes and takes what there is, up to maxBatch; false once the queue is closed and empty.
func (q *queue) next() ([]*op, bool) {
	for {
		<-q.wake
		q.mu.Lock()
		n := min(len(q.ops), maxBatch)
		batch := append([]*op(nil), q.ops[:n]...)
		q.ops = append(q.ops[:0], q.ops[n:]...)
		closed := q.closed
		if len(q.ops) > 0 || closed {
			q.signal()
		}
		q.mu.Unlock()
		if n > 0 {
			return batch, true
		}
		if closed {
			return nil, false
		}
	}
}

// do queues a change and waits until it is durable or refused. A context that ends takes it back only while no commit with it
// has begun.
func (j *Journal) do(ctx context.Context, apply func(*stage) error) error {
	return j.wait(ctx, &op{apply: apply, done: make(chan struct{})})
}

func (j *Journal) wait(ctx context.Context, o *op) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("journal: nothing written: %w", err)
	}
	if err := j.Failed(); err != nil {
		return err
	}
	if err := j.queue.add(o); err != nil {
		return err
	}
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
	}
	if o.withdraw() {
		return fmt.Errorf("journal: nothing written: %w", ctx.Err())
	}
	<-o.done
	return o.err
}

// committer commits what waits, until the queue is closed and empty.
func (j *Journal) committer() {
	defer close(j.done)
	for {
		waiting, ok := j.queue.next()
		if !ok {
			return
		}
		batch := waiting[:0]
		for _, o := range waiting {
			if o.take() {
				batch = append(batch, o)
			}
		}
		j.commit(batch)
		crashpoint.Here(crashpoint.Acknowledged)
		for _, o := range batch {
			if o.err != nil && o.lost != nil {
				o.lost(o.err)
			}
			close(o.done)
		}
	}
}

// commit applies a batch in one transaction and notes it in the marker before anybody is answered. A change that is refused
// writes nothing and fails alone; anything else that goes wrong fails all and stops the journal.
func (j *Journal) commit(batch []*op) {
	if len(batch) == 0 {
		return
	}
	begun := time.Now()
	j.committing.Store(&begun)
	defer j.committing.Store(nil)
	var now meta
	var done CommitStats
	err := j.Failed()
	if err == nil {
		now, done, err = j.transact(batch)
	}
	if err != nil {
		for _, o := range batch {
			if o.err == nil || errors.Is(o.err, receipt.ErrDamaged) {
				o.err = err
			}
		}
		return
	}
	if done.Operations == 0 {
		return
	}
	took := time.Since(begun)
	done.Took = took
	j.mu.Lock()
	j.meta = now
	j.stats.Commits++
	j.stats.Operations += int64(done.Operations)
	j.stats.LastCommit, j.stats.MaxCommit = took, max(took, j.stats.MaxCommit)
	j.stats.LastSuccess = j.o.Now()
	j.mu.Unlock()
	if j.o.Observe != nil {
		j.o.Observe(done)
	}
}

// transact returns the meta record as committed and what changes it holds. Its errors are ErrStopped.
func (j *Journal) transact(batch []*op) (now meta, done CommitStats, err error) {
	err = guard(j.path, func() error {
		return j.db.Update(func(tx *bolt.Tx) (err error) {
			now, done, err = j.applyAll(tx, batch)
			if err == nil && done.Operations == 0 {
				return errUnchanged
			}
			return errors.Join(err, j.injected("commit"))
		})
	})
	if errors.Is(err, errUnchanged) {
		return meta{}, CommitStats{}, nil
	}
	if err == nil {
		crashpoint.Here(crashpoint.Committed)
		err = errors.Join(j.injected("marker"), j.marker.write(now.Epoch, now.Seq))
	}
	if err != nil {
		return meta{}, CommitStats{}, j.stop(err)
	}
	j.forgetFormer()
	return now, done, nil
}

func (j *Journal) applyAll(tx *bolt.Tx, batch []*op) (now meta, done CommitStats, err error) {
	now, err = (&store{tx: tx}).metaRecord()
	if err != nil {
		return now, done, err
	}
	for _, o := range batch {
		s := &stage{store: store{tx: tx}, j: j, meta: now, now: j.o.Now().Round(0).UTC(), term: j.epoch()}
		o.err = j.admissible(o, now)
		if o.err == nil {
			o.err = o.apply(s)
		}
		if errors.Is(o.err, receipt.ErrDamaged) {
			return now, done, o.err
		}
		if o.err != nil || len(s.staged) == 0 {
			continue
		}
		if err := s.flush(); err != nil {
			return now, done, err
		}
		now = s.meta
		done.Operations++
		done.add(s.moves)
	}
	if done.Operations == 0 {
		return now, done, nil
	}
	last := &store{tx: tx}
	return now, done, errors.Join(last.saveMeta(now), last.flush())
}

// admissible refuses the writes of a worker whose term has not begun or is over.
func (j *Journal) admissible(o *op, now meta) error {
	term := j.epoch()
	switch {
	case o.raise:
		return nil
	case term == 0:
		return fmt.Errorf("%w: journal %s: the epoch was not raised yet", receipt.ErrFenced, j.path)
	case now.Epoch != term:
		return fmt.Errorf("%w: journal %s is in epoch %d, this worker is of %d", receipt.ErrFenced, j.path, now.Epoch, term)
	}
	return nil
}

func (j *Journal) epoch() receipt.Epoch {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.term
}

func (j *Journal) injected(point string) error {
	if j.fault == nil {
		return nil
	}
	return j.fault(point)
}

// RaiseEpoch durably begins this worker's term and returns its number. Until then every other write is receipt.ErrFenced.
func (j *Journal) RaiseEpoch() (receipt.Epoch, error) {
	var term receipt.Epoch
	err := j.wait(context.Background(), &op{raise: true, done: make(chan struct{}), apply: func(s *stage) error {
		s.meta.Epoch++
		term = s.meta.Epoch
		s.next()
		if s.meta.Ended.Jobs == nil {
			var err error
			if s.meta.Ended, err = s.recount(); err != nil {
				return err
			}
		}
		return s.saveMeta(s.meta)
	}})
	if err != nil {
		return 0, fmt.Errorf("raise epoch: %w", err)
	}
	j.mu.Lock()
	j.term = term
	j.mu.Unlock()
	return term, nil
}
