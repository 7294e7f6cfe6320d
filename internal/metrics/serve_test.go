package metrics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"provctl/internal/loopback/loopbacktest"
)

// buffer is a log that can be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// served serves metrics for the test and returns how to fetch a path of it.
func served(t *testing.T, m *Metrics, log *slog.Logger) func(path string) (int, string) {
	t.Helper()
	port := loopbacktest.Port(t)
	stop, err := m.Serve(port, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return func(path string) (int, string) {
		t.Helper()
		return fetch(t, port, path)
	}
}

func fetch(t *testing.T, port int, path string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", port, path), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestServe(t *testing.T) {
	get := served(t, used("berlin", State{Epoch: 3}), slog.New(slog.DiscardHandler))
	code, text := get("/metrics")
	for _, line := range []string{
		"# TYPE choria_provisioner_provisioned counter", `choria_provisioner_provisioned{site="berlin"} 0`,
		`choria_provisioner_rpc_time_sum{rpc="choria_provision#configure",site="berlin"} 0.25`,
		`choria_provisioner_rpc_time_count{rpc="choria_provision#configure",site="berlin"} 1`,
		`provctl_epoch{site="berlin"} 3`, "# TYPE go_goroutines gauge", "# TYPE process_open_fds gauge",
	} {
		if code != http.StatusOK || !strings.Contains(text, line+"\n") {
			t.Errorf("code %d, the page lacks %q", code, line)
		}
	}
	if code, _ := get("/"); code != http.StatusNotFound {
		t.Errorf("another path gives %d", code)
	}
}

// TestPortInUse: the existing provisioner dies of it later; ours does not start.
func TestPortInUse(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", ":0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		stop, err := New("s").Serve(port, slog.New(slog.DiscardHandler))
		if err == nil {
			stop()
			t.Fatalf("port %d, in use on %s, was taken", port, l.Addr())
		}
		if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), fmt.Sprintf("monitor_port %d: ", port)) || !strings.Contains(err.Error(), "set another one") {
			t.Errorf("the error lacks cause, port or remedy: %v", err)
		}
		l.Close()
	}
}

func TestStopFreesThePort(t *testing.T) {
	port := loopbacktest.Port(t)
	for range 3 {
		stop, err := New("s").Serve(port, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if code, _ := fetch(t, port, "/metrics"); code != http.StatusOK {
			t.Errorf("code %d", code)
		}
		stop()
		stop() // a second stop does nothing
	}
}

// TestStateThatCannotBeRead leaves out what it cannot show, says so, and shows the rest. A panic must not end the worker.
func TestStateThatCannotBeRead(t *testing.T) {
	for name, source := range map[string]Source{
		"error": func() (State, error) { return State{}, errors.New("the journal is closed") },
		"panic": func() (State, error) { panic("the journal is closed") },
	} {
		t.Run(name, func(t *testing.T) {
			var log buffer
			m := used("s", State{})
			m.Watch(source)
			get := served(t, m, slog.New(slog.NewTextHandler(&log, nil)))
			code, text := get("/metrics")
			if code != http.StatusOK || !strings.Contains(text, theirs+"provisioned{") || strings.Contains(text, ours+"epoch") {
				t.Errorf("code %d, page:\n%s", code, text)
			}
			if !strings.Contains(log.String(), "the journal is closed") {
				t.Errorf("the log does not tell: %s", log.String())
			}
		})
	}
}

func TestBeforeThereIsAState(t *testing.T) {
	get := served(t, New("s"), slog.New(slog.DiscardHandler))
	if code, text := get("/metrics"); code != http.StatusOK || !strings.Contains(text, theirs+"provisioned{") || strings.Contains(text, theirs+"busy_workers") {
		t.Errorf("code %d, page:\n%s", code, text)
	}
}
