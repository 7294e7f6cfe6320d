package choria

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"provctl/receipt"
)

// settle waits for a condition that only time brings about, without fixed sleeps.
func settle(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ctx := deadline(t); !ok(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("never happened: %s", what)
		}
	}
}

func TestBrokerDownBeforePublish(t *testing.T) {
	f := ownBroker(t)
	back := make(chan struct{}, 1)
	e := engine(t, f, func(o *Options) { o.OnReconnect = func() { back <- struct{}{} } })
	n := node(t, f, func(r fakeRequest) { r.answer(0, "OK", restarting) })
	early := prepare(t, e, n.node())
	f.StopBroker()
	settle(t, "the engine notices", func() bool { return !e.Connected() })
	var ns *NotSentError
	if _, err := e.Publish(deadline(t), receiptFor(early), open, early); !errors.As(err, &ns) || !errors.Is(err, ErrNotConnected) {
		t.Errorf("publish without a broker: %v, want NotSentError", err)
	}
	if _, err := e.Stats(deadline(t), n.node()); !errors.Is(err, ErrNotConnected) {
		t.Errorf("a fact without a broker: %v", err)
	}
	if _, err := e.Discover(deadline(t), 0, nil); !errors.Is(err, ErrNotConnected) {
		t.Errorf("discovery without a broker: %v", err)
	}
	if err := f.StartBroker(deadline(t)); err != nil {
		t.Fatal(err)
	}
	receive(t, back)
	settle(t, "the node is back", n.nc.IsConnected)
	if err := n.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	o, pr := restart(t, e, n.node())
	if o.Event != receipt.ReplyApplied {
		t.Errorf("after the reconnect: %s (%s)", o.Event, o.Why)
	}
	if ran := n.executed(); len(ran) != 1 || ran[0] != string(pr.Request) {
		t.Errorf("the node accepted %v, want only %s: what was refused came through after all", ran, pr.Request)
	}
}

// TestBrokerCutAtPublish publishes again and again while the broker goes down. Whatever Publish says, it must agree with the
// node: nothing that was "not sent" may ever arrive.
func TestBrokerCutAtPublish(t *testing.T) {
	f := ownBroker(t)
	e := engine(t, f, func(o *Options) { o.TTL, o.Skew, o.FlushTimeout = time.Second, time.Millisecond, 300*time.Millisecond })
	n := node(t, f, func(r fakeRequest) { r.answer(0, "OK", restarting) })
	refused := map[string]bool{}
	published, cut := 0, make(chan struct{})
	stop := sync.OnceFunc(func() { go func() { defer close(cut); f.StopBroker() }() })
	for len(refused) < 5 {
		if published == 5 {
			stop()
		}
		pr := prepare(t, e, n.node())
		c, err := e.Publish(deadline(t), receiptFor(pr), open, pr)
		if err != nil {
			refused[string(pr.Request)] = true
			continue
		}
		published++
		if o := wait(t, c); o.Event != receipt.ReplyApplied && o.Event != receipt.Lost && o.Event != receipt.NeverSent {
			t.Errorf("outcome %s", o.Event)
		}
	}
	<-cut
	if err := f.StartBroker(deadline(t)); err != nil {
		t.Fatal(err)
	}
	settle(t, "all are back", func() bool { return n.nc.IsConnected() && e.Connected() })
	if err := n.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	restart(t, e, n.node())
	for _, id := range n.executed() {
		if refused[id] {
			t.Errorf("request %s was executed although it was said not to be sent", id)
		}
	}
	t.Logf("%d published before the cut, %d refused", published, len(refused))
}

func TestBrokerStopsBetweenPublishAndReply(t *testing.T) {
	f := ownBroker(t)
	e := engine(t, f, func(o *Options) { o.TTL, o.Skew = 20*time.Second, time.Millisecond })
	asked := make(chan fakeRequest, 1)
	n := node(t, f, func(r fakeRequest) { asked <- r })
	pr := prepare(t, e, n.node())
	c, err := e.Publish(deadline(t), receiptFor(pr), open, pr)
	if err != nil {
		t.Fatal(err)
	}
	r := receive(t, asked)
	f.StopBroker()
	settle(t, "both notice", func() bool { return !e.Connected() && !n.nc.IsConnected() })
	if err := f.StartBroker(deadline(t)); err != nil {
		t.Fatal(err)
	}
	settle(t, "both are back", func() bool { return e.Connected() && n.nc.IsConnected() })
	if err := e.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	r.answer(0, "OK", restarting)
	if o := wait(t, c); o.Event != receipt.ReplyApplied {
		t.Errorf("outcome %s (%s), want that of the reply after the reconnect", o.Event, o.Why)
	}
}

func TestConnectEndsWithItsContext(t *testing.T) {
	f := ownBroker(t)
	o := options(t, f)
	f.StopBroker()
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if err := e.Connect(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "middleware_hosts") {
		t.Errorf("connect without a broker: %v", err)
	}
	if e.Connected() {
		t.Error("it says it is connected")
	}
}

func TestConnectWithAWrongPassword(t *testing.T) {
	o := options(t, broker(t))
	o.Password = "wrong"
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	if err := e.Connect(ctx); err == nil || !strings.Contains(err.Error(), "broker_provisioning_password") {
		t.Errorf("connect with a wrong password: %v", err)
	}
}

func TestCloseUnblocksAll(t *testing.T) {
	broker(t)
	settled := func() int { runtime.GC(); return runtime.NumGoroutine() }
	before := settled()
	for range 3 {
		o := options(t, broker(t))
		o.TTL = 30 * time.Second
		o.OnEvent = func(Event) {}
		e, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Connect(deadline(t)); err != nil {
			t.Fatal(err)
		}
		if err := e.Connect(deadline(t)); !errors.Is(err, ErrMisuse) {
			t.Errorf("second connect: %v", err)
		}
		asked := make(chan fakeRequest, 4)
		n := node(t, broker(t), func(r fakeRequest) { asked <- r })
		pr := prepare(t, e, n.node())
		c, err := e.Publish(deadline(t), receiptFor(pr), open, pr)
		if err != nil {
			t.Fatal(err)
		}
		receive(t, asked)
		errs := make(chan error, 2)
		go func() { _, err := e.JWT(deadline(t), n.node(), ""); errs <- err }() // waits for the node
		go func() { _, err := e.JWT(deadline(t), "silent.example.net", ""); errs <- err }()
		e.Close()
		e.Close()
		if o := wait(t, c); o.Event != receipt.Lost || !strings.Contains(o.Why, "stopped") {
			t.Errorf("open call after close: %s (%s)", o.Event, o.Why)
		}
		for range 2 {
			if err := receive(t, errs); !errors.Is(err, ErrClosed) && !errors.Is(err, ErrNobody) {
				t.Errorf("open fact after close: %v", err)
			}
		}
		pr2 := prepare(t, e, n.node())
		var ns *NotSentError
		if _, err := e.Publish(deadline(t), receiptFor(pr2), open, pr2); !errors.As(err, &ns) || !errors.Is(err, ErrClosed) {
			t.Errorf("publish after close: %v", err)
		}
		if err := e.Connect(deadline(t)); !errors.Is(err, ErrClosed) {
			t.Errorf("connect after close: %v", err)
		}
		n.nc.Close()
	}
	settle(t, "every goroutine of the engines ended", func() bool { return settled() <= before+2 })
}

func TestOneRequestAtATimePerNode(t *testing.T) {
	e := engine(t, broker(t), func(o *Options) { o.TTL = 20 * time.Second })
	asked := make(chan fakeRequest, 1)
	n := node(t, broker(t), func(r fakeRequest) { asked <- r })
	pr := prepare(t, e, n.node())
	c, err := e.Publish(deadline(t), receiptFor(pr), open, pr)
	if err != nil {
		t.Fatal(err)
	}
	r := receive(t, asked)

	if _, err := e.Stats(deadline(t), n.node()); !errors.Is(err, ErrBusy) {
		t.Errorf("daemon_stats beside an effect: %v, want ErrBusy", err)
	}
	ping := FactRequest{Node: n.node(), Agent: "rpcutil", Action: "ping", Timeout: 50 * time.Millisecond, Tries: 3}
	if _, err := e.Fact(deadline(t), ping); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "try 1 of 3") {
		t.Errorf("a fact beside an effect: %v, want it to wait for its timeout", err)
	}
	short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	ping.Timeout = time.Hour
	if _, err := e.Fact(short, ping); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a fact beside an effect: %v, want it to wait", err)
	}
	pr2 := prepare(t, e, n.node())
	var ns *NotSentError
	if _, err := e.Publish(short, receiptFor(pr2), open, pr2); !errors.As(err, &ns) {
		t.Errorf("a second effect beside the first: %v, want it to wait and not be sent", err)
	}
	r.answer(0, "OK", restarting)
	wait(t, c)
	if _, err := e.Stats(deadline(t), n.node()); err != nil {
		t.Errorf("a fact after the effect: %v", err)
	}
	if ran := n.executed(); len(ran) != 2 {
		t.Errorf("the node accepted %d requests, want the effect and daemon_stats", len(ran))
	}
	e.locks.mu.Lock()
	defer e.locks.mu.Unlock()
	if len(e.locks.held) != 0 {
		t.Errorf("%d node locks are left", len(e.locks.held))
	}
}
