package localfs

import (
	"fmt"
	"os"
	"syscall"
)

// GiveToOwner gives a new file in a state directory to the directory's owner. Only root can, and only root needs to: whoever else
// writes into another's directory keeps what is his own.
func GiveToOwner(f *os.File, dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || owner.Uid == 0 {
		return nil
	}
	if err := f.Chown(int(owner.Uid), int(owner.Gid)); err != nil {
		return fmt.Errorf("give %s to owner %d:%d of its directory: %w: run this as that user", f.Name(), owner.Uid, owner.Gid, err)
	}
	return nil
}
