package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kballard/go-shellquote"
	"golang.org/x/sys/unix"

	"provctl/internal/localfs"
	"provctl/journal"
)

// The files of a state directory that a worker opens for writing, as packages journal and fence name them.
const (
	journalFile = "journal.db"
	markerFile  = "journal.marker"
	lockFile    = "worker.lock"
)

// stateDir looks at the directory and its files, not at what the journal holds.
func (v *visit) stateDir() {
	if failed, _ := v.problems(checkState); failed {
		return
	}
	dir := v.cfg.StateDir
	if err := localfs.Check(dir); errors.Is(err, localfs.ErrNetwork) {
		v.fail(checkState, v.cfg.Refuse("state_dir", err), "use a directory on a local disk, and restore the journal there", "%v", err)
		return
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.fail(checkState, journal.ErrMissing, "mount or restore it; only if there never was one, run: provctl init --state-dir "+shellquote.Join(dir), "%s does not exist", dir)
		return
	case err != nil:
		v.fail(checkState, nil, "run this as the worker's user or as root", "%v", err)
		return
	}
	if v.foreign(dir, info) {
		return
	}
	if v.usable = true; v.readOnly(dir) {
		return
	}
	wrong := info.Mode().Perm()&0o077 != 0
	if wrong {
		v.warn(checkState, "chmod 700 "+shellquote.Join(dir), "%s has mode %#o: other users can look into it", dir, info.Mode().Perm())
	}
	for _, name := range []string{journalFile, markerFile, lockFile} {
		wrong = v.stateFile(filepath.Join(dir, name)) || wrong
	}
	if v.tooOpen(checkState, filepath.Dir(dir), false) || wrong {
		return
	}
	v.ok(checkState, "%s belongs to %s, with mode %#o, on a local file system", dir, v.user, info.Mode().Perm())
}

func (v *visit) readOnly(dir string) bool {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Flags&unix.ST_RDONLY == 0 {
		return false
	}
	v.fail(checkState, nil, "mount it for writing: mount -o remount,rw PLACE; the kernel makes a file system read-only when its disk fails: see dmesg",
		"%s is on a file system that is mounted read-only", dir)
	return true
}

// foreign tells of a directory that the worker's user cannot work in.
func (v *visit) foreign(dir string, info fs.FileInfo) bool {
	owner, name := ownerOf(info), shellquote.Join(dir)
	switch err := v.user.access(dir, unix.R_OK|unix.W_OK|unix.X_OK); {
	case owner.uid != v.user.uid:
		v.fail(checkState, nil, fmt.Sprintf("run this, and the worker, as that user; or give it to this one: chown -R %s %s", v.user.owner(), name),
			"%s belongs to %s, and this is %s", dir, owner, v.user)
		return true
	case err != nil && !errors.Is(err, unix.EROFS): // which is told of by itself
		v.fail(checkState, nil, fmt.Sprintf("chmod 700 %s, and let %s enter the directories above it", name, v.user),
			"%s has mode %#o and cannot be used by %s: %v", dir, info.Mode().Perm(), v.user, err)
		return true
	}
	return false
}

// stateFile looks at one file; that it is missing is for others to judge.
func (v *visit) stateFile(path string) (wrong bool) {
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	name := shellquote.Join(path)
	switch owner := ownerOf(info); {
	case !info.Mode().IsRegular():
		v.fail(checkState, nil, "move it away; a journal is restored together with its marker", "%s is no regular file (%s)", path, info.Mode().Type())
	case v.user.access(path, unix.R_OK|unix.W_OK) != nil:
		v.fail(checkState, nil, fmt.Sprintf("chown -h %s %s && chmod 600 %s", v.user.owner(), name, name),
			"%s belongs to %s, with mode %#o, and cannot be written by %s", path, owner, info.Mode().Perm(), v.user)
	case owner.uid != v.user.uid:
		v.warn(checkState, fmt.Sprintf("chown -h %s %s", v.user.owner(), name), "%s belongs to %s, not to %s", path, owner, v.user)
	case info.Mode().Perm()&0o077 != 0:
		v.warn(checkState, "chmod 600 "+name, "%s has mode %#o: others than its owner can use it", path, info.Mode().Perm())
	default:
		return false
	}
	return true
}

const (
	mib = 1 << 20
	// growth is what the journal takes at a time, for itself and for its next copy.
	growth = 2 * mib
	// comfort is below which a disk is worth a word however small the journal is.
	comfort = 32 * mib
	// fewFiles and noFiles are how many more files a file system may take before a word, and before a start fails: a start makes three.
	fewFiles, noFiles = 1000, 8
)

// space looks at what is free for the journal: it grows, and is rewritten beside itself.
func (v *visit) space() {
	if !v.usable {
		return
	}
	dir := v.cfg.StateDir
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		v.skip(checkSpace, "file system of %s: %v", dir, err)
		return
	}
	size := int64(0)
	if info, err := os.Stat(filepath.Join(dir, journalFile)); err == nil {
		size = info.Size()
	}
	v.free = int64(min(st.Bavail, 1<<40)) * st.Bsize //nolint:gosec // bounded
	need := max(3*size, comfort)
	const remedy = "free or add space on this file system; old work is pruned by history_retention"
	const files = "remove files from this file system, or make it anew with more inodes"
	has := fmt.Sprintf("%d MiB free for a journal of %d MiB on the file system of %s", v.free/mib, (size+mib-1)/mib, dir)
	switch inodes := st.Files > 0; {
	case v.free < growth:
		v.fail(checkSpace, nil, remedy, "%s: its next commits fail, and the worker stops at the first", has)
	case inodes && st.Ffree < noFiles:
		v.fail(checkSpace, nil, files, "%d more files fit on the file system of %s: no journal can be rewritten", st.Ffree, dir)
	case v.free < need:
		v.warn(checkSpace, remedy, "%s; growing and being compacted it needs %d MiB", has, need/mib)
	case inodes && st.Ffree < fewFiles:
		v.warn(checkSpace, files, "%s, but only %d more files", has, st.Ffree)
	default:
		v.ok(checkSpace, "%s", has)
	}
}
