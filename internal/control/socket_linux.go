package control

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

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
func peer(c net.Conn) (uid, pid int, err error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, 0, errors.New("not a Unix socket")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, 0, err
	}
	if credErr != nil {
		return 0, 0, credErr
	}
	return int(cred.Uid), int(cred.Pid), nil
}
