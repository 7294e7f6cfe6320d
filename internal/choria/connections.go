package choria

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	connzMargin   = time.Minute            // how far a server's clock may be behind ours
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

// Connections asks every broker server for the connections of our account under the node's name. Live counts the open ones, and with
// them whoever else would receive a request to the node, since he could have answered it. LastClosed is the newest closure that the
// servers remember, if it is not older than since (our clock; a minute is allowed for theirs): a closure from before a receipt's request
// says nothing about it, and a busy broker remembers thousands of others. An older one may be given or not; with a zero since all are
// looked through.
//
// It is ErrNoConnectionList if the servers do not tell all, which a broker without a system account never does, and
// ErrNotConnected if the connection is down or breaks meanwhile: a list with a server missing would count too few.
func (e *Engine) Connections(ctx context.Context, node receipt.NodeID, since time.Time) (receipt.ConnectionsSeen, error) {
	seen, err := connections(ctx, e.connz, node, since)
	if err != nil {
		return receipt.ConnectionsSeen{}, fmt.Errorf("connections of %s: %w", node, err)
	}
	return seen, nil
}

// connzAsk asks one page of every server and gives one answer of each.
type connzAsk func(context.Context, connzQuestion) ([]connzAnswer, error)

// connzQuestion is a page, and who has to answer: if one of the servers heard before does not, the answer is an error.
type connzQuestion struct {
	page  connzRequest
	heard map[string]bool
	brief bool // wait for nobody else than them
}

func connections(ctx context.Context, ask connzAsk, node receipt.NodeID, since time.Time) (receipt.ConnectionsSeen, error) {
	var seen receipt.ConnectionsSeen
	if _, err := receipt.ParseNodeID(string(node)); err != nil {
		return seen, err
	}
	// Closed ones first: a node that reconnects in between is then seen as live, which proves less.
	heard, done := map[string]bool{}, map[string]bool{}
	for page := range connzPages {
		q := connzRequest{State: 1, Sort: "stop", Offset: page * connzPage, Limit: connzPage}
		answers, err := ask(ctx, connzQuestion{page: q, heard: heard, brief: page > 0})
		if err != nil {
			return seen, err
		}
		for _, a := range answers {
			heard[a.Server.ID] = true
			if !done[a.Server.ID] {
				done[a.Server.ID] = lastClosed(&seen, a.Data.Conns, node, since.Add(-connzMargin))
			}
		}
		if !slices.ContainsFunc(answers, func(a connzAnswer) bool { return !done[a.Server.ID] }) {
			break
		}
	}
	var err error
	seen.Live, err = countLive(ctx, ask, node, heard)
	return seen, err
}

// lastClosed takes the newest closure of the node from one page of a server, newest first, and reports whether the server's
// further pages matter no more.
func lastClosed(seen *receipt.ConnectionsSeen, page []connzItem, node receipt.NodeID, since time.Time) bool {
	for _, c := range page {
		if c.Name == string(node) && c.Stop != nil {
			if c.Stop.After(seen.LastClosed) {
				seen.LastClosed, seen.Reason = *c.Stop, clean(c.Reason)
			}
			return true
		}
	}
	if len(page) < connzPage {
		return true
	}
	oldest := page[len(page)-1].Stop
	return oldest != nil && oldest.Before(since)
}

// countLive counts who would receive a request to the node: the servers list those who listen to its subject or a wider one. The list
// has to be whole, since two void a proof that one allows. Without the node, who else listens does not count: the node is gone.
func countLive(ctx context.Context, ask connzAsk, node receipt.NodeID, heard map[string]bool) (live int, err error) {
	subject := collective + ".node." + string(node)
	answers, err := ask(ctx, connzQuestion{page: connzRequest{Sort: "cid", Subs: true, Filter: subject, Limit: connzPage}, heard: heard})
	if err != nil {
		return 0, err
	}
	here := false
	for _, a := range answers {
		if len(a.Data.Conns) >= connzPage {
			return 0, fmt.Errorf("%w: on server %s at least %d connections listen to %s or wider subjects; let fewer of this account do so",
				ErrNoConnectionList, clean(a.Server.ID), connzPage, subject)
		}
		for _, c := range a.Data.Conns {
			here = here || c.Name == string(node) || slices.Contains(c.Subs, subject)
		}
		live += len(a.Data.Conns)
	}
	if !here {
		return 0, nil
	}
	return live, nil
}

// connz asks over the connection.
func (e *Engine) connz(ctx context.Context, q connzQuestion) ([]connzAnswer, error) {
	nc, broken, err := e.link()
	if err != nil {
		return nil, err
	}
	payload, err := json.Marshal(q.page)
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
		return nil, fmt.Errorf("%w: %w", ErrNotConnected, err)
	}
	more := connzMoreOne
	if len(nc.Servers()) > 1 || len(q.heard) > 1 {
		more = connzMoreMany
	}
	return e.connzAnswers(ctx, in, broken, q, more)
}

// connzAnswers collects until nobody has answered for a while, or, if the question is brief, until all have that must.
func (e *Engine) connzAnswers(ctx context.Context, in <-chan *nats.Msg, broken <-chan struct{}, q connzQuestion, more time.Duration) ([]connzAnswer, error) {
	var answers []connzAnswer
	missing := maps.Clone(q.heard)
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
			delete(missing, a.Server.ID)
			if q.brief && len(missing) == 0 {
				return answers, nil
			}
			if len(answers) > 1 {
				more = connzMoreMany // there are others, whatever the client was told of them
			}
			limit.Reset(more)
		case <-limit.C:
			for id := range missing {
				return nil, fmt.Errorf("%w: server %s answers no more; if it is up, look for what slows it", ErrNoConnectionList, clean(id))
			}
			if len(answers) == 0 {
				return nil, fmt.Errorf("%w within %s; set a system account on the broker", ErrNoConnectionList, connzTimeout)
			}
			return answers, nil
		case <-broken:
			return nil, e.cutOff()
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
