package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"
	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"provctl/internal/localfs"
)

// Init creates a blank journal with its marker, and the directory (0700) if it is missing. It is the only way a journal comes
// into being. It refuses network file systems (localfs.ErrNetwork) and a directory that has, or had, a journal (ErrExists). Both
// files are durable when it returns; interrupted at any moment, it can simply be run again or was complete. Run by root in
// another user's directory it gives both files to that user.
func Init(dir string) (Info, error) {
	if err := localfs.Check(dir); err != nil {
		return Info{}, fmt.Errorf("init journal: %w", err)
	}
	path := filepath.Join(dir, fileName)
	if err := MakeDir(dir); err != nil {
		return Info{}, fmt.Errorf("init journal: %w", err)
	}
	free, err := lockDir(dir)
	if err != nil {
		return Info{}, fmt.Errorf("init journal: %w", err)
	}
	defer free()
	if err := vacant(dir, path); err != nil {
		return Info{}, err
	}
	m := meta{Magic: metaMagic, Format: formatVersion, ID: ulid.Make().String(), Created: time.Now().Round(0).UTC(), Ended: noTotals()}
	temp, err := blank(dir, m, func(s *stage) error { return s.saveMeta(m) })
	if err != nil {
		return Info{}, fmt.Errorf("init journal in %s: %w: is there space, and may this user write?", dir, err)
	}
	// The marker comes first: with it alone, and nothing acknowledged in it, Init may run again. The other way round a crash
	// would leave a journal that Open must refuse.
	err = createMarker(dir, mark{ID: m.ID})
	if err == nil {
		err = renameNew(temp, path)
	}
	if err != nil {
		return Info{}, errors.Join(fmt.Errorf("init journal in %s: %w", dir, err), os.Remove(temp))
	}
	if err := syncDir(dir); err != nil {
		return Info{}, fmt.Errorf("init journal: %w", err)
	}
	return m.info(path), nil
}

// lockDir keeps two inits of one directory apart: one's marker must not end up beside the other's journal.
func lockDir(dir string) (free func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("%w: %s: another init is at work there: %w", ErrExists, dir, err)
	}
	return func() { _ = d.Close() }, nil
}

// vacant refuses a directory that has a journal, or a marker that acknowledged anything.
func vacant(dir, path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return fmt.Errorf("init journal: %w", err)
		}
		return fmt.Errorf("init journal: %w: %s: provctl run uses it as it is", ErrExists, path)
	}
	marker := filepath.Join(dir, markerName)
	if _, err := os.Lstat(marker); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	m, _, err := readMarker(dir)
	if err == nil && m.Epoch == 0 && m.Seq == 0 {
		return nil // left by an Init that was interrupted
	}
	return fmt.Errorf("init journal: %w: %s says that a journal was here and is gone: restore it; to forget all that it knew of its nodes, remove the marker first", ErrExists, marker)
}

// MakeDir creates a state directory (0700) with the parents that are missing, and makes their names durable. One that exists stays as it is.
func MakeDir(dir string) error { return makeDir(dir, syncDir) }

func makeDir(dir string, syncDir func(string) error) error {
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return fmt.Errorf("%s is no directory: choose another state directory", dir)
	case err == nil:
		return nil
	}
	var parents []string // of what is missing, the outermost last
	for at := filepath.Clean(dir); ; {
		if _, err := os.Stat(at); err == nil || at == filepath.Dir(at) {
			break
		}
		at = filepath.Dir(at)
		parents = append(parents, at)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("%w: create its parent, or choose another state directory", err)
	}
	for _, parent := range slices.Backward(parents) {
		if err := syncDir(parent); err != nil {
			return err
		}
	}
	return nil
}

// blank writes a journal with what begin stages and nothing else under a temporary name and syncs it.
func blank(dir string, m meta, begin func(*stage) error) (string, error) {
	f, err := os.CreateTemp(dir, tempPattern)
	if err != nil {
		return "", err
	}
	temp := f.Name()
	err = errors.Join(localfs.GiveToOwner(f, dir), f.Close())
	if err == nil {
		err = guard(temp, func() error { return fill(temp, m, begin) })
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(temp))
	}
	return temp, nil
}

func fill(path string, m meta, begin func(*stage) error) error {
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: openWait, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		if err := createBuckets(tx); err != nil {
			return err
		}
		s := &stage{store: store{tx: tx}, meta: m, now: m.Created}
		if err := begin(s); err != nil {
			return err
		}
		return s.flush()
	})
	err = errors.Join(err, db.Close())
	if err != nil {
		return err
	}
	return syncFile(path)
}

// syncFile makes a file's content and size durable, whatever wrote it.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// renameNew gives a file its final name unless that is taken.
func renameNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	switch {
	case errors.Is(err, unix.EEXIST):
		return fmt.Errorf("%w: %s: something else took that name first", ErrExists, to)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOTSUP):
		// This file system cannot; a hard link does not replace either.
		if err := os.Link(from, to); err == nil {
			return os.Remove(from)
		} else if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%w: %s: something else took that name first", ErrExists, to)
		}
		return os.Rename(from, to)
	case err != nil:
		return fmt.Errorf("rename %s to %s: %w", from, to, err)
	}
	return nil
}
