package lightnode

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/choria-io/go-choria/inter"
	"github.com/choria-io/go-choria/protocol"
	"github.com/choria-io/go-choria/server/agents"

	"provctl/internal/fleet"
)

// take decodes a request, counts it and hands it to its agent: each check and its counter are at the place where a server has
// them (server/processor.go:18).
func (l *life) take(data []byte) {
	c := &l.counts
	transport, req, err := l.decode(data)
	if err == nil && l.boot == 1 && stale(req, l.born) {
		return
	}
	c.total.Add(1)
	if err != nil {
		c.invalid.Add(1)
		return
	}
	protocol.CopyFederationData(transport, req)
	if !l.filter.ShouldProcess(req) {
		c.filtered.Add(1)
		return
	}
	c.passed.Add(1)
	msg, err := l.node.fw.NewMessageFromRequest(req, transport.ReplyTo())
	if err != nil {
		c.invalid.Add(1)
		return
	}
	if !msg.ValidateTTL() {
		c.expired.Add(1)
		return
	}
	c.valid.Add(1)
	go l.dispatch(msg, req)
}

func (l *life) decode(data []byte) (protocol.TransportMessage, protocol.Request, error) {
	fw := l.node.fw
	transport, err := fw.NewTransportFromJSON(data)
	if err != nil {
		return nil, nil, err
	}
	secure, err := fw.NewSecureRequestFromTransport(transport, true)
	if err != nil {
		return nil, nil, err
	}
	req, err := fw.NewRequestFromSecureRequest(secure)
	return transport, req, err
}

// stale tells a request that was made for the node before its Reset. Protocol 1 has whole seconds.
func stale(req protocol.Request, born time.Time) bool {
	if req.Version() == protocol.RequestV1 {
		born = born.Truncate(time.Second)
	}
	return req.Time().Before(born)
}

// dispatch waits for the agent, as long as its timeout allows, and publishes its reply.
func (l *life) dispatch(msg inter.Message, req protocol.Request) {
	replies := make(chan *agents.AgentReply, 1)
	var wg sync.WaitGroup
	wg.Add(1)
	l.agents.Dispatch(l.ctx, &wg, replies, msg, req)
	select {
	case reply := <-replies:
		if reply.Error != nil {
			return
		}
		if err := l.publish(reply.Request, reply.Message.ReplyTo(), reply.Body); err != nil {
			l.note("%v", err)
		}
		l.counts.replies.Add(1)
		if id := l.parting.Load(); id != nil && *id == req.RequestID() {
			l.deal()
		}
	default:
	}
}

// publish sends a reply.
func (l *life) publish(req protocol.Request, target string, body []byte) error {
	wire, err := fleet.AlteredReply(l.node.fw, req, l.node.name, fleet.Alteration{}, body)
	if err != nil {
		return err
	}
	return l.publishRaw(target, wire)
}

func (l *life) publishRaw(target string, wire []byte) error {
	if !l.running() {
		return errOver
	}
	if err := l.link.PublishRaw(target, wire); err != nil {
		return fmt.Errorf("publishing a reply: %w", err)
	}
	return nil
}

// factual stands before an agent that changes nothing: it counts its requests and gives what go-choria keeps once per process
// the node's own values.
type factual struct {
	agents.Agent
	life *life
}

// HandleMessage counts and hands on.
func (f *factual) HandleMessage(ctx context.Context, msg inter.Message, req protocol.Request, conn inter.ConnectorInfo, out chan *agents.AgentReply) {
	name := f.Name()
	action := fleet.AgentAction(msg.Payload())
	if action != "" {
		name += "." + action
	}
	l := f.life
	l.update(func() { l.state().Requests[name]++ })
	inner := make(chan *agents.AgentReply, 1)
	f.Agent.HandleMessage(ctx, msg, req, conn, inner)
	select {
	case reply := <-inner:
		if own := f.own(action); own != nil {
			reply.Body = replace(reply.Body, own)
		}
		select {
		case out <- reply:
		case <-ctx.Done():
		}
	default:
	}
}

// own are the node's own values in the data of a reply.
func (f *factual) own(action string) map[string]any {
	switch f.Name() + "." + action {
	case "rpcutil.daemon_stats":
		return map[string]any{"pid": f.life.pid, "version": f.life.version}
	case "rpcutil.inventory":
		return map[string]any{"version": f.life.version}
	}
	return nil
}

// replace changes members of a reply's data; a body that has none stays as it is.
func replace(body []byte, own map[string]any) []byte {
	var reply, data map[string]json.RawMessage
	if json.Unmarshal(body, &reply) != nil || json.Unmarshal(reply["data"], &data) != nil {
		return body
	}
	for name, value := range own {
		text, err := json.Marshal(value)
		if err != nil {
			return body
		}
		data[name] = text
	}
	text, err := json.Marshal(data)
	if err != nil {
		return body
	}
	reply["data"] = text
	if text, err = json.Marshal(reply); err != nil {
		return body
	}
	return text
}
