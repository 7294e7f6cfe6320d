package journal

import (
	"errors"

	bolt "go.etcd.io/bbolt"

	"provctl/receipt"
)

type (
	receiptEpoch = receipt.Epoch
	receiptSeq   = receipt.Seq
)

func setMeta(path string, change func(*meta)) error {
	return edit(path, func(s *store) error {
		m, err := s.metaRecord()
		if err != nil {
			return err
		}
		change(&m)
		return s.saveMeta(m)
	})
}

// edit changes a closed journal behind its back.
func edit(path string, f func(*store) error) error {
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		s := &store{tx: tx}
		return errors.Join(f(s), s.flush())
	})
	return errors.Join(err, db.Close())
}

// Meddle applies one of the named changes that no program of ours makes, each leaving sound pages and checksums.
func Meddle(path, what string) error {
	return edit(path, func(s *store) error {
		open, err := s.openReceipts()
		if err != nil {
			return err
		}
		jobs, err := s.activeJobs()
		if err != nil {
			return err
		}
		r := open[0]
		switch what {
		case "open index entry lost":
			s.remove(openBucket, string(r.ID))
		case "open index entry left over":
			s.refer(openBucket, "nobody", "n1")
		case "active index entry lost":
			s.remove(activeBuck, string(jobs[0].ID))
		case "history entry lost":
			s.remove(lifeBucket, lifeKey(r.Node, r.Incarnation, r.Seq))
		case "tombstone of nobody":
			s.refer(tombBucket, "token", "nobody")
		case "receipt lost":
			s.remove(recBucket, string(r.ID))
		case "job lost":
			s.remove(jobBucket, string(r.Job))
		case "node lost":
			s.remove(nodeBucket, string(r.Node))
		case "receipt settled behind the job's back":
			r.Status = receipt.Applied
			return save(s, recBucket, string(r.ID), r)
		case "receipt under another id":
			b, err := s.get(recBucket, string(r.ID))
			s.put(recBucket, "other", append([]byte(nil), b...))
			return err
		case "version from the future":
			r.Version += 1000
			return save(s, recBucket, string(r.ID), r)
		case "bucket lost":
			return s.tx.DeleteBucket([]byte(lifeBucket))
		case "record byte changed":
			b, err := s.get(recBucket, string(r.ID))
			c := append([]byte(nil), b...)
			c[len(c)/2] ^= 1
			s.put(recBucket, string(r.ID), c)
			return err
		case "meta record lost":
			s.remove(metaBucket, metaKey)
		case "totals lost":
			m, err := s.metaRecord()
			m.Ended = totals{}
			return errors.Join(err, s.saveMeta(m))
		case "totals too small":
			m, err := s.metaRecord()
			m.Ended.Jobs[receipt.Provisioned]--
			return errors.Join(err, s.saveMeta(m))
		case "receipt totals too small":
			m, err := s.metaRecord()
			m.Ended.Receipts[receipt.Applied]--
			return errors.Join(err, s.saveMeta(m))
		case "job filed as ended without a receipt":
			s.refer(endedBucket, bareKey("done-1"), string(jobs[0].ID))
		case "meta magic":
			m, err := s.metaRecord()
			m.Magic = "something else"
			return errors.Join(err, s.saveMeta(m))
		default:
			return errors.New("no such change: " + what)
		}
		return nil
	})
}
