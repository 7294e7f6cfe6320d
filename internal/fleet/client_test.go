package fleet

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"os"
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
)

// testClient sends requests by hand, in one collective, and sees every byte that comes back.
type testClient struct {
	t          *testing.T
	fw         *choria.Framework
	conn       *nats.Conn
	inbox      string
	collective string
	files      WorkerFiles
	requests   int
}

// rpcReply is what came back for one request.
type rpcReply struct {
	Wire      []byte
	RequestID string
	Sender    string
	Body      []byte
	Code      int             `json:"statuscode"`
	Text      string          `json:"statusmsg"`
	Data      json.RawMessage `json:"data"`
}

func newTestClient(t *testing.T, f *Fleet, collective string) *testClient {
	t.Helper()
	files, err := f.WriteWorkerFiles(t.TempDir(), WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if f.opts.X509 && collective != "provisioning" {
		files.ChoriaConfig = userConfig(t, f)
	}
	cfg, err := config.NewSystemConfig(files.ChoriaConfig, false)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ApplyBuildSettings(&build.Info{})
	cfg.Collectives, cfg.MainCollective = []string{collective}, collective
	cfg.CustomLogger = logrus.New()
	cfg.CustomLogger.SetOutput(t.Output())
	cfg.CustomLogger.SetLevel(logrus.WarnLevel)
	fw, err := choria.NewWithConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	inbox, options := tokenOptions(t, fw, files, collective)
	if f.opts.X509 {
		inbox, options = certificateOptions(t, fw, collective)
	}
	options = append(options, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if collective == "provisioning" {
		options = append(options, nats.UserInfo("provisioner", files.Password))
	}
	conn, err := nats.Connect(f.BrokerURL(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return &testClient{t: t, fw: fw, conn: conn, inbox: inbox, collective: collective, files: files}
}

// tokenOptions are for a broker that knows its clients by tokens.
func tokenOptions(t *testing.T, fw *choria.Framework, files WorkerFiles, collective string) (inbox string, options []nats.Option) {
	t.Helper()
	token, err := os.ReadFile(files.SignerToken)
	if err != nil {
		t.Fatal(err)
	}
	inbox, jwt, sign, err := tokens.NatsConnectionHelpers(string(token), collective, files.SignerSeed, fw.Logger("test"))
	if err != nil {
		t.Fatal(err)
	}
	return inbox, []nats.Option{
		nats.Token(string(token)), nats.UserJWT(jwt, sign), nats.CustomInboxPrefix(inbox),
		nats.Secure(&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}),
	}
}

// certificateOptions are for one that wants certificates; the client verifies the broker's as well.
func certificateOptions(t *testing.T, fw *choria.Framework, collective string) (inbox string, options []nats.Option) {
	t.Helper()
	c, err := fw.ClientTLSConfig()
	if err != nil {
		t.Fatal(err)
	}
	return collective + ".reply.test", []nats.Option{nats.Secure(c)}
}

// request is one published request with its replies.
type request struct {
	client *testClient
	id     string
	sub    *nats.Subscription
}

// send publishes a directed request; ttl 0 is the default.
func (c *testClient) send(node, agent, action string, data any, ttl int) *request {
	c.t.Helper()
	body, err := json.Marshal(map[string]any{"agent": agent, "action": action, "data": data})
	c.check(err)
	msg, err := c.fw.NewMessage(body, agent, c.collective, inter.RequestMessageType, nil)
	c.check(err)
	c.requests++
	reply := fmt.Sprintf("%s.t%d", c.inbox, c.requests)
	filter := protocol.NewFilter()
	filter.AddAgentFilter(agent)
	hosts, ok := msg.(interface {
		SetDiscoveredHosts([]string)
		SetProtocolVersion(protocol.ProtocolVersion)
		SetFilter(*protocol.Filter)
		SetType(string) error
		SetReplyTo(string) error
		SetTTL(int)
	})
	if !ok {
		c.t.Fatalf("unexpected message type %T", msg)
	}
	hosts.SetProtocolVersion(c.fw.RequestProtocol())
	hosts.SetFilter(filter)
	hosts.SetDiscoveredHosts([]string{node})
	c.check(hosts.SetType(inter.DirectRequestMessageType))
	c.check(hosts.SetReplyTo(reply))
	if ttl > 0 {
		hosts.SetTTL(ttl)
	}
	transport, err := msg.Transport(c.t.Context())
	c.check(err)
	wire, err := transport.JSON()
	c.check(err)
	sub, err := c.conn.SubscribeSync(reply)
	c.check(err)
	c.check(c.conn.Publish(choria.NodeDirectedTarget(c.collective, node), wire))
	c.check(c.conn.FlushTimeout(10 * time.Second))
	return &request{client: c, id: msg.RequestID(), sub: sub}
}

func (c *testClient) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// next waits for the next reply, as it came.
func (r *request) next(ctx context.Context) rpcReply {
	r.client.t.Helper()
	msg, err := r.sub.NextMsgWithContext(ctx)
	if err != nil {
		r.client.t.Fatalf("waiting for a reply to %s: %v", r.id, err)
	}
	out := rpcReply{Wire: msg.Data, Code: NoStatus}
	reply, err := r.client.fw.NewReplyFromTransportJSON(msg.Data, true)
	if err != nil {
		return out
	}
	out.RequestID, out.Sender, out.Body = reply.RequestID(), reply.SenderID(), reply.Message()
	if json.Unmarshal(reply.Message(), &out) != nil {
		out.Code = NoStatus
	}
	return out
}

// none fails the test when a reply has come; what could make one must have happened before.
func (r *request) none() {
	r.client.t.Helper()
	r.client.check(r.client.conn.FlushTimeout(10 * time.Second))
	if n, _, err := r.sub.Pending(); err != nil || n != 0 {
		r.client.t.Fatalf("%d replies to %s, error %v; want none", n, r.id, err)
	}
}

// do sends and waits for one good reply.
func (c *testClient) do(node, agent, action string, data any) rpcReply {
	c.t.Helper()
	r := c.send(node, agent, action, data, 0)
	reply := r.next(deadline(c.t))
	if reply.RequestID != r.id || reply.Sender != node {
		c.t.Fatalf("reply to %s from %s, want %s from %s", reply.RequestID, reply.Sender, r.id, node)
	}
	return reply
}

// ok is do for a request that must succeed.
func (c *testClient) ok(node, agent, action string, data any) json.RawMessage {
	c.t.Helper()
	reply := c.do(node, agent, action, data)
	if reply.Code != 0 {
		c.t.Fatalf("%s.%s on %s: code %d %s", agent, action, node, reply.Code, reply.Text)
	}
	return reply.Data
}

func (c *testClient) provision(node, action string, data map[string]any) json.RawMessage {
	c.t.Helper()
	return c.ok(node, "choria_provision", action, c.with(data))
}

// with adds the token.
func (c *testClient) with(data map[string]any) map[string]any {
	out := map[string]any{"token": c.files.Token}
	for k, v := range data {
		out[k] = v
	}
	return out
}

func (c *testClient) call(node, action string, data map[string]any) *request {
	c.t.Helper()
	return c.send(node, "choria_provision", action, c.with(data), 0)
}
