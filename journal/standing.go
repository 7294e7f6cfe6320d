package journal

import (
	"errors"

	"provctl/receipt"
)

// Standing is a node with what it is at: its job if one has not ended, and the receipt that blocks it.
type Standing struct {
	Node receipt.Node     `json:"node"`
	Job  *receipt.Job     `json:"job,omitempty"`
	Open *receipt.Receipt `json:"open,omitempty"` // the one without an outcome
}

// maxStandings bounds one answer of Standings.
const maxStandings = 5000

// Standings lists nodes by name, from the one after a given name on, at most so many and never more than 5,000. Each answer is one moment
// by itself. It reads only.
func (j *Journal) Standings(after receipt.NodeID, most int) ([]Standing, error) {
	var out []Standing
	err := j.view(func(s *store) (err error) {
		out, err = s.standings(after, most)
		return err
	})
	return out, err
}

// ReadStandings gives f all nodes of a journal that no worker has open, by name and in portions, all of one moment. Errors as for Read,
// and those of f.
func ReadStandings(dir string, f func([]Standing) error) error {
	return readOnly(dir, func(s *store) error {
		after := receipt.NodeID("")
		for {
			some, err := s.standings(after, maxStandings)
			if err != nil || len(some) == 0 {
				return err
			}
			if err := f(some); err != nil {
				return err
			}
			after = some[len(some)-1].Node.ID
		}
	})
}

func (s *store) standings(after receipt.NodeID, most int) ([]Standing, error) {
	most = max(1, min(most, maxStandings))
	var keys []string
	var raw [][]byte
	from := string(after)
	if from != "" {
		from += "\x00" // no name holds it: the next one
	}
	err := s.from(nodeBucket, from, func(key string, v []byte) error {
		if len(keys) == most {
			return errEnough
		}
		keys, raw = append(keys, key), append(raw, v)
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	nodes, err := decodeAll[receipt.Node](s, nodeBucket, keys, raw)
	if err != nil {
		return nil, err
	}
	out := make([]Standing, 0, len(nodes))
	for _, n := range nodes {
		at, err := s.standing(n)
		if err != nil {
			return nil, err
		}
		out = append(out, at)
	}
	return out, nil
}

func (s *store) standing(n receipt.Node) (Standing, error) {
	out := Standing{Node: n}
	if n.Job != "" {
		job, err := need[receipt.Job](s, jobBucket, string(n.Job), "node "+string(n.ID))
		if err != nil {
			return out, err
		}
		out.Job = &job
	}
	if n.Open != "" {
		r, err := need[receipt.Receipt](s, recBucket, string(n.Open), "node "+string(n.ID))
		if err != nil {
			return out, err
		}
		out.Open = &r
	}
	return out, nil
}

// from calls f for every stored key that is not before a given one, in order.
func (s *store) from(bucket, first string, f func(key string, value []byte) error) error {
	b, err := s.bucket(bucket)
	if err != nil {
		return err
	}
	c := b.Cursor()
	for k, v := c.Seek([]byte(first)); k != nil; k, v = c.Next() {
		if err := f(string(k), v); err != nil {
			return err
		}
	}
	return nil
}
