package crashtests

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"provctl/internal/fleet"
	"provctl/internal/loopback/loopbacktest"
)

// screen is a tab of headless Chromium that shows the worker's status page.
type screen struct {
	*testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string // what the console told
	alone    bool     // the worker has ended: whatever it tells now is of that
}

// browse opens the page, once it is served, and fails the test at its end for every error that the browser told of.
func (s *site) browse(t *testing.T, port int) *screen {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Fatal("the status page is tested in Chromium, and none is on the PATH: apt-get install --no-install-recommends chromium")
	}
	alloc, stop := chromedp.NewExecAllocator(s.ctx, append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WSURLReadTimeout(time.Minute),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"), chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-gpu", true))...)
	t.Cleanup(stop)
	ctx, closeTab := chromedp.NewContext(alloc)
	t.Cleanup(closeTab)
	b := &screen{T: t, ctx: ctx}
	if err := chromedp.Do(ctx); err != nil { // starts the browser
		t.Fatal(err)
	}
	t.Cleanup(b.quiet)
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatal(err)
	}
	for _, enable := range []cdp.Command[cdp.Empty, cdp.Empty]{log.Enable, runtime.Enable} {
		if _, err := chromedp.Call(ctx, enable, cdp.Empty{}); err != nil {
			t.Fatal(err)
		}
	}
	b.do(chromedp.Navigate(fmt.Sprintf("http://127.0.0.1:%d/status/", port)))
	return b
}

func (b *screen) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.alone {
		return
	}
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Source == log.EntrySourceSecurity {
			b.problems = append(b.problems, fmt.Sprintf("%s %s", e.Entry.Text, e.Entry.URL))
		}
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, "exception: "+e.ExceptionDetails.Exception.Description)
	}
}

// quiet wants that the browser told of no error.
func (b *screen) quiet() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		b.Errorf("the page: %s", p)
	}
}

func (b *screen) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.Fatalf("%v; the page shows:\n%s", err, b.text("body"))
	}
}

// shows waits until an element shows all the words.
func (b *screen) shows(selector string, words ...string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	for _, w := range words {
		is := fmt.Sprintf("Boolean(document.querySelector(%q)?.innerText.includes(%q))", selector, w)
		if _, err := chromedp.Run(ctx, chromedp.Poll[bool](is, chromedp.WithPollingInterval(50*time.Millisecond))); err != nil {
			b.Fatalf("%s does not show %q: %v; the page shows:\n%s", selector, w, err, b.text("body"))
		}
	}
}

// text is what an element shows now.
func (b *screen) text(selector string) string {
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector)))
	if err != nil {
		return err.Error()
	}
	return text
}

// TestStatusPageOfARealWorker: the reply to one node's configure is lost, two nodes are at work in their helpers and a fourth waits for a
// lane. The page shows all of that as the worker and inspect have it, the node's past, and a command that works as it stands there.
func TestStatusPageOfARealWorker(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{nodes: 4})
	lost, port := s.fleet.Nodes()[0], loopbacktest.Port(t)
	s.reconfigure(fleet.WorkerOptions{Values: short(map[string]any{"workers": 2, "evidence": "manual", "status_port": port, "helper_timeout": "60s"})})
	s.fleet.SetFault(lost, "configure", fleet.Fault{Kind: fleet.Drop})
	blocked, release := filepath.Join(t.TempDir(), "blocked"), filepath.Join(t.TempDir(), "release")
	// The others are deferred until the one is blocked; then each keeps its lane until it is released.
	s.wrapHelper(fmt.Sprintf(`if [ "$identity" != '%s' ]; then
	if [ ! -e '%s' ]; then printf '{"defer":true,"msg":"not yet"}'; exit 0; fi
	until [ -e '%s' ] || [ ! -d '%s' ]; do sleep 0.1; done
fi
answer
`, lost, blocked, release, filepath.Dir(release)))
	s.start()
	var open item
	s.awaitView("the node is blocked and the others are held", func(v view) bool {
		i, ok := v.of(lost)
		open = i
		return ok && i.Status == "unknown" && len(v.Nodes) == 3
	})
	touch := func(path string) {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := s.browse(t, port)
	b.shows("#nodes h2", "Held and out 3")
	b.shows("#nodes", s.fleet.Nodes()[3], "the helper defers it: not yet", "provctl admit ")
	touch(blocked)
	for _, node := range s.fleet.Nodes()[1:] {
		if out, code := s.provctl("admit", node, "--reason", "its turn", "--state-dir", s.files.StateDir); code != 0 {
			t.Fatalf("admit %s: code %d: %s", node, code, out)
		}
	}
	t.Cleanup(func() { _ = os.WriteFile(release, nil, 0o600) })

	b.shows("#state", "running", "2 of 2 lanes at work", "1 queued", "broker connected")
	b.shows("#blocked h2", "Blocked 1")
	b.shows("#blocked tbody tr", lost, "configure", open.Why)
	b.do(chromedp.Click(chromedp.CSS("#blocked button.turn")))
	b.shows("tr.details", open.Receipt, open.Request, "What to look at", "--verdict applied", "--verdict not-applied", "--verdict abandon", "--state-dir "+s.files.StateDir)

	b.do(chromedp.Click(chromedp.CSS("#blocked .node")))
	b.shows("#timeline", lost, "Blocked: configure", open.Receipt)
	for _, kind := range []string{"admission", "claim", "receipt"} {
		b.shows("#timeline-table", kind)
	}
	b.do(chromedp.Click(chromedp.CSS("#timeline .back")))

	touch(release)
	s.awaitFleet("the others are provisioned", func(st fleet.State) bool { return st.Count(joined) == 3 })
	b.shows("#state", "0 of 2 lanes at work", "0 queued")
	s.await("the verdict that stands on the page is taken", func() bool { return s.typed(b, "applied") })
	b.shows("#blocked", "Nothing is blocked.")
	s.awaitFleet("the node goes on", func(st fleet.State) bool { return st.Count(joined) == 4 })
	b.shows("#numbers", "provisioned\n4")
	b.quiet()
	b.mu.Lock()
	b.alone = true
	b.mu.Unlock()
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	b.shows("#notices", "no longer answers")
	s.noneTwice()
}

// typed types the command for a verdict as the page shows it, with a reason; false while it is refused because the horizon is ahead, or
// the receipt changed since.
func (s *site) typed(b *screen, verdict string) bool {
	s.t.Helper()
	for line := range strings.Lines(b.text("tr.details")) {
		args, ours := strings.CutPrefix(strings.TrimSpace(line), "provctl ")
		if !ours || !strings.Contains(args, "--verdict "+verdict+" ") {
			continue
		}
		args = strings.Replace(args, "--reason TEXT", "--reason looked-at-the-node", 1)
		out, code := s.provctl(strings.Fields(args)...)
		if code != 0 && !strings.Contains(out, "horizon") && code != 4 {
			s.t.Fatalf("the page has %q, which ends with code %d: %s", line, code, out)
		}
		return code == 0
	}
	s.t.Fatalf("no command for %s is among:\n%s", verdict, b.text("tr.details"))
	return false
}
