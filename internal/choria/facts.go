package choria

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"provctl/receipt"
)

// facts are the only requests besides effects that are ever sent to a node. None of them changes what is on its disk.
var facts = map[string]bool{
	"rpcutil#ping": true, "rpcutil#daemon_stats": true, "rpcutil#inventory": true, provisionAgent + "#jwt": true,
}

const (
	jwtTries       = 3
	inventoryTries = 5
	longestBackoff = 8 * time.Second
)

// FactRequest asks a node for something that leaves nothing behind.
type FactRequest struct {
	Node    receipt.NodeID
	Agent   string
	Action  string
	Input   any           // an object in JSON, or nil
	Timeout time.Duration // of one try, and of the wait for its turn at the node; 0 is Options.FactTimeout
	Tries   int           // 0 is 1

	hasty bool // do not wait for an effect that is in flight
}

// Fact is a node's answer with status code 0.
type Fact struct {
	Request receipt.RequestID
	Data    json.RawMessage
	Code    int
	Text    string
	At      time.Time
	ordinal uint64 // of its publish
}

// Fact asks until it is answered or the tries are used up, each time with a new request id and a growing, random wait between.
// ErrNobody, ErrNoReply and ErrBadReply are worth another try. A *ReplyError is the node's answer and is returned at once; so is
// ErrNotConnected, also when the connection breaks while the answer is awaited: only the caller knows whether it is still wanted
// when the broker is back. ErrBusy means that its turn did not come within the timeout. Something that is not a fact is
// ErrNotAFact, and nothing is sent.
func (e *Engine) Fact(ctx context.Context, q FactRequest) (Fact, error) {
	name := q.Agent + "#" + q.Action
	if !facts[name] {
		return Fact{}, fmt.Errorf("ask %s for %s: %w: it may change the node and needs a receipt", q.Node, name, ErrNotAFact)
	}
	if q.Timeout <= 0 {
		q.Timeout = e.opt.FactTimeout
	}
	tries := max(1, q.Tries)
	for try := 0; ; try++ {
		f, err := e.ask(ctx, q)
		var answered *ReplyError
		if err == nil {
			return f, nil
		}
		err = fmt.Errorf("ask %s for %s (try %d of %d): %w", q.Node, name, try+1, tries, err)
		again := errors.Is(err, ErrNobody) || errors.Is(err, ErrNoReply) || errors.Is(err, ErrBadReply)
		if errors.As(err, &answered) || !again || try+1 >= tries {
			e.opt.Meter.Failed(name)
			return Fact{}, err
		}
		e.log.Debug("asking again", "node", q.Node, "fact", name, "try", try+1, "error", err)
		if !e.pause(ctx, e.jitter(e.opt.Backoff, longestBackoff, try)) {
			e.opt.Meter.Failed(name)
			return Fact{}, fmt.Errorf("%w (after %w)", e.stopped(ctx), err)
		}
	}
}

// ask is one try.
func (e *Engine) ask(ctx context.Context, q FactRequest) (Fact, error) {
	unlock, err := e.locks.lock(ctx, e.closing, q.Node, turn{hasty: q.hasty, patience: q.Timeout})
	if err != nil {
		return Fact{}, err
	}
	defer unlock()
	m, err := e.request(ctx, q.Node, q.Agent, q.Action, q.Input)
	if err != nil {
		return Fact{}, err
	}
	nc, broken, err := e.link()
	if err != nil {
		return Fact{}, err
	}
	w := e.expect(m.id)
	var next *watch
	defer func() {
		for _, rest := range e.retire(m.id, next) {
			if next != nil {
				e.late(m.id, rest)
			}
		}
	}()
	ordinal := e.counts.next()
	begun := e.opt.Now()
	defer func() { e.opt.Meter.Asked(q.Agent+"#"+q.Action, e.opt.Now().Sub(begun)) }()
	if err := publish(nc, m); err != nil {
		if e.over() {
			return Fact{}, ErrClosed
		}
		return Fact{}, fmt.Errorf("%w: %w", ErrNotConnected, err)
	}
	limit := time.NewTimer(q.Timeout)
	defer limit.Stop()
	for {
		select {
		case msg := <-w.got:
			if isNobody(msg) {
				return Fact{}, ErrNobody
			}
			env, ok := e.checked(msg, m.id, q.Node, q.Agent)
			if !ok {
				continue
			}
			e.counts.answered(q.Node, ordinal)
			next = &watch{node: q.Node, fact: q.Agent, until: e.opt.Now().Add(twinFor)}
			return factOf(q, m.id, ordinal, env, e.opt.Now())
		case <-limit.C:
			return Fact{}, fmt.Errorf("%w: %s", ErrNoReply, q.Timeout)
		case <-broken:
			return Fact{}, e.cutOff()
		case <-ctx.Done():
			return Fact{}, ctx.Err()
		case <-e.closing:
			return Fact{}, ErrClosed
		}
	}
}

func factOf(q FactRequest, id receipt.RequestID, ordinal uint64, env envelope, at time.Time) (Fact, error) {
	b, err := decodeBody(env.body, false)
	if err != nil {
		return Fact{}, fmt.Errorf("%w: %w", ErrBadReply, err)
	}
	if *b.Code != 0 {
		return Fact{}, &ReplyError{Node: q.Node, Action: q.Agent + "#" + q.Action, Code: int(*b.Code), Text: b.text()}
	}
	if b.Data.Kind() != '{' {
		return Fact{}, fmt.Errorf("%w: its data is no object", ErrBadReply)
	}
	return Fact{Request: id, Data: json.RawMessage(b.Data), Text: b.text(), At: at, ordinal: ordinal}, nil
}

// JWTReply is what choria_provision#jwt answers (providers/agent/mcorpc/golang/provision/jwt_action.go:22). The JWT is not
// verified here.
type JWTReply struct {
	JWT        string
	ECDHPublic string // hex; each request replaces the node's key pair
}

// JWT asks for the node's provisioning token, three times at most. The request takes the node's action mutex, so its answer
// also shows that nothing accepted earlier still runs. An unusable answer is ErrBadReply.
func (e *Engine) JWT(ctx context.Context, node receipt.NodeID, token string) (JWTReply, error) {
	input := struct {
		Token string `json:"token,omitempty"`
	}{token}
	f, err := e.Fact(ctx, FactRequest{Node: node, Agent: provisionAgent, Action: "jwt", Input: input, Tries: jwtTries})
	if err != nil {
		return JWTReply{}, err
	}
	r, err := jwtFrom(node, f)
	if err != nil {
		e.opt.Meter.Failed(provisionAgent + "#jwt")
	}
	return r, err
}

// NoToken reports whether an error of JWT is the agent's word that the node has no token. It gives it behind its action mutex
// (providers/agent/mcorpc/golang/provision/jwt_action.go:44-58), unlike the refusals of its lock and of the request's form.
func NoToken(err error) bool {
	var said *ReplyError
	if !errors.As(err, &said) || said.Code != 1 {
		return false
	}
	for _, text := range []string{
		"No Provisioning JWT file has been configured", "Provisioning JWT file does not exist", "Could not read Provisioning JWT",
	} {
		if strings.HasPrefix(said.Text, text) {
			return true
		}
	}
	return false
}

func jwtFrom(node receipt.NodeID, f Fact) (JWTReply, error) {
	var v struct {
		JWT  *string `json:"jwt"`
		ECDH *string `json:"ecdh_public"`
	}
	if err := lenient(f.Data, &v); err != nil {
		return JWTReply{}, fmt.Errorf("the jwt of %s: %w: %s", node, ErrBadReply, clean(err.Error()))
	}
	if v.JWT == nil || *v.JWT == "" {
		return JWTReply{}, fmt.Errorf("the jwt of %s: %w: it is missing", node, ErrBadReply)
	}
	r := JWTReply{JWT: *v.JWT}
	if v.ECDH != nil {
		if _, err := hex.DecodeString(*v.ECDH); err != nil || len(*v.ECDH) > 256 {
			return JWTReply{}, fmt.Errorf("the jwt of %s: %w: ecdh_public is no hex key", node, ErrBadReply)
		}
		r.ECDHPublic = *v.ECDH
	}
	return r, nil
}

// Inventory asks for the node's inventory, five times at most, and gives all of its data as the node sent it.
func (e *Engine) Inventory(ctx context.Context, node receipt.NodeID) (json.RawMessage, error) {
	f, err := e.Fact(ctx, FactRequest{Node: node, Agent: "rpcutil", Action: "inventory", Tries: inventoryTries})
	return f.Data, err
}

// Stats asks rpcutil#daemon_stats once, with a short wait. While an effect on the node is in flight it is ErrBusy at once. Known
// and Base are the caller's to fill, with KnownSince.
func (e *Engine) Stats(ctx context.Context, node receipt.NodeID) (receipt.StatsSeen, error) {
	f, err := e.Fact(ctx, FactRequest{Node: node, Agent: "rpcutil", Action: "daemon_stats", Timeout: e.opt.StatsTimeout, hasty: true})
	if err != nil {
		return receipt.StatsSeen{}, err
	}
	s, err := e.statsFrom(node, f)
	if err != nil {
		e.opt.Meter.Failed("rpcutil#daemon_stats")
	}
	return s, err
}

// statsFrom reads daemon_stats (providers/agent/mcorpc/golang/rpcutil/rpcutil.go:83).
func (e *Engine) statsFrom(node receipt.NodeID, f Fact) (receipt.StatsSeen, error) {
	var v struct {
		PID       *int64  `json:"pid"`
		Start     *int64  `json:"starttime"`
		Validated *int64  `json:"validated"`
		Version   *string `json:"version"`
	}
	if err := lenient(f.Data, &v); err != nil {
		return receipt.StatsSeen{}, fmt.Errorf("the daemon_stats of %s: %w: %s", node, ErrBadReply, clean(err.Error()))
	}
	const most = 1 << 53
	ok := func(n *int64) bool { return n != nil && *n > 0 && *n < most }
	if !ok(v.PID) || !ok(v.Start) || !ok(v.Validated) {
		return receipt.StatsSeen{}, fmt.Errorf("the daemon_stats of %s: %w: pid, starttime or validated is missing or out of range", node, ErrBadReply)
	}
	s := receipt.StatsSeen{
		Incarnation: receipt.Incarnation{PID: *v.PID, Start: *v.Start}, Validated: *v.Validated,
		Epoch: receipt.Epoch(e.epoch.Load()), Ordinal: f.ordinal,
	}
	if v.Version != nil {
		s.Version = clean(*v.Version)
	}
	return s, nil
}

func lenient(data json.RawMessage, v any) error {
	return jsonv2.Unmarshal(data, v, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}
