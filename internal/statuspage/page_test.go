package statuspage

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"provctl/inspect"
	"provctl/receipt"
)

func TestBlockedComesFirst(t *testing.T) {
	b, _ := open(t, busy())
	b.visit("")
	b.until(`document.querySelector("#numbers polyline")`)
	if got := b.texts("#main h2"); len(got) < 3 || got[0] != "Blocked 3" || got[1] != "In flight 2" || got[2] != "Held and out 2" {
		t.Errorf("the headings are %q", got)
	}
	if got, want := b.texts("#blocked tbody .node"), []string{"web-17.fra.example.net", "db-03.fra.example.net", "edge-9.sin.example.net"}; !slices.Equal(got, want) {
		t.Errorf("blocked are %q, want the oldest first: %q", got, want)
	}
	rows := b.texts("#blocked tbody tr")
	for n, words := range [][]string{{"configure", "3 h 12 min", "no reply until the horizon", "look at it"}, {"configure", "48 min", "applied"}, {"restart", "in "}} {
		for _, w := range words {
			if !strings.Contains(rows[n], w) {
				t.Errorf("row %d lacks %q: %q", n, w, rows[n])
			}
		}
	}
	for selector, want := range map[string]string{
		"#state": "running", "#state li:nth-child(1)": "5 of 8 lanes at work", "#state li:nth-child(2)": "31 queued",
		"#flight tbody tr": "app-1.fra.example.net", "#nodes tbody tr:nth-child(2)": "provctl admit old-1.fra.example.net",
		"#numbers": "6,123", "#foot": "epoch 7",
	} {
		if got := b.text(selector); !strings.Contains(got, want) {
			t.Errorf("%s shows %q, want %q", selector, got, want)
		}
	}
	b.do(chromedp.Click(chromedp.CSS("#blocked tbody tr:nth-child(2) button.turn")))
	b.until(`document.querySelector("tr.details code")`)
	for _, want := range []string{"Proposed: applied", "lifecycle event provisioned", "For and against", "for applied", "--verdict abandon"} {
		if got := b.text("tr.details"); !strings.Contains(got, want) {
			t.Errorf("the details lack %q: %s", want, got)
		}
	}
	if got := eval[string](b, "document.title"); got != "(3) provctl" {
		t.Errorf("the title is %q", got)
	}
}

// TestHostileText: what nodes and helpers said is text, and what cannot be seen is shown by its number.
func TestHostileText(t *testing.T) {
	const markup, valid = `<img src=x onerror="window.hacked=1">`, `<svg/onload=window.hacked=1`
	f := calm()
	evil := opened(1, markup+"\u202egnp.exe\x1b[2J", receipt.Configure, time.Hour, receipt.Unknown)
	evil.Why = "</td><script>window.hacked=1</script>\x00\u2028"
	evil.Evidence = []inspect.Evidence{{Kind: receipt.SawReply, Source: markup, Text: markup, At: evil.Since}}
	evil.Look = append(evil.Look, markup)
	evil.Commands = append(evil.Commands, inspect.Command{Verdict: receipt.VerdictApplied, Run: "provctl \u202ereconcile", Then: markup})
	evil.Proposed = &inspect.Proposal{Verdict: receipt.VerdictApplied, Rule: markup, Why: markup}
	f.report.Items = []inspect.Item{evil, opened(2, valid, receipt.Configure, time.Hour, receipt.Unknown)}
	f.report.Nodes = []inspect.Node{{Node: `javascript:window.hacked=1//"`, State: "out", Why: markup, Run: "provctl admit 'javascript:window.hacked=1'"}}
	f.report.Journal.Paused = &inspect.Pause{By: markup, Reason: markup, At: evil.Since}
	f.report.Worker.Gate, f.report.Worker.Standby, f.report.Worker.Version = markup, markup, markup
	f.timelines[receipt.NodeID(valid)] = history(receipt.NodeID(valid), f.report.Items[1])
	b, _ := open(t, f)
	b.visit("")
	if got, want := b.text("#blocked tbody .node"), markup+`\u202egnp.exe\u001b[2J`; got != want {
		t.Errorf("the node's name is %q, want %q", got, want)
	}
	b.do(chromedp.Click(chromedp.CSS("#blocked button.turn")))
	b.until(`document.querySelector("#blocked tr.details code")`)
	if got := b.text("tr.details"); strings.Count(got, markup) < 4 || !strings.Contains(got, `provctl \u202ereconcile`) || !strings.Contains(got, "not to be copied") {
		t.Errorf("the details are %s", got)
	}
	b.do(chromedp.SendKeys(chromedp.CSS("#filter"), `onerror=`))
	b.until(`document.querySelectorAll("#blocked tbody .node").length === 1`)
	b.do(chromedp.Click(chromedp.CSS("#blocked .node")))
	b.until(`document.querySelector("#timeline .bad")`)
	if got := b.text("#timeline"); !strings.Contains(got, markup) || !strings.Contains(got, "node identity") {
		t.Errorf("a name that no node can have is shown as %q", got)
	}
	b.expect("status of 400")
	b.visit("#node=" + `%3Csvg%2Fonload%3Dwindow.hacked%3D1`)
	b.until(`document.querySelector("#timeline-table")`)
	if got := b.text("#timeline h2"); got != valid {
		t.Errorf("the timeline is of %q", got)
	}
	if eval[bool](b, `"hacked" in window || Boolean(document.querySelector("main img, main script, header img, #notices img"))`) {
		t.Error("markup from a node became part of the page")
	}
}

// TestRefreshDisturbsNobody: new data changes what is shown, and neither what is open nor focus, selection or scroll.
func TestRefreshDisturbsNobody(t *testing.T) {
	f := many(60)
	b, _ := open(t, f)
	b.visit("")
	const third = `document.querySelectorAll("#blocked tbody tr button.turn")[29]`
	eval[any](b, third+`.focus()`)
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until(`document.querySelector("#blocked tr.details code")`)
	eval[any](b, `getSelection().selectAllChildren(document.querySelector("tr.details code"))`)
	before := eval[string](b, `getSelection().toString()`)
	scroll := eval[float64](b, `(document.querySelector("tr.details").scrollIntoView({block: "center"}), scrollY)`)
	if before == "" || scroll == 0 {
		t.Fatalf("selected %q, scrolled to %v: the test shows nothing", before, scroll)
	}
	f.change(func(f *fake) {
		f.report.Items[29].Evidence = append(f.report.Items[29].Evidence, inspect.Evidence{Kind: receipt.SawConnections, Source: "broker", Text: "a connection was closed", At: time.Now()})
		f.report.Items = append(f.report.Items, opened(60, "n0060.example.net", receipt.Restart, time.Second, receipt.Unknown))
	})
	b.until(`document.querySelector("#blocked h2").innerText === "Blocked 61"`)
	b.until(`document.querySelector("tr.details").innerText.includes("a connection was closed")`)
	if !eval[bool](b, `document.activeElement === `+third+` && document.activeElement.getAttribute("aria-expanded") === "true"`) {
		t.Errorf("the focus went to %s", eval[string](b, "document.activeElement.outerHTML"))
	}
	if got := eval[string](b, `getSelection().toString()`); got != before {
		t.Errorf("selected is now %q, was %q", got, before)
	}
	if got := eval[float64](b, "scrollY"); got != scroll {
		t.Errorf("scrolled from %v to %v", scroll, got)
	}
	f.change(func(f *fake) { f.report.Items = f.report.Items[3:] }) // settled, above what is read
	b.until(`document.querySelector("#blocked h2").innerText === "Blocked 58"`)
	if got := b.texts("tr.details"); len(got) != 1 || !strings.Contains(got[0], "a connection was closed") {
		t.Errorf("the details went with other rows: %q", got)
	}
	if !eval[bool](b, `document.activeElement === document.querySelectorAll("#blocked tbody tr button.turn")[26]`) {
		t.Errorf("the focus went to %s", eval[string](b, "document.activeElement.outerHTML"))
	}
}

func TestCopy(t *testing.T) {
	f := busy()
	b, _ := open(t, f)
	for _, name := range []string{"clipboard-read", "clipboard-write"} {
		_, err := chromedp.CallBrowser(b.ctx, browser.SetPermission, browser.SetPermissionParams{
			Permission: &browser.PermissionDescriptor{Name: name}, Setting: browser.PermissionSettingGranted, Origin: b.origin,
		})
		b.must(err)
	}
	b.visit("")
	b.do(chromedp.Click(chromedp.CSS("#blocked button.turn")))
	b.until(`document.querySelector("tr.details code")`)
	b.do(chromedp.Click(chromedp.CSS(".choice:nth-of-type(2) .command button")))
	b.until(`document.querySelector(".command button.done")?.innerText === "Copied"`)
	want := f.report.Items[0].Commands[1].Run
	if got := eval[string](b, "navigator.clipboard.readText()"); got != want {
		t.Errorf("the clipboard has %q, want %q", got, want)
	}
	if got := b.text("#announce"); got != "Copied" {
		t.Errorf("announced is %q", got)
	}
	eval[any](b, `void (navigator.clipboard.writeText = () => Promise.reject(new Error("no")))`)
	b.do(chromedp.Click(chromedp.CSS("#nodes .command button")))
	b.until(`document.querySelector(".command button.done")?.innerText === "Press Ctrl+C"`)
	if got := eval[string](b, "getSelection().toString()"); got != f.report.Nodes[0].Run {
		t.Errorf("selected is %q, want %q", got, f.report.Nodes[0].Run)
	}
}

func TestTimeline(t *testing.T) {
	f := busy()
	b, _ := open(t, f)
	b.visit("")
	b.do(chromedp.Click(chromedp.CSS("#blocked .node")))
	b.until(`document.querySelectorAll("#timeline-table tbody tr").length === 4`)
	if got := eval[string](b, "location.hash"); got != "#node=web-17.fra.example.net" {
		t.Errorf("the address ends in %q", got)
	}
	if got := b.texts("#timeline-table .kind"); !slices.Equal(got, []string{"admission", "claim", "receipt", "reply"}) {
		t.Errorf("it shows %q", got)
	}
	if got := b.text(".open-item"); !strings.Contains(got, "Blocked: configure") || !strings.Contains(got, f.report.Items[0].Commands[0].Run) {
		t.Errorf("the open receipt is shown as %q", got)
	}
	if got := eval[string](b, "document.activeElement.id"); got != "timeline-title" {
		t.Errorf("the focus is on %q", got)
	}
	f.change(func(f *fake) {
		line := f.timelines["web-17.fra.example.net"]
		line.Entries = append(line.Entries, inspect.Entry{Seq: 1002, Kind: "evidence", Text: "it answers"}, inspect.Entry{Seq: 1002, Kind: "evidence", Text: "it left"})
		f.timelines["web-17.fra.example.net"] = line
	})
	b.until(`document.querySelectorAll("#timeline-table tbody tr").length === 6`)
	b.do(chromedp.Click(chromedp.CSS("#timeline .back")))
	b.until(`document.querySelector("#timeline").hidden && document.querySelector("#blocked .node").checkVisibility()`)

	b.visit("#node=web-17.fra.example.net")
	b.until(`document.querySelectorAll("#timeline-table tbody tr").length === 6`)
	b.visit("#node=nobody.example.net")
	b.until(`document.querySelector("#timeline .bad")`)
	if got := b.text("#timeline .bad"); !strings.Contains(got, "not found") {
		t.Errorf("an unknown node is told of by %q", got)
	}
	b.expect("status of 404")
	b.visit("#node=%E0%A4%A") // no encoded name
	b.until(`document.querySelector("#blocked .node").checkVisibility()`)
}

// TestFiveThousandRows measures, too: run it with -v.
func TestFiveThousandRows(t *testing.T) {
	const rows = 5000
	f := many(rows)
	b, _ := open(t, f)
	b.must(call(b.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
		new MutationObserver((_, o) => { if (document.querySelector("#blocked tbody tr")) { o.disconnect(); window.built = performance.now();
			requestAnimationFrame(() => setTimeout(() => { window.shown = performance.now(); })); } }).observe(document, { childList: true, subtree: true });`}))
	b.visit("")
	b.until("window.shown")
	eval[any](b, `void (async () => {
		window.busy = 0;
		new PerformanceObserver((l) => l.getEntries().forEach((e) => { window.busy = Math.max(window.busy, e.duration); })).observe({ type: "longtask" });
	})()`)
	took := eval[[]float64](b, `(async () => {
		const t0 = performance.now();
		const text = await (await fetch("report.json?brief", { cache: "no-store" })).text();
		const t1 = performance.now();
		JSON.parse(text);
		return [t1 - t0, performance.now() - t1, text.length];
	})()`)
	if got := b.text("#blocked .pager span"); got != "1–100 of 5,000" {
		t.Errorf("the pager says %q", got)
	}
	if n := eval[int](b, `document.querySelectorAll("#blocked tbody tr").length`); n != 100 {
		t.Errorf("%d rows are in the document, want one page of 100", n)
	}
	filter := eval[float64](b, `(() => { const t = performance.now(), i = document.querySelector("#filter");
		i.value = "n4999 configure"; i.dispatchEvent(new Event("input")); return performance.now() - t; })()`)
	if got := b.texts("#blocked tbody .node"); !slices.Equal(got, []string{"n4999.example.net"}) {
		t.Errorf("the filter finds %q", got)
	}
	if got := b.text("#blocked h2"); got != "Blocked 1 of 5,000" {
		t.Errorf("the heading is %q", got)
	}
	eval[any](b, `(() => { const i = document.querySelector("#filter"); i.value = ""; i.dispatchEvent(new Event("input")); })()`)
	b.do(chromedp.Click(chromedp.CSS(`#blocked [aria-label="Last page"]`)))
	b.until(`document.querySelector("#blocked tbody .node").innerText === "n4900.example.net"`)
	turn := eval[float64](b, `(async () => { const t = performance.now(); document.querySelector('[aria-label="Page before"]').click();
		await new Promise(requestAnimationFrame); return performance.now() - t; })()`)
	f.change(func(f *fake) { f.report.Items = f.report.Items[1:]; f.report.Blocked-- })
	b.until(`document.querySelector("#blocked h2").innerText === "Blocked 4,999"`)
	if got := b.text("#blocked .pager span"); got != "4,801–4,900 of 4,999" {
		t.Errorf("a refresh turned the page: %q", got)
	}
	t.Logf("5,000 blocked rows: report %.1f MB fetched in %.0f ms, parsed in %.0f ms; first rows shown %.0f ms after opening the page; filter %.0f ms, page turn %.0f ms, longest task of a refresh %.0f ms",
		took[2]/1e6, took[0], took[1], eval[float64](b, "window.shown"), filter, turn, eval[float64](b, "window.busy"))
}

// TestNarrow: nothing is wider than a small telephone, whatever a name is.
func TestNarrow(t *testing.T) {
	f := busy()
	f.report.Items[0].Node = receipt.NodeID(strings.Repeat("x", 255))
	f.report.Items[0].Why = strings.Repeat("y", 900)
	b, _ := open(t, f)
	b.do(chromedp.EmulateViewport(360, 640))
	for _, where := range []string{"", "#node=web-17.fra.example.net"} {
		b.visit(where)
		if where == "" {
			b.do(chromedp.Click(chromedp.CSS("#blocked button.turn")))
			b.until(`document.querySelector("tr.details code")`)
		} else {
			b.until(`document.querySelector("#timeline-table")`)
		}
		if w := eval[int](b, "document.documentElement.scrollWidth"); w != 360 {
			t.Errorf("%q is %d px wide at 360 px", where, w)
		}
	}
}

// TestKeyboardAndSemantics: each control has a name and is reached by keys, each column a header.
func TestKeyboardAndSemantics(t *testing.T) {
	b, _ := open(t, many(150))
	b.visit("")
	b.must(call(b.ctx, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "/", Text: "/"}))
	if got := eval[string](b, "document.activeElement.id"); got != "filter" {
		t.Errorf("/ leads to %q", got)
	}
	b.do(chromedp.KeyEvent(kb.Tab))
	if got := eval[string](b, "document.activeElement.outerHTML"); !strings.Contains(got, `aria-label="Details of n0000.example.net"`) {
		t.Errorf("the first control after the filter is %q", got)
	}
	eval[any](b, `document.querySelector('[aria-label="Next page"]').focus()`)
	b.do(chromedp.KeyEvent(" "))
	b.until(`document.querySelector("#blocked tbody .node").innerText === "n0100.example.net"`)
	if got := eval[string](b, "document.activeElement.getAttribute('aria-label')"); got != "Next page" {
		t.Errorf("turning the page took the focus to %q", got)
	}
	b.do(chromedp.KeyEvent(kb.Enter)) // there is no further page: nothing happens
	for what, bad := range map[string]string{
		"controls without a name":       `[...document.querySelectorAll("button, a, input")].filter((e) => !(e.innerText || e.getAttribute("aria-label") || e.labels?.length))`,
		"headers without scope or text": `[...document.querySelectorAll("th")].filter((e) => e.scope !== "col" || !e.textContent)`,
		"sections without a title":      `[...document.querySelectorAll("section")].filter((e) => !document.getElementById(e.getAttribute("aria-labelledby")))`,
		"tables without a caption":      `[...document.querySelectorAll("table")].filter((e) => !e.caption?.textContent)`,
		"plots without words":           `[...document.querySelectorAll("svg")].filter((e) => !e.getAttribute("aria-label"))`,
	} {
		if got := eval[[]string](b, bad+".map((e) => e.outerHTML)"); len(got) > 0 {
			t.Errorf("%s: %q", what, got)
		}
	}
}

func TestHiddenPageAsksNothing(t *testing.T) {
	b, _ := open(t, calm())
	b.visit("")
	const hide = `Object.defineProperty(document, "hidden", { configurable: true, get: () => %v }); document.dispatchEvent(new Event("visibilitychange"));`
	eval[any](b, fmt.Sprintf(hide, true))
	before := b.requested(Prefix + "report.json")
	eval[any](b, `for (let n = 0; n < 20; n++) document.dispatchEvent(new Event("visibilitychange"))`)
	if got := b.requested(Prefix + "report.json"); got > before+1 { // one may have been under way
		t.Errorf("a hidden page asked %d times", got-before)
	}
	at := b.requested(Prefix + "report.json")
	eval[any](b, fmt.Sprintf(hide, false))
	b.until(`true`)
	deadline := soon(t)
	for b.requested(Prefix+"report.json") <= at {
		if deadline.Err() != nil {
			t.Fatal("a page that is seen again asks nothing")
		}
		eval[any](b, `new Promise(requestAnimationFrame)`)
	}
}

// TestTheWatchSees: the tests above fail if the page does what it must not.
func TestTheWatchSees(t *testing.T) {
	b, _ := open(t, calm())
	b.visit("")
	eval[any](b, `void (async () => {
		document.body.insertAdjacentHTML("beforeend", "<p style='color: red'></p><img src='http://127.0.0.1:1/x.png'><img src=x onerror='window.hacked=1'>");
		fetch("http://127.0.0.1:1/").catch(() => {});
		setTimeout(() => { throw new Error("thrown in the page"); });
	})()`)
	for _, want := range []string{"img-src", "style-src", "script-src", "connect-src", "thrown in the page"} {
		b.tells(want)
	}
	if eval[bool](b, `"hacked" in window`) {
		t.Error("a script in markup ran")
	}
	b.mu.Lock()
	b.problems = nil
	b.mu.Unlock()
}
