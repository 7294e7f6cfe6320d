package loopback

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// only has the kernel choose from one port alone (ip(7), IP_LOCAL_PORT_RANGE, since Linux 6.3).
func only(port int) func(string, string, syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) {
			set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_LOCAL_PORT_RANGE, port<<16|port)
		})
		return errors.Join(err, set)
	}
}

// TestReservedPort: whoever names the port has it, again and again, and nobody gets it by chance, whether somebody listens or not.
func TestReservedPort(t *testing.T) {
	free := func() *Port {
		p, err := Reserve()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	byChance := func(port int) (listens, connects error) {
		lc := net.ListenConfig{Control: only(port)}
		l, listens := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if listens == nil {
			_ = l.Close()
		}
		d := net.Dialer{Control: only(port)}
		c, connects := d.DialContext(t.Context(), "tcp", target.Addr().String())
		if connects == nil {
			_ = c.Close()
		}
		return listens, connects
	}
	untold := false
	kept := func(p *Port, when string) {
		t.Helper()
		listens, connects := byChance(p.Number())
		if untold = errors.Is(listens, unix.ENOPROTOOPT); untold {
			return
		}
		if !errors.Is(listens, unix.EADDRINUSE) || !errors.Is(connects, unix.EADDRNOTAVAIL) {
			t.Errorf("%s: to listen on any port gives %v, to connect %v", when, listens, connects)
		}
	}

	p := free()
	address := fmt.Sprintf("127.0.0.1:%d", p.Number())
	kept(p, "before anybody listens")
	if c, err := net.Dial("tcp", address); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a connection gives %v, %v", c, err)
	}
	for range 2 {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		kept(p, "while somebody listens")
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(l.Close(), c.Close()); err != nil {
			t.Error(err)
		}
		kept(p, "once nobody listens any more")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}

	if untold {
		if os.Getenv("CI") == "true" {
			t.Fatal("this kernel is older than 6.3: run the tests on a later one, or nobody knows whether a reserved port is kept")
		}
		t.Log("NOT RUN, for want of Linux 6.3: who gets a port by chance")
		return
	}
	var listens, connects error
	for range 10 { // one that is free may be somebody's the moment after
		q := free() // on which nobody listened: else what is left of its connections keeps it, too
		if err := q.Close(); err != nil {
			t.Error(err)
		}
		if listens, connects = byChance(q.Number()); listens == nil && connects == nil {
			return
		}
	}
	t.Errorf("a port that is not reserved: to listen gives %v, to connect %v", listens, connects)
}
