package fleet

import (
	"bytes"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// faultRig is a fleet of one node with a client.
type faultRig struct {
	*testClient
	f    *Fleet
	node string
}

func newFaultRig(t *testing.T, change func(*Options)) *faultRig {
	t.Helper()
	opts := testOptions(t, 1)
	if change != nil {
		change(&opts)
	}
	f := startFleet(t, opts)
	return &faultRig{testClient: newTestClient(t, f, "provisioning"), f: f, node: f.Nodes()[0]}
}

func (r *faultRig) ends(action string, n int) {
	r.t.Helper()
	await(r.t, r.f, r.node, func(s NodeState) bool { return s.Ends[action] >= n })
}

func (r *faultRig) phasesAre(action string, want ...string) {
	r.t.Helper()
	if got := phases(r.t, r.f, r.node, action); !slices.Equal(got, want) {
		r.t.Errorf("log of %s: %q, want %q", action, got, want)
	}
}

// flushed makes sure that what the node published before has arrived: a later reply came over the same connections.
func (r *faultRig) flushed() {
	r.t.Helper()
	r.ok(r.node, "rpcutil", "ping", map[string]any{})
}

func TestFaultsOfReplies(t *testing.T) {
	r := newFaultRig(t, nil)
	t.Run("drop", func(t *testing.T) {
		r.f.SetFault(r.node, "jwt", Fault{Kind: Drop})
		lost := r.call(r.node, "jwt", nil)
		r.ends("jwt", 1)
		r.provision(r.node, "jwt", nil) // the fault was used up
		lost.none()
		r.phasesAre("jwt", "received", "begin", "end:0", "received", "begin", "end:0")
	})
	t.Run("delay", func(t *testing.T) {
		r.f.SetFault(Any, Any, Fault{Kind: Delay, Delay: 300 * time.Millisecond})
		sent := time.Now()
		r.provision(r.node, "jwt", nil)
		if took := time.Since(sent); took < 300*time.Millisecond {
			t.Errorf("the reply took %s, want 300 ms at least", took)
		}
	})
	t.Run("duplicate", func(t *testing.T) {
		r.f.SetFault(r.node, "jwt", Fault{Kind: Duplicate, Copies: 2})
		request := r.call(r.node, "jwt", nil)
		first := request.next(deadline(t))
		for range 2 {
			if again := request.next(deadline(t)); !bytes.Equal(again.Body, first.Body) || again.RequestID != request.id {
				t.Errorf("reply %s to %s, want %s to %s", again.Body, again.RequestID, first.Body, request.id)
			}
		}
		r.flushed()
		request.none()
	})
	t.Run("answer", func(t *testing.T) {
		r.f.SetFault(r.node, "gen25519", Fault{Kind: Answer, Code: 1, Text: "Could not obtain provisioning lock"})
		reply := r.do(r.node, "choria_provision", "gen25519", r.with(nil))
		if reply.Code != 1 || reply.Text != "Could not obtain provisioning lock" {
			t.Errorf("code %d %s", reply.Code, reply.Text)
		}
		r.phasesAre("gen25519", "received", "answered:1")
	})
	t.Run("skip and times", func(t *testing.T) {
		r.f.SetFault(r.node, "jwt", Fault{Kind: Answer, Code: 5, Text: "no", Skip: 1, Times: 2})
		var codes []int
		for range 4 {
			codes = append(codes, r.do(r.node, "choria_provision", "jwt", r.with(nil)).Code)
		}
		if !slices.Equal(codes, []int{0, 5, 5, 0}) {
			t.Errorf("codes %v, want 0 5 5 0", codes)
		}
	})
	t.Run("always until cleared", func(t *testing.T) {
		r.f.SetFault(r.node, "jwt", Fault{Kind: Answer, Code: 5, Times: -1})
		for range 3 {
			if code := r.do(r.node, "choria_provision", "jwt", r.with(nil)).Code; code != 5 {
				t.Errorf("code %d, want 5", code)
			}
		}
		r.f.ClearFaults()
		r.provision(r.node, "jwt", nil)
	})
}

func TestAlteredReplies(t *testing.T) {
	r := newFaultRig(t, nil)
	one := func(fault Fault) (*request, rpcReply) {
		r.f.SetFault(r.node, "jwt", fault)
		request := r.call(r.node, "jwt", nil)
		return request, request.next(deadline(t))
	}
	t.Run("garbage", func(t *testing.T) {
		if _, reply := one(WireReply([]byte("\x00garbage"))); string(reply.Wire) != "\x00garbage" {
			t.Errorf("wire %q", reply.Wire)
		}
	})
	t.Run("empty", func(t *testing.T) {
		if _, reply := one(WireReply(nil)); len(reply.Wire) != 0 {
			t.Errorf("wire %q", reply.Wire)
		}
	})
	t.Run("huge", func(t *testing.T) {
		if _, reply := one(HugeReply(400 << 10)); len(reply.Body) < 400<<10 || reply.Sender != r.node {
			t.Errorf("%d bytes from %s", len(reply.Body), reply.Sender)
		}
	})
	t.Run("fields", func(t *testing.T) {
		request, reply := one(BodyReply(`{"statuscode":0,"data":{"jwt":17}}`))
		if string(reply.Body) != `{"statuscode":0,"data":{"jwt":17}}` || reply.RequestID != request.id {
			t.Errorf("body %s to %s", reply.Body, reply.RequestID)
		}
	})
	t.Run("request id", func(t *testing.T) {
		_, reply := one(Fault{Kind: Alter, Alter: Alteration{RequestID: "another"}})
		if reply.RequestID != "another" || reply.Sender != r.node || reply.Code != 0 {
			t.Errorf("%+v", reply)
		}
	})
	t.Run("sender", func(t *testing.T) {
		request, reply := one(Fault{Kind: Alter, Alter: Alteration{Sender: "mallory.example.net"}})
		if reply.RequestID != request.id || reply.Sender != "mallory.example.net" || reply.Code != 0 {
			t.Errorf("%+v", reply)
		}
	})
}

func holds(actions ...string) func(NodeState) bool {
	return func(s NodeState) bool { return slices.Equal(s.Held, actions) }
}

func TestHeldRequests(t *testing.T) {
	r := newFaultRig(t, nil)
	t.Run("in the action mutex", func(t *testing.T) {
		r.f.SetFault(r.node, "gen25519", Fault{Kind: Hold})
		held := r.call(r.node, "gen25519", map[string]any{"nonce": "n"})
		await(t, r.f, r.node, holds("gen25519"))
		queued := r.call(r.node, "jwt", nil)
		r.flushed()
		held.none()
		queued.none()
		if n := r.f.Release(r.node, Any); n != 1 {
			t.Errorf("%d released, want 1", n)
		}
		if held.next(deadline(t)).Code != 0 || queued.next(deadline(t)).Code != 0 {
			t.Error("a released request failed")
		}
	})
	t.Run("on the network", func(t *testing.T) {
		r.f.SetFault(r.node, "gen25519", Fault{Kind: Hold, Detached: true})
		held := r.call(r.node, "gen25519", map[string]any{"nonce": "n"})
		await(t, r.f, r.node, holds("gen25519"))
		r.provision(r.node, "jwt", nil)
		held.none()
		r.f.Release(Any, "gen25519")
		if held.next(deadline(t)).Code != 0 {
			t.Error("the released request failed")
		}
	})
	t.Run("past its TTL", func(t *testing.T) {
		r.f.SetFault(r.node, "gen25519", Fault{Kind: Hold, Detached: true})
		held := r.send(r.node, "choria_provision", "gen25519", r.with(nil), 3)
		sent := time.Now()
		await(t, r.f, r.node, holds("gen25519"))
		<-time.After(time.Until(sent.Add(3100 * time.Millisecond))) // the TTL is wall time on the node
		r.f.Release(r.node, "gen25519")
		r.provision(r.node, "jwt", nil)
		r.flushed()
		held.none()
		if got := phases(t, r.f, r.node, "gen25519"); got[len(got)-1] != "expired" {
			t.Errorf("log: %q", got)
		}
	})
}

func TestDeaths(t *testing.T) {
	r := newFaultRig(t, nil)
	t.Run("before the effect", func(t *testing.T) {
		r.f.SetFault(r.node, "gen25519", Fault{Kind: DieBefore})
		r.call(r.node, "gen25519", nil)
		await(t, r.f, r.node, func(s NodeState) bool { return !s.Alive && s.Exit == "signal: killed" })
		r.phasesAre("gen25519", "received")
		if err := r.f.StartNode(deadline(t), r.node); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("after the effect", func(t *testing.T) {
		r.f.SetFault(r.node, "gen25519", Fault{Kind: DieAfter})
		lost := r.call(r.node, "gen25519", nil)
		await(t, r.f, r.node, func(s NodeState) bool { return !s.Alive && s.Exit == "signal: killed" })
		r.phasesAre("gen25519", "received", "received", "begin", "end:0")
		if err := r.f.StartNode(deadline(t), r.node); err != nil {
			t.Fatal(err)
		}
		r.provision(r.node, "jwt", nil)
		lost.none()
	})
}

func TestHookSeesAndDecides(t *testing.T) {
	var calls atomic.Int64
	seen := make(chan Call, 16)
	r := newFaultRig(t, func(o *Options) {
		o.Hook = func(c Call) Fault {
			seen <- c
			if calls.Add(1) == 2 { // the end of the first request
				return Fault{Kind: Drop}
			}
			return Fault{}
		}
	})
	lost := r.call(r.node, "jwt", nil)
	begin, end := <-seen, <-seen
	if begin.Phase != PhaseBegin || begin.Action != "jwt" || begin.RequestID != lost.id || begin.Caller != signerCaller || begin.Seq != 1 || begin.Status != NoStatus {
		t.Errorf("begin %+v", begin)
	}
	if end.Phase != PhaseEnd || end.Seq != 2 || end.Status != 0 || end.PID != begin.PID || end.Boot != 1 || end.Node != r.node {
		t.Errorf("end %+v", end)
	}
	r.provision(r.node, "jwt", nil)
	lost.none()
}

// TestReplyAfterTheAgentGaveUp takes longer than the agent's own 20 s.
func TestReplyAfterTheAgentGaveUp(t *testing.T) {
	t.Parallel()
	const wait = 21 * time.Second
	r := newFaultRig(t, nil)
	r.f.SetFault(r.node, "jwt", Fault{Kind: Delay, Delay: wait})
	late := r.call(r.node, "jwt", nil)
	sent := time.Now()
	r.provision(r.node, "jwt", nil) // the late reply holds nobody up
	if reply := late.next(deadline(t)); reply.Code != 0 || reply.RequestID != late.id || time.Since(sent) < wait {
		t.Errorf("%+v after %s", reply, time.Since(sent))
	}
}
