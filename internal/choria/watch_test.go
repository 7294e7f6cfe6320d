package choria

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"provctl/receipt"
)

func TestDiscoverSeveral(t *testing.T) {
	f := ownBroker(t)
	e := engine(t, f)
	var want []receipt.NodeID
	for i := range 5 {
		n := node(t, f, nil)
		n.mu.Lock()
		n.id = fmt.Sprintf("n%d.example.net", i)
		n.mu.Unlock()
		want = append(want, n.node())
	}
	bad := node(t, f, nil)
	bad.id = "bad *.>"
	twice := node(t, f, nil)
	twice.id = string(want[0])
	var got []receipt.NodeID
	n, err := e.Discover(deadline(t), 3*time.Second, func(id receipt.NodeID) { got = append(got, id) })
	slices.Sort(got)
	if err != nil || n != len(want) || !slices.Equal(got, want) {
		t.Errorf("found %d: %v, %v; want %v", n, got, err, want)
	}
	e.counts.mu.Lock()
	for _, id := range want {
		if ring := e.counts.nodes[id].ring; len(ring) != 1 {
			t.Errorf("one broadcast counts %d times for %s", len(ring), id)
		}
	}
	e.counts.mu.Unlock()
	if e.Tally().BadIdentity != 1 {
		t.Errorf("%d bad identities counted, want 1", e.Tally().BadIdentity)
	}
}

// TestTwoServersOfOneName: what two answer is told, of facts and discoveries alike; what one answers is not.
func TestTwoServersOfOneName(t *testing.T) {
	f := ownBroker(t)
	twins := make(chan receipt.NodeID, 8)
	e := engine(t, f, func(o *Options) { o.OnTwin = func(n receipt.NodeID) { twins <- n } })
	on := func(r fakeRequest) { r.answer(0, "OK", `{"jwt":"e30.e30.e30"}`) }
	one := nodeAs(t, f, "n.example.net", on)
	ask := map[string]func() error{
		"jwt":       func() error { _, err := e.JWT(deadline(t), one.node(), ""); return err },
		"stats":     func() error { _, err := e.Stats(deadline(t), one.node()); return err },
		"discovery": func() error { _, err := e.Discover(deadline(t), 3*time.Second, func(receipt.NodeID) {}); return err },
	}
	for what, f := range ask {
		if err := f(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	if len(twins) != 0 {
		t.Errorf("one server counts as two, %d times", len(twins))
	}
	nodeAs(t, f, "n.example.net", on)
	for what, f := range ask {
		if err := f(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if n := receive(t, twins); n != one.node() {
			t.Errorf("%s: two servers were told of %s", what, n)
		}
	}
}

func TestDiscoverNobody(t *testing.T) {
	f := ownBroker(t)
	e := engine(t, f)
	if n, err := e.Discover(deadline(t), time.Hour, nil); n != 0 || err != nil {
		t.Errorf("found %d, %v; want an end at once", n, err)
	}
	ctx, cancel := context.WithCancel(deadline(t))
	node(t, f, nil)
	if n, err := e.Discover(ctx, time.Hour, func(receipt.NodeID) { cancel() }); n != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("found %d, %v; want one and the end of the context", n, err)
	}
}

func TestEvents(t *testing.T) {
	got := make(chan Event, 16)
	f := ownBroker(t)
	e := engine(t, f, func(o *Options) {
		o.Component = "provision_mode_server"
		o.OnEvent = func(ev Event) { got <- ev }
	})
	nc := dial(t, f, "events")
	send := func(data string) {
		t.Helper()
		if err := nc.Publish("choria.lifecycle.event.x.provision_mode_server", []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	event := func(kind, component, more string) string {
		return fmt.Sprintf(`{"protocol":"io.choria.lifecycle.v1.%s","id":"1","identity":"a.example.net","component":%q,"timestamp":5%s}`, kind, component, more)
	}
	for _, junk := range []string{
		"", "null", "{", `{"protocol":"x"}`, event("startup", "provision_mode_server", `,"timestamp":6`),
		`{"protocol":"io.choria.lifecycle.v1.startup","identity":"a b","component":"provision_mode_server"}`,
		`{"protocol":"io.choria.lifecycle.v1.startup","identity":7}`, strings.Repeat(" ", maxEvent+1),
		event("alive", "provision_mode_server", ""), event("startup", "other", ""),
	} {
		send(junk)
	}
	send(event("startup", "provision_mode_server", `,"version":"1.2.3"`))
	send(event("provisioned", "server", ""))
	send(event("upgraded", "provision_mode_server", `,"version":"1","new_version":"2\u001b"`))
	send(`{"specversion":"1.0","source":"io.choria.lifecycle","data":` + event("shutdown", "provision_mode_server", "") + `}`)
	for _, want := range []receipt.EventSeen{
		{Type: Startup, Component: "provision_mode_server", Version: "1.2.3", Time: 5},
		{Type: Provisioned, Component: "server", Time: 5},
		{Type: Upgraded, Component: "provision_mode_server", Version: "2?", Time: 5},
		{Type: ShutdownSeen, Component: "provision_mode_server", Time: 5},
	} {
		if ev := receive(t, got); ev.Seen != want || ev.Node != "a.example.net" || ev.At.IsZero() {
			t.Errorf("event %+v, want %+v", ev, want)
		}
	}
	if g := e.Tally().Garbage; g != 8 {
		t.Errorf("%d messages counted as garbage, want 8", g)
	}
}

func TestSlowReceiverOfEventsBlocksNothing(t *testing.T) {
	release, entered := make(chan struct{}), make(chan struct{}, notifyQueue+10)
	f := ownBroker(t)
	var once sync.Once
	e := engine(t, f, func(o *Options) {
		o.OnEvent = func(Event) {
			entered <- struct{}{}
			<-release
			once.Do(func() { panic("a faulty receiver") })
		}
	})
	n := node(t, f, func(r fakeRequest) { r.answer(0, "OK", restarting) })
	for range notifyQueue + 100 {
		if err := n.nc.Publish("choria.lifecycle.event.startup.x", []byte(`{"protocol":"io.choria.lifecycle.v1.startup","identity":"a","component":"x"}`)); err != nil {
			t.Fatal(err)
		}
	}
	receive(t, entered)
	if o, _ := restart(t, e, n.node()); o.Event != receipt.ReplyApplied {
		t.Errorf("an effect beside a stuck receiver: %s (%s)", o.Event, o.Why)
	}
	settle(t, "events are dropped", func() bool { return e.Tally().EventsDropped >= 90 })
	close(release)
	receive(t, entered) // the panic ended nothing
}

func TestConnections(t *testing.T) {
	f := ownBroker(t)
	e := engine(t, f)
	look := func(id receipt.NodeID) receipt.ConnectionsSeen {
		t.Helper()
		seen, err := e.Connections(deadline(t), id, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		return seen
	}
	if seen := look("nobody.example.net"); seen != (receipt.ConnectionsSeen{}) {
		t.Errorf("nobody: %+v", seen)
	}
	n := node(t, f, nil)
	if seen := look(n.node()); seen.Live != 1 || !seen.LastClosed.IsZero() {
		t.Errorf("one node: %+v", seen)
	}
	again := node(t, f, nil)
	if seen := look(n.node()); seen.Live != 2 {
		t.Errorf("two processes of one name: %+v", seen)
	}
	before := time.Now()
	again.nc.Close()
	settle(t, "the broker notices", func() bool { return look(n.node()).Live == 1 })
	n.nc.Close()
	settle(t, "the broker notices", func() bool { return look(n.node()).Live == 0 })
	if seen := look(n.node()); seen.LastClosed.Before(before) || time.Since(seen.LastClosed) > time.Minute || seen.Reason == "" {
		t.Errorf("closed: %+v", seen)
	}
	if _, err := e.Connections(deadline(t), "a.*", time.Time{}); !errors.Is(err, receipt.ErrInvalid) {
		t.Errorf("a wildcard: %v", err)
	}
	for _, name := range []string{e.nc.Opts.Name} {
		if _, err := receipt.ParseNodeID(name); err == nil {
			t.Errorf("our own connection %q could be taken for a node", name)
		}
	}
}

func TestConnectionsBeyondOnePage(t *testing.T) {
	f := ownBroker(t)
	e := engine(t, f)
	n := node(t, f, nil)
	since := time.Now()
	n.nc.Close()
	settle(t, "the broker notices", func() bool {
		seen, err := e.Connections(deadline(t), n.node(), since)
		return err == nil && !seen.LastClosed.IsZero()
	})
	for range connzPage + 100 { // the broker notes them one by one, some later
		dial(t, f, "noise").Close()
	}
	seen, err := e.Connections(deadline(t), n.node(), since)
	if err != nil || seen.LastClosed.IsZero() {
		t.Errorf("behind %d newer closures: %+v, %v", connzPage+100, seen, err)
	}
	later, err := e.Connections(deadline(t), n.node(), time.Now().Add(time.Hour))
	if err != nil || !later.LastClosed.IsZero() {
		t.Errorf("a closure long before what matters: %+v, %v; want the search to end at the first page", later, err)
	}
}

func FuzzDecoders(f *testing.F) {
	f.Add([]byte(`{"statuscode":0,"statusmsg":"OK","data":{"message":"Wrote 1 lines"}}`))
	f.Add([]byte(`{"server":{"id":"x"},"data":{"connections":[{"name":"a","stop":"2020-01-01T00:00:00Z"}]}}`))
	f.Add([]byte(`{"protocol":"io.choria.lifecycle.v1.startup","identity":"a"}`))
	f.Add([]byte(`{"protocol":"io.choria.protocol.v2.transport","headers":null,"data":"bnVsbA=="}`))
	o := options(f, broker(f))
	e, err := New(o)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, a := range receipt.Actions() {
			r, _ := decodeEffect(a, data)
			if len(r.Text) > 3*maxText || len(r.Trouble) > 3*maxText || strings.ContainsFunc(r.Text+r.Trouble, func(c rune) bool { return c < ' ' }) {
				t.Errorf("unbounded or unclean: %+v", r)
			}
			if event, _ := receipt.Classify(a, r); event == receipt.ReplyApplied && r.Code != 0 {
				t.Errorf("code %d was applied", r.Code)
			}
		}
		_, _ = e.open(data)
		_, _ = decodeConnz(data)
		if ev, err := decodeEvent(data); err == nil {
			if _, err := receipt.ParseNodeID(string(ev.Node)); err != nil {
				t.Error(err)
			}
		}
		if k, err := DecodeKey(receipt.Gen25519, json.RawMessage(data)); err == nil && (len(k.Public) != 64 || len(k.Signature) != 128) {
			t.Errorf("key %+v", k)
		}
		_, _ = DecodeCSR(json.RawMessage(data))
	})
}
