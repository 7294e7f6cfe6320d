package main

import (
	"bytes"
	"testing"
	"time"

	"provctl/inspect/inspecttest"
	"provctl/receipt"
	"provctl/reconcile"
)

// TestDemoReadsRefusal: a node that may still write its file is looked at again, and not the end of the demonstration.
func TestDemoReadsRefusal(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), time.Now())
	busy := b.Busy("busy.example.net", receipt.Configure, time.Hour)
	b.Serve()
	var out bytes.Buffer
	if code := Main([]string{
		"reconcile", string(busy.ID), "--verdict", "not-applied", "--reason", "x", "--seen", "1", "--json", "--state-dir", b.Dir,
	}, &out, &out); code == exitFine {
		t.Error("a verdict on a busy node was taken")
	}
	if got := refusal(out.String()); got != reconcile.Changed {
		t.Errorf("for a receipt that changed the demo reads %q from %s", got, &out)
	}
	out.Reset()
	Main([]string{
		"reconcile", string(busy.ID), "--verdict", "not-applied", "--reason", "x", "--yes", "--json", "--state-dir", b.Dir,
	}, &out, &out)
	if got := refusal(out.String()); got != reconcile.MayStillRun {
		t.Errorf("for a node that may be busy the demo reads %q from %s", got, &out)
	}
}
