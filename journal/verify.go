package journal

import (
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"provctl/receipt"
)

// maxComplaints bounds how many findings one message holds.
const maxComplaints = 5

// Verify checks a whole journal file and writes nothing: its pages, bbolt's own invariants, every record, and that indexes,
// jobs, receipts and nodes refer to each other as they must. What it finds is receipt.ErrDamaged. It is safe on any file, but
// meant to be run in a child process as well, where even a defect of bbolt or of this check cannot take the worker down.
func Verify(path string) error {
	return withReadOnly(path, openWait, func(db *bolt.DB) error {
		return db.View(func(tx *bolt.Tx) error {
			if err := boltCheck(tx); err != nil {
				return err
			}
			v := &verifier{store: store{tx: tx}, jobs: map[receipt.JobID]receipt.Job{}, receipts: map[receipt.ReceiptID]receipt.Receipt{}, nodes: map[receipt.NodeID]receipt.Node{}}
			if err := v.run(); errors.Is(err, ErrNewer) {
				return fmt.Errorf("journal %s: %w", path, err)
			} else if err != nil {
				return fmt.Errorf("journal %s: %w: restore it from a backup together with its marker", path, err)
			}
			return nil
		})
	})
}

// boltCheck runs bbolt's consistency check. Its goroutine must be drained, or it would stay for ever.
func boltCheck(tx *bolt.Tx) error {
	var found []error
	for err := range tx.Check() {
		if len(found) < maxComplaints {
			found = append(found, err)
		}
	}
	if len(found) > 0 {
		return badFile("%w", errors.Join(found...))
	}
	return nil
}

// verifier holds all records in memory: a journal is pruned, and some ten thousand records are some ten megabytes.
type verifier struct {
	store
	meta     meta
	jobs     map[receipt.JobID]receipt.Job
	receipts map[receipt.ReceiptID]receipt.Receipt
	nodes    map[receipt.NodeID]receipt.Node
}

func (v *verifier) run() error {
	var err error
	if v.meta, err = v.metaRecord(); err != nil {
		return err
	}
	if err := v.checkBuckets(v.meta.Format); err != nil {
		return err
	}
	steps := []func() error{
		func() error {
			return readAll(v, jobBucket, func(key string, j receipt.Job) bool { v.jobs[j.ID] = j; return key == string(j.ID) })
		},
		func() error {
			return readAll(v, recBucket, func(key string, r receipt.Receipt) bool { v.receipts[r.ID] = r; return key == string(r.ID) })
		},
		func() error {
			return readAll(v, nodeBucket, func(key string, n receipt.Node) bool { v.nodes[n.ID] = n; return key == string(n.ID) })
		},
		v.checkJobs, v.checkReceipts, v.checkNodes, v.checkIndexes, v.checkTotals, v.checkActs,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func readAll[T receipt.Record](v *verifier, bucket string, keep func(string, T) bool) error {
	return v.each(bucket, "", func(key string, b []byte) error {
		r, err := receipt.Decode[T](bucket+"/"+key, b)
		if err == nil && !keep(key, r) {
			err = fmt.Errorf("%w: %s/%q holds a record with another id", receipt.ErrDamaged, bucket, key)
		}
		return err
	})
}

func wrong(format string, args ...any) error {
	return fmt.Errorf("%w: %s", receipt.ErrDamaged, fmt.Sprintf(format, args...))
}

func (v *verifier) checkJobs() error {
	for _, j := range v.jobs {
		n, known := v.nodes[j.Node]
		active := j.Status != receipt.Ended
		open, isOpen := v.receipts[n.Open]
		switch {
		case j.Version > v.meta.Seq || j.Epoch > v.meta.Epoch:
			return wrong("job %s has version %d and epoch %d, the journal ends at %d in %d", j.ID, j.Version, j.Epoch, v.meta.Seq, v.meta.Epoch)
		case active != (known && n.Job == j.ID):
			return wrong("job %s is %s, but node %s is at %q", j.ID, j.Status, j.Node, n.Job)
		case j.Status == receipt.Blocked && (!isOpen || open.Status != receipt.Unknown):
			return wrong("job %s is blocked without an unknown receipt", j.ID)
		case j.Status == receipt.Queued && isOpen:
			return wrong("job %s is queued while receipt %s is open", j.ID, open.ID)
		case j.Finish != "" && (!active || v.receipts[j.Finish].Status != receipt.Finishing || v.receipts[j.Finish].Node != j.Node):
			return wrong("job %s is %s and to find out about receipt %s, which does not wait for it", j.ID, j.Status, j.Finish)
		case j.Status == receipt.Claimed && isOpen && open.Status != receipt.Pending:
			return wrong("job %s is claimed while receipt %s is %s", j.ID, open.ID, open.Status)
		}
		last := receipt.Seq(0)
		for _, id := range j.Receipts {
			r, ok := v.receipts[id]
			if !ok || r.Job != j.ID || r.Node != j.Node || r.Seq <= last {
				return wrong("job %s lists receipt %s, which is missing, not its own or out of order", j.ID, id)
			}
			last = r.Seq
		}
	}
	return nil
}

func (v *verifier) checkReceipts() error {
	listed := map[receipt.ReceiptID]bool{}
	for _, j := range v.jobs {
		for _, id := range j.Receipts {
			listed[id] = true
		}
	}
	for _, r := range v.receipts {
		n := v.nodes[r.Node]
		switch {
		case r.Version > v.meta.Seq || r.Epoch > v.meta.Epoch:
			return wrong("receipt %s has version %d and epoch %d, the journal ends at %d in %d", r.ID, r.Version, r.Epoch, v.meta.Seq, v.meta.Epoch)
		case !listed[r.ID]:
			return wrong("receipt %s is in no job's list", r.ID)
		case r.Status.Open() != (n.Open == r.ID):
			return wrong("receipt %s is %s, but node %s has %q open", r.ID, r.Status, r.Node, n.Open)
		case r.Status == receipt.Finishing && v.jobs[n.Job].Finish != r.ID:
			return wrong("receipt %s waits for a restart, but job %q of node %s does not know", r.ID, n.Job, r.Node)
		case r.Status.Open() && n.Job != r.Job:
			return wrong("receipt %s is open for job %s, but node %s is at %q", r.ID, r.Job, r.Node, n.Job)
		}
	}
	return nil
}

func (v *verifier) checkNodes() error {
	for _, n := range v.nodes {
		job, known := v.jobs[n.Job]
		_, open := v.receipts[n.Open]
		switch {
		case n.Version > v.meta.Seq || n.Forgiven > v.meta.Seq:
			return wrong("node %s has version %d, the journal ends at %d", n.ID, n.Version, v.meta.Seq)
		case n.Job != "" && (!known || job.Node != n.ID || job.Status == receipt.Ended):
			return wrong("node %s is at job %s, which is missing, another node's or ended", n.ID, n.Job)
		case n.Open != "" && !open:
			return wrong("node %s has receipt %s open, which is missing", n.ID, n.Open)
		}
		for _, id := range n.Receipts {
			if r, ok := v.receipts[id]; !ok || r.Node != n.ID || r.Incarnation != n.Incarnation {
				return wrong("node %s lists receipt %s, which is missing or not of its incarnation", n.ID, id)
			}
		}
	}
	return nil
}

// checkIndexes recomputes every index entry and compares: none may be missing, none left over.
func (v *verifier) checkIndexes() error {
	want := map[string]map[string]string{openBucket: {}, activeBuck: {}, endedBucket: {}, lifeBucket: {}}
	for _, j := range v.jobs {
		if j.Status == receipt.Ended {
			want[endedBucket][endedKey(endedJob, j.Seq, uint8(j.Result))] = string(j.ID)
		} else {
			want[activeBuck][string(j.ID)] = string(j.Node)
		}
	}
	tokens := map[string]string{}
	for _, r := range v.receipts {
		tokens[string(r.Token)] = string(r.ID)
		want[lifeBucket][lifeKey(r.Node, r.Incarnation, r.Seq)] = string(r.ID)
		if r.Status.Open() {
			want[openBucket][string(r.ID)] = string(r.Node)
		} else {
			want[endedBucket][endedKey(endedReceipt, r.Seq, uint8(r.Status))] = string(r.ID)
		}
	}
	for bucket, entries := range want {
		if err := v.checkIndex(bucket, entries); err != nil {
			return err
		}
		if len(entries) > 0 {
			return wrong("index %s lacks %d entries", bucket, len(entries))
		}
	}
	return v.checkIndex(tombBucket, tokens)
}

// checkIndex removes from want what the index holds.
func (v *verifier) checkIndex(bucket string, want map[string]string) error {
	return v.each(bucket, "", func(key string, b []byte) error {
		to, err := unsealed(bucket, key, b)
		if err != nil {
			return err
		}
		if bucket == endedBucket && key[0] == endedBare {
			return v.checkBare(receipt.NodeID(key[1:]), receipt.JobID(to))
		}
		if id, ok := want[key]; !ok || id != string(to) {
			return wrong("index %s refers from %q to %q, which does not fit", bucket, key, to)
		}
		delete(want, key)
		return nil
	})
}

// checkBare checks a node's entry for its last job, which need not exist but must be right.
func (v *verifier) checkBare(n receipt.NodeID, id receipt.JobID) error {
	if j, ok := v.jobs[id]; !ok || j.Node != n || j.Status != receipt.Ended || len(j.Receipts) > 0 {
		return wrong("index %s refers from node %s to job %s as one that ended without a receipt, which does not fit", endedBucket, n, id)
	}
	return nil
}

// checkActs: every act can be read, and none is of a change that never was.
func (v *verifier) checkActs() error {
	acts, err := v.acts(0)
	if err != nil {
		return err
	}
	for _, a := range acts {
		if a.Seq > v.meta.Seq {
			return wrong("the audit trail has an act at %d, the journal ends at %d", a.Seq, v.meta.Seq)
		}
	}
	return nil
}

// checkTotals: what is kept was counted, once there are totals.
func (v *verifier) checkTotals() error {
	if v.meta.Ended.Jobs == nil {
		return nil
	}
	kept, err := v.recount()
	if err != nil {
		return err
	}
	for result, n := range kept.Jobs {
		if n > v.meta.Ended.Jobs[result] {
			return wrong("%d jobs are kept that ended as %s, but %d were counted", n, result, v.meta.Ended.Jobs[result])
		}
	}
	for status, n := range kept.Receipts {
		if n > v.meta.Ended.Receipts[status] {
			return wrong("%d receipts are kept that ended as %s, but %d were counted", n, status, v.meta.Ended.Receipts[status])
		}
	}
	return nil
}
