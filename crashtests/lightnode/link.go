package lightnode

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/choria-io/go-choria/choria"
	"github.com/choria-io/go-choria/inter"
	"github.com/nats-io/nats.go"
)

const (
	// reconnectWait is much shorter than a real server's backoff, which begins at half a second.
	reconnectWait = 25 * time.Millisecond
	dialTimeout   = 10 * time.Second
	flushTimeout  = 10 * time.Second
	farewell      = 10 * time.Second
	// requestQueue is how many requests may wait for the one goroutine that decodes them.
	requestQueue = 256
)

// link is a node's connection to the broker. It serves one life at a time; a Reset hands it to the next.
type link struct {
	conn  *nats.Conn
	in    chan *nats.Msg
	life  atomic.Pointer[life]
	ended chan struct{}

	mu   sync.Mutex
	subs map[string]*nats.Subscription
}

// dial connects as a server in provisioning mode does: under its name, with its provisioning token and over unverified TLS.
func (d *node) dial() (*link, error) {
	l := &link{in: make(chan *nats.Msg, requestQueue), ended: make(chan struct{}), subs: map[string]*nats.Subscription{}}
	up := func(nc *nats.Conn) { go l.report(nc, true) }
	conn, err := nats.Connect(d.all.opts.Broker.BrokerURL(),
		nats.Name(d.name), nats.Token(d.guest.Token), nats.Timeout(dialTimeout),
		nats.Secure(&tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}),
		nats.CustomInboxPrefix(collective+".reply"), nats.IgnoreAuthErrorAbort(),
		nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(0, 0), nats.ReconnectBufSize(10*1024),
		nats.ReconnectHandler(up), nats.DisconnectErrHandler(func(nc *nats.Conn, _ error) { l.report(nc, false) }),
	)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", d.all.opts.Broker.BrokerURL(), err)
	}
	l.conn = conn
	go l.listen()
	return l, nil
}

// report tells whether the connection stands; up only once the broker has all subscriptions.
func (l *link) report(nc *nats.Conn, up bool) {
	owner := l.life.Load()
	if owner == nil || up && nc.FlushTimeout(flushTimeout) != nil {
		return
	}
	owner.update(func() { owner.state().Connected = up })
}

// listen hands requests to the present life one by one.
func (l *link) listen() {
	for {
		select {
		case m := <-l.in:
			if owner := l.life.Load(); owner != nil {
				owner.take(m.Data)
			}
		case <-l.ended:
			return
		}
	}
}

// close breaks the connection. The broker has forgotten the subscriptions when it returns, if it can be reached: what is sent to
// the node afterwards has provably nobody to go to.
func (l *link) close() {
	l.life.Store(nil)
	l.mu.Lock()
	for _, sub := range l.subs {
		_ = sub.Unsubscribe()
	}
	l.mu.Unlock()
	if l.conn.IsConnected() {
		_ = l.conn.FlushTimeout(farewell)
	}
	l.conn.Close()
	close(l.ended)
}

// QueueSubscribe feeds the link's own queue, whatever output is. A name subscribed before stays as it is.
func (l *link) QueueSubscribe(_ context.Context, name, subject, group string, _ chan inter.ConnectorMessage) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.subs[name] != nil {
		return nil
	}
	sub, err := l.conn.ChanQueueSubscribe(subject, group, l.in)
	if err != nil {
		return fmt.Errorf("subscribing to %s: %w", subject, err)
	}
	l.subs[name] = sub
	return nil
}

// Unsubscribe ends a subscription; one that is not there is no error.
func (l *link) Unsubscribe(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	sub := l.subs[name]
	delete(l.subs, name)
	if sub == nil {
		return nil
	}
	return sub.Unsubscribe()
}

// PublishRaw sends data; it is with the broker only after a flush.
func (l *link) PublishRaw(target string, data []byte) error { return l.conn.Publish(target, data) }

// PublishRawMsg sends a message.
func (l *link) PublishRawMsg(m *nats.Msg) error { return l.conn.PublishMsg(m) }

// RequestRawMsgWithContext sends a message and waits for a reply.
func (l *link) RequestRawMsgWithContext(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	return l.conn.RequestMsgWithContext(ctx, m)
}

// AgentBroadcastTarget, ServiceBroadcastTarget, ConnectedServer, ConnectionOptions, ConnectionStats and InboxPrefix are what
// agents may ask of a connection.
func (l *link) AgentBroadcastTarget(collective, agent string) string {
	return choria.AgentBroadcastTarget(collective, agent)
}

// ServiceBroadcastTarget is where a service agent listens.
func (l *link) ServiceBroadcastTarget(collective, agent string) string {
	return choria.ServiceBroadcastTarget(collective, agent)
}

// ConnectedServer is the broker's address.
func (l *link) ConnectedServer() string { return l.conn.ConnectedUrlRedacted() }

// ConnectionOptions are those of the NATS client.
func (l *link) ConnectionOptions() nats.Options { return l.conn.Opts }

// ConnectionStats are those of the NATS client.
func (l *link) ConnectionStats() nats.Statistics { return l.conn.Stats() }

// InboxPrefix is where replies to the node go.
func (l *link) InboxPrefix() string { return collective + ".reply" }
