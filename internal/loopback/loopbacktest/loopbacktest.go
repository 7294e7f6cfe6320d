// Package loopbacktest gives tests ports to listen on.
package loopbacktest

import (
	"testing"

	"provctl/internal/loopback"
)

// Port is a TCP port of 127.0.0.1 on which nobody listens and that only those get, until the test ends, who name it.
func Port(t testing.TB) int {
	t.Helper()
	p, err := loopback.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p.Number()
}
