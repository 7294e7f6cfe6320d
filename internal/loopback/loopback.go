// Package loopback keeps TCP ports of 127.0.0.1 for whoever is to listen there, now or again later.
package loopback

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Port is a TCP port of 127.0.0.1 that Linux gives to nobody who asks for just any port, neither to listen nor to connect from. Whoever
// names it can listen on it, as often as wanted, with SO_REUSEADDR (which package net sets). While nobody does, connections are refused.
type Port struct {
	socket int
	number int
}

// Reserve takes a port that is free. It stays reserved until Close.
func Reserve() (*Port, error) {
	// Bound and never listening: automatic choice passes such a port by, and SO_REUSEADDR on both sides lets a listener have it.
	syscall.ForkLock.RLock() // no child gets the socket
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(socket)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, fmt.Errorf("reserve a port of 127.0.0.1: %w", err)
	}
	p := &Port{socket: socket}
	if err := p.bind(); err != nil {
		return nil, fmt.Errorf("reserve a port of 127.0.0.1: %w", errors.Join(err, p.Close()))
	}
	return p, nil
}

func (p *Port) bind() error {
	if err := unix.SetsockoptInt(p.socket, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return err
	}
	if err := unix.Bind(p.socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	bound, err := unix.Getsockname(p.socket)
	if err != nil {
		return err
	}
	at, ok := bound.(*unix.SockaddrInet4)
	if !ok {
		return fmt.Errorf("bound to a %T", bound)
	}
	p.number = at.Port
	return nil
}

// Number is the port's number.
func (p *Port) Number() int { return p.number }

// Close ends the reservation, and no listener. It is called once.
func (p *Port) Close() error { return unix.Close(p.socket) }
