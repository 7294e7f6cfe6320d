package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/choria-io/go-choria/inter"
	"github.com/choria-io/go-choria/protocol"
	v1 "github.com/choria-io/go-choria/protocol/v1"
	v2 "github.com/choria-io/go-choria/protocol/v2"
	"github.com/choria-io/go-choria/server/agents"
)

// publisher is what go-choria's concrete connection offers beyond the interface that agents get.
type publisher interface {
	Publish(inter.Message) error
	PublishRaw(target string, data []byte) error
}

var errNoPublisher = errors.New("the connection given to the agent cannot publish")

// answer lets the reply leave as the fault allows. It always tells a departing node that the reply is dealt with.
func (w *watcher) answer(ctx context.Context, c *call, reply *agents.AgentReply) {
	if reply == nil || c.fault.Kind == Drop {
		w.dealt(c, noReply)
		return
	}
	var err error
	switch c.fault.Kind {
	case Delay:
		w.dealt(c, noReply)
		w.delay(c.fault.Delay)
		err = w.publish(c, reply.Body)
	case Duplicate:
		for range max(c.fault.Copies, 1) {
			err = errors.Join(err, w.publish(c, reply.Body))
		}
		w.send(ctx, c, reply)
	case Alter:
		err = w.alter(c, reply.Body)
		w.dealt(c, noReply)
	default:
		w.send(ctx, c, reply)
	}
	if err != nil {
		w.node.note("%s fault on %s %s: %v", c.fault.Kind, c.action, c.req.RequestID(), err)
	}
}

// delay waits in the node's own time.
func (w *watcher) delay(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.node.control.done:
	}
}

// send gives the reply to go-choria, which publishes it unless the agent's 20 s are over.
func (w *watcher) send(ctx context.Context, c *call, reply *agents.AgentReply) {
	before := w.node.instance.Stats().Replies
	select {
	case c.out <- reply:
		w.dealt(c, before)
	case <-ctx.Done():
		w.dealt(c, noReply)
	}
}

// publish sends a reply with that body past go-choria's dispatcher, as its handleReply would (server/processor.go:73).
func (w *watcher) publish(c *call, body []byte) error {
	p, ok := c.conn.(publisher)
	if !ok {
		return errNoPublisher
	}
	msg, err := w.fw.NewMessageFromRequest(c.req, c.msg.ReplyTo())
	if err != nil {
		return fmt.Errorf("making a reply: %w", err)
	}
	setPayload, ok := msg.(interface{ SetPayload([]byte) })
	if !ok {
		return errors.New("making a reply: its payload cannot be set")
	}
	setPayload.SetPayload(body)
	if err = p.Publish(msg); err != nil {
		return fmt.Errorf("publishing a reply: %w", err)
	}
	return nil
}

// alter publishes a reply that go-choria would not have made.
func (w *watcher) alter(c *call, body []byte) error {
	a := c.fault.Alter
	if a.Body != nil {
		body = a.Body
	}
	if a.Wire == nil && a.RequestID == "" && a.Sender == "" {
		return w.publish(c, body)
	}
	p, ok := c.conn.(publisher)
	if !ok {
		return errNoPublisher
	}
	wire := a.Wire
	if wire == nil {
		var err error
		if wire, err = alteredReply(w.fw, c.req, w.node.spec.Name, a, body); err != nil {
			return err
		}
	}
	if err := p.PublishRaw(c.msg.ReplyTo(), wire); err != nil {
		return fmt.Errorf("publishing an altered reply: %w", err)
	}
	return nil
}

// alteredReply wraps a body as a reply to another request or of another sender.
func alteredReply(fw inter.Framework, req protocol.Request, sender string, a Alteration, body []byte) ([]byte, error) {
	if a.Sender != "" {
		sender = a.Sender
	}
	reply, err := replyTo(req, sender, a.RequestID)
	if err != nil {
		return nil, fmt.Errorf("making an altered reply: %w", err)
	}
	reply.SetMessage(body)
	secure, err := fw.NewSecureReply(reply)
	if err != nil {
		return nil, fmt.Errorf("making an altered reply: %w", err)
	}
	transport, err := fw.NewTransportForSecureReply(secure)
	if err != nil {
		return nil, fmt.Errorf("making an altered reply: %w", err)
	}
	transport.SetSender(sender)
	wire, err := transport.JSON()
	if err != nil {
		return nil, fmt.Errorf("making an altered reply: %w", err)
	}
	return wire, nil
}

// replyTo is an empty reply of the request's protocol, to another request if that is named.
func replyTo(req protocol.Request, sender, request string) (protocol.Reply, error) {
	if req.Version() == protocol.RequestV1 {
		made, err := v1.NewReply(req, sender)
		if reply, ok := made.(*v1.Reply); err == nil && ok && request != "" {
			reply.Envelope.RequestID = request
		}
		return made, err
	}
	made, err := v2.NewReply(req, sender)
	if reply, ok := made.(*v2.Reply); err == nil && ok && request != "" {
		reply.Request = request
	}
	return made, err
}

// answerBody is the RPC reply of an Answer fault.
func answerBody(action string, f Fault) []byte {
	data := f.Data
	if len(data) == 0 {
		data = json.RawMessage("{}")
	}
	body, err := json.Marshal(map[string]any{
		"action": action, "statuscode": f.Code, "statusmsg": f.Text, "data": data,
	})
	if err != nil {
		return []byte("{}")
	}
	return body
}
