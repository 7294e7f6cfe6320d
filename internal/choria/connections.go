package choria

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"provctl/receipt"
)

const (
	connzSubject  = "$SYS.REQ.ACCOUNT.PING.CONNZ"
	connzPage     = 512
	connzPages    = 64
	connzTimeout  = 3 * time.Second
	connzMoreOne  = 150 * time.Millisecond // for other servers' answers, with one server known
	connzMoreMany = 750 * time.Millisecond // ... with several
	maxConnz      = 8 << 20
)

// connzRequest selects connections of our own account: the broker sets the account itself (nats-server v2.14.2
// server/events.go:1374).
type connzRequest struct {
	State  int    `json:"state"` // 0 open, 1 closed
	Sort   string `json:"sort"`
	Subs   bool   `json:"subscriptions,omitempty"`
	Filter string `json:"filter_subject,omitempty"`
	Offset int    `json:"offset"`
	Limit  int    `json:"limit"`
}

type connzAnswer struct {
	Server struct {
		ID string `json:"id"`
	} `json:"server"`
	Data *struct {
		Total int         `json:"total"`
		Conns []connzItem `json:"connections"`
	} `json:"data"`
	Error *struct {
		Description string `json:"description"`
	} `json:"error"`
}

type connzItem struct {
	CID    uint64     `json:"cid"`
	Name   string     `json:"name"`
	Stop   *time.Time `json:"stop"`
	Reason string     `json:"reason"`
	Subs   []string   `json:"subscriptions_list"`
}

// Connections asks every broker server for the connections of our account under the node's name. Live counts the open ones that
// would receive a request to the node; LastClosed is the newest closure that the servers remember. ErrNoConnectionList is
// returned if no server answers, which a broker without a system account never does.
func (e *Engine) Connections(ctx context.Context, node receipt.NodeID) (receipt.ConnectionsSeen, error) {
	seen, err := e.connections(ctx, node)
	if err != nil {
		return receipt.ConnectionsSeen{}, fmt.Errorf("connections of %s: %w", node, err)
	}
	return seen, nil
}

func (e *Engine) connections(ctx context.Context, node receipt.NodeID) (receipt.ConnectionsSeen, error) {
	var seen receipt.ConnectionsSeen
	if _, err := receipt.ParseNodeID(string(node)); err != nil {
		return seen, err
	}
	// Closed ones first: a node that reconnects in between is then seen as live, which proves less.
	for page := range connzPages {
		more := false
		answers, err := e.connz(ctx, connzRequest{State: 1, Sort: "stop", Offset: page * connzPage, Limit: connzPage})
		if err != nil {
			return seen, err
		}
		for _, a := range answers {
			if at := slices.IndexFunc(a.Data.Conns, func(c connzItem) bool { return c.Name == string(node) && c.Stop != nil }); at >= 0 {
				// newest first, so this server has none that is newer
				if c := a.Data.Conns[at]; c.Stop.After(seen.LastClosed) {
					seen.LastClosed, seen.Reason = *c.Stop, clean(c.Reason)
				}
			} else {
				more = more || len(a.Data.Conns) == connzPage
			}
		}
		if !more {
			break
		}
	}
	subject := collective + ".node." + string(node)
	answers, err := e.connz(ctx, connzRequest{Sort: "cid", Subs: true, Filter: subject, Limit: connzPage})
	if err != nil {
		return seen, err
	}
	for _, a := range answers {
		for _, c := range a.Data.Conns {
			if c.Name == string(node) || slices.Contains(c.Subs, subject) {
				seen.Live++
			}
		}
	}
	return seen, nil
}

// connz asks one page of every server and gives one answer of each.
func (e *Engine) connz(ctx context.Context, q connzRequest) ([]connzAnswer, error) {
	nc, err := e.conn()
	if err != nil {
		return nil, err
	}
	payload, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	inbox := nc.NewInbox()
	in := make(chan *nats.Msg, 256)
	sub, err := nc.ChanSubscribe(inbox, in)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.PublishRequest(connzSubject, inbox, payload); err != nil {
		return nil, err
	}
	more := connzMoreOne
	if len(nc.Servers()) > 1 {
		more = connzMoreMany
	}
	return e.connzAnswers(ctx, in, more)
}

func (e *Engine) connzAnswers(ctx context.Context, in <-chan *nats.Msg, more time.Duration) ([]connzAnswer, error) {
	var answers []connzAnswer
	limit := time.NewTimer(connzTimeout)
	defer limit.Stop()
	for {
		select {
		case m := <-in:
			if isNobody(m) {
				return nil, fmt.Errorf("%w: nobody serves %s; set a system account on the broker", ErrNoConnectionList, connzSubject)
			}
			a, err := decodeConnz(m.Data)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", ErrNoConnectionList, err)
			}
			if !slices.ContainsFunc(answers, func(b connzAnswer) bool { return a.Server.ID == b.Server.ID }) {
				answers = append(answers, a)
			}
			limit.Reset(more)
		case <-limit.C:
			if len(answers) == 0 {
				return nil, fmt.Errorf("%w within %s; set a system account on the broker", ErrNoConnectionList, connzTimeout)
			}
			return answers, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-e.closing:
			return nil, ErrClosed
		}
	}
}

func decodeConnz(data []byte) (connzAnswer, error) {
	var a connzAnswer
	if len(data) > maxConnz {
		return a, errors.New("an answer is larger than 8 MiB")
	}
	if err := lenient(json.RawMessage(data), &a); err != nil {
		return a, errors.New(clean(err.Error()))
	}
	if a.Error != nil {
		return a, errors.New("the broker refuses: " + clean(a.Error.Description))
	}
	if a.Data == nil || a.Server.ID == "" {
		return a, errors.New("an answer lacks its data")
	}
	return a, nil
}
