package journal

import (
	"fmt"
	"maps"

	"provctl/receipt"
)

// totals counts what has ended over the journal's whole life, so that forgotten work stays counted and nobody walks all that is
// kept. The maps are never changed in place: a change that is refused must leave no trace in the next one.
type totals struct {
	Jobs     map[receipt.Result]int64 `json:"jobs"` // nil: not counted yet, see recount
	Receipts map[receipt.Status]int64 `json:"receipts"`
}

// with is the totals and one more entry of the index of what has ended.
func (t totals) with(key string) totals {
	switch outcome := key[len(key)-1]; key[0] {
	case endedJob:
		t.Jobs = maps.Clone(t.Jobs)
		t.Jobs[receipt.Result(outcome)]++
	case endedReceipt:
		t.Receipts = maps.Clone(t.Receipts)
		t.Receipts[receipt.Status(outcome)]++
	}
	return t
}

func noTotals() totals {
	return totals{Jobs: map[receipt.Result]int64{}, Receipts: map[receipt.Status]int64{}}
}

// recount counts what is kept: for a journal whose writer did not count yet.
func (s *store) recount() (totals, error) {
	t := noTotals()
	err := s.each(endedBucket, "", func(key string, _ []byte) error {
		switch outcome := key[len(key)-1]; key[0] {
		case endedJob:
			t.Jobs[receipt.Result(outcome)]++
		case endedReceipt:
			t.Receipts[receipt.Status(outcome)]++
		}
		return nil
	})
	return t, err
}

// unfile takes a receipt whose verdict is taken back out of the index and out of the totals.
func (s *stage) unfile(r receipt.Receipt) error {
	key := endedKey(endedReceipt, r.Seq, uint8(r.Status))
	filed, err := s.get(endedBucket, key)
	if err != nil {
		return err
	}
	if filed == nil || s.meta.Ended.Receipts[r.Status] < 1 {
		return fmt.Errorf("%w: receipt %s is %s, but is not filed as such", receipt.ErrDamaged, r.ID, r.Status)
	}
	s.meta.Ended.Receipts = maps.Clone(s.meta.Ended.Receipts)
	s.meta.Ended.Receipts[r.Status]--
	s.remove(endedBucket, key)
	return nil
}

// file enters a job or receipt that has ended in the index, and counts it the first time.
func (s *stage) file(key, id string) error {
	filed, err := s.get(endedBucket, key)
	if err != nil || filed != nil {
		return err
	}
	s.meta.Ended = s.meta.Ended.with(key)
	s.refer(endedBucket, key, id)
	return nil
}
