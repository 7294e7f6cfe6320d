package lightnode

import (
	"context"
	"errors"
	"time"

	"github.com/choria-io/go-choria/inter"
	"github.com/choria-io/go-choria/protocol"
	"github.com/choria-io/go-choria/server/agents"

	"provctl/internal/fleet"
)

// watcher stands before the provision agent: it keeps the effect log and carries out faults, in the order of a fleet's node.
type watcher struct {
	agents.Agent
	life *life
}

// call is one request on its way through a watcher.
type call struct {
	action string
	msg    inter.Message
	req    protocol.Request
	conn   inter.ConnectorInfo
	out    chan *agents.AgentReply
	fault  fleet.Fault
	leaves bool // the node leaves after this reply
}

// log writes an entry and tells whether the life goes on.
func (w *watcher) log(c *call, p fleet.Phase, status int, text string) bool {
	e := w.life.entry(p)
	e.Action, e.RequestID, e.Caller, e.Sender = c.action, c.req.RequestID(), c.req.CallerID(), c.req.SenderID()
	e.Effect, e.Status, e.Message = fleet.IsEffect(c.action), status, text
	if c.fault.Kind != fleet.None {
		e.Fault = c.fault.Kind.String()
	}
	err := w.life.append(e)
	if err != nil && !errors.Is(err, errOver) {
		// A node whose log cannot be trusted must not go on having effects.
		w.life.note("%v", err)
		go w.life.node.kill(err.Error(), w.life) // which waits for the action that logs here
	}
	return err == nil
}

// ask counts a call and asks the hook, and at its beginning the faults that were set.
func (w *watcher) ask(c *call, p fleet.Phase, status int, text string) fleet.Fault {
	l, all := w.life, w.life.node.all
	seen := fleet.Call{
		Node: l.node.name, PID: l.pid, Start: l.start, Boot: l.boot, Phase: p, Action: c.action, RequestID: c.req.RequestID(),
		Caller: c.req.CallerID(), Sender: c.req.SenderID(), Status: status, Message: text,
	}
	l.update(func() {
		all.calls++
		seen.Seq = all.calls
		if p == fleet.PhaseBegin {
			l.state().Begins[c.action]++
		} else {
			l.state().Ends[c.action]++
		}
	})
	var f fleet.Fault
	if all.opts.Hook != nil && l.running() {
		f = all.opts.Hook(seen)
	}
	if p == fleet.PhaseBegin && f.Kind == fleet.None {
		f = all.faults.Next(l.node.name, c.action)
	}
	return f
}

// HandleMessage runs one request of the provision agent, as its fault allows.
func (w *watcher) HandleMessage(ctx context.Context, msg inter.Message, req protocol.Request, conn inter.ConnectorInfo, out chan *agents.AgentReply) {
	c := &call{action: fleet.AgentAction(msg.Payload()), msg: msg, req: req, conn: conn, out: out}
	if !w.log(c, fleet.PhaseReceived, fleet.NoStatus, "") || !w.take() {
		return
	}
	c.fault = w.ask(c, fleet.PhaseBegin, fleet.NoStatus, "")
	if c.fault.Kind == fleet.Hold && !w.held(c) {
		return
	}
	switch c.fault.Kind {
	case fleet.DieBefore:
		w.life.node.kill("signal: killed", w.life)
	case fleet.Answer:
		w.giveBack()
		if w.log(c, fleet.PhaseAnswered, c.fault.Code, c.fault.Text) {
			w.send(ctx, c, &agents.AgentReply{Message: msg, Request: req, Body: fleet.AnswerBody(c.action, c.fault)})
		}
	default:
		if reply, ok := w.run(ctx, c); ok {
			w.answer(ctx, c, reply)
		}
	}
}

// take waits for the node's turn, in vain when its life ends.
func (w *watcher) take() bool {
	select {
	case w.life.turn <- struct{}{}:
		return w.life.running()
	case <-w.life.ctx.Done():
		return false
	}
}

func (w *watcher) giveBack() { <-w.life.turn }

// held keeps a request until it is released, and tells whether it may run. A detached one lets others pass meanwhile, and is
// dropped if it is too old afterwards.
func (w *watcher) held(c *call) bool {
	if !c.fault.Detached {
		w.life.node.all.hold(w.life, c.action)
		return w.life.running()
	}
	w.giveBack()
	w.life.node.all.hold(w.life, c.action)
	if !c.msg.ValidateTTL() {
		w.log(c, fleet.PhaseExpired, fleet.NoStatus, "")
		return false
	}
	return w.take()
}

// run runs the action between its two entries and gives the turn to the next, unless the node is leaving. It is not ok when the
// life has ended.
func (w *watcher) run(ctx context.Context, c *call) (reply *agents.AgentReply, ok bool) {
	l := w.life
	inner := make(chan *agents.AgentReply, 1)
	l.acting.Lock()
	if ok = w.log(c, fleet.PhaseBegin, fleet.NoStatus, ""); ok {
		w.Agent.HandleMessage(ctx, c.msg, c.req, c.conn, inner)
	}
	l.acting.Unlock()
	select {
	case reply = <-inner:
	default:
	}
	status, text := fleet.StatusOf(reply)
	if !ok || !w.log(c, fleet.PhaseEnd, status, text) {
		return nil, false
	}
	if c.leaves = status == 0 && fleet.Leaves(c.action); c.leaves {
		id := c.req.RequestID()
		l.parting.Store(&id)
	}
	if late := w.ask(c, fleet.PhaseEnd, status, text); late.Kind != fleet.None {
		c.fault = late
	}
	if c.fault.Kind == fleet.DieAfter {
		l.node.kill("signal: killed", l)
		return nil, false
	}
	if !c.leaves {
		w.giveBack()
	}
	return reply, l.running()
}

// answer lets the reply leave as the fault allows.
func (w *watcher) answer(ctx context.Context, c *call, reply *agents.AgentReply) {
	if reply == nil || c.fault.Kind == fleet.Drop {
		w.dealt(c)
		return
	}
	l, target := w.life, c.msg.ReplyTo()
	var err error
	switch c.fault.Kind {
	case fleet.Delay:
		w.dealt(c)
		if w.delay(c.fault.Delay) {
			err = l.publish(c.req, target, reply.Body)
		}
	case fleet.Duplicate:
		for range max(c.fault.Copies, 1) {
			err = errors.Join(err, l.publish(c.req, target, reply.Body))
		}
		w.send(ctx, c, reply)
	case fleet.Alter:
		var wire []byte
		if wire, err = fleet.AlteredReply(l.node.fw, c.req, l.node.name, c.fault.Alter, reply.Body); err == nil {
			err = l.publishRaw(target, wire)
		}
		w.dealt(c)
	default:
		w.send(ctx, c, reply)
	}
	if err != nil {
		l.note("%s fault on %s %s: %v", c.fault.Kind, c.action, c.req.RequestID(), err)
	}
}

// delay waits, in vain when the life ends.
func (w *watcher) delay(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.life.ctx.Done():
		return false
	}
}

// send gives the reply to go-choria's dispatcher, which passes it on unless the agent's 20 s are over.
func (w *watcher) send(ctx context.Context, c *call, reply *agents.AgentReply) {
	select {
	case c.out <- reply:
	case <-ctx.Done():
		w.dealt(c)
	}
}

func (w *watcher) dealt(c *call) {
	if c.leaves {
		w.life.deal()
	}
}

// deal tells a leaving node that the reply of its restart or shutdown is dealt with.
func (l *life) deal() {
	select {
	case l.dealt <- struct{}{}:
	default:
	}
}
