package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// openOwn opens a file to write it, as os.OpenFile does, and follows a symbolic link only where nobody but root and this user can have put
// it: through another's link the worker would write what that link names, such as its own journal.
func openOwn(file string, flag int, mode os.FileMode) (*os.File, error) {
	f, err := os.OpenFile(file, flag|syscall.O_NOFOLLOW, mode)
	if !errors.Is(err, syscall.ELOOP) {
		return f, err
	}
	dir := filepath.Dir(file)
	st, serr := os.Stat(dir)
	if serr != nil {
		return nil, serr
	}
	own, ok := st.Sys().(*syscall.Stat_t)
	if !ok || own.Uid != 0 && int(own.Uid) != os.Geteuid() || st.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("%s is a symbolic link in a directory that others may write to: name what it leads to, or remove the link", file)
	}
	return os.OpenFile(file, flag, mode)
}
