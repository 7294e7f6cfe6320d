package choria

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"provctl/internal/crashpoint"
	"provctl/receipt"
)

// Pending is a receipt whose request may leave: *journal.Pending.
type Pending interface {
	Receipt() receipt.Receipt
	// MarkPublished refuses the second time with receipt.ErrRepeat.
	MarkPublished() error
}

// Guard is asked immediately before an effect leaves: *fence.Fence. Its refusals wrap receipt.ErrFenced.
type Guard interface {
	Check(receipt.Receipt) error
}

// Outcome is what became of a published effect.
type Outcome struct {
	Event receipt.Event // ReplyApplied, ReplyRefused, ReplyFailed, NeverSent or Lost
	Why   string
	Reply receipt.Reply   // the one reply; zero if there was none that could be used
	Data  json.RawMessage // its data
	At    time.Time

	answered bool // a reply from the node, for this request, came, whether it could be used or not
}

// Call is an effect on its way.
type Call struct {
	prepared *Prepared
	receipt  receipt.ReceiptID
	waiter   *waiter
	acked    bool
	begun    time.Time // when it was published
	unlock   func()
	done     chan struct{}
	outcome  Outcome

	enough chan struct{} // closed: nobody waits any more
	giveUp func()
}

// Done is closed when the outcome is known: at the reply, or at the horizon at the latest.
func (c *Call) Done() <-chan struct{} { return c.done }

// GiveUp ends the waiting: without an answer so far the outcome is Lost, and the node is free for facts. A reply that still comes is news.
func (c *Call) GiveUp() { c.giveUp() }

// Outcome gives what became of the effect. It is valid only after Done.
func (c *Call) Outcome() Outcome {
	select {
	case <-c.done:
		return c.outcome
	default:
		return Outcome{Event: receipt.Lost, Why: "the outcome was read before it was known"}
	}
}

// Publish sends a prepared effect, whose receipt is durable, at most once. It waits its turn at the node, asks the guard, marks
// the receipt published, publishes and waits for the broker's acknowledgement; without one the call goes on, since the request
// may have left. The context covers that much; the reply is waited for until the horizon, whatever becomes of the context.
//
// A *NotSentError means that provably nothing left. Any other error is ErrMisuse or receipt.ErrRepeat, a fault of the caller:
// nothing left by this call, but an earlier call with the same receipt may have sent it.
func (e *Engine) Publish(ctx context.Context, p Pending, g Guard, pr *Prepared) (*Call, error) {
	r := p.Receipt()
	if err := pr.matches(r); err != nil {
		return nil, err
	}
	if !pr.used.CompareAndSwap(false, true) {
		return nil, fmt.Errorf("publish %s on %s (receipt %s): %w: this request was given to publish before", pr.Action, pr.Node, r.ID, receipt.ErrRepeat)
	}
	unlock, err := e.locks.lock(ctx, e.closing, pr.Node, turn{effect: true})
	if err != nil {
		return nil, notSent(pr, "the context ended while another request to the node was under way", err)
	}
	c := &Call{prepared: pr, receipt: r.ID, unlock: unlock, done: make(chan struct{}), enough: make(chan struct{})}
	c.giveUp = sync.OnceFunc(func() { close(c.enough) })
	if err := e.send(ctx, c, p, g, r); err != nil {
		unlock()
		e.opt.Meter.Failed(rpcName(pr.Action))
		return nil, err
	}
	e.log.Debug("effect published", "node", pr.Node, "receipt", r.ID, "request", pr.Request, "action", pr.Action.String(), "acknowledged", c.acked)
	if !e.spawn(func() { e.await(c) }) {
		e.finish(c, Outcome{Event: receipt.Lost, Why: "the worker stopped before a reply came"})
	}
	return c, nil
}

func rpcName(a receipt.Action) string { return provisionAgent + "#" + a.String() }

func notSent(pr *Prepared, why string, err error) error {
	return &NotSentError{Node: pr.Node, Action: pr.Action, Request: pr.Request, Why: why, Err: err}
}

// send does the steps between having the node and the broker's acknowledgement.
func (e *Engine) send(ctx context.Context, c *Call, p Pending, g Guard, r receipt.Receipt) error {
	pr := c.prepared
	nc, err := e.conn()
	if err != nil {
		return notSent(pr, "the broker cannot be reached", err)
	}
	if g == nil {
		return notSent(pr, "no fence was given", ErrMisuse)
	}
	if err := g.Check(r); err != nil {
		return notSent(pr, "the fence refused", err)
	}
	if err := ctx.Err(); err != nil {
		return notSent(pr, "the context ended", err)
	}
	crashpoint.Here(crashpoint.FencePassed)
	if err := p.MarkPublished(); err != nil {
		if errors.Is(err, receipt.ErrRepeat) {
			return fmt.Errorf("publish %s on %s (receipt %s): %w", pr.Action, pr.Node, r.ID, err)
		}
		return notSent(pr, "the receipt could not be marked as published", err)
	}
	crashpoint.Here(crashpoint.MarkedPublished)
	c.waiter, c.begun = e.expect(pr.Request), e.opt.Now()
	if err := publish(nc, pr.message); nothingLeft(err) {
		e.retire(pr.Request, nil)
		return notSent(pr, "the broker connection refused it", err)
	} else if err != nil {
		e.log.Warn("the broker connection failed while an effect was published", "node", pr.Node, "receipt", r.ID, "request", pr.Request, "error", clean(err.Error()))
		return nil // it may have left
	}
	crashpoint.Here(crashpoint.Published)
	flush, cancel := context.WithTimeout(ctx, e.opt.FlushTimeout)
	defer cancel()
	c.acked = nc.FlushWithContext(flush) == nil
	crashpoint.Here(crashpoint.Flushed)
	return nil
}

func publish(nc *nats.Conn, m outgoing) error {
	return nc.PublishMsg(&nats.Msg{Subject: m.subject, Reply: m.reply, Data: m.data})
}

// nothingLeft knows the errors that the NATS client returns before it writes anything.
func nothingLeft(err error) bool {
	for _, e := range []error{
		nats.ErrReconnectBufExceeded, nats.ErrConnectionClosed, nats.ErrConnectionDraining, nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrInvalidConnection,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// await waits for the outcome and settles the call.
func (e *Engine) await(c *Call) {
	pr := c.prepared
	horizon := time.NewTimer(pr.Horizon.Sub(e.opt.Now()))
	defer horizon.Stop()
	for {
		select {
		case m := <-c.waiter.got:
			if o, final := e.judge(c, m); final {
				e.finish(c, e.alone(c, o))
				return
			}
		case <-horizon.C:
			// whatever arrived by now counts, even if this process was suspended in between
			e.roundTrip(context.Background())
			e.finish(c, e.lastLook(c))
			return
		case <-c.enough:
			o := e.lastLook(c)
			if o.Event == receipt.Lost && !o.answered {
				o.Why = "no reply was waited for any longer"
			}
			e.finish(c, o)
			return
		case <-e.closing:
			e.finish(c, Outcome{Event: receipt.Lost, Why: "the worker stopped before a reply came"})
			return
		}
	}
}

// judge looks at one message for a call; what is not from the node asked, for this request, decides nothing.
func (e *Engine) judge(c *Call, m *nats.Msg) (Outcome, bool) {
	pr := c.prepared
	if isNobody(m) {
		return Outcome{Event: receipt.NeverSent, Why: "the broker had nobody to deliver it to"}, true
	}
	env, err := e.open(m.Data)
	if err != nil {
		e.stats.garbage.Add(1)
		return Outcome{Event: receipt.Lost, Why: "what came as the reply could not be decoded: " + clean(err.Error())}, true
	}
	if !e.ours(env, pr.Request, pr.Node, provisionAgent) {
		return Outcome{}, false
	}
	reply, data := decodeEffect(pr.Action, env.body)
	event, why := receipt.Classify(pr.Action, reply)
	return Outcome{Event: event, Why: why, Reply: reply, Data: data, answered: true}, true
}

// alone makes one round trip to the broker and looks whether a second answer came with the first: then neither counts.
func (e *Engine) alone(c *Call, first Outcome) Outcome {
	e.roundTrip(context.Background())
	for {
		select {
		case m := <-c.waiter.got:
			second, final := e.judge(c, m)
			if !final {
				continue
			}
			o := e.both(c, first, second)
			o.answered = first.answered || second.answered
			return o
		default:
			return first
		}
	}
}

// both takes neither of two contradicting answers as the outcome; those that are replies are evidence.
func (e *Engine) both(c *Call, a, b Outcome) Outcome {
	for _, o := range []Outcome{a, b} {
		if o.answered {
			e.reportLate(c.prepared.lateReply(o, a.answered && b.answered, e.opt.Now()))
		}
	}
	return Outcome{Event: receipt.Lost, Why: "two answers came to one request: " + a.Why + "; " + b.Why}
}

func (p *Prepared) lateReply(o Outcome, second bool, at time.Time) LateReply {
	return LateReply{Request: p.Request, Node: p.Node, Action: p.Action, Reply: o.Reply, Data: o.Data, At: at, Second: second}
}

// lastLook is the outcome at the horizon.
func (e *Engine) lastLook(c *Call) Outcome {
	for {
		select {
		case m := <-c.waiter.got:
			if o, final := e.judge(c, m); final {
				return e.alone(c, o)
			}
		default:
			why := "no reply until the horizon"
			if !c.acked {
				why = "the broker did not acknowledge the request, and no reply came until the horizon"
			}
			return Outcome{Event: receipt.Lost, Why: why}
		}
	}
}

// finish settles a call: later messages are news, the node is free for the next request.
func (e *Engine) finish(c *Call, o Outcome) {
	pr := c.prepared
	o.At = e.opt.Now()
	rest := e.retire(pr.Request, &watch{node: pr.Node, action: pr.Action, until: pr.Horizon.Add(lateFor), replied: o.answered})
	if o.answered && o.Event == receipt.Lost && o.Reply != (receipt.Reply{}) {
		// kept, so that a later reply to the same request does not look like the only one
		e.reportLate(pr.lateReply(o, false, o.At))
	}
	for _, m := range rest {
		e.late(pr.Request, m)
	}
	c.outcome = o
	e.opt.Meter.Asked(rpcName(pr.Action), o.At.Sub(c.begun))
	if o.Event != receipt.ReplyApplied {
		e.opt.Meter.Failed(rpcName(pr.Action))
	}
	e.log.Debug("effect answered", "node", pr.Node, "receipt", c.receipt, "request", pr.Request, "action", pr.Action.String(), "event", o.Event.String(), "why", o.Why)
	c.unlock()
	close(c.done)
}
