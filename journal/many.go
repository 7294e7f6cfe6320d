package journal

import (
	"bytes"
	"fmt"
	"runtime"
	"sync"
	"time"

	"provctl/receipt"
)

// listed reads the records that an index leads to, in the order of the index. Decoding is most of the work, and shared by what
// processors there are.
func listed[T receipt.Record](s *store, index, bucket string) ([]T, error) {
	var keys []string
	var raw [][]byte
	err := s.each(index, "", func(key string, v []byte) error {
		if _, err := unsealed(index, key, v); err != nil {
			return err
		}
		b, err := s.get(bucket, key)
		if err == nil && b == nil {
			err = fmt.Errorf("%w: %s refers to %q in %s, which is not there", receipt.ErrDamaged, index, key, bucket)
		}
		keys, raw = append(keys, key), append(raw, b)
		return err
	})
	if err != nil {
		return nil, err
	}
	return decodeAll[T](s.path(), bucket, keys, raw)
}

// aShare is how many records are worth a goroutine.
const aShare = 64

func decodeAll[T receipt.Record](path, bucket string, keys []string, raw [][]byte) ([]T, error) {
	out := make([]T, len(keys))
	workers := max(1, min(runtime.GOMAXPROCS(0), len(keys)/aShare))
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		from, to := w*len(keys)/workers, (w+1)*len(keys)/workers
		decode := func() error { // the bytes are in the memory map
			for i := from; i < to; i++ {
				var err error
				if out[i], err = receipt.Decode[T](bucket+"/"+keys[i], raw[i]); err != nil {
					return err
				}
			}
			return nil
		}
		wg.Go(func() { errs[w] = guard(path, decode) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// path names the file for messages.
func (s *store) path() string { return s.tx.DB().Path() }

// nodesNotTaken lists the nodes that are held or out, by name. There may be very many nodes, of which few are: what cannot be one is not
// decoded, but its checksum holds.
func (s *store) nodesNotTaken(now time.Time) ([]receipt.Node, error) {
	var out []receipt.Node
	err := s.each(nodeBucket, "", func(key string, v []byte) error {
		content, err := unsealed(nodeBucket, key, v) // sealed as records are
		if err != nil || !mayWait(content, now) {
			return err
		}
		n, err := receipt.Decode[receipt.Node](nodeBucket+"/"+key, v)
		if err == nil && (n.Out != 0 || held(n, now)) {
			out = append(out, n)
		}
		return err
	})
	return out, err
}

var (
	outField  = []byte(`"out":`)
	heldField = []byte(`"held_until":"`)
)

// mayWait reports whether a node's record, as JSON, may be of one that is held or out. Neither name can be part of a text there, where a
// quote has a backslash before it. In case of doubt it does.
func mayWait(content []byte, now time.Time) bool {
	if bytes.Contains(content, outField) {
		return true
	}
	_, at, ok := bytes.Cut(content, heldField)
	if !ok {
		return false
	}
	text, _, _ := bytes.Cut(at, []byte{'"'})
	until, err := time.Parse(time.RFC3339, string(text))
	return err != nil || until.After(now)
}
