package choria

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"provctl/receipt"
)

func TestConnectOutlastsASlowBroker(t *testing.T) {
	b := newFakeBroker(t)
	b.set(func() { b.stuck = true })
	var failed atomic.Int64
	e := unconnected(t, b, func(o *Options) {
		logged(t, func(line string) {
			if strings.Contains(line, "level=WARN") && strings.Contains(line, "did not acknowledge") && failed.Add(1) == 2 {
				b.set(func() { b.stuck = false })
			}
		})(o)
		o.FlushTimeout = 50 * time.Millisecond
		o.OnEvent = func(Event) {}
	})
	if err := e.Connect(deadline(t)); err != nil {
		t.Fatalf("two slow answers ended it: %v", err)
	}
	if !e.Connected() || failed.Load() < 2 {
		t.Errorf("connected %t after %d failures", e.Connected(), failed.Load())
	}
	b.set(func() {
		if int64(b.dials) != failed.Load()+1 {
			t.Errorf("%d connections for %d failures and a success: one was used again, or none closed", b.dials, failed.Load())
		}
	})
	if err := e.Connect(deadline(t)); !errors.Is(err, ErrMisuse) {
		t.Errorf("a second connect: %v", err)
	}
}

func TestRefusedReplySubjectIsTriedAgain(t *testing.T) {
	b := newFakeBroker(t)
	var e *Engine
	var errs atomic.Int64
	b.set(func() {
		b.refuse = func(subject string) bool { return strings.HasPrefix(subject, "provisioning.reply.") }
	})
	e = unconnected(t, b, func(o *Options) {
		logged(t, func(line string) {
			if !strings.Contains(line, "level=ERROR") {
				return
			}
			if !strings.Contains(line, e.inbox+".*") || !strings.Contains(line, "let this caller read") {
				t.Errorf("an error without subject or remedy: %s", line)
			}
			if e.Connected() {
				t.Error("it says that it is connected, and would hear no reply")
			}
			if errs.Add(1) == 3 {
				b.set(func() { b.refuse = nil })
			}
		})(o)
		o.OnEvent = func(Event) {}
	})
	if err := e.Connect(deadline(t)); err != nil {
		t.Fatalf("it gave up: %v", err)
	}
	if n := errs.Load(); n != 3 {
		t.Errorf("%d errors were logged, want one for each try", n)
	}
}

func TestRefusedReplySubjectEndsWithTheContext(t *testing.T) {
	b := newFakeBroker(t)
	b.set(func() { b.refuse = func(string) bool { return true } })
	ctx, cancel := context.WithCancel(deadline(t))
	defer cancel()
	e := unconnected(t, b, logged(t, func(line string) {
		if strings.Contains(line, "try=2") {
			cancel()
		}
	}))
	if err := e.Connect(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), e.inbox) {
		t.Errorf("connect: %v, want the end of the context and the subject", err)
	}
	// the engine can still be used: nobody closed it
	b.set(func() { b.refuse = nil })
	if err := e.Connect(deadline(t)); err != nil || !e.Connected() {
		t.Errorf("another connect: %v", err)
	}
}

func TestRefusedLifecycleEventsCostOnlyThem(t *testing.T) {
	b := newFakeBroker(t)
	b.set(func() { b.refuse = func(subject string) bool { return subject == eventSubject } })
	warned := make(chan string, 8)
	e := unconnected(t, b, func(o *Options) {
		logged(t, func(line string) {
			if !strings.Contains(line, "level=DEBUG") && !strings.Contains(line, "level=INFO") && strings.Contains(line, "lifecycle") {
				warned <- line
			}
		})(o)
		o.OnEvent = func(Event) {}
	})
	if err := e.Connect(deadline(t)); err != nil || !e.Connected() {
		t.Fatalf("connect without lifecycle events: %v", err)
	}
	if line := receive(t, warned); !strings.Contains(line, "level=WARN") || !strings.Contains(line, "subject="+eventSubject) {
		t.Errorf("the log says %s", line)
	}
	b.set(func() {
		if b.dials != 1 {
			t.Errorf("%d connections were made", b.dials)
		}
	})
}

func TestCloseEndsAConnectThatWaits(t *testing.T) {
	b := newFakeBroker(t)
	b.set(func() { b.stuck = true })
	e := unconnected(t, b, func(o *Options) { o.FlushTimeout = time.Hour })
	done := make(chan error, 1)
	go func() { done <- e.Connect(context.Background()) }()
	settle(t, "it waits for an acknowledgement", func() (waits bool) { b.set(func() { waits = b.ignored > 0 }); return waits })
	if err := e.Connect(deadline(t)); !errors.Is(err, ErrMisuse) {
		t.Errorf("a connect beside another: %v", err)
	}
	began := time.Now()
	e.Close()
	if took := time.Since(began); took > 2*pingEvery/3 {
		t.Errorf("close took %s: it waited until the client gave the connection up", took)
	}
	if err := receive(t, done); !errors.Is(err, ErrClosed) {
		t.Errorf("connect while the engine is closed: %v", err)
	}
}

// TestDisconnectEndsFactsAtOnce has facts and an effect in flight: what leaves nothing behind ends, the effect does not.
func TestDisconnectEndsFactsAtOnce(t *testing.T) {
	f := ownBroker(t)
	e := engine(t, f, func(o *Options) { o.TTL, o.FactTimeout, o.StatsTimeout = 50*time.Second, time.Hour, time.Hour })
	asked := make(chan fakeRequest, 8)
	n := node(t, f, func(r fakeRequest) { asked <- r })
	other := nodeAs(t, f, "effect.example.net", func(r fakeRequest) { asked <- r })

	pr := prepare(t, e, other.node())
	c, err := e.Publish(deadline(t), receiptFor(pr), open, pr)
	if err != nil {
		t.Fatal(err)
	}
	effect := receive(t, asked)
	errs := make(chan error, 3)
	for range 3 { // one in flight, two wait for their turn
		go func() { _, err := e.JWT(deadline(t), n.node(), ""); errs <- err }()
	}
	receive(t, asked)
	f.StopBroker()
	for range 3 {
		if err := receive(t, errs); !errors.Is(err, ErrNotConnected) || strings.Contains(err.Error(), "try 2") {
			t.Errorf("a fact in flight when the connection broke: %v, want ErrNotConnected at the first try", err)
		}
	}
	select {
	case <-c.Done():
		t.Fatalf("the effect ended with the connection: %+v", c.Outcome())
	default:
	}
	if err := f.StartBroker(deadline(t)); err != nil {
		t.Fatal(err)
	}
	settle(t, "all are back", func() bool { return e.Connected() && other.nc.IsConnected() && n.nc.IsConnected() })
	if err := e.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Stats(deadline(t), other.node()); !errors.Is(err, ErrBusy) {
		t.Errorf("daemon_stats beside the effect: %v", err)
	}
	effect.answer(0, "OK", restarting)
	if o := wait(t, c); o.Event != receipt.ReplyApplied {
		t.Errorf("the effect after the reconnect: %s (%s)", o.Event, o.Why)
	}
	if err := n.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Stats(deadline(t), n.node()); err != nil {
		t.Errorf("a fact after the reconnect: %v", err)
	}
}
