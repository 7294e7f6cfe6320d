package choria

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/choria-io/go-choria/inter"
	"github.com/choria-io/go-choria/protocol"
	mcorpc "github.com/choria-io/go-choria/providers/agent/mcorpc/client"

	"provctl/receipt"
)

const (
	provisionAgent = "choria_provision"
	signTimeout    = 10 * time.Second // signing may ask a remote signer
)

// Prepared is an effect that is signed and has its request id, but has not left. Its TTL clock runs.
type Prepared struct {
	Node    receipt.NodeID
	Action  receipt.Action
	Request receipt.RequestID
	Time    time.Time       // when the TTL clock started at the latest, our clock
	Horizon receipt.Horizon // Time + TTL + skew: after it the node accepts the request no more
	Digest  string          // SHA-256 of the signed message as it will be published, hex; it contains a signature, so no input can be guessed from it

	message outgoing
	used    atomic.Bool
}

// outgoing is a signed message for one subject.
type outgoing struct {
	id      receipt.RequestID
	subject string
	reply   string
	data    []byte
}

// Prepare builds and signs an effect's request. The input is one of those of package agent, by value. Nothing is sent; the receipt is
// to be written next, with what Prepared says. An error wraps receipt.ErrInvalid for a node that cannot be addressed and
// ErrMisuse for an input of another action.
func (e *Engine) Prepare(node receipt.NodeID, a receipt.Action, input any) (*Prepared, error) {
	if err := checkInput(a, input); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), signTimeout)
	defer cancel()
	m, err := e.request(ctx, node, provisionAgent, a.String(), input)
	if err != nil {
		return nil, fmt.Errorf("prepare %s for %s: %w", a, node, err)
	}
	if nc, err := e.conn(); err == nil && int64(len(m.data)) > nc.MaxPayload() {
		return nil, fmt.Errorf("prepare %s for %s: the request has %d bytes and the broker takes %d; make the configuration smaller or raise the broker's maximum payload",
			a, node, len(m.data), nc.MaxPayload())
	}
	// The message carries a time of its own, taken just before: ours is the later one, so the horizon is on the safe side.
	at := e.opt.Now()
	sum := sha256.Sum256(m.data)
	return &Prepared{
		Node: node, Action: a, Request: m.id, Time: at, Horizon: receipt.HorizonOf(at, e.opt.TTL, e.opt.Skew),
		Digest: hex.EncodeToString(sum[:]), message: m,
	}, nil
}

// matches checks that a receipt was written for this very request.
func (p *Prepared) matches(r receipt.Receipt) error {
	if r.Node != p.Node || r.Action != p.Action || r.Request != p.Request || r.Digest != p.Digest || !r.Horizon.Equal(p.Horizon.Time) {
		return fmt.Errorf("%w: receipt %s is for %s on %s (request %s), but %s on %s (request %s) was prepared; nothing was sent",
			ErrMisuse, r.ID, r.Action, r.Node, r.Request, p.Action, p.Node, p.Request)
	}
	return nil
}

// request signs a directed request of an agent's action.
func (e *Engine) request(ctx context.Context, node receipt.NodeID, agent, action string, input any) (outgoing, error) {
	if _, err := receipt.ParseNodeID(string(node)); err != nil {
		return outgoing{}, err
	}
	if input == nil {
		input = struct{}{}
	}
	data, err := json.Marshal(input)
	if err != nil {
		return outgoing{}, fmt.Errorf("encode the input of %s#%s: %w", agent, action, err)
	}
	body, err := json.Marshal(mcorpc.RPCRequest{Agent: agent, Action: action, Data: data})
	if err != nil {
		return outgoing{}, fmt.Errorf("encode %s#%s: %w", agent, action, err)
	}
	msg, err := e.fw.NewMessage(body, agent, collective, inter.RequestMessageType, nil)
	if err != nil {
		return outgoing{}, fmt.Errorf("make the message of %s#%s: %w", agent, action, err)
	}
	msg.SetDiscoveredHosts([]string{string(node)})
	if err := msg.SetType(inter.DirectRequestMessageType); err != nil { // adds the agent filter
		return outgoing{}, fmt.Errorf("direct %s#%s: %w", agent, action, err)
	}
	return e.sign(ctx, msg, collective+".node."+string(node), e.inbox+"."+msg.RequestID())
}

// broadcast signs the discovery request for nodes that have the provision agent.
func (e *Engine) broadcast(ctx context.Context, inbox string) (outgoing, error) {
	// A node decodes a request body that is valid base64 before its agent sees it (message/message.go:75), and "ping" is.
	ping := base64.StdEncoding.EncodeToString([]byte("ping"))
	msg, err := e.fw.NewMessage([]byte(ping), "discovery", collective, inter.RequestMessageType, nil)
	if err != nil {
		return outgoing{}, fmt.Errorf("make the discovery message: %w", err)
	}
	filter := protocol.NewFilter()
	filter.AddAgentFilter(provisionAgent)
	msg.SetFilter(filter)
	return e.sign(ctx, msg, collective+".broadcast.agent.discovery", inbox)
}

// sign starts the TTL clock: the transport carries the time and is made exactly once.
func (e *Engine) sign(ctx context.Context, msg inter.Message, subject, reply string) (outgoing, error) {
	if err := msg.SetReplyTo(reply); err != nil {
		return outgoing{}, fmt.Errorf("set the reply subject: %w", err)
	}
	msg.SetProtocolVersion(e.fw.RequestProtocol())
	t, err := msg.Transport(ctx)
	if err != nil {
		return outgoing{}, fmt.Errorf("sign the request: %w", err)
	}
	data, err := t.JSON()
	if err != nil {
		return outgoing{}, fmt.Errorf("encode the request: %w", err)
	}
	return outgoing{id: receipt.RequestID(msg.RequestID()), subject: subject, reply: reply, data: data}, nil
}
