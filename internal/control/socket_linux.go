package control

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxSocketPath is what sun_path holds besides its final zero byte.
const maxSocketPath = 107

// address gives a form of dir/name that fits a socket address, however long dir is: a long one goes through a descriptor of
// the directory. The returned function gives that descriptor back; call it once the address is no longer used.
func address(dir, name string) (string, func(), error) {
	if p := filepath.Join(dir, name); len(p) <= maxSocketPath {
		return p, func() {}, nil
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("open state directory %s: %w", dir, err)
	}
	return filepath.Join("/proc/self/fd", strconv.Itoa(fd), name), func() { _ = unix.Close(fd) }, nil
}

// peer asks the kernel who is at the other end: the process that connected or, seen from the client, that listens.
func peer(c net.Conn) (caller, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return caller{}, errors.New("not a Unix socket")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return caller{}, err
	}
	var cred *unix.Ucred
	var groups []uint32
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		if cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); credErr == nil {
			groups, credErr = peerGroups(fd)
		}
	}); err != nil {
		return caller{}, err
	}
	if credErr != nil {
		return caller{}, credErr
	}
	who := caller{uid: int(cred.Uid), pid: int(cred.Pid), gids: []int{int(cred.Gid)}}
	for _, g := range groups {
		who.gids = append(who.gids, int(g))
	}
	return who, nil
}

// peerGroups are the supplementary groups of the process at the other end: SO_PEERGROUPS of socket(7), which x/sys has no function for.
func peerGroups(fd uintptr) ([]uint32, error) {
	groups := make([]uint32, 32)
	for {
		size := uint32(len(groups) * 4)
		//nolint:gosec // the kernel writes at most size bytes to the slice, and how many to size
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0:
			return groups[:size/4], nil
		case errno != unix.ERANGE || int(size/4) <= len(groups):
			return nil, fmt.Errorf("groups of the caller: %w", errno)
		}
		groups = make([]uint32, size/4) // as many as there are
	}
}
