package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	bolt "go.etcd.io/bbolt"

	"provctl/receipt"
)

// The buckets. Values of the first four are sealed records, those of the others sealed references.
const (
	metaBucket  = "meta"
	jobBucket   = "jobs"       // by job id
	recBucket   = "receipts"   // by receipt id
	nodeBucket  = "nodes"      // by identity
	openBucket  = "open"       // receipt id → node: receipts without an outcome
	activeBuck  = "active"     // job id → node: jobs that have not ended
	endedBucket = "ended"      // kind, sequence, outcome → id: see endedKey and bareKey
	tombBucket  = "tombstones" // token → receipt id: revoked by a verdict
	lifeBucket  = "lives"      // node, incarnation, sequence → receipt id: see lifeKey
	auditBucket = "audit"      // sequence → what a person did: see Act; since format 2
)

var buckets = []string{metaBucket, jobBucket, recBucket, nodeBucket, openBucket, activeBuck, endedBucket, tombBucket, lifeBucket, auditBucket}

// createBuckets makes the buckets that are missing.
func createBuckets(tx *bolt.Tx) error {
	for _, name := range buckets {
		if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return fmt.Errorf("bucket %s: %w", name, err)
		}
	}
	return nil
}

// metaKey names the one record of the meta bucket.
const metaKey = "journal"

// formatVersion is the layout of buckets and keys. What is newer is refused; what is older is brought up to date when it is opened for
// writing, see migrate. 2: the audit trail.
const formatVersion = 2

// bucketsOf lists the buckets that a journal of a format has.
func bucketsOf(format int) []string {
	if format < 2 {
		return buckets[:len(buckets)-1]
	}
	return buckets
}

// metaMagic tells our file from any other program's bbolt file.
const metaMagic = "provctl journal"

// meta is the journal's record of itself.
type meta struct {
	Magic   string        `json:"magic"`
	Format  int           `json:"format"`
	ID      string        `json:"id"`
	Epoch   receipt.Epoch `json:"epoch"`
	Seq     receipt.Seq   `json:"seq"`
	Created time.Time     `json:"created"`
	Tally   Tally         `json:"tally"`
	Ended   totals        `json:"ended,omitzero"`
	Witness time.Time     `json:"witness,omitzero"` // when the clock was last found to go on as it should: see Prune
	Pause   *Pause        `json:"pause,omitempty"`

	Accepted time.Time `json:"accepted,omitzero"`
}

// store reads and, in a write transaction, stages changes: nothing reaches bbolt before the whole change is known to be valid.
type store struct {
	tx     *bolt.Tx
	staged map[string][]byte // by bucket, NUL, key; nil: deleted
}

func (s *store) bucket(name string) (*bolt.Bucket, error) {
	if b := s.tx.Bucket([]byte(name)); b != nil {
		return b, nil
	}
	return nil, fmt.Errorf("%w: bucket %s is missing: this is no journal of provctl, or an older one", receipt.ErrDamaged, name)
}

// checkBuckets finds that a journal has the buckets of its format and no others. No checksum covers their names: one that has another name
// now would look like a bucket that this format does not have.
func (s *store) checkBuckets(format int) error {
	missing := slices.Clone(bucketsOf(format))
	err := s.tx.ForEach(func(name []byte, b *bolt.Bucket) error {
		i := slices.Index(missing, string(name))
		if b == nil || i < 0 {
			return fmt.Errorf("%w: %q is no bucket of a journal of format %d", receipt.ErrDamaged, clip(string(name)), format)
		}
		missing = slices.Delete(missing, i, i+1)
		return nil
	})
	if err == nil && len(missing) > 0 {
		_, err = s.bucket(missing[0])
	}
	return err
}

// get returns the value of a key, or nil. It is valid until the transaction ends.
func (s *store) get(bucket, key string) ([]byte, error) {
	if v, ok := s.staged[bucket+"\x00"+key]; ok {
		return v, nil
	}
	b, err := s.bucket(bucket)
	if err != nil {
		return nil, err
	}
	return b.Get([]byte(key)), nil
}

func (s *store) put(bucket, key string, value []byte) {
	if s.staged == nil {
		s.staged = map[string][]byte{}
	}
	s.staged[bucket+"\x00"+key] = value
}

func (s *store) remove(bucket, key string) { s.put(bucket, key, nil) }

// flush hands the staged changes to the transaction. An error here is not the caller's fault: the transaction must fail.
func (s *store) flush() error {
	for _, full := range slices.Sorted(maps.Keys(s.staged)) {
		name, key, _ := bytes.Cut([]byte(full), []byte{0})
		b, err := s.bucket(string(name))
		if err != nil {
			return err
		}
		if v := s.staged[full]; v == nil {
			err = b.Delete(key)
		} else {
			err = b.Put(key, v)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// each calls f for every stored key with a prefix, in order. It does not see what is staged.
func (s *store) each(bucket, prefix string, f func(key string, value []byte) error) error {
	b, err := s.bucket(bucket)
	if err != nil {
		return err
	}
	c := b.Cursor()
	for k, v := c.Seek([]byte(prefix)); k != nil && bytes.HasPrefix(k, []byte(prefix)); k, v = c.Next() {
		if err := f(string(k), v); err != nil {
			return err
		}
	}
	return nil
}

// load reads one record; ErrNotFound if there is none.
func load[T receipt.Record](s *store, bucket, key string) (T, error) {
	var zero T
	b, err := s.get(bucket, key)
	if err != nil {
		return zero, err
	}
	if b == nil {
		return zero, fmt.Errorf("%.80q in %s: %w", key, bucket, ErrNotFound)
	}
	return receipt.Decode[T](bucket+"/"+key, b)
}

// need reads a record that another one refers to: if it is not there, the journal is damaged.
func need[T receipt.Record](s *store, bucket, key, from string) (T, error) {
	v, err := load[T](s, bucket, key)
	if errors.Is(err, ErrNotFound) {
		return v, fmt.Errorf("%w: %s refers to %q in %s, which is not there", receipt.ErrDamaged, from, key, bucket)
	}
	return v, err
}

func save[T receipt.Record](s *store, bucket, key string, v T) error {
	b, err := receipt.Encode(bucket+"/"+key, v)
	if err != nil {
		return err
	}
	s.put(bucket, key, b)
	return nil
}

// sealed and unsealed give references and the meta record the same protection as records: a checksum over place and content.
func sealed(bucket, key string, content []byte) []byte {
	out := make([]byte, 5, 5+len(content))
	out[0] = receipt.FormatVersion
	binary.BigEndian.PutUint32(out[1:], placeSum(bucketSum(bucket), []byte(key), content))
	return append(out, content...)
}

func unsealed(bucket, key string, b []byte) ([]byte, error) {
	if !sealFits(bucketSum(bucket), []byte(key), b) {
		return nil, fmt.Errorf("%w: %s/%q: wrong version or checksum", receipt.ErrDamaged, bucket, key)
	}
	return b[5:], nil
}

// sealFits reports whether a value carries the checksum of its place and content. bucketSum is placeSum's beginning.
func sealFits(bucketSum uint32, key, b []byte) bool {
	return len(b) >= 5 && b[0] == receipt.FormatVersion && binary.BigEndian.Uint32(b[1:]) == placeSum(bucketSum, key, b[5:])
}

// bucketSum is the part of a checksum that the values of a bucket have in common.
func bucketSum(bucket string) uint32 { return crc32.Checksum([]byte(bucket+"/"), castagnoli) }

var zero = []byte{0}

func placeSum(bucketSum uint32, key, content []byte) uint32 {
	return crc32.Update(crc32.Update(crc32.Update(bucketSum, castagnoli, key), castagnoli, zero), castagnoli, content)
}

func (s *store) refer(bucket, key, to string) { s.put(bucket, key, sealed(bucket, key, []byte(to))) }

// metaRecord reads the journal's record of itself; its format is judged before all else.
func (s *store) metaRecord() (meta, error) {
	var m meta
	b, err := s.get(metaBucket, metaKey)
	if err != nil {
		return m, err
	}
	content, err := unsealed(metaBucket, metaKey, b)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(content, &m); err != nil {
		return m, fmt.Errorf("%w: meta record: %w", receipt.ErrDamaged, err)
	}
	switch {
	case m.Magic != metaMagic || m.ID == "" || len(m.ID) > maxIDLen:
		return m, fmt.Errorf("%w: the meta record is not that of a provctl journal", receipt.ErrDamaged)
	case m.Format > formatVersion:
		return m, fmt.Errorf("%w: journal has format %d, this program knows %d: use the newer provctl that wrote it, or restore journal and marker from before it", ErrNewer, m.Format, formatVersion)
	case m.Format < 1:
		return m, fmt.Errorf("%w: journal has format %d, which never was", receipt.ErrDamaged, m.Format)
	}
	return m, nil
}

func (s *store) saveMeta(m meta) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("meta record: %w", err)
	}
	s.put(metaBucket, metaKey, sealed(metaBucket, metaKey, b))
	return nil
}

// Kinds of what has ended, the first byte of endedKey and bareKey.
const (
	endedBare    = 'b'
	endedJob     = 'j'
	endedReceipt = 'r'
)

// endedKey orders what has ended by the sequence number it began with, and carries the outcome so that counting reads keys only.
func endedKey(kind byte, seq receipt.Seq, outcome uint8) string {
	b := binary.BigEndian.AppendUint64([]byte{kind}, uint64(seq))
	return string(append(b, outcome))
}

// bareKey leads to the node's last job if that ended without a receipt. The next job sweeps it away.
func bareKey(n receipt.NodeID) string { return string(endedBare) + string(n) }

// lifeKey files a receipt under its node's incarnation. It keeps what an incarnation has been through even if another process
// under the same name answered in between.
func lifeKey(n receipt.NodeID, i receipt.Incarnation, seq receipt.Seq) string {
	return string(binary.BigEndian.AppendUint64([]byte(lifePrefix(n, i)), uint64(seq)))
}

func lifePrefix(n receipt.NodeID, i receipt.Incarnation) string {
	b := append([]byte(n), 0)
	b = binary.BigEndian.AppendUint64(b, uint64(i.PID))
	return string(binary.BigEndian.AppendUint64(b, uint64(i.Start)))
}
