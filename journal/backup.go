package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

	"provctl/internal/localfs"
)

// ErrCopying is returned by Backup while an earlier copy was not closed yet: there is one at a time.
var ErrCopying = errors.New("a backup is being made already")

const copySpare = 64 << 20 // bytes that a copy must leave free for commits

// copyTime is for how long a copy of a file of that many bytes may keep pages from being used again, or a worker from starting: ten seconds,
// and one for each 16 MiB.
func copyTime(size int64) time.Duration {
	return 10*time.Second + time.Duration(max(size, 0)>>24)*time.Second
}

// Copy is a consistent copy of a journal's file, to be read to its end and closed.
type Copy struct {
	Info Info // what it holds
	Size int64

	io.Reader
	close func() error
}

// Close frees the copy and lets the next one be made.
func (c *Copy) Close() error { return c.close() }

// Backup copies the journal of one moment into a file without a name in the state directory. No transaction stays open behind it: whoever
// reads the copy slowly keeps neither a commit waiting nor a page from being used again. Commits go on meanwhile. It shows nothing that is
// not durable. ErrCopying while another copy is open; an error too if the copy takes longer than ten seconds and one for each 16 MiB,
// or would leave less than 64 MiB free for commits. It changes nothing in the journal, and an error stops nothing.
func (j *Journal) Backup(ctx context.Context) (*Copy, error) {
	if !j.copying.CompareAndSwap(false, true) {
		return nil, fmt.Errorf("backup of %s: %w: try again in a moment", j.path, ErrCopying)
	}
	c, err := j.backup(ctx)
	if err != nil {
		j.copying.Store(false)
		return nil, fmt.Errorf("backup of %s: %w", j.path, err)
	}
	return c, nil
}

func (j *Journal) backup(ctx context.Context) (*Copy, error) {
	f, err := os.CreateTemp(j.dir, tempPattern) // what a killed process leaves of it the next Open removes
	if err != nil {
		return nil, err
	}
	c := &Copy{close: func() error {
		defer j.copying.Store(false)
		return f.Close()
	}}
	err = os.Remove(f.Name())
	if err == nil {
		err = j.view(func(s *store) (err error) {
			if err = roomFor(j.dir, s.tx.Size()); err != nil {
				return err
			}
			c.Info, c.Size, err = s.copyTo(ctx, f, j.path)
			return err
		})
	}
	if err == nil {
		err = j.acknowledged(c.Info.Seq)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	c.Reader = io.NewSectionReader(f, 0, c.Size)
	return c, nil
}

// roomFor refuses a copy that would take the space which commits need.
func roomFor(dir string, size int64) error {
	free, err := localfs.Free(dir)
	if err != nil {
		return err
	}
	if free < size+copySpare {
		return fmt.Errorf("%s has %d bytes free; the copy takes %d for a moment, and %d must stay free for the worker: make space, or stop the worker for the backup",
			dir, free, size, copySpare)
	}
	return nil
}

// copyTo writes the file as this transaction sees it.
func (s *store) copyTo(ctx context.Context, w io.Writer, path string) (Info, int64, error) {
	m, err := s.metaRecord()
	if err != nil {
		return Info{}, 0, err
	}
	limit := copyTime(s.tx.Size())
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("copying took longer than %s: is the disk overloaded?", limit))
	defer cancel()
	to := &while{ctx: ctx, w: w}
	n, err := s.tx.WriteTo(to)
	if err != nil {
		return Info{}, n, fmt.Errorf("after %d of %d bytes: %w", n, s.tx.Size(), cmp.Or(to.err, err)) // bbolt does not wrap it
	}
	return m.info(path), n, nil
}

// while writes until a context ends, and keeps the error.
type while struct {
	ctx context.Context
	w   io.Writer
	err error
}

func (w *while) Write(b []byte) (n int, err error) {
	if w.ctx.Err() != nil {
		err = context.Cause(w.ctx)
	} else {
		n, err = w.w.Write(b)
	}
	w.err = err
	return n, err
}

// CopyTo writes a journal that no worker has open, as it is now. It reads only; a worker that starts meanwhile waits for it, for longer than
// checking and copying may take. Errors as for Read, and those of w.
func CopyTo(ctx context.Context, dir string, w io.Writer) (Info, error) {
	var out Info
	err := readOnly(dir, func(s *store) (err error) {
		out, _, err = s.copyTo(ctx, w, filepath.Join(dir, fileName))
		return err
	})
	return out, err
}

// Look reads a journal file's record of itself, without a marker to hold it against. It reads only. receipt.ErrDamaged, ErrMissing,
// ErrNewer; ErrBusy while a worker has it open.
func Look(path string) (Info, error) {
	var out Info
	err := withReadOnly(path, readWait, func(db *bolt.DB) error {
		return db.View(func(tx *bolt.Tx) error {
			m, err := (&store{tx: tx}).metaRecord()
			out = m.info(path)
			return err
		})
	})
	if err != nil {
		return Info{}, fmt.Errorf("journal %s: %w", path, err)
	}
	return out, nil
}

// savePattern names a backup that is not finished yet.
const savePattern = ".provctl-backup-*.tmp"

// Save makes a backup file: fill writes it under a temporary name beside its own, it is synced, checked by verify, held against what fill
// said of it, and only then gets its name, durably. An existing file is never replaced. Whatever fails, there is no file of that name; a
// killed process can leave the temporary one. The info's path is the file's.
func Save(file string, fill func(io.Writer) (Info, error), verify func(path string) error) (Info, int64, error) {
	return saveFile(file, fill, verify, syncDir)
}

func saveFile(file string, fill func(io.Writer) (Info, error), verify, syncDir func(path string) error) (Info, int64, error) {
	if _, err := os.Lstat(file); err == nil {
		return Info{}, 0, fmt.Errorf("%w: %s: name another file", os.ErrExist, file)
	}
	dir := filepath.Dir(file)
	temp, err := os.CreateTemp(dir, savePattern) // mode 0600
	if err != nil {
		return Info{}, 0, fmt.Errorf("%w: name a file in a directory that exists and that this user may write to", err)
	}
	info, size, err := fillAndCheck(temp, fill, verify)
	if err == nil {
		err = renameNew(temp.Name(), file)
	}
	if err != nil {
		return Info{}, 0, errors.Join(err, os.Remove(temp.Name()))
	}
	if err := syncDir(dir); err != nil {
		return Info{}, 0, errors.Join(err, os.Remove(file))
	}
	info.Path = file
	return info, size, nil
}

func fillAndCheck(f *os.File, fill func(io.Writer) (Info, error), verify func(path string) error) (Info, int64, error) {
	said, err := fill(f)
	if err == nil {
		err = f.Sync()
	}
	st, serr := f.Stat()
	if err = errors.Join(err, serr, f.Close()); err != nil {
		return Info{}, 0, err
	}
	if err := verify(f.Name()); err != nil {
		return Info{}, 0, fmt.Errorf("the copy is not sound: %w", err)
	}
	info, err := Look(f.Name())
	if err == nil && (info.ID != said.ID || info.Seq != said.Seq || info.Epoch != said.Epoch) {
		err = fmt.Errorf("the copy is journal %s at sequence %d in epoch %d, what was copied was %s at %d in %d: make the backup again",
			info.ID, info.Seq, info.Epoch, said.ID, said.Seq, said.Epoch)
	}
	return info, st.Size(), err
}
