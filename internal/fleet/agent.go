package fleet

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"syscall"

	"github.com/choria-io/go-choria/inter"
	"github.com/choria-io/go-choria/protocol"
	"github.com/choria-io/go-choria/providers/agent/mcorpc/golang/discovery"
	"github.com/choria-io/go-choria/providers/agent/mcorpc/golang/provision"
	"github.com/choria-io/go-choria/providers/agent/mcorpc/golang/rpcutil"
	"github.com/choria-io/go-choria/server"
	"github.com/choria-io/go-choria/server/agents"
	"github.com/sirupsen/logrus"
)

// turn is the node's action mutex: go-choria runs one provision action at a time. Ours is taken first, so that the
// effect log's order is the order of the actions. After an accepted restart or shutdown it is never given back.
type turn chan struct{}

func newTurn() turn      { return make(turn, 1) }
func (t turn) take()     { t <- struct{}{} }
func (t turn) giveBack() { <-t }

// registerAgents hands the server its agents, each behind a watcher.
func (n *nodeProcess) registerAgents() {
	if !n.spec.RealSplay {
		provision.SetRestartAction(n.restart)
		provision.SetShutdownAction(n.shutdown)
	}
	n.register(func(m *agents.Manager) (agents.Agent, error) { return provision.New(m) }, true)
	n.register(func(m *agents.Manager) (agents.Agent, error) { return rpcutil.New(m) }, false)
	n.register(func(m *agents.Manager) (agents.Agent, error) { return discovery.New(m) }, false)
}

func (n *nodeProcess) register(create func(*agents.Manager) (agents.Agent, error), watched bool) {
	server.RegisterAdditionalAgent(func(ctx context.Context, m *agents.Manager, conn inter.AgentConnector, _ *logrus.Entry) error {
		agent, err := create(m)
		if err != nil {
			return err
		}
		if watched {
			agent = &watcher{Agent: agent, node: n, fw: m.Choria()}
		} else {
			agent = &counter{Agent: agent, node: n}
		}
		return m.RegisterAgent(ctx, agent.Name(), agent, conn)
	})
}

// counter tells the fleet of each request of an agent that changes nothing.
type counter struct {
	agents.Agent
	node *nodeProcess
}

// HandleMessage counts and hands on.
func (c *counter) HandleMessage(ctx context.Context, msg inter.Message, req protocol.Request, conn inter.ConnectorInfo, out chan *agents.AgentReply) {
	name := c.Name()
	if action := actionOf(msg.Payload()); action != "" {
		name += "." + action
	}
	_ = c.node.control.send(message{Type: msgCount, Action: name})
	c.Agent.HandleMessage(ctx, msg, req, conn, out)
}

// actionOf reads the action of an RPC request, empty for what is none.
func actionOf(payload []byte) string {
	var request struct {
		Action string `json:"action"`
	}
	if json.Unmarshal(payload, &request) != nil {
		return ""
	}
	return request.Action
}

// watcher stands before the provision agent: it keeps the effect log and carries out faults.
type watcher struct {
	agents.Agent
	node *nodeProcess
	fw   inter.Framework
}

// call is one request on its way through a watcher.
type call struct {
	action string
	msg    inter.Message
	req    protocol.Request
	conn   inter.ConnectorInfo
	out    chan *agents.AgentReply
	fault  Fault
	leaves bool // the node leaves after this reply
}

func (w *watcher) log(c *call, p Phase, status int, text string) {
	e := w.node.entry(p)
	e.Action, e.RequestID, e.Caller, e.Sender = c.action, c.req.RequestID(), c.req.CallerID(), c.req.SenderID()
	e.Effect, e.Status, e.Message = IsEffect(c.action), status, text
	if c.fault.Kind != None {
		e.Fault = c.fault.Kind.String()
	}
	if err := w.node.effects.append(e); err != nil {
		// A node whose log cannot be trusted must not go on having effects.
		w.node.note("%v", err)
		die()
	}
}

func (w *watcher) ask(c *call, kind string, status int, text string) Fault {
	return w.node.control.ask(message{
		Type: kind, Action: c.action, RequestID: c.req.RequestID(),
		Caller: c.req.CallerID(), Sender: c.req.SenderID(), Status: status, Text: text,
	})
}

// HandleMessage runs one request of the provision agent, as its fault allows.
func (w *watcher) HandleMessage(ctx context.Context, msg inter.Message, req protocol.Request, conn inter.ConnectorInfo, out chan *agents.AgentReply) {
	c := &call{action: actionOf(msg.Payload()), msg: msg, req: req, conn: conn, out: out}
	w.log(c, PhaseReceived, NoStatus, "")
	w.node.turn.take()
	c.fault = w.ask(c, msgBegin, NoStatus, "")
	if c.fault.Kind == Hold && c.fault.Detached && !w.detour(c) {
		return
	}
	switch c.fault.Kind {
	case DieBefore:
		die()
	case Answer:
		w.node.turn.giveBack()
		w.log(c, PhaseAnswered, c.fault.Code, c.fault.Text)
		w.send(ctx, c, &agents.AgentReply{Message: msg, Request: req, Body: answerBody(c.action, c.fault)})
		return
	}
	reply := w.run(ctx, c)
	w.answer(ctx, c, reply)
}

// detour lets others pass while a detached request waits, and tells whether it is still young enough to run.
func (w *watcher) detour(c *call) bool {
	w.node.turn.giveBack()
	w.ask(c, msgResume, NoStatus, "")
	if !c.msg.ValidateTTL() {
		w.log(c, PhaseExpired, NoStatus, "")
		return false
	}
	w.node.turn.take()
	return true
}

// run runs the real action between its two entries and gives the turn to the next, unless the node is leaving.
func (w *watcher) run(ctx context.Context, c *call) *agents.AgentReply {
	w.log(c, PhaseBegin, NoStatus, "")
	inner := make(chan *agents.AgentReply, 1)
	w.Agent.HandleMessage(ctx, c.msg, c.req, c.conn, inner)
	var reply *agents.AgentReply
	select {
	case reply = <-inner:
	default:
	}
	status, text := statusOf(reply)
	w.log(c, PhaseEnd, status, text)
	if late := w.ask(c, msgEnd, status, text); late.Kind != None {
		c.fault = late
	}
	if c.fault.Kind == DieAfter {
		die()
	}
	if c.leaves = status == 0 && slices.Contains(leaving, c.action); !c.leaves {
		w.node.turn.giveBack()
	}
	return reply
}

// statusOf reads code and message from a reply; NoStatus where there is none.
func statusOf(reply *agents.AgentReply) (code int, text string) {
	if reply == nil {
		return NoStatus, "no reply"
	}
	if reply.Error != nil {
		return NoStatus, reply.Error.Error()
	}
	body := struct {
		Code int    `json:"statuscode"`
		Text string `json:"statusmsg"`
		Data struct {
			Message string `json:"message"`
		} `json:"data"`
	}{Code: NoStatus}
	if err := json.Unmarshal(reply.Body, &body); err != nil {
		return NoStatus, err.Error()
	}
	if body.Code == 0 && body.Data.Message != "" {
		return body.Code, body.Data.Message
	}
	return body.Code, body.Text
}

// die ends the process as a crash would.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
