//go:build !linux

package control

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// maxSocketPath is the smallest that the systems other than Linux have.
const maxSocketPath = 103

func address(dir, name string) (string, func(), error) {
	p := filepath.Join(dir, name)
	if len(p) > maxSocketPath {
		return "", nil, fmt.Errorf("socket %s: its path has %d bytes, this system takes %d; use a shorter state directory", p, len(p), maxSocketPath)
	}
	return p, func() {}, nil
}

// peer: without peer credentials the socket's mode is what there is, and it admits our own user alone.
func peer(net.Conn) (caller, error) { return caller{uid: os.Geteuid()}, nil }
