package journal

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"provctl/receipt"
)

// Story is all that the journal keeps of a node, each list in sequence order.
type Story struct {
	Node     *receipt.Node     `json:"node"` // nil: nothing is remembered beyond the rest
	Jobs     []receipt.Job     `json:"jobs"`
	Receipts []receipt.Receipt `json:"receipts"`
	Acts     []Act             `json:"acts"` // of people, on this node
}

// Story reads what is kept of a node, in one moment; ErrNotFound if nothing is. It reads only.
func (j *Journal) Story(id receipt.NodeID) (Story, error) {
	var out Story
	err := j.view(func(s *store) (err error) {
		out, err = s.story(id)
		return err
	})
	return out, err
}

// ReadStory is Story of a journal that no worker has open. Errors as for Read.
func ReadStory(dir string, id receipt.NodeID) (Story, error) {
	var out Story
	err := readOnly(dir, func(s *store) (err error) {
		out, err = s.story(id)
		return err
	})
	return out, err
}

func (s *store) story(id receipt.NodeID) (Story, error) {
	out := Story{Jobs: []receipt.Job{}, Receipts: []receipt.Receipt{}, Acts: []Act{}}
	n, err := load[receipt.Node](s, nodeBucket, string(id))
	switch {
	case err == nil:
		out.Node = &n
	case !errors.Is(err, ErrNotFound):
		return out, err
	}
	if out.Receipts, err = s.receiptsOf(id); err != nil {
		return out, err
	}
	if out.Jobs, err = s.jobsOf(n, id, out.Receipts); err != nil {
		return out, err
	}
	acts, err := s.acts(0)
	if err != nil {
		return out, err
	}
	for _, a := range acts {
		if a.Node == id {
			out.Acts = append(out.Acts, a)
		}
	}
	if out.Node == nil && len(out.Jobs)+len(out.Receipts)+len(out.Acts) == 0 {
		return out, fmt.Errorf("node %.80q: %w: nothing is kept of it", id, ErrNotFound)
	}
	return out, nil
}

// receiptsOf reads all receipts of a node that are kept, whatever the incarnation.
func (s *store) receiptsOf(id receipt.NodeID) ([]receipt.Receipt, error) {
	out := []receipt.Receipt{}
	err := s.each(lifeBucket, string(id)+"\x00", func(key string, v []byte) error {
		to, err := unsealed(lifeBucket, key, v)
		if err != nil {
			return err
		}
		r, err := need[receipt.Receipt](s, recBucket, string(to), "the history of "+string(id))
		out = append(out, r)
		return err
	})
	slices.SortFunc(out, func(a, b receipt.Receipt) int { return cmp.Compare(a.Seq, b.Seq) })
	return out, err
}

// jobsOf reads the jobs that a node's receipts belong to, the one that it is at, and the last one that ended without a receipt.
func (s *store) jobsOf(n receipt.Node, id receipt.NodeID, receipts []receipt.Receipt) ([]receipt.Job, error) {
	var ids []receipt.JobID
	for _, r := range receipts {
		ids = append(ids, r.Job)
	}
	if n.Job != "" {
		ids = append(ids, n.Job)
	}
	bare, err := s.get(endedBucket, bareKey(id))
	if err != nil {
		return nil, err
	}
	if bare != nil {
		to, err := unsealed(endedBucket, bareKey(id), bare)
		if err != nil {
			return nil, err
		}
		ids = append(ids, receipt.JobID(to))
	}
	slices.Sort(ids)
	out := []receipt.Job{}
	for _, jid := range slices.Compact(ids) {
		job, err := need[receipt.Job](s, jobBucket, string(jid), "node "+string(id))
		if err != nil {
			return nil, err
		}
		out = append(out, job)
	}
	slices.SortFunc(out, func(a, b receipt.Job) int { return cmp.Compare(a.Seq, b.Seq) })
	return out, nil
}

// maxFound bounds how many receipts Find lists: whoever gets so many names too little.
const maxFound = 20

// Find lists the receipts, ended ones included, whose id begins with a text, the open ones first, at most 20. It reads only.
func (j *Journal) Find(prefix string) ([]receipt.Receipt, error) {
	var out []receipt.Receipt
	err := j.view(func(s *store) (err error) {
		out, err = s.find(prefix)
		return err
	})
	return out, err
}

// FindIn is Find in a journal that no worker has open. Errors as for Read.
func FindIn(dir, prefix string) ([]receipt.Receipt, error) {
	var out []receipt.Receipt
	err := readOnly(dir, func(s *store) (err error) {
		out, err = s.find(prefix)
		return err
	})
	return out, err
}

// errEnough ends a walk through a bucket.
var errEnough = errors.New("enough")

func (s *store) find(prefix string) ([]receipt.Receipt, error) {
	prefix = strings.ToUpper(prefix)
	out := []receipt.Receipt{}
	seen := map[string]bool{}
	for _, bucket := range []string{openBucket, recBucket} {
		err := s.each(bucket, prefix, func(key string, _ []byte) error {
			if seen[key] {
				return nil
			}
			if len(out) >= maxFound {
				return errEnough
			}
			r, err := need[receipt.Receipt](s, recBucket, key, bucket)
			out, seen[key] = append(out, r), true
			return err
		})
		if err != nil && !errors.Is(err, errEnough) {
			return nil, err
		}
	}
	return out, nil
}

// ReadAudit lists the acts of people in a journal that no worker has open, as Audit does. Errors as for Read.
func ReadAudit(dir string, from receipt.Seq) ([]Act, error) {
	var out []Act
	err := readOnly(dir, func(s *store) (err error) {
		out, err = s.acts(from)
		return err
	})
	return out, err
}
