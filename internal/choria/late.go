package choria

import (
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"

	"provctl/receipt"
)

// LateReply is a reply to an effect's request that is no outcome but evidence about its receipt: it came when nobody waited any
// more, or besides another one, or it ended the call as lost because it could not be used. So every reply that is not the
// outcome is reported, and a receipt with one reply in evidence really had one.
type LateReply struct {
	Request receipt.RequestID
	Node    receipt.NodeID
	Action  receipt.Action
	Reply   receipt.Reply
	Data    json.RawMessage
	At      time.Time
	Second  bool // another reply to the same request was seen, which contradicts that it ran once; both are reported
}

// Expect listens for replies to a receipt of an earlier process: the reply subject is the same for every process of one
// caller. It ends 15 minutes after the receipt's horizon, or after now if that has passed. A receipt whose call is open in
// this process needs none and is left alone.
func (e *Engine) Expect(r receipt.Receipt) {
	until := r.Horizon.Time
	if now := e.opt.Now(); now.After(until) {
		until = now
	}
	e.mux.mu.Lock()
	defer e.mux.mu.Unlock()
	if e.mux.waiting[r.Request] != nil {
		return
	}
	e.sweep()
	if old := e.mux.watched[r.Request]; old != nil {
		old.until = until.Add(lateFor)
		return
	}
	e.mux.watched[r.Request] = &watch{node: r.Node, action: r.Action, until: until.Add(lateFor)}
}

// late looks at a message that no waiter takes.
func (e *Engine) late(id receipt.RequestID, m *nats.Msg) {
	e.mux.mu.Lock()
	w := e.mux.watched[id]
	if w != nil && e.opt.Now().After(w.until) {
		delete(e.mux.watched, id)
		w = nil
	}
	e.mux.mu.Unlock()
	switch {
	case w == nil:
		e.stats.stray.Add(1)
		return
	case isNobody(m):
		return
	}
	if w.fact != "" {
		if _, ok := e.checked(m, id, w.node, w.fact); ok {
			e.mux.mu.Lock()
			delete(e.mux.watched, id) // once for each question: whoever answers a thousand times is to fill neither log nor queue
			e.mux.mu.Unlock()
			e.twin(w.node, id)
		}
		return
	}
	env, ok := e.checked(m, id, w.node, provisionAgent)
	if !ok {
		return
	}
	e.mux.mu.Lock()
	second := w.replied
	w.replied = true
	e.mux.mu.Unlock()
	reply, data := decodeEffect(w.action, env.body)
	e.reportLate(LateReply{Request: id, Node: w.node, Action: w.action, Reply: reply, Data: data, At: e.opt.Now(), Second: second})
}

// twin tells that two answered under the name of one node: it asks without a queue, so each of two servers gets every request
// (go-choria v0.30.2 server/connection.go:78).
func (e *Engine) twin(node receipt.NodeID, id receipt.RequestID) {
	e.log.Warn("two answers to one question: two servers have the name of this node", "node", node, "request", id)
	if f := e.opt.OnTwin; f != nil {
		e.notes.add(func() { f(node) })
	}
}

func (e *Engine) reportLate(l LateReply) {
	e.log.Info("a late reply", "node", l.Node, "request", l.Request, "action", l.Action.String(), "code", l.Reply.Code,
		"text", l.Reply.Text, "trouble", l.Reply.Trouble, "second", l.Second)
	if f := e.opt.OnLate; f != nil {
		e.notes.add(func() { f(l) })
	}
}

// checked opens a message and drops, counts and logs what cannot be decoded or does not come from the node that was asked, for
// the request that was made.
func (e *Engine) checked(m *nats.Msg, id receipt.RequestID, node receipt.NodeID, agent string) (envelope, bool) {
	env, err := e.open(m.Data)
	if err != nil {
		e.stats.garbage.Add(1)
		e.log.Warn("dropping a message that is no reply", "node", node, "request", id, "error", clean(err.Error()))
		return envelope{}, false
	}
	return env, e.ours(env, id, node, agent)
}

func (e *Engine) ours(env envelope, id receipt.RequestID, node receipt.NodeID, agent string) bool {
	if env.sender == string(node) && env.request == string(id) && env.agent == agent {
		return true
	}
	e.stats.foreign.Add(1)
	e.log.Warn("dropping a reply from another sender or to another request", "node", node, "request", id,
		"sender", clean(env.sender), "answers", clean(env.request), "agent", clean(env.agent))
	return false
}
