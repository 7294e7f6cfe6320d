package choria

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"provctl/internal/agent"
	"provctl/receipt"
)

func TestReplyDecides(t *testing.T) {
	key := fmt.Sprintf(`{"public_key":%q,"signature":%q,"directory":"/etc/choria"}`, strings.Repeat("ab", 32), strings.Repeat("cd", 64))
	for _, tc := range []struct {
		name   string
		action receipt.Action
		input  any
		reply  func(fakeRequest)
		want   receipt.Event
		why    string
	}{
		{"restart accepted", receipt.Restart, agent.Restart{Splay: 1}, func(r fakeRequest) { r.answer(0, "OK", restarting) }, receipt.ReplyApplied, "Restarting"},
		{"restart refused", receipt.Restart, agent.Restart{Splay: 1}, func(r fakeRequest) { r.answer(1, "Incorrect provision token supplied", "{}") }, receipt.ReplyRefused, "token"},
		{"configure failed", receipt.Configure, agent.Configure{Config: agent.Config{"identity": "x"}}, func(r fakeRequest) { r.answer(1, "TLS Setup Failed: no space", "{}") }, receipt.ReplyFailed, "TLS"},
		{"key", receipt.Gen25519, agent.Gen25519{Nonce: "n"}, func(r fakeRequest) { r.answer(0, "OK", key) }, receipt.ReplyApplied, "key"},
		{"key without signature", receipt.Gen25519, agent.Gen25519{Nonce: "n"}, func(r fakeRequest) { r.answer(0, "OK", `{"public_key":"ab","directory":"/"}`) }, receipt.Lost, "public_key"},
		{"success in other words", receipt.Restart, agent.Restart{}, func(r fakeRequest) { r.answer(0, "OK", `{"message":"fine"}`) }, receipt.Lost, "words"},
		{"no message", receipt.Restart, agent.Restart{}, func(r fakeRequest) { r.answer(0, "OK", `{}`) }, receipt.Lost, "no message"},
		{"mistyped message", receipt.Restart, agent.Restart{}, func(r fakeRequest) { r.answer(0, "OK", `{"message":1}`) }, receipt.Lost, "cannot be read"},
		{"data is null", receipt.Restart, agent.Restart{}, func(r fakeRequest) { r.answer(0, "OK", `null`) }, receipt.Lost, "no message"},
		{"no status code", receipt.Restart, agent.Restart{}, func(r fakeRequest) { r.raw(`{"statusmsg":"OK","data":` + restarting + `}`) }, receipt.Lost, "no status code"},
		{"null status code", receipt.Restart, agent.Restart{}, func(r fakeRequest) { r.raw(`{"statuscode":null,"data":` + restarting + `}`) }, receipt.Lost, "no status code"},
		{"mistyped status code", receipt.Restart, agent.Restart{}, func(r fakeRequest) { r.raw(`{"statuscode":"0","data":` + restarting + `}`) }, receipt.Lost, "no mcorpc reply"},
		{"status code 9", receipt.Restart, agent.Restart{}, func(r fakeRequest) { r.raw(`{"statuscode":9,"data":` + restarting + `}`) }, receipt.Lost, "status code 9"},
		{"two status codes", receipt.Restart, agent.Restart{}, func(r fakeRequest) { r.raw(`{"statuscode":1,"statuscode":0,"data":` + restarting + `}`) }, receipt.Lost, "no mcorpc reply"},
		{"other case", receipt.Restart, agent.Restart{}, func(r fakeRequest) { r.raw(`{"StatusCode":0,"data":` + restarting + `}`) }, receipt.Lost, "no status code"},
		{"empty body", receipt.Restart, agent.Restart{}, func(r fakeRequest) { r.raw("") }, receipt.Lost, "empty"},
		{"empty message", receipt.Restart, agent.Restart{}, func(r fakeRequest) { r.publish(nil) }, receipt.Lost, "decoded"},
		{"garbage", receipt.Restart, agent.Restart{}, func(r fakeRequest) { r.publish([]byte("\x00garbage{")) }, receipt.Lost, "decoded"},
		{"null transport", receipt.Restart, agent.Restart{}, func(r fakeRequest) { r.publish([]byte("null")) }, receipt.Lost, "decoded"},
		{"null headers", receipt.Restart, agent.Restart{}, func(r fakeRequest) {
			r.publish([]byte(`{"protocol":"io.choria.protocol.v2.transport","headers":null,"data":null}`))
		}, receipt.Lost, "decoded"},
		{"wrong hash", receipt.Restart, agent.Restart{}, func(r fakeRequest) {
			r.publish([]byte(`{"protocol":"io.choria.protocol.v2.transport","headers":{},"data":"eyJwcm90b2NvbCI6ImlvLmNob3JpYS5wcm90b2NvbC52Mi5zZWN1cmVfcmVwbHkiLCJyZXBseSI6ImUzMD0iLCJoYXNoIjoieCJ9"}`))
		}, receipt.Lost, "decoded"},
		{"truncated", receipt.Restart, agent.Restart{}, func(r fakeRequest) {
			b := r.seal(r.node.id, r.ID, r.body(0, "OK", restarting))
			r.publish(b[:len(b)/2])
		}, receipt.Lost, "decoded"},
		{"huge text", receipt.Restart, agent.Restart{}, func(r fakeRequest) { r.answer(1, strings.Repeat("\x1b[31mx", 30000), "{}") }, receipt.ReplyFailed, "code 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := engine(t, broker(t))
			n := node(t, broker(t), tc.reply)
			pr, err := e.Prepare(n.node(), tc.action, tc.input)
			if err != nil {
				t.Fatal(err)
			}
			c, err := e.Publish(deadline(t), receiptFor(pr), open, pr)
			if err != nil {
				t.Fatal(err)
			}
			o := wait(t, c)
			if o.Event != tc.want || !strings.Contains(o.Why, tc.why) {
				t.Errorf("outcome %s (%s), want %s with %q", o.Event, o.Why, tc.want, tc.why)
			}
			if len(o.Reply.Text) > maxText || strings.ContainsRune(o.Reply.Text, '\x1b') {
				t.Errorf("text of %d bytes was kept as it came", len(o.Reply.Text))
			}
			if ran := n.executed(); len(ran) != 1 || ran[0] != string(pr.Request) {
				t.Errorf("the node accepted %v, want only %s", ran, pr.Request)
			}
		})
	}
}

func TestAbsentNodeIsNeverSent(t *testing.T) {
	e := engine(t, broker(t))
	o, _ := restart(t, e, "nobody.example.net")
	if o.Event != receipt.NeverSent {
		t.Errorf("outcome %s (%s), want never-sent", o.Event, o.Why)
	}
}

func TestTwoRepliesAreUnknown(t *testing.T) {
	late := make(chan LateReply, 4)
	e := engine(t, broker(t), func(o *Options) { o.OnLate = func(l LateReply) { late <- l } })
	n := node(t, broker(t), func(r fakeRequest) {
		b := r.seal(r.node.id, r.ID, r.body(0, "OK", restarting))
		r.publish(b)
		r.publish(b)
	})
	o, pr := restart(t, e, n.node())
	for tries := 0; o.Event == receipt.ReplyApplied && tries < 20; tries++ { // the second came when the first was taken
		if l := receive(t, late); !l.Second || l.Request != pr.Request {
			t.Errorf("evidence %+v, want the second reply, marked as one of two", l)
		}
		o, pr = restart(t, e, n.node())
	}
	if o.Event != receipt.Lost || !strings.Contains(o.Why, "two answers") {
		t.Errorf("outcome %s (%s), want lost because of two answers", o.Event, o.Why)
	}
	for range 2 {
		if l := receive(t, late); !l.Second || l.Request != pr.Request || l.Reply.Text == "" {
			t.Errorf("evidence %+v, want both replies, marked as one of two", l)
		}
	}
}

func TestForeignRepliesAreNeverUsed(t *testing.T) {
	e := engine(t, broker(t))
	n := node(t, broker(t), func(r fakeRequest) {
		good := r.body(0, "OK", restarting)
		r.publish(r.seal("other.example.net", r.ID, good))
		r.publish(r.seal(r.node.id, "2OtherRequest", good))
		r.answer(1, "Incorrect provision token supplied", "{}")
	})
	o, _ := restart(t, e, n.node())
	if o.Event != receipt.ReplyRefused {
		t.Errorf("outcome %s (%s), want that of the node's own reply", o.Event, o.Why)
	}
	if got := e.Tally().Foreign; got != 2 {
		t.Errorf("%d foreign replies counted, want 2", got)
	}
}

func TestOnlyForeignRepliesAreNoReply(t *testing.T) {
	e := engine(t, broker(t), func(o *Options) { o.TTL, o.Skew = time.Second, time.Millisecond })
	n := node(t, broker(t), func(r fakeRequest) {
		r.publish(r.seal("other.example.net", r.ID, r.body(0, "OK", restarting)))
	})
	o, pr := restart(t, e, n.node())
	if o.Event != receipt.Lost || !strings.Contains(o.Why, "horizon") {
		t.Errorf("outcome %s (%s), want lost at the horizon", o.Event, o.Why)
	}
	if o.At.Before(pr.Horizon.Time) {
		t.Errorf("given up at %s, before the horizon %s", o.At, pr.Horizon)
	}
}

func TestLateReplyIsEvidence(t *testing.T) {
	late := make(chan LateReply, 4)
	asked := make(chan fakeRequest, 1)
	e := engine(t, broker(t), func(o *Options) {
		o.TTL, o.Skew = 3*time.Second, time.Millisecond
		o.OnLate = func(l LateReply) { late <- l }
	})
	n := node(t, broker(t), func(r fakeRequest) { asked <- r })
	o, pr := restart(t, e, n.node())
	if o.Event != receipt.Lost {
		t.Fatalf("outcome %s, want lost", o.Event)
	}
	r := receive(t, asked)
	r.answer(0, "OK", restarting)
	r.answer(1, "Could not do it", "{}")
	first, second := receive(t, late), receive(t, late)
	if first.Second || first.Request != pr.Request || first.Node != n.node() || first.Action != receipt.Restart || !strings.HasPrefix(first.Reply.Text, "Restarting") {
		t.Errorf("first late reply is %+v", first)
	}
	if !second.Second || second.Reply.Code != 1 {
		t.Errorf("second late reply is %+v, want it marked as second", second)
	}
}

func TestSecondReplyAfterTheFirstWasTaken(t *testing.T) {
	late := make(chan LateReply, 4)
	asked := make(chan fakeRequest, 1)
	e := engine(t, broker(t), func(o *Options) { o.OnLate = func(l LateReply) { late <- l } })
	n := node(t, broker(t), func(r fakeRequest) { r.answer(0, "OK", restarting); asked <- r })
	if o, _ := restart(t, e, n.node()); o.Event != receipt.ReplyApplied {
		t.Fatalf("outcome %s, want applied", o.Event)
	}
	receive(t, asked).answer(0, "OK", restarting)
	if l := receive(t, late); !l.Second {
		t.Errorf("late reply %+v is not marked as the second", l)
	}
}

func TestReplyToAnEarlierProcess(t *testing.T) {
	asked := make(chan fakeRequest, 1)
	n := node(t, broker(t), func(r fakeRequest) { asked <- r })
	before := engine(t, broker(t))
	pr := prepare(t, before, n.node())
	p := receiptFor(pr)
	c, err := before.Publish(deadline(t), p, open, pr)
	if err != nil {
		t.Fatal(err)
	}
	r := receive(t, asked)
	before.Close()
	if o := wait(t, c); o.Event != receipt.Lost {
		t.Errorf("a closed engine says %s, want lost", o.Event)
	}

	late := make(chan LateReply, 1)
	after := engine(t, broker(t), func(o *Options) { o.OnLate = func(l LateReply) { late <- l } })
	after.Expect(p.r)
	r.publish(r.seal("other.example.net", r.ID, r.body(1, "Incorrect provision token supplied", "{}")))
	r.answer(0, "OK", restarting)
	if l := receive(t, late); l.Second || l.Request != pr.Request || l.Reply.Code != 0 {
		t.Errorf("late reply %+v, want the node's own one", l)
	}
	if after.Tally().Foreign != 1 {
		t.Error("the foreign reply was not counted")
	}
}

func TestRefusalsSendNothing(t *testing.T) {
	e := engine(t, broker(t))
	n := node(t, broker(t), func(r fakeRequest) { r.answer(0, "OK", restarting) })
	fenced := fmt.Errorf("the lock was lost: %w", receipt.ErrFenced)
	for _, tc := range []struct {
		name    string
		p       func(*Prepared) *pending
		g       Guard
		want    error
		notSent bool
	}{
		{"guard", receiptFor, guard(func(receipt.Receipt) error { return fenced }), receipt.ErrFenced, true},
		{"no guard", receiptFor, nil, ErrMisuse, true},
		{"receipt of another request", func(pr *Prepared) *pending { p := receiptFor(pr); p.r.Request = "2Other"; return p }, open, ErrMisuse, false},
		{"receipt of another node", func(pr *Prepared) *pending { p := receiptFor(pr); p.r.Node = "other"; return p }, open, ErrMisuse, false},
		{"receipt of another action", func(pr *Prepared) *pending { p := receiptFor(pr); p.r.Action = receipt.Shutdown; return p }, open, ErrMisuse, false},
		{"receipt of another payload", func(pr *Prepared) *pending { p := receiptFor(pr); p.r.Digest = "0"; return p }, open, ErrMisuse, false},
		{"receipt that was published", func(pr *Prepared) *pending { p := receiptFor(pr); p.published = true; return p }, open, receipt.ErrRepeat, false},
		{"receipt that cannot be marked", func(pr *Prepared) *pending { p := receiptFor(pr); p.err = errors.New("stopped"); return p }, open, nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pr := prepare(t, e, n.node())
			p := tc.p(pr)
			marked := p.published
			_, err := e.Publish(deadline(t), p, tc.g, pr)
			var ns *NotSentError
			if err == nil || errors.As(err, &ns) != tc.notSent || tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v (not sent: %t)", err, tc.want, tc.notSent)
			}
			if p.published != marked {
				t.Error("the receipt was marked as published")
			}
		})
	}
	// a request after them all: whatever had been published before it would have arrived before it
	if o, pr := restart(t, e, n.node()); o.Event != receipt.ReplyApplied {
		t.Errorf("the node was not freed: %s (%s)", o.Event, o.Why)
	} else if ran := n.executed(); len(ran) != 1 || ran[0] != string(pr.Request) {
		t.Errorf("the node accepted %v", ran)
	}
}

func TestSecondPublishOfOneReceipt(t *testing.T) {
	e := engine(t, broker(t))
	n := node(t, broker(t), func(r fakeRequest) { r.answer(0, "OK", restarting) })
	pr := prepare(t, e, n.node())
	p := receiptFor(pr)
	c, err := e.Publish(deadline(t), p, open, pr)
	if err != nil {
		t.Fatal(err)
	}
	wait(t, c)
	_, err = e.Publish(deadline(t), p, open, pr)
	var ns *NotSentError
	if !errors.Is(err, receipt.ErrRepeat) || errors.As(err, &ns) {
		t.Errorf("second publish: %v, want ErrRepeat, and not the claim that nothing was sent", err)
	}
	if ran := n.executed(); len(ran) != 1 {
		t.Errorf("the node accepted %d requests", len(ran))
	}
}

func TestExpiredRequestIsNotExecuted(t *testing.T) {
	e := engine(t, broker(t), func(o *Options) { o.TTL, o.Skew = time.Second, time.Millisecond })
	n := node(t, broker(t), func(r fakeRequest) { r.answer(0, "OK", restarting) })
	pr := prepare(t, e, n.node())
	<-time.After(time.Until(pr.Horizon.Time) + 20*time.Millisecond) // the TTL is the node's real clock
	c, err := e.Publish(deadline(t), receiptFor(pr), open, pr)
	if err != nil {
		t.Fatal(err)
	}
	if o := wait(t, c); o.Event != receipt.Lost {
		t.Errorf("outcome %s, want lost", o.Event)
	}
	if ran := n.executed(); len(ran) != 0 {
		t.Errorf("the node accepted %v", ran)
	}
}

func TestPrepareRefuses(t *testing.T) {
	e := engine(t, broker(t))
	for _, tc := range []struct {
		name   string
		node   receipt.NodeID
		action receipt.Action
		input  any
		want   error
	}{
		{"wildcard", "a.*", receipt.Restart, agent.Restart{}, receipt.ErrInvalid},
		{"empty", "", receipt.Restart, agent.Restart{}, receipt.ErrInvalid},
		{"input of another action", "a", receipt.Restart, agent.Shutdown{}, ErrMisuse},
		{"pointer", "a", receipt.Restart, &agent.Restart{}, ErrMisuse},
		{"nothing", "a", receipt.Restart, nil, ErrMisuse},
		{"unknown action", "a", receipt.Action(99), agent.Restart{}, ErrMisuse},
		{"beyond the broker's limit", "a", receipt.Configure, agent.Configure{Config: agent.Config{"a": strings.Repeat("x", 1<<20)}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if pr, err := e.Prepare(tc.node, tc.action, tc.input); err == nil || tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("gave %v, %v; want %v", pr, err, tc.want)
			}
		})
	}
}
