package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterr "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"provctl/receipt"
)

const (
	fileName    = "journal.db"
	tempPattern = ".journal-*.tmp" // what an interrupted Init or compaction leaves; Open removes it

	openWait = 5 * time.Second        // for whoever checks a file that a worker may be about to close, and for temporary files
	readWait = 100 * time.Millisecond // a worker holds it for as long as it lives
	lockStep = 10 * time.Millisecond
	mapSize  = 1 << 26 // mapped from the start, so that a growing file does not wait for readers; address space only
	growSize = 1 << 20 // how much a full file grows
)

// statJournal judges what is at a journal's path before anything opens it.
func statJournal(path string) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: there is no %s: restore it with its marker; only if there never was one, run: provctl init --state-dir %s", ErrMissing, path, filepath.Dir(path))
	case err != nil:
		return nil, fmt.Errorf("journal %s: %w: give this user access to it", path, err)
	case info.Mode()&fs.ModeSymlink != 0:
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: %s is a dangling link: mount what it leads to, or point --state-dir at the journal's directory", ErrMissing, path)
		}
		return nil, fmt.Errorf("%w: %s is a symbolic link, under which a replaced journal cannot be noticed: use the directory that it leads to", receipt.ErrDamaged, path)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: %s is no regular file (%s): restore the journal", receipt.ErrDamaged, path, info.Mode().Type())
	case info.Size() == 0:
		return nil, fmt.Errorf("%w: %s is empty: restore it with its marker", ErrMissing, path)
	}
	return info, nil
}

// withReadOnly runs f on a journal file opened for reading alone, after its pages were checked. Nothing is written.
func withReadOnly(path string, wait time.Duration, f func(*bolt.DB) error) error {
	if _, err := statJournal(path); err != nil {
		return err
	}
	// This descriptor's lock keeps writers out between the check of the pages and the mapping.
	own, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("journal: %w: give this user access to it", err)
	}
	defer own.Close()
	if err := shareLock(own, wait); err != nil {
		return err
	}
	info, err := own.Stat()
	if err != nil {
		return fmt.Errorf("journal %s: %w", path, err)
	}
	if err := checkPages(own, info.Size(), true); err != nil {
		return fmt.Errorf("journal %s: %w", path, err)
	}
	var file *os.File
	var db *bolt.DB
	err = guard(path, func() (err error) {
		db, err = bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: openWait, OpenFile: opener(&file)})
		if err != nil {
			return openError(path, openWait, err)
		}
		return f(db)
	})
	var p *panicError
	switch {
	case errors.As(err, &p):
		// What bbolt holds in memory cannot be trusted to close. The map stays until the process ends.
		_ = letGo(file)
	case db != nil:
		err = errors.Join(err, db.Close())
	}
	return err
}

// letGo frees the lock of a file that bbolt cannot be asked to close. Closing is not enough: the memory map keeps the lock.
func letGo(f *os.File) error {
	if f == nil {
		return nil
	}
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}

func shareLock(f *os.File, wait time.Duration) error {
	for until := time.Now().Add(wait); ; time.Sleep(lockStep) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("lock journal %s: %w", f.Name(), err)
		case !time.Now().Before(until):
			return fmt.Errorf("%w: %s: ask the worker that has it open", ErrBusy, f.Name())
		}
	}
}

// writeWait is how long the one writer waits for readers of a file of that many bytes: a backup checks its pages first, and then has copyTime.
func writeWait(size int64) time.Duration { return 2 * copyTime(size) }

// opener opens the file for bbolt: never creating it, never an empty one (which bbolt would turn into a blank journal), and
// keeping its descriptor for us.
func opener(keep **os.File) func(string, int, os.FileMode) (*os.File, error) {
	return func(path string, flag int, mode os.FileMode) (*os.File, error) {
		f, err := os.OpenFile(path, flag&^os.O_CREATE|syscall.O_NOFOLLOW, mode)
		if err != nil {
			return nil, err
		}
		info, err := f.Stat()
		if err == nil && info.Size() == 0 {
			err = fmt.Errorf("%w: %s is empty", ErrMissing, path)
		}
		if err != nil {
			_ = f.Close()
			return nil, err
		}
		*keep = f
		return f, nil
	}
}

// openWritable opens the database file for the one writer.
func openWritable(path string) (db *bolt.DB, file *os.File, err error) {
	info, err := statJournal(path)
	if err != nil {
		return nil, nil, err
	}
	wait := writeWait(info.Size())
	err = guard(path, func() error {
		db, err = bolt.Open(path, 0o600, &bolt.Options{
			Timeout: wait, FreelistType: bolt.FreelistMapType, InitialMmapSize: mapSize, OpenFile: opener(&file),
		})
		return err
	})
	if err != nil {
		var p *panicError
		if errors.As(err, &p) {
			_ = letGo(file)
		}
		return nil, nil, openError(path, wait, err)
	}
	db.AllocSize = growSize
	return db, file, nil
}

func openError(path string, waited time.Duration, err error) error {
	switch {
	case errors.Is(err, bolterr.ErrTimeout):
		return fmt.Errorf("%w: %s is locked for more than %s: end the process that has it open", ErrBusy, path, waited)
	case errors.Is(err, bolterr.ErrInvalid), errors.Is(err, bolterr.ErrVersionMismatch), errors.Is(err, bolterr.ErrChecksum):
		return fmt.Errorf("journal %s: %w", path, badFile("%w", err))
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return fmt.Errorf("journal %s: %w: give this user write access to it", path, err)
	}
	return fmt.Errorf("journal %s: %w", path, err)
}
