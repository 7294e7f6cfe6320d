package statuspage

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"provctl/inspect"
	"provctl/journal"
	"provctl/receipt"
)

// clock stands still until it is set forward.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newClock() *clock { return &clock{now: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)} }

// get asks a handler as a reader on this host does; change makes it another request.
func get(h http.Handler, path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = "127.0.0.1:8080"
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// failure is the text of an answer that must be an error in JSON.
func failure(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	var e struct{ Error string }
	if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Error == "" || w.Code < 400 || !strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") {
		t.Fatalf("code %d, %q %q is no error in JSON: %v", w.Code, w.Header().Get("Content-Type"), w.Body, err)
	}
	return e.Error
}

func decoded[T any](t *testing.T, w *httptest.ResponseRecorder) (v T) {
	t.Helper()
	if w.Code != http.StatusOK {
		t.Fatalf("code %d: %s", w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	return v
}

func TestPaths(t *testing.T) {
	h := Handler(busy(), Options{})
	for path, want := range map[string]string{
		"/status/": "text/html; charset=utf-8", "/status/main.js": "text/javascript; charset=utf-8", "/status/style.css": "text/css; charset=utf-8",
		"/status/icon.svg": "image/svg+xml", "/status/report.json": "application/json; charset=utf-8", "/status/samples.json": "application/json; charset=utf-8",
		"/status/timeline.json?node=web-17.fra.example.net": "application/json; charset=utf-8", "/status/items.json?receipt=X": "application/json; charset=utf-8",
	} {
		w := get(h, path)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != want || w.Body.Len() == 0 {
			t.Errorf("%s: code %d, type %q, %d bytes", path, w.Code, w.Header().Get("Content-Type"), w.Body.Len())
		}
		head := get(h, path, func(r *http.Request) { r.Method = http.MethodHead })
		if head.Code != http.StatusOK || head.Header().Get("Content-Type") != want {
			t.Errorf("HEAD %s: code %d, type %q", path, head.Code, head.Header().Get("Content-Type"))
		}
	}
	for _, path := range []string{"/", "/status"} {
		if w := get(h, path); w.Code != http.StatusFound || w.Header().Get("Location") != Prefix {
			t.Errorf("%s: code %d to %q", path, w.Code, w.Header().Get("Location"))
		}
	}
	for _, path := range []string{"/status/assets/", "/status/index.htm", "/status/handler.go", "/other", "/status/..%2f..%2fetc/passwd"} {
		if w := get(h, path); w.Code != http.StatusNotFound || !strings.Contains(failure(t, w), "the page is at /status/") {
			t.Errorf("%s: code %d: %s", path, w.Code, w.Body)
		}
	}
}

func TestMethods(t *testing.T) {
	f := busy()
	h := Handler(f, Options{})
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "get"} {
		w := get(h, "/status/report.json", func(r *http.Request) { r.Method = method })
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" || !strings.Contains(failure(t, w), "only shows") {
			t.Errorf("%s: code %d, %s", method, w.Code, w.Body)
		}
	}
	if f.reportsAsked() != 0 {
		t.Error("the worker was asked")
	}
}

func TestHeadersOfEveryAnswer(t *testing.T) {
	h := Handler(busy(), Options{})
	for name, w := range map[string]*httptest.ResponseRecorder{
		"page": get(h, "/status/"), "script": get(h, "/status/main.js"), "json": get(h, "/status/samples.json"), "report": get(h, "/status/report.json"),
		"not found": get(h, "/x"), "bad host": get(h, "/status/", func(r *http.Request) { r.Host = "evil.example" }), "redirect": get(h, "/"),
	} {
		cache := "no-store"
		if name == "report" {
			cache = "no-cache"
		}
		for header, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
			"X-Content-Type-Options":  "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": cache, "Access-Control-Allow-Origin": "",
			"Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := w.Header().Get(header); got != want {
				t.Errorf("%s: %s is %q, want %q", name, header, got, want)
			}
		}
	}
}

func TestHost(t *testing.T) {
	f := busy()
	h := Handler(f, Options{})
	for host, ok := range map[string]bool{
		"localhost": true, "localhost:9999": true, "LocalHost:1": true, "127.0.0.1": true, "127.0.0.1:80": true, "127.1.2.3:80": true, "[::1]": true, "[::1]:80": true,
		"": false, "evil.example": false, "evil.example:80": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false, "10.0.0.1:80": false,
		"0.0.0.0:80": false, "[::]:80": false, "::1": false, "127.0.0.1:80:80": false, "[::1%25lo]:80": false, "[::ffff:127.0.0.1]:80": false, "localhost:": true,
		"2130706433": false, "0177.0.0.1": false, "\x1b[2Jlocalhost": false, "[localhost": false,
	} {
		before := f.reportsAsked()
		w := get(h, "/status/samples.json", func(r *http.Request) { r.Host = host })
		if ok && w.Code != http.StatusOK {
			t.Errorf("Host %q is refused: %d %.100s", host, w.Code, w.Body)
		}
		if !ok && (w.Code != http.StatusForbidden || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") || !strings.Contains(w.Body.String(), "ssh -L") || strings.Contains(w.Body.String(), "\x1b")) {
			t.Errorf("Host %q: %d %q %.100s", host, w.Code, w.Header().Get("Content-Type"), w.Body)
		}
		if f.reportsAsked() != before {
			t.Errorf("Host %q: the worker was asked", host)
		}
	}
}

func TestOtherSites(t *testing.T) {
	h := Handler(busy(), Options{})
	for site, want := range map[string]int{"": 200, "none": 200, "same-origin": 200, "cross-site": 403, "same-site": 403, "x\x1b": 403} {
		if w := get(h, "/status/report.json", header("Sec-Fetch-Site", site)); w.Code != want {
			t.Errorf("Sec-Fetch-Site %q: %d, want %d", site, w.Code, want)
		}
	}
}

func TestReportIsWhole(t *testing.T) {
	f := busy()
	h := Handler(f, Options{})
	full := decoded[inspect.Report](t, get(h, "/status/report.json"))
	if len(full.Items) != 5 || len(full.Items[0].Commands) == 0 || len(full.Items[1].Evidence) != 2 || len(full.Items[1].Weights) == 0 || full.Schema != inspect.Schema {
		t.Errorf("the report lacks something: %+v", full)
	}
	w := get(h, "/status/report.json?brief")
	brief := decoded[inspect.Report](t, w)
	if len(brief.Items) != 5 || len(brief.Items[0].Commands)+len(brief.Items[0].Look)+len(brief.Items[1].Weights)+len(brief.Items[1].Evidence) != 0 || brief.Items[1].Proposed == nil {
		t.Errorf("the brief report is %s", w.Body)
	}
	items := decoded[struct{ Items []inspect.Item }](t, get(h, "/status/items.json?receipt="+string(full.Items[1].Receipt)+"&receipt=gone")).Items
	if len(items) != 1 || items[0].Node != "db-03.fra.example.net" || len(items[0].Evidence) != 2 || len(items[0].Commands) == 0 {
		t.Errorf("the items are %+v", items)
	}
	packed := get(h, "/status/report.json", header("Accept-Encoding", "gzip, br"))
	if packed.Header().Get("Content-Encoding") != "gzip" || packed.Body.Len() > w.Body.Len() {
		t.Errorf("it is sent as %q with %d bytes", packed.Header().Get("Content-Encoding"), packed.Body.Len())
	}
	for _, query := range []string{"", "?receipt", strings.Repeat("&receipt=a", 101)} {
		w := get(h, "/status/items.json?"+strings.TrimPrefix(query, "?"))
		if query == "?receipt" {
			if w.Code != http.StatusOK {
				t.Errorf("an empty name gives %d", w.Code)
			}
			continue
		}
		if w.Code != http.StatusBadRequest || !strings.Contains(failure(t, w), "wants 1 to 100") {
			t.Errorf("items.json%.20s: %d %s", query, w.Code, w.Body)
		}
	}
}

// TestTagChangesWithTheReport, and with the report alone: a quiet worker's report is sent once, however old its items become.
func TestTagChangesWithTheReport(t *testing.T) {
	f, c := busy(), newClock()
	h := Handler(f, Options{Now: c.Now})
	first := get(h, "/status/report.json?brief")
	tag := first.Header().Get("ETag")
	ask := func() *httptest.ResponseRecorder {
		c.forward(time.Minute)
		return get(h, "/status/report.json?brief", header("If-None-Match", `"other", W/`+tag))
	}
	f.mu.Lock()
	for n := range f.report.Items {
		f.report.Items[n].HorizonLeft++ // and the age and the moment, by the clock
	}
	f.mu.Unlock()
	if w := ask(); w.Code != http.StatusNotModified || w.Body.Len() != 0 || w.Header().Get("ETag") != tag {
		t.Errorf("an unchanged report: %d, %d bytes, tag %s, was %s", w.Code, w.Body.Len(), w.Header().Get("ETag"), tag)
	}
	for what, change := range map[string]func(*fake){
		"sequence": func(*fake) {}, "queue": func(f *fake) { f.report.Worker.Queue++; f.report.Journal.Seq-- },
		"text": func(f *fake) { f.report.Items[0].Why = "x\n  \"taken\": 1"; f.report.Journal.Seq-- },
	} {
		f.change(change)
		w := ask()
		if w.Code != http.StatusOK || w.Header().Get("ETag") == tag {
			t.Errorf("another %s: %d, tag %s", what, w.Code, w.Header().Get("ETag"))
		}
		tag = w.Header().Get("ETag")
	}
	if asked := f.reportsAsked(); asked != 5 {
		t.Errorf("the worker was asked %d times, want 5", asked)
	}
}

func TestErrorsOfTheSource(t *testing.T) {
	paths := []string{"/status/report.json", "/status/report.json?brief", "/status/items.json?receipt=a", "/status/timeline.json?node=web-17.fra.example.net"}
	for _, c := range []struct {
		err  error
		code int
	}{{errors.New("the \x1b[2J journal \u202e"), 500}, {journal.ErrNotFound, 404}, {receipt.ErrDamaged, 500}} {
		f := busy()
		f.err = c.err
		for _, path := range paths {
			w := get(Handler(f, Options{}), path)
			if text := failure(t, w); w.Code != c.code || !strings.Contains(text, inspect.Printable(c.err.Error())) || strings.ContainsAny(w.Body.String(), "\x1b\u202e") {
				t.Errorf("%s: code %d: %q", path, w.Code, text)
			}
			if w.Header().Get("ETag") != "" || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s: an error can be kept: %v", path, w.Header())
			}
		}
	}
	f := busy()
	f.panics = true
	h := Handler(f, Options{})
	for _, path := range append(paths, "/status/samples.json") {
		w := get(h, path)
		if text := failure(t, w); w.Code != 500 || !strings.Contains(text, "a defect of provctl") || !strings.Contains(text, "a <defect>") {
			t.Errorf("%s: code %d: %q", path, w.Code, text)
		}
	}
}

// TestWhatCannotBeEncoded is an error, not half an answer.
func TestWhatCannotBeEncoded(t *testing.T) {
	f := busy()
	f.report.Items[0].Evidence = []inspect.Evidence{{Text: "of no kind"}}
	h := Handler(f, Options{})
	for _, path := range []string{"/status/report.json", "/status/items.json?receipt=" + string(f.report.Items[0].Receipt)} {
		if w := get(h, path); w.Code != 500 || !strings.Contains(failure(t, w), "encode") {
			t.Errorf("%s: code %d: %s", path, w.Code, w.Body)
		}
	}
}

func TestTimelineOfNoNode(t *testing.T) {
	h := Handler(busy(), Options{})
	for node, code := range map[string]int{
		"": 400, "a b": 400, "<img src=x>": 400, "a\x1b[2J": 400, "*": 400, "\xff": 400, strings.Repeat("a", 256): 400, "nobody.example.net": 404,
	} {
		w := get(h, "/status/timeline.json?node="+url.QueryEscape(node))
		if text := failure(t, w); w.Code != code || strings.Contains(w.Body.String(), "\x1b") {
			t.Errorf("node %.40q: code %d: %s", node, w.Code, text)
		}
	}
	if w := get(h, "/status/timeline.json?node=web-17.fra.example.net"); len(decoded[inspect.Timeline](t, w).Entries) != 4 {
		t.Errorf("the timeline is %s", w.Body)
	}
}

// TestHostileTextTravelsExactly: the JSON holds what was said, in escapes that no terminal obeys.
func TestHostileTextTravelsExactly(t *testing.T) {
	const name = "<img src=x onerror=alert(1)>\x1b]0;x\a\u202e\u2028"
	f := busy()
	f.report.Items[0].Node, f.report.Items[0].Why = name, name
	w := get(Handler(f, Options{}), "/status/report.json?brief")
	if got := decoded[inspect.Report](t, w).Items[0]; got.Node != name || got.Why != name {
		t.Errorf("the name became %q", got.Node)
	}
	if strings.ContainsAny(w.Body.String(), "\x1b\a\u202e\u2028") {
		t.Error("a control character travels as it is")
	}
}
