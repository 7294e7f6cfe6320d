package statuspage

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"
)

// policy lets the page load its own files and talk to its own origin, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// guarded puts before the handler what holds for every request: the headers, who may ask, how many at once, and that a panic
// ends one request alone.
func (h *handler) guarded(next http.Handler) http.Handler {
	slots := make(chan struct{}, requestsAtOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w.Header())
		if code, why := refusal(r); why != "" {
			plain(w, code, why)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			h.fail(w, http.StatusMethodNotAllowed, fmt.Errorf("method %.20q is not allowed: the status page only shows; use provctl reconcile, admit or pause to decide", r.Method))
			return
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			w.Header().Set("Retry-After", "2")
			h.fail(w, http.StatusServiceUnavailable, fmt.Errorf("%d requests are being answered already: close other tabs of the status page, or try again in a moment", requestsAtOnce))
			return
		}
		defer func() {
			if p := recover(); p != nil {
				h.fail(w, http.StatusInternalServerError, h.panicked("answering "+r.URL.Path, p))
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// setHeaders are those of every answer, refusals too.
func setHeaders(to http.Header) {
	to.Set("Content-Security-Policy", policy)
	to.Set("X-Content-Type-Options", "nosniff")
	to.Set("Referrer-Policy", "no-referrer")
	to.Set("Cross-Origin-Resource-Policy", "same-origin")
	to.Set("Cross-Origin-Opener-Policy", "same-origin")
	to.Set("Cache-Control", "no-store")
}

// refusal says why a request is not from a reader on this host. A name that a stranger's DNS server points to this host does not
// pass (rebinding), nor does what another site's page asks for.
func refusal(r *http.Request) (code int, why string) {
	if !loopback(r.Host) {
		return http.StatusForbidden, fmt.Sprintf("Host %.80q is not a loopback name: open the status page as http://localhost:PORT%s or http://127.0.0.1:PORT%s on the worker's host, or through ssh -L.", r.Host, Prefix, Prefix)
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "none", "same-origin":
		return 0, ""
	default:
		return http.StatusForbidden, fmt.Sprintf("The request comes from another site (Sec-Fetch-Site: %.20q): type or paste the status page's address instead of following a link.", site)
	}
}

// loopback reports whether a Host header names this host to itself: localhost, 127.0.0.0/8 or [::1], with any port or none.
func loopback(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil { // without a port
		name = host
		if inner, ok := strings.CutPrefix(host, "["); ok {
			name, ok = strings.CutSuffix(inner, "]")
			if !ok {
				return false
			}
		} else if strings.Contains(host, ":") {
			return false
		}
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(name)
	return err == nil && a.Zone() == "" && a.IsLoopback() && !a.Is4In6()
}

// errPanicked is in every error that a defect of the source caused.
var errPanicked = errors.New("panicked, which is a defect of provctl; the worker goes on")

// panicked makes an error of a panic, with the stack in the log.
func (h *handler) panicked(doing string, p any) error {
	h.log.Error("a part of the status page failed; the worker goes on", "doing", doing, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	return fmt.Errorf("%s %w: report it with the worker's log: %v", doing, errPanicked, p)
}
