package journal

import (
	"errors"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"provctl/receipt"
)

// FuzzSealed damages a sealed value anyhow, or reads it under another key: it is ErrDamaged, never other content.
func FuzzSealed(f *testing.F) {
	f.Add("nodes", "n1", []byte("R1"), uint16(3), byte(1), uint16(0xffff), "")
	f.Fuzz(func(t *testing.T, bucket, key string, content []byte, at uint16, flip byte, keep uint16, moved string) {
		whole := sealed(bucket, key, content)
		if got, err := unsealed(bucket, key, whole); err != nil || string(got) != string(content) {
			t.Fatalf("%q became %q: %v", content, got, err)
		}
		b := append([]byte(nil), whole...)
		b[int(at)%len(b)] ^= flip
		b = b[:min(int(keep), len(b))]
		if got, err := unsealed(bucket, key+moved, b); (string(b) != string(whole) || moved != "") && (!errors.Is(err, receipt.ErrDamaged) || got != nil) {
			t.Fatalf("byte %d ^ %#x, %d bytes kept, at %q: %q, %v", at, flip, keep, key+moved, got, err)
		}
	})
}

// FuzzMarkerSlots damages one of a marker's two slots anyhow: what holds is one of the two marks that were written, and the other one if
// the first is no more what was written.
func FuzzMarkerSlots(f *testing.F) {
	f.Add("01J", uint64(3), uint64(10), uint64(6), uint16(8), []byte{0, 0, 0, 2})
	f.Fuzz(func(t *testing.T, id string, epoch, seq, count uint64, at uint16, with []byte) {
		older := mark{ID: id, Epoch: receipt.Epoch(epoch), Seq: receipt.Seq(seq), Count: count &^ (1 << 63)}
		newer := older
		newer.Seq, newer.Count = older.Seq+1, older.Count+1
		left := older.encode()
		file := append(append([]byte(nil), left...), newer.encode()...)
		usable := len(id) > 0 && len(id) <= maxIDLen
		if got, ok := decodeMarker(file); ok != usable || ok && got != newer {
			t.Fatalf("two whole slots: %+v, %t, want %+v", got, ok, newer)
		}
		damaged := append([]byte(nil), file...)
		copy(damaged[int(at)%slotSize+slotSize:], with)
		want := older
		if string(damaged) == string(file) {
			want = newer
		}
		if got, ok := decodeMarker(damaged); ok != usable || ok && got != want {
			t.Fatalf("the newer slot overwritten at %d with %x: %+v, %t, want %+v", at, with, got, ok, want)
		}
		if got, ok := decodeMarker(damaged[:slotSize+int(at)%slotSize]); ok != usable || ok && got != older {
			t.Fatalf("the newer slot cut at %d: %+v, %t, want %+v", at, got, ok, older)
		}
	})
}

// FuzzMeta reads the journal's record of itself under a right checksum: what is accepted is ours and of a known format, and is the same
// after another round.
func FuzzMeta(f *testing.F) {
	for _, s := range []string{"{}", `{"magic":"provctl journal","format":1,"id":"01J","epoch":1,"seq":2}`, `{"magic":"provctl journal","format":2,"id":"01J"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		s := &store{}
		s.put(metaBucket, metaKey, sealed(metaBucket, metaKey, content))
		m, err := s.metaRecord()
		if err != nil {
			if !errors.Is(err, receipt.ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		if m.Magic != metaMagic || m.Format < 1 || m.Format > formatVersion || m.ID == "" || len(m.ID) > maxIDLen {
			t.Fatalf("accepted %+v", m)
		}
		if err := s.saveMeta(m); err != nil {
			return // a time that no clock of ours gives; the next commit fails and says so
		}
		if again, err := s.metaRecord(); err != nil || !sameMeta(again, m) {
			t.Fatalf("%v\n got %+v\nwant %+v", err, again, m)
		}
	})
}

func sameMeta(a, b meta) bool {
	same := a.Created.Equal(b.Created) && a.Witness.Equal(b.Witness)
	if a.Pause != nil && b.Pause != nil {
		p := *b.Pause
		same = same && a.Pause.At.Equal(p.At)
		p.At = a.Pause.At
		b.Pause = &p
	}
	b.Created, b.Witness = a.Created, a.Witness
	return same && reflect.DeepEqual(a, b)
}

// FuzzStored puts one key and value into a bucket of a journal that is whole, with a right checksum, as no program of ours does: whoever
// reads it either passes over it or finds ErrDamaged. It never panics and never hangs.
func FuzzStored(f *testing.F) {
	sample := wholeStore(f)
	f.Add(byte(5), "active", []byte("n1"), true)
	f.Fuzz(func(t *testing.T, bucket byte, key string, value []byte, seal bool) {
		name := buckets[int(bucket)%len(buckets)]
		if len(key) == 0 || len(key) > bolt.MaxKeySize {
			return
		}
		if seal {
			value = sealed(name, key, value)
		}
		tx, err := sample.Begin(true)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if err := tx.Bucket([]byte(name)).Put([]byte(key), value); err != nil {
			return // a key that is a bucket, for one
		}
		s := &store{tx: tx}
		for what, read := range map[string]func() error{
			"meta":     func() error { _, err := s.metaRecord(); return err },
			"open":     func() error { _, err := s.openReceipts(); return err },
			"active":   func() error { _, err := s.activeJobs(); return err },
			"snapshot": func() error { _, err := s.snapshot("path", time.Time{}); return err },
			"totals":   func() error { _, err := s.recount(); return err },
			"lives":    func() error { _, err := s.lives(receipt.Node{ID: "n1"}); return err },
			"filed":    func() error { _, err := s.filed(key, value); return err },
			"ended":    func() error { _, _, err := s.lastEnded(); return err },
			"history":  func() error { _, err := s.history("n1", receipt.Incarnation{PID: 1, Start: 1}); return err },
			"revoked":  func() error { _, err := s.revoked(receipt.Token(key)); return err },
			"job":      func() error { _, err := load[receipt.Job](s, jobBucket, key); return err },
			"receipt":  func() error { _, err := load[receipt.Receipt](s, recBucket, key); return err },
			"node":     func() error { _, err := load[receipt.Node](s, nodeBucket, key); return err },
			"all": func() error {
				v := &verifier{store: *s, jobs: map[receipt.JobID]receipt.Job{}, receipts: map[receipt.ReceiptID]receipt.Receipt{}, nodes: map[receipt.NodeID]receipt.Node{}}
				return v.run()
			},
		} {
			if err := read(); err != nil && !errors.Is(err, receipt.ErrDamaged) && !errors.Is(err, ErrNotFound) {
				t.Fatalf("%s after %s/%q = %x: %v", what, name, key, value, err)
			}
		}
	})
}

// wholeStore is an open journal file with one job in it. Nothing is ever committed to it.
func wholeStore(t testing.TB) *bolt.DB {
	t.Helper()
	db, err := bolt.Open(filepath.Join(t.TempDir(), "journal.db"), 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	err = db.Update(func(tx *bolt.Tx) error {
		for _, name := range buckets {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		s := &store{tx: tx}
		job := receipt.Job{ID: "J1", Node: "n1", Seq: 1, Version: 1, Status: receipt.Queued, Source: "discovery"}
		s.refer(activeBuck, "J1", "n1")
		return errors.Join(
			s.saveMeta(meta{Magic: metaMagic, Format: formatVersion, ID: "01J", Epoch: 1, Seq: 1, Ended: noTotals()}),
			save(s, jobBucket, "J1", job), save(s, nodeBucket, "n1", receipt.Node{ID: "n1", Version: 1, Job: "J1"}), s.flush(),
		)
	})
	if err != nil {
		t.Fatal(err)
	}
	return db
}
