package control

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// socketScheme begins a place that is a worker's socket itself.
const socketScheme = "unix:"

// SocketPlace is what stands for a worker where Dial and its callers take a state directory, for somebody who may use its socket (an
// absolute path) and not its directory. Without the worker there is nothing behind it: Dial then returns ErrUnserved, and never
// ErrNoWorker, which sends callers to the files.
func SocketPlace(path string) string { return socketScheme + path }

// IsSocket reports whether a place is a socket, and which.
func IsSocket(place string) (path string, is bool) {
	path, is = strings.CutPrefix(place, socketScheme)
	return path, is && filepath.IsAbs(path)
}

// SocketPath is where the worker of a place listens.
func SocketPath(place string) string {
	if path, is := IsSocket(place); is {
		return path
	}
	return filepath.Join(place, SocketName)
}

// trusted refuses a process that is neither root's nor of the user to whom the socket's directory belongs: what it would be told is for
// the worker, and what it would say is not.
func (c *Client) trusted(listens caller) error {
	dir := filepath.Dir(SocketPath(c.dir))
	st, err := os.Stat(dir)
	if err != nil {
		return err
	}
	own, ok := st.Sys().(*syscall.Stat_t)
	if !ok || listens.uid != 0 && listens.uid != int(own.Uid) {
		return fmt.Errorf("%w: process %d listens there as user id %d, and the directory is not that user's: it is not the worker, and was told nothing; find out who put it there",
			ErrDenied, listens.pid, listens.uid)
	}
	return nil
}

// absent says what it means that nobody listens.
func (c *Client) absent() error {
	path, is := IsSocket(c.dir)
	if !is {
		return fmt.Errorf("%s: %w", SocketPath(c.dir), ErrNoWorker)
	}
	return fmt.Errorf("%s: %w: start the worker, see control_socket in its configuration, or have its user or root look with --state-dir", path, ErrUnserved)
}

// refused says what it means that the kernel does not let this user connect.
func (c *Client) refused() error {
	path, is := IsSocket(c.dir)
	if !is {
		return fmt.Errorf("%s: %w: use the worker's user or root, or as a member of its control_group the worker's --socket", SocketPath(c.dir), ErrDenied)
	}
	return fmt.Errorf("%s: %w: use a member of the worker's control_group, who logged in after being made one, the worker's user or root", path, ErrDenied)
}
