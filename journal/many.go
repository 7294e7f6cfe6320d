package journal

import (
	"bytes"
	"fmt"
	"runtime"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"provctl/receipt"
)

// listed reads the records that an index leads to, in the order of the index.
func listed[T receipt.Record](s *store, index, bucket string) ([]T, error) {
	var out []T
	var keys []string
	var raw [][]byte
	decode := func() error {
		some, err := decodeAll[T](s, bucket, keys, raw)
		out, keys, raw = append(out, some...), keys[:0], raw[:0]
		s.release()
		return err
	}
	err := s.each(index, "", func(key string, v []byte) error {
		if _, err := unsealed(index, key, v); err != nil {
			return err
		}
		b, err := s.get(bucket, key)
		if err == nil && b == nil {
			err = fmt.Errorf("%w: %s refers to %q in %s, which is not there", receipt.ErrDamaged, index, key, bucket)
		}
		keys, raw = append(keys, key), append(raw, b)
		if err == nil && len(keys) == portion {
			err = decode()
		}
		return err
	})
	if err == nil {
		err = decode()
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// aShare is how many records are worth a goroutine.
const aShare = 64

// decodeAll is most of the work of reading many records. Whoever has the journal for reading alone shares it among what processors there
// are. A worker must not: a commit would wait until one of them is free again, for as long as Go lets a goroutine run, which is 10 ms.
func decodeAll[T receipt.Record](s *store, bucket string, keys []string, raw [][]byte) ([]T, error) {
	out := make([]T, len(keys))
	alone := s.tx.DB().IsReadOnly()
	sharers := 1
	if alone {
		sharers = max(1, min(runtime.GOMAXPROCS(0), len(keys)/aShare))
	}
	errs := make([]error, sharers)
	var wg sync.WaitGroup
	for w := range sharers {
		from, to := w*len(keys)/sharers, (w+1)*len(keys)/sharers
		decode := func() error { // the bytes are in the memory map
			for i := from; i < to; i++ {
				var err error
				if out[i], err = receipt.Decode[T](bucket+"/"+keys[i], raw[i]); err != nil {
					return err
				}
				if !alone {
					runtime.Gosched()
				}
			}
			return nil
		}
		wg.Go(func() { errs[w] = guard(s.path(), decode) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// aside reads something while its caller goes on reading, and gives it when it is asked for. It does so where the journal is open for
// reading alone, in a transaction of its own: all of them see the same then. In a worker it is read when it is asked for.
func aside[T any](s *store, f func(*store) (T, error)) func() (T, error) {
	db := s.tx.DB()
	if !db.IsReadOnly() {
		return func() (T, error) { return f(s) }
	}
	var v T
	var err error
	var wg sync.WaitGroup
	wg.Go(func() {
		err = guard(db.Path(), func() error {
			return db.View(func(tx *bolt.Tx) (err error) {
				v, err = f(&store{tx: tx})
				return err
			})
		})
	})
	return func() (T, error) { wg.Wait(); return v, err }
}

// path names the file for messages.
func (s *store) path() string { return s.tx.DB().Path() }

// nodesNotTaken lists the nodes that are held or out, by name. There may be very many nodes, of which few are: what cannot be one is not
// decoded, but its checksum holds.
func (s *store) nodesNotTaken(now time.Time) ([]receipt.Node, error) {
	var out []receipt.Node
	looked := 0
	err := s.each(nodeBucket, "", func(key string, v []byte) error {
		if looked++; looked%portion == 0 {
			s.release()
		}
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
