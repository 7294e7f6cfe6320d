package journal

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a file the owner and mode of the one that it will replace: a journal rewritten by root must not lock out the
// worker's user.
func keepOwner(f *os.File, like fs.FileInfo) error {
	have, err := f.Stat()
	if err != nil {
		return err
	}
	is, ok := have.Sys().(*syscall.Stat_t)
	want, wanted := like.Sys().(*syscall.Stat_t)
	if ok && wanted && (is.Uid != want.Uid || is.Gid != want.Gid) {
		if err := f.Chown(int(want.Uid), int(want.Gid)); err != nil {
			return fmt.Errorf("keep owner %d:%d: %w: start as that user, or as one who may change owners", want.Uid, want.Gid, err)
		}
	}
	if have.Mode().Perm() != like.Mode().Perm() {
		return f.Chmod(like.Mode().Perm())
	}
	return nil
}
