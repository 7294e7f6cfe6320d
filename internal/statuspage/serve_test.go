package statuspage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"provctl/internal/loopback/loopbacktest"
)

func fetch(t *testing.T, port int) (int, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(soon(t), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/status/report.json", port), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	return res.StatusCode, nil
}

func TestServeAndStop(t *testing.T) {
	port := loopbacktest.Port(t)
	for range 3 {
		stop, err := Serve(t.Context(), port, Handler(calm(), Options{}), nil)
		if err != nil {
			t.Fatal(err)
		}
		if code, err := fetch(t, port); code != http.StatusOK {
			t.Errorf("code %d, %v", code, err)
		}
		stop()
		stop() // a second stop does nothing
		if code, err := fetch(t, port); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("after stop: code %d, %v", code, err)
		}
	}
}

// TestServeIsForThisHost: no other address of the machine has the port.
func TestServeIsForThisHost(t *testing.T) {
	port := loopbacktest.Port(t)
	stop, err := Serve(t.Context(), port, Handler(calm(), Options{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	other, err := net.Listen("tcp", fmt.Sprintf("127.0.0.2:%d", port)) // a listener on all addresses would be in the way
	if err != nil {
		t.Fatalf("the port is taken on other addresses, too: %v", err)
	}
	other.Close()
}

func TestServeEndsWithItsContext(t *testing.T) {
	port := loopbacktest.Port(t)
	ctx, cancel := context.WithCancel(t.Context())
	stop, err := Serve(ctx, port, Handler(calm(), Options{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for within := soon(t); ; {
		if _, err := fetch(t, port); errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
		if within.Err() != nil {
			t.Fatal("it is served after its context ended")
		}
	}
	stop()
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	for _, p := range []int{port, 70000} {
		stop, err := Serve(t.Context(), p, http.NotFoundHandler(), nil)
		if err == nil {
			stop()
			t.Fatalf("port %d was taken", p)
		}
		if !strings.HasPrefix(err.Error(), fmt.Sprintf("status_port %d: ", p)) || !strings.Contains(err.Error(), "set another one") {
			t.Errorf("the error lacks port or remedy: %v", err)
		}
	}
}
