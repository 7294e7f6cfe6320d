package control_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"provctl/internal/control"
)

// raw sends a request that no client of ours makes.
func raw(t *testing.T, dir, method, path string, body io.Reader) (int, string) {
	t.Helper()
	return asked(t, method, path, body, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", control.SocketPath(dir))
	})
}

// asked sends a request over a connection and returns the answer.
func asked(t *testing.T, method, path string, body io.Reader, dial func(context.Context) (net.Conn, error)) (int, string) {
	t.Helper()
	h := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}}
	defer h.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://worker"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	res, err := h.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(out)
}

func TestBadRequests(t *testing.T) {
	dir, w := t.TempDir(), &fake{}
	serve(t, dir, w)
	good := `{"receipt":"R","seen":5,"verdict":"applied","reason":"x"}`
	for _, c := range []struct {
		name, method, path, body string
		status                   int
	}{
		{"good", "POST", "/v1/decide", good, 200},
		{"not JSON", "POST", "/v1/decide", "hello", 400},
		{"empty", "POST", "/v1/decide", "", 400},
		{"null verdict", "POST", "/v1/decide", `{"receipt":"R","seen":5,"verdict":null,"reason":""}`, 400},
		{"unknown verdict", "POST", "/v1/decide", strings.Replace(good, "applied", "maybe", 1), 400},
		{"claims to be another", "POST", "/v1/decide", strings.Replace(good, "{", `{"by":"root",`, 1), 400},
		{"duplicate field", "POST", "/v1/decide", strings.Replace(good, "{", `{"reason":"y",`, 1), 400},
		{"trailing data", "POST", "/v1/decide", good + good, 400},
		{"no reason", "POST", "/v1/decide", strings.Replace(good, `"x"`, `" "`, 1), 400},
		{"escape in reason", "POST", "/v1/decide", strings.Replace(good, `"x"`, `"\u001b[2J"`, 1), 400},
		{"line in reason", "POST", "/v1/decide", strings.Replace(good, `"x"`, `"a\nb"`, 1), 400},
		{"long reason", "POST", "/v1/decide", strings.Replace(good, `"x"`, `"`+strings.Repeat("x", 2000)+`"`, 1), 400},
		{"too large", "POST", "/v1/decide", `{"reason":"` + strings.Repeat("x", 1<<20) + `"}`, 413},
		{"escape in evidence", "POST", "/v1/decide", strings.Replace(good, "{", `{"evidence":"\u001b[2J",`, 1), 400},
		{"long evidence", "POST", "/v1/decide", strings.Replace(good, "{", `{"evidence":"`+strings.Repeat("x", 2000)+`",`, 1), 400},
		{"release of a bad node", "POST", "/v1/release", `{"node":"a b","reason":"x"}`, 400},
		{"release without a reason", "POST", "/v1/release", `{"node":"n1","reason":""}`, 400},
		{"bad node", "POST", "/v1/admit", `{"node":"a b","reason":"x"}`, 400},
		{"other path", "GET", "/v1/other", "", 400},
		{"other method", "GET", "/v1/decide", "", 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			if status, body := raw(t, dir, c.method, c.path, bytes.NewReader([]byte(c.body))); status != c.status {
				t.Errorf("status %d (%.200s), want %d", status, body, c.status)
			}
		})
	}
	if len(w.decided) != 1 {
		t.Errorf("%d decisions reached the worker, want the good one alone", len(w.decided))
	}
}

func TestAPanicIsAnError(t *testing.T) {
	dir, w := t.TempDir(), &fake{panics: true}
	serve(t, dir, w)
	c := dial(t, dir)
	if _, err := c.Snapshot(t.Context()); err == nil || strings.Contains(err.Error(), "goroutine") {
		t.Errorf("a panic gives %v, want an error without a stack", err)
	}
	if _, err := c.Live(t.Context()); err != nil {
		t.Errorf("after a panic the server is gone: %v", err)
	}
}

func TestAnswersThatAreNotOurs(t *testing.T) {
	for name, body := range map[string]string{"not JSON": "hello", "another shape": `[1]`, "cut": `{"pid":1`} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l, err := net.Listen("unix", control.SocketPath(dir))
			if err != nil {
				t.Fatal(err)
			}
			s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })}
			go func() { _ = s.Serve(l) }()
			t.Cleanup(func() { _ = s.Close() })
			if _, err := dial(t, dir).Live(t.Context()); !errors.Is(err, control.ErrProtocol) {
				t.Errorf("the client says %v, want ErrProtocol", err)
			}
		})
	}
}

func TestTooManyAtOnceIsSaidAtOnce(t *testing.T) {
	dir, w := t.TempDir(), &fake{block: make(chan struct{}), entered: make(chan struct{}, 64)}
	serve(t, dir, w)
	c := dial(t, dir)
	var wg sync.WaitGroup
	refused := make(chan error, 64)
	for range 40 {
		wg.Go(func() {
			if _, err := c.Snapshot(t.Context()); err != nil {
				refused <- err
			}
		})
	}
	err := <-refused // 40 do not fit
	if !errors.Is(err, control.ErrUnavailable) {
		t.Errorf("an overloaded worker gives %v, want ErrUnavailable", err)
	}
	close(w.block)
	wg.Wait()
}
