package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	bolt "go.etcd.io/bbolt"
	bolterr "go.etcd.io/bbolt/errors"

	"provctl/receipt"
)

// Journal is an open journal. It is safe for concurrent use.
type Journal struct {
	dir, path string
	o         Options
	db        *bolt.DB
	file      *os.File    // the database's own descriptor
	inode     os.FileInfo // of it
	marker    *markerFile // written by the committer alone
	markInode os.FileInfo
	former    []string // files of older formats, which the first commit removes

	queue queue
	done  chan struct{} // closed when the committer has ended

	committing atomic.Pointer[time.Time] // when the commit that is under way began; nil: none is

	copying atomic.Bool   // a Copy is open
	stopped chan struct{} // closed when failed is set
	mu      sync.Mutex    // guards what follows
	meta    meta          // as last acknowledged
	term    receipt.Epoch // of this worker; 0 until RaiseEpoch
	failed  *StoppedError
	broken  bool // a panic went through bbolt: it is not called any more
	closed  bool
	stats   Stats

	fault func(point string) error // nil outside of tests
}

// defaultHold keeps a node that just left provisioning mode from being taken while it still answers.
const defaultHold = time.Minute

func (o Options) filled() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewID == nil {
		o.NewID = func() string { return ulid.Make().String() }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Verify == nil {
		o.Verify = Verify
	}
	if o.Hold <= 0 {
		o.Hold = defaultHold
	}
	return o
}

// Info says which journal it is and what was acknowledged last.
func (j *Journal) Info() Info {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.meta.info(j.path)
}

func (m meta) info(path string) Info {
	return Info{ID: m.ID, Format: m.Format, Epoch: m.Epoch, Seq: m.Seq, Created: m.Created, Path: path, Pause: m.Pause, Accepted: m.Accepted}
}

// Tally counts over the journal's whole life, as last acknowledged.
func (j *Journal) Tally() Tally {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.meta.Tally
}

// Stopped is closed once a write failed; see Failed. It may have been one that nobody waits for.
func (j *Journal) Stopped() <-chan struct{} { return j.stopped }

// Failed is nil, or the *StoppedError that every write gets since one failed. It does not clear until the journal is opened again.
func (j *Journal) Failed() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed == nil {
		return nil
	}
	return j.failed
}

// Stats sums up the commits since Open.
func (j *Journal) Stats() Stats {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stats
}

// Current returns receipt.ErrFenced unless the open file is still the one at its path and the marker on disk carries our id and
// epoch. It reads the disk each time and takes no lock that a commit holds for long, so it can be called before every effect.
func (j *Journal) Current() error {
	fenced := func(format string, args ...any) error {
		return fmt.Errorf("%w: journal %s: %w", receipt.ErrFenced, j.path, fmt.Errorf(format, args...))
	}
	j.mu.Lock()
	id, term, failed, closed := j.meta.ID, j.term, j.failed, j.closed
	j.mu.Unlock()
	switch {
	case closed:
		return fenced("%w", ErrClosed)
	case failed != nil:
		return fenced("%w", failed)
	case term == 0:
		return fenced("the epoch was not raised yet")
	}
	there, err := os.Lstat(j.path)
	if err != nil {
		return fenced("it was removed while open: %w", err)
	}
	if !os.SameFile(there, j.inode) {
		return fenced("it was replaced while open: stop whatever replaced it, then start again")
	}
	m, inode, err := readMarker(j.dir)
	if err != nil {
		return fenced("%w", err)
	}
	if m.ID != id || m.Epoch != term || !os.SameFile(inode, j.markInode) {
		return fenced("the marker was replaced (journal %s, epoch %d; we are %s, %d): another worker was here", m.ID, m.Epoch, id, term)
	}
	return nil
}

// view runs a read. It goes on after a failed commit, but not after a panic.
func (j *Journal) view(f func(s *store) error) error {
	j.mu.Lock()
	closed, broken, failed := j.closed, j.broken, j.failed
	j.mu.Unlock()
	switch {
	case closed:
		return ErrClosed
	case broken:
		return failed
	}
	err := guard(j.path, func() error {
		return j.db.View(func(tx *bolt.Tx) error { return f(&store{tx: tx}) })
	})
	if errors.Is(err, receipt.ErrDamaged) {
		j.stop(err)
	}
	if errors.Is(err, bolterr.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	return err
}

// stop refuses every later write. The first cause is kept.
func (j *Journal) stop(cause error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	var p *panicError
	if errors.As(cause, &p) {
		j.broken = true
		j.o.Log.Error("journal: panic", "path", j.path, "value", fmt.Sprint(p.value), "stack", string(p.stack))
	}
	if j.failed == nil {
		j.failed = &StoppedError{Path: j.path, Cause: cause}
		close(j.stopped)
		j.o.Log.Error("journal stopped: no effect may be sent any more", "path", j.path, "error", cause.Error())
	}
	return j.failed
}

// Close waits for the changes that are queued, then closes the file. A second call does nothing.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		<-j.done
		return nil
	}
	j.closed = true
	broken := j.broken
	j.mu.Unlock()
	j.queue.close()
	<-j.done
	var errs []error
	if broken {
		errs = append(errs, letGo(j.file)) // the memory map stays until the process ends
	} else {
		errs = append(errs, guard(j.path, j.db.Close))
	}
	errs = append(errs, j.marker.f.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close journal %s: %w", filepath.Base(j.path), err)
	}
	return nil
}
