package fence

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/gofrs/flock"

	"provctl/internal/localfs"
	"provctl/receipt"
)

// lockName is the file whose lock makes one process the worker of its directory. It is never unlinked: a new file of the same
// name would be another lock.
const lockName = "worker.lock"

// ErrHeld is returned when another process holds the lock.
var ErrHeld = errors.New("another process holds the worker lock")

// HeldError says who holds the lock. It is ErrHeld.
type HeldError struct {
	PID  int // 0: not known
	Path string
}

// Error names the holder and the remedy.
func (e *HeldError) Error() string {
	who := "its process is not known"
	if e.PID > 0 {
		who = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("%s %s (%s): stop it first, or use another state directory", ErrHeld, e.Path, who)
}

// Unwrap makes it ErrHeld.
func (e *HeldError) Unwrap() error { return ErrHeld }

// Lock is the right to be the worker of one state directory. The kernel frees it when the process ends, however it ends.
type Lock struct {
	path  string
	flock *flock.Flock
}

// Acquire takes the lock of a state directory at once or not at all: *HeldError if another process has it. The descriptor is
// closed on exec, so no helper inherits the lock. It refuses network file systems and a lock file that is a symbolic link.
func Acquire(dir string) (*Lock, error) {
	path := filepath.Join(dir, lockName)
	if err := localfs.Check(dir); err != nil {
		return nil, fmt.Errorf("worker lock: %w", err)
	}
	// os.OpenFile, which flock uses, adds O_CLOEXEC.
	f := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW), flock.SetPermissions(0o600))
	ok, err := f.TryLock()
	if err != nil {
		return nil, fmt.Errorf("worker lock %s: %w: %s", path, err, remedy(dir, err))
	}
	if !ok {
		return nil, heldBy(dir, path)
	}
	l := &Lock{path: path, flock: f}
	// The file may have been replaced between its opening and its locking.
	if err := errors.Join(l.Check(), l.sign()); err != nil {
		return nil, errors.Join(fmt.Errorf("worker lock %s: %w: %s", path, err, remedy(dir, err)), f.Unlock())
	}
	return l, nil
}

// remedy says what to do about a lock that could not be taken for another reason than that it is held.
func remedy(dir string, err error) string {
	switch info, e := os.Stat(dir); {
	case errors.Is(err, receipt.ErrFenced):
		return "start again once nothing replaces files in the state directory"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free some space there: a journal needs room to be written"
	case errors.Is(err, syscall.EROFS):
		return "mount it for writing"
	case e == nil && errors.Is(err, os.ErrPermission):
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
			return fmt.Sprintf("the state directory belongs to user id %d and this is user id %d: run it as that user, or give the directory to this one with all that is in it",
				st.Uid, os.Geteuid())
		}
	}
	return "the state directory must exist and be writable"
}

// heldBy says who holds the lock: who signed the file, or else whom the kernel names.
func heldBy(dir, path string) *HeldError {
	pid := holder(path)
	if pid == 0 {
		if h, err := Look(dir); err == nil {
			pid = h.PID
		}
	}
	return &HeldError{PID: pid, Path: path}
}

// Path is the lock file's.
func (l *Lock) Path() string { return l.path }

// Check returns receipt.ErrFenced unless the locked file is still the one at its path. It makes two system calls.
func (l *Lock) Check() error {
	if l == nil || l.flock == nil || !l.flock.Locked() {
		return fmt.Errorf("%w: the worker lock is not held", receipt.ErrFenced)
	}
	held, err := l.flock.Stat()
	if err != nil {
		return fmt.Errorf("%w: worker lock %s: %w", receipt.ErrFenced, l.path, err)
	}
	there, err := os.Lstat(l.path)
	if err != nil {
		return fmt.Errorf("%w: worker lock %s was removed while held: %w", receipt.ErrFenced, l.path, err)
	}
	if !os.SameFile(held, there) || links(held) == 0 {
		return fmt.Errorf("%w: worker lock %s was replaced while held: stop whatever replaced it, then start again", receipt.ErrFenced, l.path)
	}
	return nil
}

func links(i os.FileInfo) uint64 {
	if st, ok := i.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink) //nolint:unconvert // its type differs between platforms
	}
	return 0
}

// Release gives the lock up. The file stays. A second call does nothing.
func (l *Lock) Release() error {
	if l == nil || l.flock == nil {
		return nil
	}
	if err := l.flock.Unlock(); err != nil {
		return fmt.Errorf("worker lock %s: %w", l.path, err)
	}
	return nil
}

// sign writes the process id into the locked file, for the message that others get. It is not synced: it serves only while
// the process lives.
func (l *Lock) sign() error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	// Made by root, for a verdict without a worker, it must not lock out the worker's user.
	if err := localfs.GiveToOwner(f, filepath.Dir(l.path)); err != nil {
		return errors.Join(err, f.Close())
	}
	text := fmt.Appendf(nil, "%d\n", os.Getpid())
	_, err = f.WriteAt(text, 0)
	if err == nil {
		err = f.Truncate(int64(len(text)))
	}
	return errors.Join(err, f.Close())
}

// holder reads the process id from a lock file, or 0.
func holder(path string) int {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return 0
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 {
		return 0
	}
	return pid
}
