package choria

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/choria-io/tokens"
	"github.com/nats-io/nats.go"
	"github.com/sirupsen/logrus"

	"provctl/internal/agent"
	"provctl/internal/fleet"
	"provctl/receipt"
)

const nodeArgument = "provctl-test-node"

// shared is one broker for every test that does not stop it.
var shared struct {
	once sync.Once
	f    *fleet.Fleet
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == nodeArgument {
		fmt.Fprintln(os.Stderr, fleet.NodeMain(os.Args[2:]))
		os.Exit(1)
	}
	code := m.Run()
	if shared.f != nil {
		shared.f.Close()
	}
	_ = os.RemoveAll(shared.dir)
	os.Exit(code)
}

func broker(t testing.TB) *fleet.Fleet {
	t.Helper()
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "engine"); shared.err == nil {
			shared.f, shared.err = fleet.Start(context.Background(), fleet.Options{Dir: shared.dir, Log: io.Discard})
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.f
}

func ownBroker(t testing.TB) *fleet.Fleet {
	t.Helper()
	f, err := fleet.Start(deadline(t), fleet.Options{Dir: t.TempDir(), Log: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

func deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func options(t testing.TB, f *fleet.Fleet) Options {
	t.Helper()
	files, err := f.WriteWorkerFiles(t.TempDir(), fleet.WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := t.Output()
	if _, ok := t.(*testing.B); ok {
		out = io.Discard
	}
	return Options{
		ConfigFile: files.ChoriaConfig, Password: files.Password, TTL: 30 * time.Second, Skew: time.Second, Epoch: 7,
		Log: slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelWarn})), Backoff: 10 * time.Millisecond,
	}
}

// engine is connected and closed with the test.
func engine(t testing.TB, f *fleet.Fleet, change ...func(*Options)) *Engine {
	t.Helper()
	o := options(t, f)
	for _, c := range change {
		c(&o)
	}
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	if err := e.Connect(deadline(t)); err != nil {
		t.Fatal(err)
	}
	return e
}

// fakeNode speaks the node's side of the protocol by hand, so that it can break every rule of it.
type fakeNode struct {
	t  testing.TB
	id string
	nc *nats.Conn

	mu        sync.Mutex
	ran       []string // request ids that were accepted
	validated int64
	on        func(fakeRequest)
}

type fakeRequest struct {
	node      *fakeNode
	ID        string `json:"id"`
	TTL       int    `json:"ttl"`
	Time      int64  `json:"time"`
	Agent     string `json:"agent"`
	Message   []byte `json:"message"`
	Action    string `json:"-"`
	Data      json.RawMessage
	reply     string
	Validated int64
}

// node joins the provisioning account under a fresh name. on answers the requests that a real node would accept.
func node(t testing.TB, f *fleet.Fleet, on func(fakeRequest)) *fakeNode {
	t.Helper()
	return nodeAs(t, f, strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))+".example.net", on)
}

func nodeAs(t testing.TB, f *fleet.Fleet, id string, on func(fakeRequest)) *fakeNode {
	t.Helper()
	n := &fakeNode{t: t, id: id, on: on}
	n.nc = dial(t, f, n.id)
	for _, s := range []string{"provisioning.node." + n.id, "provisioning.broadcast.agent.discovery"} {
		if _, err := n.nc.Subscribe(s, n.handle); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return n
}

func dial(t testing.TB, f *fleet.Fleet, name string) *nats.Conn {
	t.Helper()
	files, err := f.WriteWorkerFiles(t.TempDir(), fleet.WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token, err := os.ReadFile(files.SignerToken)
	if err != nil {
		t.Fatal(err)
	}
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	_, jwt, sign, err := tokens.NatsConnectionHelpers(string(token), "provisioning", files.SignerSeed, quiet.WithField("t", 1))
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(f.BrokerURL(), nats.Name(name), nats.UserInfo("provisioner", files.Password), nats.Token(string(token)),
		nats.UserJWT(jwt, sign), nats.Secure(&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}),
		nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func (n *fakeNode) node() receipt.NodeID { return receipt.NodeID(n.id) }

func (n *fakeNode) handle(m *nats.Msg) {
	var transport struct {
		Data    []byte `json:"data"`
		Headers struct {
			Reply string `json:"reply"`
		} `json:"headers"`
	}
	var secure struct {
		Request []byte `json:"request"`
	}
	r := fakeRequest{node: n}
	var rpc struct {
		Action string          `json:"action"`
		Data   json.RawMessage `json:"data"`
	}
	for _, step := range []error{
		json.Unmarshal(m.Data, &transport), json.Unmarshal(transport.Data, &secure), json.Unmarshal(secure.Request, &r),
	} {
		if step != nil && transport.Data != nil && secure.Request != nil {
			n.t.Errorf("request cannot be decoded: %v", step)
			return
		}
	}
	if err := json.Unmarshal(transport.Data, &secure); err != nil {
		n.t.Error(err)
		return
	}
	if err := json.Unmarshal(secure.Request, &r); err != nil {
		n.t.Error(err)
		return
	}
	_ = json.Unmarshal(r.Message, &rpc) // discovery sends plain text
	r.Action, r.Data, r.reply = rpc.Action, rpc.Data, transport.Headers.Reply
	if age := time.Since(time.Unix(0, r.Time)); age > time.Duration(r.TTL)*time.Second {
		return
	}
	n.mu.Lock()
	n.validated++
	r.Validated = n.validated
	n.ran = append(n.ran, r.ID)
	n.mu.Unlock()
	switch {
	case r.Agent == "discovery":
		if plain, err := base64.StdEncoding.DecodeString(string(r.Message)); err != nil || string(plain) != "ping" {
			n.t.Errorf("discovery message %q", r.Message)
		}
		r.publish(r.seal(n.id, r.ID, []byte("pong")))
	case r.Action == "daemon_stats":
		r.answer(0, "OK", fmt.Sprintf(`{"pid":10,"starttime":1000,"validated":%d,"version":"0.30.2"}`, r.Validated))
	case n.on != nil:
		n.on(r)
	}
}

// executed lists what the node accepted, after everything sent before has reached it.
func (n *fakeNode) executed() []string {
	n.t.Helper()
	if err := n.nc.Flush(); err != nil {
		n.t.Fatal(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.ran...)
}

func (r fakeRequest) publish(data []byte) {
	if err := r.node.nc.Publish(r.reply, data); err != nil {
		r.node.t.Errorf("fake node: %v", err)
	}
}

// seal wraps a body as a node does.
func (r fakeRequest) seal(sender, id string, body []byte) []byte {
	agent := r.Agent
	reply := must(json.Marshal(map[string]any{
		"protocol": "io.choria.protocol.v2.reply", "message": body, "request": id, "sender": sender, "agent": agent, "time": time.Now().UnixNano(),
	}))
	sum := sha256.Sum256(reply)
	secure := must(json.Marshal(map[string]any{
		"protocol": "io.choria.protocol.v2.secure_reply", "reply": reply, "hash": base64.StdEncoding.EncodeToString(sum[:]),
	}))
	return must(json.Marshal(map[string]any{
		"protocol": "io.choria.protocol.v2.transport", "data": secure, "headers": map[string]any{"sender": sender},
	}))
}

func (r fakeRequest) body(code int, text, data string) []byte {
	return must(json.Marshal(map[string]any{"action": r.Action, "statuscode": code, "statusmsg": text, "data": json.RawMessage(data)}))
}

func (r fakeRequest) answer(code int, text, data string) {
	r.publish(r.seal(r.node.id, r.ID, r.body(code, text, data)))
}

func (r fakeRequest) raw(body string) { r.publish(r.seal(r.node.id, r.ID, []byte(body))) }

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

const restarting = `{"message":"Restarting Choria Server after 2s"}`

// pending is a receipt as the journal would give it.
type pending struct {
	r         receipt.Receipt
	published bool
	err       error
}

func (p *pending) Receipt() receipt.Receipt { return p.r }

func (p *pending) MarkPublished() error {
	if p.err != nil {
		return p.err
	}
	if p.published {
		return receipt.ErrRepeat
	}
	p.published = true
	return nil
}

func receiptFor(pr *Prepared) *pending {
	return &pending{r: receipt.Receipt{
		ID: "01RECEIPT", Node: pr.Node, Action: pr.Action, Request: pr.Request, RequestTime: pr.Time, Horizon: pr.Horizon, Digest: pr.Digest, Status: receipt.Pending,
	}}
}

type guard func(receipt.Receipt) error

func (g guard) Check(r receipt.Receipt) error { return g(r) }

var open = guard(func(receipt.Receipt) error { return nil })

func prepare(t testing.TB, e *Engine, n receipt.NodeID) *Prepared {
	t.Helper()
	pr, err := e.Prepare(n, receipt.Restart, agent.Restart{Splay: 1})
	if err != nil {
		t.Fatal(err)
	}
	return pr
}

// restart publishes a restart and waits for its outcome.
func restart(t testing.TB, e *Engine, n receipt.NodeID) (Outcome, *Prepared) {
	t.Helper()
	pr := prepare(t, e, n)
	c, err := e.Publish(deadline(t), receiptFor(pr), open, pr)
	if err != nil {
		t.Fatal(err)
	}
	return wait(t, c), pr
}

func wait(t testing.TB, c *Call) Outcome {
	t.Helper()
	select {
	case <-c.Done():
		return c.Outcome()
	case <-deadline(t).Done():
		t.Fatal("the call has no outcome")
		return Outcome{}
	}
}

func receive[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-deadline(t).Done():
		t.Fatal("nothing came")
		panic("unreachable")
	}
}
