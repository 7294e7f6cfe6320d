package choria

import (
	"testing"
	"time"

	"provctl/internal/agent"
	"provctl/receipt"
)

// TestGiveUpEndsTheWait: long before the horizon the outcome is lost, the node is free for facts, and a reply that still comes is news.
func TestGiveUpEndsTheWait(t *testing.T) {
	late, asked := make(chan LateReply, 4), make(chan fakeRequest, 1)
	e := engine(t, broker(t), func(o *Options) {
		o.TTL = time.Hour
		o.OnLate = func(l LateReply) { late <- l }
	})
	n := node(t, broker(t), func(r fakeRequest) { asked <- r })
	pr, err := e.Prepare(n.node(), receipt.ReleaseUpdate, agent.ReleaseUpdate{Repository: "https://repo.example.net", Version: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := e.Publish(deadline(t), receiptFor(pr), open, pr)
	if err != nil {
		t.Fatal(err)
	}
	r := receive(t, asked)
	c.GiveUp()
	c.GiveUp()
	if o := wait(t, c); o.Event != receipt.Lost || o.Why != "no reply was waited for any longer" {
		t.Errorf("outcome %s (%s)", o.Event, o.Why)
	}
	unlock, err := e.locks.lock(deadline(t), e.closing, n.node(), turn{hasty: true})
	if err != nil {
		t.Fatalf("the node is not free: %v", err)
	}
	unlock()
	r.answer(0, "OK", restarting)
	if l := receive(t, late); l.Request != pr.Request || l.Second || l.Reply.Code != 0 {
		t.Errorf("late reply %+v", l)
	}
}

// TestGiveUpAfterTheReply changes nothing.
func TestGiveUpAfterTheReply(t *testing.T) {
	e := engine(t, broker(t))
	n := node(t, broker(t), func(r fakeRequest) { r.answer(0, "OK", restarting) })
	pr := prepare(t, e, n.node())
	c, err := e.Publish(deadline(t), receiptFor(pr), open, pr)
	if err != nil {
		t.Fatal(err)
	}
	if o := wait(t, c); o.Event != receipt.ReplyApplied {
		t.Fatalf("outcome %s (%s)", o.Event, o.Why)
	}
	c.GiveUp()
	if o := c.Outcome(); o.Event != receipt.ReplyApplied {
		t.Errorf("outcome after giving up: %s", o.Event)
	}
}
