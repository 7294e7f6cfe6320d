package fence

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrUntold is returned by Look where the kernel does not tell who holds which lock.
var ErrUntold = errors.New("the kernel does not tell who holds a lock")

// Holder is who holds the worker lock of a state directory.
type Holder struct {
	PID   int       // 0: nobody that this process can see
	Since time.Time // when the lock was taken; zero with PID 0
}

// Look tells who holds the worker lock of a state directory without touching it: an attempt at the lock, however short, would turn a
// worker away that starts at this moment, for good. A holder outside of this process's PID namespace is not seen. ErrUntold: it cannot be
// known. A lock file that is not there is nobody's.
func Look(dir string) (Holder, error) {
	path := filepath.Join(dir, lockName)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Holder{}, nil
	}
	if err != nil {
		return Holder{}, fmt.Errorf("worker lock: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Holder{}, ErrUntold
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return Holder{}, fmt.Errorf("%w: %w", ErrUntold, err)
	}
	defer locks.Close()
	pid, err := flockHolder(locks, st.Dev, st.Ino, holder(path))
	if err != nil {
		return Holder{}, fmt.Errorf("%w: %w", ErrUntold, err)
	}
	if pid == 0 {
		return Holder{}, nil
	}
	return Holder{PID: pid, Since: info.ModTime()}, nil // the holder signs the file when it takes the lock
}

// flockHolder finds the process that has a file locked, 0 if none has; see proc_locks(5). Some file systems show another device there than
// in stat(2): the inode then counts if the process is the one that signed the file.
func flockHolder(locks io.Reader, dev, inode uint64, signed int) (pid int, err error) {
	lines := bufio.NewScanner(locks)
	for lines.Scan() {
		// 1: FLOCK  ADVISORY  WRITE 15156 fe:00:9978163 0 EOF; who waits has "->" after the number
		f := strings.Fields(lines.Text())
		if len(f) < 6 || f[1] != "FLOCK" {
			continue
		}
		at := strings.Split(f[5], ":")
		if len(at) != 3 || at[2] != strconv.FormatUint(inode, 10) {
			continue
		}
		got, err := strconv.Atoi(f[4])
		if err != nil {
			continue
		}
		if got == signed || at[0] == fmt.Sprintf("%02x", unix.Major(dev)) && at[1] == fmt.Sprintf("%02x", unix.Minor(dev)) {
			return max(got, 0), nil
		}
	}
	return 0, lines.Err()
}
