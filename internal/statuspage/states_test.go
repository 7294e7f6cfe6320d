package statuspage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"provctl/inspect"
	"provctl/internal/control"
	"provctl/receipt"
)

func TestDeadWorkerIsTold(t *testing.T) {
	f := busy()
	b, stop := open(t, f)
	b.visit("")
	b.until(`document.querySelector("#numbers polyline")`) // nothing is asked for at this moment
	stop()
	b.until(`document.body.classList.contains("stale")`)
	if got := b.text("#notices"); !strings.Contains(got, "The worker no longer answers: it cannot be reached. What is shown is ") {
		t.Errorf("it says %q", got)
	}
	b.until(`document.querySelector("#state .pill").innerText === "no answer"`)
	if got := b.text("#announce"); !strings.Contains(got, "no longer answers") {
		t.Errorf("announced is %q", got)
	}
	if got := eval[string](b, "document.title"); got != "(!) provctl" {
		t.Errorf("the title is %q", got)
	}
	if got := b.texts("#blocked tbody .node"); len(got) != 3 {
		t.Errorf("what was known is gone: %q", got)
	}
	var port int
	if _, err := fmt.Sscanf(b.origin, "http://127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	again, err := Serve(t.Context(), port, Handler(f, uncached()), nil)
	b.must(err)
	defer again()
	b.until(`!document.body.classList.contains("stale") && document.querySelector("#state .pill").innerText === "running"`)
	b.expect("ERR_CONNECTION_REFUSED")
}

func TestErrorOfTheWorkerIsTold(t *testing.T) {
	f := busy()
	b, _ := open(t, f)
	b.visit("")
	f.change(func(f *fake) { f.err = receipt.ErrDamaged })
	b.until(`document.querySelector("#notices").innerText.includes("The worker answers with an error: reading the worker's state: ")`)
	f.change(func(f *fake) { f.err = nil })
	b.until(`document.querySelector("#notices").innerText === ""`)
	b.expect("status of 500")
}

func TestStates(t *testing.T) {
	f := calm()
	b, _ := open(t, f)
	b.visit("")
	if got := b.text("#blocked"); !strings.Contains(got, "Nothing is blocked.") {
		t.Errorf("without work it says %q", got)
	}
	for _, c := range []struct {
		how          func(*fake)
		pill, notice string
	}{
		{func(f *fake) {
			f.report.Journal.Paused = &inspect.Pause{By: "kim", Reason: "a new broker", At: time.Now().Add(-time.Hour)}
			f.report.Worker.Gate = "paused"
		}, "paused", "Paused by kim for 1 h: a new broker"},
		{func(f *fake) { f.report.Worker.State = control.Settling }, "settling", "takes no work yet"},
		{func(f *fake) { f.report.Worker.State = control.Stopping }, "stopping", "nothing new begins"},
		{func(f *fake) { f.report.Worker.State = control.Stopped }, "stopped", "only answers"},
		{func(f *fake) { f.report.Worker.Standby = "another worker leads" }, "running", "Stands by: another worker leads"},
		{func(f *fake) { f.report.Worker.Connected = false }, "running", "no connection to the broker"},
		{func(f *fake) { f.report.Worker.Gate = "10 nodes are blocked" }, "running", "No new work is taken: 10 nodes are blocked"},
		{func(f *fake) { f.report.Worker = nil }, "no worker", "No worker runs"},
	} {
		f.change(func(f *fake) { f.report.Worker, f.report.Journal.Paused = calm().report.Worker, nil; c.how(f) })
		b.refresh()
		b.until(fmt.Sprintf(`document.querySelector("#notices").innerText.includes(%q) && document.querySelector("#state .pill").innerText === %q`, c.notice, c.pill))
	}
}
