package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// Group is a second socket, for the members of a group: they may do there whatever the worker's user may. Who did is recorded by
// the user id that the kernel gives.
type Group struct {
	Socket string // absolute path, outside the state directory, which nobody else may enter
	Name   string
	ID     int
}

// GroupError is what keeps a group's socket from being served and only a change of the configuration, or of what it names, mends.
type GroupError struct {
	Setting string // the key of the configuration
	Err     error  // with the remedy
}

// Error is the cause's.
func (e *GroupError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *GroupError) Unwrap() error { return e.Err }

// caller is the process at the other end of a connection.
type caller struct {
	uid, pid int
	gids     []int
}

// unmapped is the user id that the kernel gives for one that a user namespace does not know: overflowuid of proc(5).
const unmapped = 65534

// probeTime is how long somebody who has the socket's name already may take to accept a connection.
const probeTime = time.Second

// ServeGroup serves the group's socket as Serve does the state directory's, besides it and until its own stop. It refuses a directory
// in which others could put a socket of their own, and a socket that another process serves. *GroupError: see there.
func ServeGroup(ctx context.Context, g Group, w Worker, log *slog.Logger) (func(), error) {
	if runtime.GOOS != "linux" {
		return nil, &GroupError{"control_group", errors.New("this system does not tell who is at a socket's other end: leave the key out")}
	}
	dir, name := filepath.Split(g.Socket)
	dir = filepath.Clean(dir)
	if err := ownDirectory(dir); err != nil {
		return nil, &GroupError{"control_socket", fmt.Errorf("%s: %w", g.Socket, err)}
	}
	if err := unserved(g.Socket); err != nil {
		return nil, &GroupError{"control_socket", err}
	}
	l, err := listen(door{dir: dir, name: name, mode: 0o660, group: &g})
	if err != nil {
		var group *GroupError
		switch {
		case errors.As(err, &group):
			return nil, err
		case errors.Is(err, errNoSocket):
			return nil, &GroupError{"control_socket", fmt.Errorf("%s: %w", g.Socket, err)}
		case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrNotExist):
			return nil, &GroupError{"control_socket", fmt.Errorf("%s: %w; the worker's user must be able to write into the directory", g.Socket, err)}
		}
		return nil, fmt.Errorf("the group's control socket %s: %w", g.Socket, err) // such as no space: that passes
	}
	return serve(ctx, l, w, log), nil
}

// give makes a file the group's. Only a member can.
func (g *Group) give(file string) error {
	err := os.Lchown(file, -1, g.ID)
	why := "cannot be given the socket"
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EPERM):
		why = fmt.Sprintf("cannot be given the socket by this user, who is no member of it: add SupplementaryGroups=%s to the unit, or the user to the group", g.Name)
	case errors.Is(err, syscall.EINVAL):
		why = fmt.Sprintf("is not known in the user namespace that the worker runs in: set PrivateUsers=no and SupplementaryGroups=%s in the unit", g.Name)
	}
	return &GroupError{"control_group", fmt.Errorf("group %q (%d) %s: %w", g.Name, g.ID, why, err)}
}

// admits a member whom the worker can name.
func (g *Group) admits(uid int, gids []int) error {
	switch {
	case uid == unmapped:
		return fmt.Errorf("%w: the worker cannot tell who you are, and does nothing for somebody it could not name: set PrivateUsers=no in its unit", ErrDenied)
	case !slices.Contains(gids, g.ID):
		return fmt.Errorf("%w: user id %d is no member of group %q; a new member logs in again first", ErrDenied, uid, g.Name)
	}
	return nil
}

// ownDirectory refuses a directory, and a way to it, in which anybody but root and this user could put something else in its place.
func ownDirectory(dir string) error {
	for at := dir; ; at = filepath.Dir(at) {
		st, err := os.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("directory %s does not exist: make it, mode 0755, for the worker's user (RuntimeDirectory= of the unit)", at)
		case err != nil:
			return fmt.Errorf("directory %s: %w: make it readable for the worker's user", at, err)
		case st.Mode().Type() == fs.ModeSymlink:
			return fmt.Errorf("%s is a symbolic link: write the path that it leads to", at)
		case !st.IsDir():
			return fmt.Errorf("%s is no directory (%s): name one", at, st.Mode().Type())
		}
		own, ok := st.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("directory %s: its owner is not known", at)
		}
		if uid := int(own.Uid); uid != 0 && uid != os.Geteuid() {
			return fmt.Errorf("directory %s belongs to user id %d, who could put another socket there: use one of root's or of the worker's user", at, uid)
		}
		// In a directory with the sticky bit nobody can rename what is another's, but anybody can take a name that is free.
		if st.Mode().Perm()&0o022 != 0 && (at == dir || st.Mode()&fs.ModeSticky == 0) {
			return fmt.Errorf("others may write into directory %s (mode %#o), and put another socket there: chmod go-w it", at, st.Mode().Perm())
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// unserved refuses a socket that somebody answers on: unlike the state directory's no lock says whose it is.
func unserved(path string) error {
	addr, release, err := address(filepath.Dir(path), filepath.Base(path))
	if err != nil {
		return err
	}
	defer release()
	conn, err := net.DialTimeout("unix", addr, probeTime)
	switch {
	case err == nil:
		defer func() { _ = conn.Close() }()
		who, _ := peer(conn)
		return fmt.Errorf("%s: process %d serves it already: give each worker a socket of its own, or end that process", path, who.pid)
	case errors.Is(err, syscall.EAGAIN), os.IsTimeout(err):
		return fmt.Errorf("%s: another process has it and does not answer: end that process, or name another path", path)
	}
	return nil // nobody is there, or what is there is no socket, which listen refuses
}
