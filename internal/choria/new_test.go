package choria

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/choria-io/go-choria/protocol"

	"provctl/internal/agent"
	"provctl/receipt"
)

func TestNewRefuses(t *testing.T) {
	good := options(t, broker(t))
	text, err := os.ReadFile(good.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		change func(*Options, *string)
		says   string
	}{
		{"no file", func(o *Options, _ *string) { o.ConfigFile = "" }, "--choria-config"},
		{"missing file", func(o *Options, _ *string) { o.ConfigFile = "/nonexistent/choria.conf" }, "/nonexistent/choria.conf"},
		{"federation", func(_ *Options, s *string) { *s += "plugin.choria.federation.collectives=a,b\n" }, "federation"},
		{"TTL with a fraction", func(o *Options, _ *string) { o.TTL = 1500 * time.Millisecond }, "effect_ttl 1.5s"},
		{"negative TTL", func(o *Options, _ *string) { o.TTL = -time.Second }, "effect_ttl"},
		{"negative skew", func(o *Options, _ *string) { o.Skew = -time.Second }, "clock_skew"},
		{"missing token", func(_ *Options, s *string) { *s = strings.ReplaceAll(*s, "signer.jwt", "nothing.jwt") }, "token"},
		{"missing seed", func(_ *Options, s *string) { *s = strings.ReplaceAll(*s, "signer.seed", "nothing.seed") }, "nothing.seed"},
		{"seed of another key", func(_ *Options, s *string) { *s = strings.ReplaceAll(*s, "signer.seed", "issuer.seed") }, "another key"},
		{"garbage for a seed", func(_ *Options, s *string) { *s = strings.ReplaceAll(*s, "signer.seed", "signer.jwt") }, "signer.jwt cannot be used"},
		{"unknown security provider", func(_ *Options, s *string) { *s += "plugin.security.provider=magic\n" }, "magic"},
		{"bad broker address", func(_ *Options, s *string) { *s += "plugin.choria.middleware_hosts=nats://a:b:c\n" }, "middleware_hosts"},
		{"short TTL with protocol 1", func(o *Options, _ *string) { o.Insecure, o.TTL = true, 29*time.Second }, "30s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			defer restoreSecure(protocol.Secure)
			o, conf := good, string(text)
			o.ConfigFile = filepath.Join(t.TempDir(), "choria.conf")
			tc.change(&o, &conf)
			if filepath.Dir(o.ConfigFile) != "/nonexistent" && o.ConfigFile != "" {
				if err := os.WriteFile(o.ConfigFile, []byte(conf), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := New(o); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %v, want one that says %q", err, tc.says)
			}
		})
	}
}

func restoreSecure(v string) { protocol.Secure = v }

func TestNewForcesWhatAProvisionerNeeds(t *testing.T) {
	o := options(t, broker(t))
	o.TTL = 2 * time.Second
	t.Setenv("USER", "")
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	cfg := e.fw.Config
	if cfg.MainCollective != "provisioning" || len(cfg.Collectives) != 1 || cfg.Collectives[0] != "provisioning" || cfg.Choria.NatsUser != "provisioner" || cfg.TTL != 2 {
		t.Errorf("collectives %v, main %s, user %s, TTL %d", cfg.Collectives, cfg.MainCollective, cfg.Choria.NatsUser, cfg.TTL)
	}
	if os.Getenv("USER") == "" {
		t.Error("USER is not set")
	}
	if want := fmt.Sprintf("provisioning.reply.%x.provctl", md5.Sum([]byte(e.fw.CallerID()))); e.inbox != want {
		t.Errorf("replies go to %s, want %s", e.inbox, want)
	}
	e.Close() // without ever connecting
	if _, err := e.Stats(deadline(t), "a"); !errors.Is(err, ErrClosed) {
		t.Errorf("stats after close: %v", err)
	}
}

func TestProtocol1(t *testing.T) {
	defer restoreSecure(protocol.Secure)
	o := options(t, broker(t))
	o.Insecure, o.TTL = true, 30*time.Second
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	pr, err := e.Prepare("a.example.net", receipt.Restart, agent.Restart{Splay: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(pr.Request) != 32 {
		t.Errorf("request id %q has %d characters, protocol 1 wants 32", pr.Request, len(pr.Request))
	}
	req, err := e.fw.NewRequestFromTransportJSON(pr.message.data, true)
	if err != nil {
		t.Fatal(err)
	}
	if req.RequestID() != string(pr.Request) || req.TTL() != 30 || req.Collective() != "provisioning" || req.Agent() != provisionAgent {
		t.Errorf("request %s with TTL %d in %s for %s", req.RequestID(), req.TTL(), req.Collective(), req.Agent())
	}
	if pr.message.reply != e.inbox+"."+string(pr.Request) {
		t.Errorf("replies go to %s", pr.message.reply)
	}
	// a node's reply
	reply, err := e.fw.NewReply(req)
	if err != nil {
		t.Fatal(err)
	}
	reply.SetMessage([]byte(`{"statuscode":0,"statusmsg":"OK","data":` + restarting + `}`))
	secure, err := e.fw.NewSecureReply(reply)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := e.fw.NewTransportForSecureReply(secure)
	if err != nil {
		t.Fatal(err)
	}
	wire, err := transport.JSON()
	if err != nil {
		t.Fatal(err)
	}
	env, err := e.open(wire)
	if err != nil || env.request != string(pr.Request) {
		t.Fatalf("reply %+v, %v", env, err)
	}
	if r, _ := decodeEffect(receipt.Restart, env.body); r.Text != "Restarting Choria Server after 2s" {
		t.Errorf("reply decodes to %+v", r)
	}
}

func TestPreparedRequest(t *testing.T) {
	o := options(t, broker(t))
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	o.Now = func() time.Time { return at }
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	in := agent.Configure{Token: "t", Config: agent.Config{"identity": "a"}, ServerJWT: "j"}
	pr, err := e.Prepare("a.example.net", receipt.Configure, in)
	if err != nil {
		t.Fatal(err)
	}
	other, err := e.Prepare("a.example.net", receipt.Configure, in)
	if err != nil {
		t.Fatal(err)
	}
	if pr.Request == other.Request || pr.Digest == other.Digest || len(pr.Digest) != 64 {
		t.Errorf("two requests have ids %s, %s and digests %s, %s", pr.Request, other.Request, pr.Digest, other.Digest)
	}
	if !pr.Time.Equal(at) || !pr.Horizon.Equal(at.Add(o.TTL+o.Skew)) {
		t.Errorf("time %s and horizon %s", pr.Time, pr.Horizon)
	}
	req, err := e.fw.NewRequestFromTransportJSON(pr.message.data, true)
	if err != nil {
		t.Fatal(err)
	}
	var rpc struct {
		Agent  string `json:"agent"`
		Action string `json:"action"`
		Data   map[string]string
	}
	if err := json.Unmarshal(req.Message(), &rpc); err != nil {
		t.Fatal(err)
	}
	if rpc.Agent != provisionAgent || rpc.Action != "configure" || rpc.Data["config"] != `{"identity":"a"}` || rpc.Data["token"] != "t" || rpc.Data["server_jwt"] != "j" || len(rpc.Data) != 3 {
		t.Errorf("the node would read %+v", rpc)
	}
}

func TestLogIsBridged(t *testing.T) {
	var out bytes.Buffer
	l := bridge(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	l.WithField("component", "security").Infof("info %d", 1)
	l.Warn("warn\x1b[0m")
	l.Error("error")
	l.Debug("never")
	for _, want := range []string{`level=DEBUG msg="info 1" source=choria component=security`, `level=WARN msg=warn?[0m`, `level=ERROR msg=error`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("log lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "never") {
		t.Error("Choria's debug lines are passed on")
	}
	quiet := bridge(slog.New(slog.NewTextHandler(&out, nil)))
	if quiet.IsLevelEnabled(4) != false || !slog.Default().Enabled(context.Background(), slog.LevelError) {
		t.Error("Choria's info lines are formatted although nobody reads them")
	}
}

func TestDecodeKey(t *testing.T) {
	pub, sig := strings.Repeat("aB", 32), strings.Repeat("cd", 64)
	text := func(p, s, d string) string {
		return fmt.Sprintf(`{"public_key":%q,"signature":%q,"directory":%q}`, p, s, d)
	}
	k, err := DecodeKey(receipt.Gen25519, json.RawMessage(text(pub, sig, "/etc/choria")))
	if err != nil || k != (receipt.Key{Public: strings.ToLower(pub), Signature: sig, Directory: "/etc/choria"}) {
		t.Errorf("key %+v, %v", k, err)
	}
	if _, err := DecodeKey(receipt.Gen25519, json.RawMessage(text(pub, sig, `C:\ProgramData\choria`))); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{
		``, `null`, `{}`, `[]`, text(pub[2:], sig, "/a"), text(pub, sig+"00", "/a"), text("zz"+pub[2:], sig, "/a"), text(pub, sig, "a"), text(pub, sig, ""),
		text(pub, sig, "/a\nb"), text(pub, sig, "/"+strings.Repeat("a", 4096)), `{"public_key":1}`, `{"PUBLIC_KEY":"` + pub + `"}`,
	} {
		if k, err := DecodeKey(receipt.Gen25519, json.RawMessage(bad)); !errors.Is(err, ErrBadReply) {
			t.Errorf("%.80s: %+v, %v", bad, k, err)
		}
	}
	if _, err := DecodeKey(receipt.Restart, nil); !errors.Is(err, ErrMisuse) {
		t.Errorf("a key of restart: %v", err)
	}
}

func TestDecodeCSR(t *testing.T) {
	block := "-----BEGIN CERTIFICATE REQUEST-----\\nAAAA\\n-----END CERTIFICATE REQUEST-----\\n"
	got, err := DecodeCSR(json.RawMessage(`{"csr":"` + block + `","public_key":"p","ssldir":"/etc/choria/ssl"}`))
	if err != nil || got.SSLDir != "/etc/choria/ssl" || got.PublicKey != "p" {
		t.Errorf("csr %+v, %v", got, err)
	}
	for _, bad := range []string{
		``, `{}`, `{"csr":"x","public_key":"p","ssldir":"/a"}`, `{"csr":"` + block + `","public_key":"p","ssldir":"a"}`, `{"csr":"` + block + `","ssldir":"/a"}`,
		`{"csr":"` + strings.ReplaceAll(block, " REQUEST", "") + `","public_key":"p","ssldir":"/a"}`,
	} {
		if got, err := DecodeCSR(json.RawMessage(bad)); !errors.Is(err, ErrBadReply) {
			t.Errorf("%.80s: %+v, %v", bad, got, err)
		}
	}
}
