package statuspage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"provctl/internal/loopback/loopbacktest"
)

// chromium is one browser for all tests of the package, started by the first that needs it. Each test has a tab of its own.
var chromium struct {
	once sync.Once
	ctx  context.Context
	stop func()
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if chromium.stop != nil {
		chromium.stop()
	}
	os.Exit(code)
}

func start() {
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		chromium.err = errors.New("the status page is tested in Chromium, and none is on the PATH: apt-get install --no-install-recommends chromium")
		return
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"), chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-gpu", true), chromedp.WSURLReadTimeout(time.Minute))
	alloc, stopAlloc := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, stopBrowser := chromedp.NewContext(alloc)
	chromium.ctx, chromium.stop = ctx, func() { stopBrowser(); stopAlloc() }
	chromium.err = chromedp.Do(ctx)
}

// tab is one page in the browser. What it may never do fails the test at its end: an error in its console, a violation of its
// policy, or a request to anything but its server.
type tab struct {
	*testing.T
	ctx    context.Context
	origin string

	mu       sync.Mutex
	problems []string
	expected []string       // problems that contain one of these are none
	requests map[string]int // by path
}

// uncached are options by whose clock every report is stale at once.
func uncached() Options {
	var hours atomic.Int64
	return Options{Now: func() time.Time { return time.Unix(3600*hours.Add(1), 0) }}
}

// open serves a source and has a tab ready for it. stop ends the serving.
func open(t *testing.T, src Source) (b *tab, stop func()) {
	t.Helper()
	port := loopbacktest.Port(t)
	stop, err := Serve(t.Context(), port, Handler(src, uncached()), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	chromium.once.Do(start)
	if chromium.err != nil {
		t.Fatal(chromium.err)
	}
	ctx, cancel := chromedp.NewContext(chromium.ctx)
	t.Cleanup(cancel)
	b = &tab{T: t, ctx: ctx, origin: fmt.Sprintf("http://127.0.0.1:%d", port), requests: map[string]int{}}
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatal(err)
	}
	b.must(call(ctx, network.Enable, network.EnableParams{}))
	b.must(call(ctx, log.Enable, cdp.Empty{}))
	b.must(call(ctx, runtime.Enable, cdp.Empty{}))
	b.must(call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `addEventListener("securitypolicyviolation", (e) => console.error("policy violated: " + e.violatedDirective + " " + e.blockedURI))`,
	}))
	t.Cleanup(func() {
		for _, p := range b.heard() {
			t.Errorf("the page: %s", p)
		}
	})
	return b, stop
}

func call[P, R any](ctx context.Context, c cdp.Command[P, R], p P) error {
	_, err := chromedp.Call(ctx, c, p)
	return err
}

func (b *tab) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		path, ours := strings.CutPrefix(e.Request.URL, b.origin)
		if !ours {
			b.problems = append(b.problems, "a request to "+e.Request.URL)
		}
		path, _, _ = strings.Cut(path, "?")
		b.requests[path]++
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Source == log.EntrySourceSecurity {
			b.problems = append(b.problems, fmt.Sprintf("%s %s: %s %s", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL))
		}
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, fmt.Sprintf("exception: %s line %d: %s", e.ExceptionDetails.URL, e.ExceptionDetails.LineNumber+1, e.ExceptionDetails.Exception.Description))
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "assert" || e.Type == "warning" {
			b.problems = append(b.problems, fmt.Sprintf("console: %s", e.Args[0].Value))
		}
	}
}

// heard are the problems so far that were not expected.
func (b *tab) heard() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.problems), func(p string) bool {
		return slices.ContainsFunc(b.expected, func(text string) bool { return strings.Contains(p, text) })
	})
}

// tells waits for a problem that contains a text: the browser tells of what went wrong before or after the page shows it.
func (b *tab) tells(text string) {
	b.Helper()
	deadline := soon(b.T)
	for !slices.ContainsFunc(b.heard(), func(p string) bool { return strings.Contains(p, text) }) {
		if deadline.Err() != nil {
			b.Fatalf("nothing was told of %s: %q", text, b.heard())
		}
		eval[any](b, `new Promise(requestAnimationFrame)`)
	}
}

// expect waits for a problem that contains a text and holds it, and more of its kind, against nobody: the page may ask again.
func (b *tab) expect(text string) {
	b.Helper()
	b.tells(text)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, text)
}

func (b *tab) requested(path string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests[path]
}

func (b *tab) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// do acts in the tab.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.Fatalf("%v; the page shows:\n%.600s", err, b.text("body"))
	}
}

// visit opens the page, with a fragment or none, and waits until it shows a report.
func (b *tab) visit(fragment string) {
	b.Helper()
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(b.origin+Prefix+fragment))
	b.until(`document.querySelector("#foot").textContent.includes("Journal")`)
}

// refresh has the page ask now, as it does when it is seen again.
func (b *tab) refresh() {
	b.Helper()
	eval[any](b, `void document.dispatchEvent(new Event("visibilitychange"))`)
}

// until waits for a condition in JavaScript.
func (b *tab) until(condition string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	var err error
	for ctx.Err() == nil {
		_, err = chromedp.Run(ctx, chromedp.Poll[bool]("Boolean("+condition+")", chromedp.WithPollingInterval(20*time.Millisecond)))
		if err == nil || !strings.Contains(err.Error(), "Cannot find context with specified id") {
			break // else the document was replaced by the next one meanwhile
		}
	}
	if err != nil {
		b.Fatalf("waiting for %s: %v; problems: %q; the page shows:\n%.600s", condition, err, b.heard(), b.text("body"))
	}
}

// eval is what an expression yields.
func eval[T any](b *tab, expression string) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, func(p *runtime.EvaluateParams) {
		yes := true
		p.AwaitPromise = &yes
	}))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return v
}

// text is what an element shows.
func (b *tab) text(selector string) string {
	b.Helper()
	return eval[string](b, fmt.Sprintf("document.querySelector(%q)?.innerText ?? '(no such element)'", selector))
}

// texts are what all elements of a kind show.
func (b *tab) texts(selector string) []string {
	b.Helper()
	return eval[[]string](b, fmt.Sprintf("[...document.querySelectorAll(%q)].map((e) => e.innerText)", selector))
}
