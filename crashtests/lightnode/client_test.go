package lightnode

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/choria-io/go-choria/build"
	"github.com/choria-io/go-choria/choria"
	"github.com/choria-io/go-choria/config"
	"github.com/choria-io/go-choria/inter"
	"github.com/choria-io/go-choria/protocol"
	"github.com/choria-io/tokens"
	"github.com/nats-io/nats.go"
	"github.com/sirupsen/logrus"

	"provctl/internal/fleet"
)

// client sends requests by hand and sees every reply.
type client struct {
	t     testing.TB
	fw    *choria.Framework
	conn  *nats.Conn
	inbox string
	files fleet.WorkerFiles
	sent  int
}

func newClient(t testing.TB, f *fleet.Fleet, identity string) *client {
	t.Helper()
	c := &client{t: t}
	var err error
	c.files, err = f.WriteWorkerFiles(t.TempDir(), fleet.WorkerOptions{})
	c.check(err)
	cfg, err := config.NewSystemConfig(c.files.ChoriaConfig, false)
	c.check(err)
	cfg.ApplyBuildSettings(&build.Info{})
	cfg.Identity = identity
	cfg.Collectives, cfg.MainCollective = []string{collective}, collective
	cfg.CustomLogger = logrus.New()
	cfg.CustomLogger.SetOutput(t.Output())
	cfg.CustomLogger.SetLevel(logrus.WarnLevel)
	c.fw, err = choria.NewWithConfig(cfg)
	c.check(err)
	token, err := os.ReadFile(c.files.SignerToken)
	c.check(err)
	inbox, jwt, sign, err := tokens.NatsConnectionHelpers(string(token), collective, c.files.SignerSeed, c.fw.Logger("test"))
	c.check(err)
	c.inbox = inbox + "." + nats.NewInbox()[7:]
	c.conn, err = nats.Connect(f.BrokerURL(), nats.Token(string(token)), nats.UserJWT(jwt, sign), nats.CustomInboxPrefix(inbox),
		nats.Secure(&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}), nats.UserInfo("provisioner", c.files.Password))
	c.check(err)
	t.Cleanup(c.conn.Close)
	return c
}

func (c *client) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// reply is what came back.
type reply struct {
	Body []byte
	Code int             `json:"statuscode"`
	Text string          `json:"statusmsg"`
	Data json.RawMessage `json:"data"`
}

// request is one that was sent, with its replies to come.
type request struct {
	c    *client
	id   string
	wire []byte
	sub  *nats.Subscription
	to   string
}

// make signs a directed request; ttl 0 is the default.
func (c *client) make(node, agent string, body []byte, ttl int) *request {
	c.t.Helper()
	m, err := c.fw.NewMessage(body, agent, collective, inter.RequestMessageType, nil)
	c.check(err)
	c.sent++
	filter := protocol.NewFilter()
	filter.AddAgentFilter(agent)
	m.SetFilter(filter)
	m.SetProtocolVersion(c.fw.RequestProtocol())
	m.SetDiscoveredHosts([]string{node})
	c.check(m.SetType(inter.DirectRequestMessageType))
	r := &request{c: c, id: m.RequestID(), to: choria.NodeDirectedTarget(collective, node)}
	inbox := fmt.Sprintf("%s.%d", c.inbox, c.sent)
	c.check(m.SetReplyTo(inbox))
	if ttl > 0 {
		m.SetTTL(ttl)
	}
	transport, err := m.Transport(context.Background())
	c.check(err)
	r.wire, err = transport.JSON()
	c.check(err)
	r.sub, err = c.conn.SubscribeSync(inbox)
	c.check(err)
	return r
}

func (r *request) send() *request {
	r.c.t.Helper()
	r.c.check(r.c.conn.Publish(r.to, r.wire))
	r.c.check(r.c.conn.FlushTimeout(10 * time.Second))
	return r
}

// next waits for the next reply.
func (r *request) next() reply {
	r.c.t.Helper()
	m, err := r.sub.NextMsgWithContext(deadline(r.c.t))
	if err != nil {
		r.c.t.Fatalf("waiting for a reply to %s: %v", r.id, err)
	}
	got, err := r.c.fw.NewReplyFromTransportJSON(m.Data, true)
	r.c.check(err)
	out := reply{Body: got.Message(), Code: fleet.NoStatus}
	if got.RequestID() != r.id {
		r.c.t.Fatalf("a reply to %s came to %s", got.RequestID(), r.id)
	}
	if json.Unmarshal(out.Body, &out) != nil {
		out.Code = fleet.NoStatus
	}
	return out
}

func rpc(agent, action string, data any) []byte {
	body, err := json.Marshal(map[string]any{"agent": agent, "action": action, "data": data})
	if err != nil {
		panic(err)
	}
	return body
}

// call sends a request of the provision agent with the token and these fields.
func (c *client) call(node, action string, data map[string]any) *request {
	c.t.Helper()
	all := map[string]any{"token": c.files.Token}
	for k, v := range data {
		all[k] = v
	}
	return c.make(node, "choria_provision", rpc("choria_provision", action, all), 0).send()
}

// stats are the counters and the incarnation of daemon_stats.
type stats struct {
	PID, Starttime                                                               int64
	Total, Validated, Unvalidated, Passed, Filtered, Replies, Ttlexpired, Events int64
}

func (c *client) stats(node string) stats {
	c.t.Helper()
	var s stats
	c.check(json.Unmarshal(c.make(node, "rpcutil", rpc("rpcutil", "daemon_stats", map[string]any{}), 0).send().next().Data, &s))
	return s
}

// serverToken signs a node's token in the issuer's name, through the signer.
func (c *client) serverToken(node, publicKey string) string {
	c.t.Helper()
	public, err := hex.DecodeString(publicKey)
	c.check(err)
	claims, err := tokens.NewServerClaims(node, []string{"choria"}, "choria", nil, nil, ed25519.PublicKey(public), "test", time.Hour)
	c.check(err)
	token, err := os.ReadFile(c.files.SignerToken)
	c.check(err)
	signer, err := tokens.ParseClientIDTokenUnverified(string(token))
	c.check(err)
	_, private, err := choria.Ed25519KeyPairFromSeedFile(c.files.SignerSeed)
	c.check(err)
	c.check(claims.AddChainIssuerData(signer, private))
	signed, err := tokens.SignToken(claims, private)
	c.check(err)
	return signed
}

// events collects the lifecycle events of all nodes.
type events struct {
	c    *client
	sub  *nats.Subscription
	seen map[string][]string
}

func (c *client) events() *events {
	c.t.Helper()
	sub, err := c.conn.SubscribeSync("choria.lifecycle.event.>")
	c.check(err)
	c.check(c.conn.FlushTimeout(10 * time.Second))
	return &events{c, sub, map[string][]string{}}
}

// of lists the events of a node that the broker had when it was asked.
func (e *events) of(node string) []string {
	e.c.t.Helper()
	e.c.check(e.c.conn.FlushTimeout(10 * time.Second))
	for {
		n, _, err := e.sub.Pending()
		e.c.check(err)
		if n == 0 {
			return slices.Clone(e.seen[node])
		}
		m, err := e.sub.NextMsgWithContext(deadline(e.c.t))
		e.c.check(err)
		var event struct {
			Type string
			Data struct{ Identity, Component, Version, NewVersion string }
		}
		// A real node says at a random minute that it is alive, which may be the first (go-choria v0.30.2 server/lifecycle.go:88).
		if json.Unmarshal(m.Data, &event) == nil && !strings.HasPrefix(m.Subject, "choria.lifecycle.event.alive.") {
			id := event.Data.Identity
			e.seen[id] = append(e.seen[id], fmt.Sprintf("%s to %s: %s %s", event.Type, m.Subject, event.Data.Component, event.Data.Version))
		}
	}
}
