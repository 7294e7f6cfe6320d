package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
)

// Open opens an existing journal for the one process that holds the worker lock. A journal that is missing, empty, foreign,
// damaged, of a newer format, or behind its marker is receipt.ErrDamaged (ErrMissing for the first two) with place and remedy;
// nothing is ever created in its stead. It checks the whole file, compacts it when most of it is free, and leaves the epoch as
// it is: see RaiseEpoch. ErrBusy if the file stays locked for longer than a backup of it may take: twenty
// seconds, and two for each 16 MiB.
func Open(dir string, o Options) (*Journal, error) {
	o = o.filled()
	path := filepath.Join(dir, fileName)
	if _, err := statJournal(path); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	m, markInode, err := readMarker(dir)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	if err := o.Verify(path); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	if err := removeTemps(dir); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j := &Journal{dir: dir, path: path, o: o, markInode: markInode, fault: o.fault, queue: queue{wake: make(chan struct{}, 1)}, done: make(chan struct{}), stopped: make(chan struct{})}
	if err := j.open(m); err != nil {
		return nil, errors.Join(fmt.Errorf("open journal: %w", err), j.abandon())
	}
	go j.committer()
	return j, nil
}

func (j *Journal) open(m mark) (err error) {
	if j.db, j.file, err = openWritable(j.path); err != nil {
		return err
	}
	// What a killed process wrote is seen whether or not it is on the disk, the file's own name included. A marker that counts on
	// it, or a commit into a file that has no durable name, must not come first.
	if err := errors.Join(j.file.Sync(), syncDir(j.dir)); err != nil {
		return fmt.Errorf("journal %s: %w: check the disk, then start again", j.path, err)
	}
	if err := j.load(m); err != nil {
		return err
	}
	if j.meta.Format != formatVersion {
		if err := j.migrate(); err != nil {
			return err
		}
	} else if free, size := j.space(); worthwhile(free, size) {
		if err := j.compact(); err != nil {
			return err
		}
		j.o.Log.Info("journal compacted", "path", j.path, "bytes", size, "free", free)
	}
	if j.inode, err = j.file.Stat(); err != nil {
		return fmt.Errorf("journal %s: %w", j.path, err)
	}
	if j.former, err = formerFiles(j.dir); err != nil {
		return err
	}
	if j.marker, err = openMarker(j.dir, m); err != nil {
		return err
	}
	if m.Seq == j.meta.Seq && m.Epoch == j.meta.Epoch {
		return nil
	}
	return j.marker.write(j.meta.Epoch, j.meta.Seq) // a crash came between a commit and its mark
}

// load reads the journal's record of itself and compares it with the marker.
func (j *Journal) load(m mark) error {
	return guard(j.path, func() error {
		return j.db.View(func(tx *bolt.Tx) error {
			s := &store{tx: tx}
			record, err := s.metaRecord()
			if err != nil {
				return err
			}
			if err := s.checkBuckets(record.Format); err != nil {
				return err
			}
			j.meta = record
			return m.covers(record.info(j.path))
		})
	})
}

// abandon gives up what a failed Open has opened.
func (j *Journal) abandon() error {
	var errs []error
	if j.db != nil {
		errs = append(errs, guard(j.path, j.db.Close))
	}
	if j.marker != nil {
		errs = append(errs, j.marker.f.Close())
	}
	return errors.Join(errs...)
}

// removeTemps removes what an interrupted Init or compaction left. The caller holds the worker lock.
func removeTemps(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, tempPattern))
	if err != nil {
		return fmt.Errorf("temporary files in %s: %w", dir, err)
	}
	for _, path := range left {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("temporary file: %w: may this user write to the state directory?", err)
		}
	}
	return nil
}

// Compaction pays when a file is not small and more than half of it is free.
const compactFrom = 1 << 20

func worthwhile(free, size int64) bool { return size >= compactFrom && free > size/2 }

// space is how many bytes of the file's pages are free, and its size.
func (j *Journal) space() (free, size int64) {
	info, err := j.file.Stat()
	if err != nil {
		return 0, 0
	}
	return int64(j.db.Stats().FreePageN) * int64(j.db.Info().PageSize), info.Size()
}

// compact rewrites the file without its free pages, with the same owner and mode. Until the rename the old file is complete and in place; a failure before it
// is only logged. The content, and so what the marker says of it, stays.
func (j *Journal) compact() error {
	temp, err := j.copyOut()
	if err != nil {
		j.o.Log.Warn("journal was not compacted", "path", j.path, "error", err.Error())
		return nil
	}
	return j.replace(temp)
}

// rewrite is compact for somebody who wants to know.
func (j *Journal) rewrite() error {
	temp, err := j.copyOut()
	if err != nil {
		return err
	}
	return j.replace(temp)
}

func (j *Journal) replace(temp string) error {
	if err := guard(j.path, j.db.Close); err != nil {
		j.db = nil
		return errors.Join(err, os.Remove(temp))
	}
	j.db = nil
	err := os.Rename(temp, j.path)
	if err == nil {
		err = syncDir(j.dir)
	}
	if err != nil {
		return fmt.Errorf("compact journal: %w", err)
	}
	j.db, j.file, err = openWritable(j.path)
	return err
}

func (j *Journal) copyOut() (string, error) {
	f, err := os.CreateTemp(j.dir, tempPattern)
	if err != nil {
		return "", err
	}
	temp := f.Name()
	err = f.Close()
	if err == nil {
		err = guard(temp, func() error {
			to, err := bolt.Open(temp, 0o600, &bolt.Options{Timeout: openWait, FreelistType: bolt.FreelistMapType})
			if err != nil {
				return err
			}
			return errors.Join(bolt.Compact(to, j.db, 8<<20), to.Close())
		})
	}
	if err == nil {
		err = errors.Join(j.likeOurs(temp), Verify(temp))
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(temp))
	}
	return temp, nil
}

// likeOurs gives a rewritten file the owner and mode of the one it replaces, and syncs it.
func (j *Journal) likeOurs(temp string) error {
	ours, err := j.file.Stat()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(temp, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(keepOwner(f, ours), f.Sync(), f.Close())
}
