package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"provctl/receipt"
)

// History is what an incarnation of a node has been through: empty if nothing is known. It reads only.
func (j *Journal) History(n receipt.NodeID, i receipt.Incarnation) (receipt.History, error) {
	var h receipt.History
	err := j.view(func(s *store) (err error) {
		h, err = s.history(n, i)
		return err
	})
	return h, err
}

// MayUpgrade tells whether a node may be upgraded to a version once more: nil, or receipt.ErrRepeat after too many tries in vain.
// Begin asks it again.
func (j *Journal) MayUpgrade(n receipt.NodeID, target string) error {
	return j.view(func(s *store) error { return s.mayUpgrade(n, target) })
}

// Job reads a job; ErrNotFound if there is none.
func (j *Journal) Job(id receipt.JobID) (receipt.Job, error) {
	return look[receipt.Job](j, jobBucket, string(id))
}

// Receipt reads a receipt; ErrNotFound if there is none.
func (j *Journal) Receipt(id receipt.ReceiptID) (receipt.Receipt, error) {
	return look[receipt.Receipt](j, recBucket, string(id))
}

// Node reads what is remembered of a node; ErrNotFound if nothing is.
func (j *Journal) Node(id receipt.NodeID) (receipt.Node, error) {
	return look[receipt.Node](j, nodeBucket, string(id))
}

func look[T receipt.Record](j *Journal, bucket, key string) (T, error) {
	var v T
	err := j.view(func(s *store) (err error) {
		v, err = load[T](s, bucket, key)
		return err
	})
	return v, err
}

// OpenReceipts lists the receipts without an outcome, in sequence order.
func (j *Journal) OpenReceipts() ([]receipt.Receipt, error) {
	var out []receipt.Receipt
	err := j.view(func(s *store) (err error) {
		out, err = s.openReceipts()
		return err
	})
	return out, err
}

// QueuedJobs lists the jobs that wait for a lane, in sequence order.
func (j *Journal) QueuedJobs() ([]receipt.Job, error) {
	var out []receipt.Job
	err := j.view(func(s *store) (err error) {
		out, err = s.activeJobs()
		return err
	})
	return slices.DeleteFunc(out, func(job receipt.Job) bool { return job.Status != receipt.Queued }), err
}

func (s *store) openReceipts() ([]receipt.Receipt, error) {
	out, err := listed[receipt.Receipt](s, openBucket, recBucket)
	slices.SortFunc(out, func(a, b receipt.Receipt) int { return cmp.Compare(a.Seq, b.Seq) })
	return out, err
}

// Snapshot copies out what matters to a reader, in one read transaction that ends before it returns. It shows nothing that is not
// durable: for a commit in flight it waits, and of one that failed it shows nothing, with ErrStopped.
func (j *Journal) Snapshot() (Snapshot, error) {
	var out Snapshot
	now := j.o.Now().Round(0).UTC()
	err := j.view(func(s *store) (err error) {
		out, err = s.snapshot(j.path, now)
		return err
	})
	if err == nil {
		err = j.acknowledged(out.Info.Seq)
	}
	if err != nil {
		return Snapshot{}, err
	}
	return out, nil
}

// acknowledged waits until a change that bbolt shows is durable. bbolt shows it from the write of its meta page on, before the
// sync and the marker, and also if they fail.
func (j *Journal) acknowledged(seq receipt.Seq) error {
	if seq <= j.Info().Seq {
		return nil
	}
	err := j.do(context.Background(), func(*stage) error { return nil }) // comes after the commit in flight
	if errors.Is(err, receipt.ErrFenced) {
		return nil // of an earlier term: the commit in flight is over all the same
	}
	return err
}

func (s *store) snapshot(path string, now time.Time) (Snapshot, error) {
	out := Snapshot{Taken: now, ByJob: map[receipt.JobStatus]int{}, ByResult: map[receipt.Result]int{}, ByStatus: map[receipt.Status]int{}}
	m, err := s.metaRecord()
	if err != nil {
		return out, err
	}
	out.Info, out.Tally = m.info(path), m.Tally
	nodes := aside(s, func(s *store) ([]receipt.Node, error) { return s.nodesNotTaken(now) })
	if out.Jobs, err = listed[receipt.Job](s, activeBuck, jobBucket); err != nil {
		return out, err
	}
	slices.SortFunc(out.Jobs, func(a, b receipt.Job) int { return cmp.Compare(a.Seq, b.Seq) })
	if out.Open, err = s.openReceipts(); err != nil {
		return out, err
	}
	for _, job := range out.Jobs {
		out.ByJob[job.Status]++
	}
	for _, r := range out.Open {
		out.ByStatus[r.Status]++
	}
	if m.Ended.Jobs == nil {
		if m.Ended, err = s.recount(); err != nil {
			return out, err
		}
	}
	for result, n := range m.Ended.Jobs {
		out.ByJob[receipt.Ended] += int(n)
		out.ByResult[result] = int(n)
	}
	for status, n := range m.Ended.Receipts {
		out.ByStatus[status] = int(n)
	}
	out.Nodes, err = nodes()
	return out, err
}

// Read copies out a snapshot of a journal that no worker has open. It writes nothing and holds no lock once it returns. ErrBusy
// while a worker has it open: ask that one.
func Read(dir string) (Snapshot, error) {
	var out Snapshot
	err := readOnly(dir, func(s *store) (err error) {
		out, err = s.snapshot(filepath.Join(dir, fileName), time.Now().Round(0).UTC())
		return err
	})
	if err != nil {
		return Snapshot{}, err
	}
	return out, nil
}

// readOnly holds a journal that no worker has open against its marker, and runs f on it in the same read transaction.
func readOnly(dir string, f func(*store) error) error {
	m, _, err := readMarker(dir)
	path := filepath.Join(dir, fileName)
	if _, serr := statJournal(path); serr != nil {
		return serr // that there is no journal says more than that there is no marker
	}
	if err != nil {
		return err
	}
	err = withReadOnly(path, readWait, func(db *bolt.DB) error {
		return db.View(func(tx *bolt.Tx) error {
			s := &store{tx: tx}
			record, err := s.metaRecord()
			if err == nil {
				err = m.covers(record.info(path))
			}
			if err != nil {
				return err
			}
			if err := s.checkBuckets(record.Format); err != nil {
				return fmt.Errorf("%w: restore it from a backup together with its marker", err)
			}
			return f(s)
		})
	})
	if err != nil {
		return fmt.Errorf("read journal: %w", err)
	}
	return nil
}

// covers compares a journal with its marker. A journal that is ahead lost only the marker's last write.
func (m mark) covers(i Info) error {
	const remedy = "restore the newest journal and marker together, from one moment; if there is none, every receipt since is lost: look at the nodes first"
	switch {
	case m.ID != i.ID:
		return fmt.Errorf("%w: %s is journal %s, but the marker belongs to %s: it was swapped or restored; %s", receipt.ErrDamaged, i.Path, i.ID, m.ID, remedy)
	case m.Seq > i.Seq || m.Epoch > i.Epoch:
		return fmt.Errorf("%w: %s ends at sequence %d in epoch %d, but %d in epoch %d was acknowledged: it was restored or rolled back; %s",
			receipt.ErrDamaged, i.Path, i.Seq, i.Epoch, m.Seq, m.Epoch, remedy)
	}
	return nil
}
