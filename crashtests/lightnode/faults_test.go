package lightnode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"provctl/internal/fleet"
)

// faulty is what a fleet and light nodes have in common for faults.
type faulty struct {
	*subject
	set     func(node, action string, f fleet.Fault)
	release func(node, action string) int
	boot    func(context.Context, string) error
}

// replies waits for the given number of replies and looks that no more came.
func (s *faulty) replies(step string, r *request, count int) {
	r.c.t.Helper()
	text := ""
	for range count {
		m, err := r.sub.NextMsgWithContext(deadline(r.c.t))
		r.c.check(err)
		got, err := r.c.fw.NewReplyFromTransportJSON(m.Data, true)
		if err != nil {
			text += fmt.Sprintf(" undecodable %q", m.Data)
			continue
		}
		text += fmt.Sprintf(" ours %t from %s: %s", got.RequestID() == r.id, got.SenderID(), hexes.ReplaceAll(got.Message(), []byte("HEX")))
	}
	// Everything the node sends is in order: a reply to another request comes after all to this one.
	r.c.make(s.name, "rpcutil", rpc("rpcutil", "ping", map[string]any{}), 0).send().next()
	n, _, err := r.sub.Pending()
	r.c.check(err)
	s.note(step, "%d replies, %d more:%s", count, n, text)
}

// logs waits until the node has noted a phase of an action so many times: what two of its agents note has no order else.
func (s *faulty) logs(c *client, action string, phase fleet.Phase, want int) {
	c.t.Helper()
	ctx, tick := deadline(c.t), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for {
		log, err := s.log()
		c.check(err)
		n := 0
		for _, e := range log {
			if e.Action == action && e.Phase == phase {
				n++
			}
		}
		if n >= want {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			c.t.Fatalf("%s was noted as %s %d times, want %d", action, phase, n, want)
		}
	}
}

// faults puts a node through each fault.
func faults(c *client, s *faulty) {
	c.t.Helper()
	bad := func(f fleet.Fault) *request {
		s.set(s.name, "reprovision", f)
		return c.call(s.name, "reprovision", nil)
	}
	for _, f := range []struct {
		step  string
		fault fleet.Fault
		count int
	}{
		{"delay", fleet.Fault{Kind: fleet.Delay, Delay: 50 * time.Millisecond}, 1},
		{"duplicate", fleet.Fault{Kind: fleet.Duplicate, Copies: 2}, 3},
		{"answer", fleet.Fault{Kind: fleet.Answer, Code: 3, Text: "no", Data: []byte(`{"a":1}`)}, 1},
		{"body", fleet.BodyReply("{}"), 1},
		{"nothing", fleet.WireReply(nil), 1},
		{"garbage", fleet.WireReply([]byte("xx")), 1},
		{"request and sender", fleet.Fault{Kind: fleet.Alter, Alter: fleet.Alteration{RequestID: "other", Sender: "someone.example.net"}}, 1},
	} {
		s.replies(f.step, bad(f.fault), f.count)
	}
	drop := bad(fleet.Fault{Kind: fleet.Drop})
	s.await(func(n fleet.NodeState) bool { return n.Ends["reprovision"] == 7 })
	s.replies("drop", drop, 0)

	held := bad(fleet.Fault{Kind: fleet.Hold})
	s.await(func(n fleet.NodeState) bool { return len(n.Held) == 1 })
	behind := c.call(s.name, "jwt", nil)
	s.replies("behind a held request", behind, 0)
	s.logs(c, "jwt", fleet.PhaseReceived, 1)
	s.note("release", "%d", s.release(s.name, fleet.Any))
	s.replies("held", held, 1)
	behind.next()

	s.set(s.name, "jwt", fleet.Fault{Kind: fleet.Hold, Detached: true})
	detached := c.make(s.name, "choria_provision", rpc("choria_provision", "jwt", map[string]any{"token": c.files.Token}), 1).send()
	s.await(func(n fleet.NodeState) bool { return len(n.Held) == 1 })
	c.call(s.name, "jwt", nil).next() // passes
	select {
	case <-time.After(1100 * time.Millisecond): // its age is what is tested
	case <-c.t.Context().Done():
	}
	s.release(s.name, "jwt")
	s.logs(c, "jwt", fleet.PhaseExpired, 1)
	s.replies("expired while held", detached, 0)
	dying(c, s)
}

// nobody tells whether the broker says at once that nobody takes a request.
func nobody(c *client, r *request, wait time.Duration) bool {
	_, err := c.conn.Request(r.to, r.wire, wait)
	return errors.Is(err, nats.ErrNoResponders)
}

// dying kills the node before and after an action.
func dying(c *client, s *faulty) {
	c.t.Helper()
	for _, kind := range []fleet.Kind{fleet.DieBefore, fleet.DieAfter} {
		before := c.stats(s.name)
		s.set(s.name, "gen25519", fleet.Fault{Kind: kind})
		r := c.call(s.name, "gen25519", map[string]any{"nonce": "1"})
		s.await(func(n fleet.NodeState) bool { return !n.Alive && strings.Contains(n.Exit, "killed") })
		files(c, s.subject)
		for ctx := deadline(c.t); !nobody(c, r, time.Second); {
			c.check(ctx.Err()) // the broker learns of a process's end a little later
		}
		c.check(s.boot(deadline(c.t), s.name))
		after := c.stats(s.name)
		s.note("after "+kind.String(), "same process %t", before.PID == after.PID)
		s.replies(kind.String(), r, 0)
	}
}

// shutdown ends a node for good; what comes behind an accepted one never runs.
func shutdown(c *client, s *faulty) {
	c.t.Helper()
	s.note("shutdown", "%s", shape(c.call(s.name, "shutdown", nil).next()))
	s.await(func(n fleet.NodeState) bool { return !n.Alive && n.Exit == "exit status 0" })
}

func TestFaultsAreTheSame(t *testing.T) {
	f := broker(t, 1, nil)
	n := light(t, f, 1, nil)
	c := newClient(t, f, "provisioner")
	both := []*faulty{
		{subject: realSubject(t, f, f.Nodes()[0]), set: f.SetFault, release: f.Release, boot: f.StartNode},
		{subject: lightSubject(t, n, n.Names()[0]), set: n.SetFault, release: n.Release, boot: n.Boot},
	}
	for _, s := range both {
		faults(c, s)
		shutdown(c, s)
		entries(c, s.subject)
	}
	compare(t, both[0].subject, both[1].subject, 50)
}

// upgrade fails once, succeeds, and restarts.
func upgrade(c *client, f *fleet.Fleet, s *subject) {
	c.t.Helper()
	s.note("inventory", "%s", shape(c.make(s.name, "rpcutil", rpc("rpcutil", "inventory", map[string]any{}), 0).send().next()))
	for _, version := range []string{"9.9.9", "1.2.3"} {
		s.note("upgrade", "%s", shape(c.call(s.name, "release_update", map[string]any{"version": version, "repository": f.Repository()}).next()))
	}
	s.await(func(n fleet.NodeState) bool { return n.Boots == 2 && n.Joined })
	s.note("inventory", "%s", shape(c.make(s.name, "rpcutil", rpc("rpcutil", "inventory", map[string]any{}), 0).send().next()))
	files(c, s)
}

func TestUpgradesAreTheSame(t *testing.T) {
	f := broker(t, 1, func(o *fleet.Options) { o.Upgradable = true })
	if err := f.Publish(fleet.Release{Version: "1.2.3"}); err != nil {
		t.Fatal(err)
	}
	n := light(t, f, 1, func(o *Options) { o.Upgradable = true })
	c := newClient(t, f, "provisioner")
	both := []*subject{realSubject(t, f, f.Nodes()[0]), lightSubject(t, n, n.Names()[0])}
	seen := c.events()
	for _, s := range both {
		s.event = seen
		upgrade(c, f, s)
		entries(c, s)
	}
	compare(t, both[0], both[1], 10)
}

// TestResetDropsWhatCameBefore sends a request that was made before the Reset.
func TestResetDropsWhatCameBefore(t *testing.T) {
	f := broker(t, 0, nil)
	n := light(t, f, 2, nil)
	c := newClient(t, f, "provisioner")
	node := n.Names()[0]
	old := c.make(node, "choria_provision", rpc("choria_provision", "jwt", map[string]any{"token": c.files.Token}), 0)
	n.SetFault(node, "gen25519", fleet.Fault{Kind: fleet.Hold})
	held := c.call(node, "gen25519", map[string]any{"nonce": "1"})
	if err := n.Wait(deadline(t), func(s fleet.State) bool { return len(s.Nodes[node].Held) == 1 }); err != nil {
		t.Fatal(err)
	}
	before := c.stats(node)
	if err := n.Reset(deadline(t)); err != nil {
		t.Fatal(err)
	}
	old.send()
	after := c.stats(node)
	if after.PID != before.PID || after.Total != 1 {
		t.Errorf("after the reset: %+v", after)
	}
	for _, r := range []*request{old, held} {
		if count, _, err := r.sub.Pending(); count != 0 || err != nil {
			t.Errorf("%d replies to a request from before the reset (%v)", count, err)
		}
	}
	log, err := n.Log(node)
	if err != nil || len(log) != 2 {
		t.Errorf("the log has %d entries (%v): %+v", len(log), err, log)
	}
	if state := n.State().Nodes[node]; len(state.Held) != 0 || !state.Connected {
		t.Errorf("%+v", state)
	}
}

// TestStartsAreTellable boots a node several times within a second: each life has a second of its own.
func TestStartsAreTellable(t *testing.T) {
	f := broker(t, 0, nil)
	n := light(t, f, 1, nil)
	c := newClient(t, f, "provisioner")
	node := n.Names()[0]
	last := c.stats(node)
	for range 3 {
		if err := n.Kill(node); err != nil {
			t.Fatal(err)
		}
		if r := c.make(node, "rpcutil", []byte("{}"), 0); !nobody(c, r, 10*time.Second) {
			t.Error("the broker still has somebody to deliver to after a kill")
		}
		if err := n.Kill(node); !errors.Is(err, ErrStopped) {
			t.Errorf("killed twice: %v", err)
		}
		if err := n.Boot(deadline(t), node); err != nil {
			t.Fatal(err)
		}
		if err := n.Boot(deadline(t), node); !errors.Is(err, ErrRunning) {
			t.Errorf("booted twice: %v", err)
		}
		next := c.stats(node)
		if next.Starttime <= last.Starttime || next.PID == last.PID {
			t.Errorf("incarnation %+v after %+v", next, last)
		}
		last = next
	}
}

// TestBrokerGoesAndComes waits for the nodes to come back.
func TestBrokerGoesAndComes(t *testing.T) {
	f := broker(t, 0, nil)
	n := light(t, f, 3, nil)
	connected := func(count int) {
		t.Helper()
		if err := n.Wait(deadline(t), func(s fleet.State) bool {
			return s.Count(func(n fleet.NodeState) bool { return n.Connected }) == count
		}); err != nil {
			t.Fatal(err)
		}
	}
	f.StopBroker()
	connected(0)
	if err := f.StartBroker(deadline(t)); err != nil {
		t.Fatal(err)
	}
	connected(3)
	c := newClient(t, f, "provisioner")
	for _, node := range n.Names() {
		c.stats(node)
	}
}
