package fleet

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/choria-io/go-choria/choria"
	"github.com/nats-io/nats.go"
)

// userConfig is Choria's configuration of a user whose certificate servers accept requests from.
func userConfig(t *testing.T, f *Fleet) string {
	t.Helper()
	const name = "user.mcollective"
	certificate, key, err := f.CA().Issue(name)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	text := "identity=" + name + "\nplugin.choria.use_srv=false\nplugin.choria.middleware_hosts=" + f.BrokerURL() +
		"\nplugin.security.provider=file\nplugin.security.file.certificate=" + dir + "/crt\nplugin.security.file.key=" + dir +
		"/key\nplugin.security.file.ca=" + f.CA().Certificate + "\n"
	for file, text := range map[string]string{"crt": certificate, "key": key, "conf": text} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "conf")
}

func newX509Rig(t *testing.T, worker WorkerOptions) (*Fleet, *testClient, string) {
	t.Helper()
	opts := testOptions(t, 1)
	opts.X509 = true
	f := startFleet(t, opts)
	c := newTestClient(t, f, "provisioning")
	files, err := f.WriteWorkerFiles(t.TempDir(), worker)
	c.check(err)
	c.files = files
	return f, c, f.Nodes()[0]
}

// sealKey encrypts a PEM key to a node as its configure action opens it (provision/util.go:59).
func sealKey(t *testing.T, key, nodePublic string) (sealed, public string) {
	t.Helper()
	private, own, err := choria.ECDHKeyPair()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := hex.DecodeString(nodePublic)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := choria.ECDHSharedSecret(private, theirs)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode([]byte(key))
	//lint:ignore SA1019 the node's agent takes nothing else
	block, err = x509.EncryptPEMBlock(rand.Reader, block.Type, block.Bytes, secret, x509.PEMCipherAES256)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(block)), hex.EncodeToString(own)
}

// configureX509 brings a node to its configuration as its helper says, all but the restart.
func configureX509(t *testing.T, c *testClient, node string) {
	t.Helper()
	var jwt struct {
		ECDH string `json:"ecdh_public"`
	}
	c.check(json.Unmarshal(c.provision(node, "jwt", nil), &jwt))
	var csr struct {
		CSR    string `json:"csr"`
		SSLDir string `json:"ssldir"`
	}
	c.check(json.Unmarshal(c.provision(node, "gencsr", map[string]any{"cn": node}), &csr))
	answer := helperAnswer(t, c, map[string]any{"identity": node, "csr": csr})
	configuration, err := json.Marshal(answer["configuration"])
	c.check(err)
	request := map[string]any{
		"config": string(configuration), "certificate": answer["certificate"], "ca": answer["ca"], "ssldir": csr.SSLDir,
	}
	if key, ok := answer["key"].(string); ok {
		request["key"], request["ecdh_public"] = sealKey(t, key, jwt.ECDH)
	}
	c.provision(node, "configure", request)
}

// connections asks the broker who is in the account of that connection.
func connections(c *testClient) map[string]string {
	c.t.Helper()
	msg, err := c.conn.RequestWithContext(deadline(c.t), "$SYS.REQ.ACCOUNT.PING.CONNZ", []byte(`{"auth":true}`))
	c.check(err)
	var answer struct {
		Data struct {
			Connections []struct {
				Name       string `json:"name"`
				TLSVersion string `json:"tls_version"`
				PeerCerts  []struct {
					Subject string `json:"subject"`
				} `json:"tls_peer_certs"`
			} `json:"connections"`
		} `json:"data"`
	}
	c.check(json.Unmarshal(msg.Data, &answer))
	out := map[string]string{}
	for _, conn := range answer.Data.Connections {
		out[conn.Name] = ""
		for _, cert := range conn.PeerCerts {
			out[conn.Name] += cert.Subject
		}
	}
	return out
}

func TestCertificatesBringNodesIntoTheirCollective(t *testing.T) {
	for name, ownKey := range map[string]bool{"a signed request": false, "a key of the helper": true} {
		t.Run(name, func(t *testing.T) {
			f, c, node := newX509Rig(t, WorkerOptions{OwnKey: ownKey})
			if seen, ok := connections(c)[node]; !ok || seen != "" {
				t.Errorf("the node in provisioning mode: connected %t, certificate %q; want none", ok, seen)
			}
			configureX509(t, c, node)
			c.provision(node, "restart", map[string]any{"splay": 1})
			await(t, f, node, isProvisioned)

			joined := newTestClient(t, f, "choria")
			before := stats(joined, node)
			if before.PID != f.State().Nodes[node].PID {
				t.Errorf("pid %d answers in the main collective, want %d", before.PID, f.State().Nodes[node].PID)
			}
			if seen := connections(joined)[node]; seen != "CN="+node {
				t.Errorf("the broker knows it by %q", seen)
			}
			if _, ok := connections(c)[node]; ok {
				t.Error("it is still in the provisioning account")
			}
			dir, err := f.NodeDir(node)
			c.check(err)
			_, err = os.Stat(filepath.Join(dir, "ssl", "csr.pem"))
			if gone := errors.Is(err, os.ErrNotExist); gone != ownKey {
				t.Errorf("csr.pem gone: %t", gone)
			}
			checkBoots(t, f, node, "boot provisioning", "joined provisioning", "boot provisioned", "joined provisioned")
		})
	}
}

func TestCertificateThatCannotBeUsed(t *testing.T) {
	f, c, node := newX509Rig(t, WorkerOptions{})
	configureX509(t, c, node)
	// A key made after the certificate does not fit it, as on a real node: the server does not come up.
	c.provision(node, "gencsr", map[string]any{"cn": node})
	c.provision(node, "restart", map[string]any{"splay": 1})
	if s := await(t, f, node, func(s NodeState) bool { return !s.Alive }); s.Boots != 2 || s.Exit != "exit status 1" {
		t.Errorf("boots %d, exit %q", s.Boots, s.Exit)
	}
	dir, err := f.NodeDir(node)
	c.check(err)
	c.check(os.Remove(filepath.Join(dir, "ssl", "certificate.pem")))
	if err := f.StartNode(deadline(t), node); !errors.Is(err, ErrNodeStopped) {
		t.Errorf("without a certificate: %v", err)
	}
}

func TestX509BrokerRefusesStrangers(t *testing.T) {
	f, c, _ := newX509Rig(t, WorkerOptions{})
	secure, err := c.fw.ClientTLSConfig()
	c.check(err)
	anonymous := secure.Clone()
	anonymous.Certificates = nil
	for name, options := range map[string][]nats.Option{
		"no certificate":  {nats.Secure(anonymous)},
		"password alone":  {nats.Secure(anonymous), nats.UserInfo("provisioner", c.files.Password)},
		"wrong password":  {nats.Secure(secure), nats.UserInfo("provisioner", "wrong")},
		"a strange token": {nats.Secure(anonymous), nats.Token("abc")},
	} {
		if conn, err := nats.Connect(f.BrokerURL(), options...); err == nil {
			conn.Close()
			t.Errorf("%s: let in", name)
		}
	}
}

func TestAuthority(t *testing.T) {
	opts := testOptions(t, 0)
	opts.X509 = true
	f := startFleet(t, opts)
	ca := CA{Certificate: f.CA().Certificate, Key: f.CA().Key}
	certificate, key, err := ca.Issue("a.example.net")
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.ReadFile(ca.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(root) {
		t.Fatal("the CA is no certificate")
	}
	verify := func(text string) *x509.Certificate {
		t.Helper()
		block, _ := pem.Decode([]byte(text))
		made, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		uses := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		if _, err = made.Verify(x509.VerifyOptions{Roots: pool, DNSName: "a.example.net", KeyUsages: uses}); err != nil {
			t.Error(err)
		}
		return made
	}
	verify(certificate)
	block, _ := pem.Decode([]byte(key))
	private, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.CertificateRequest{DNSNames: []string{"a.example.net"}}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, private)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := ca.Sign(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})))
	if err != nil {
		t.Fatal(err)
	}
	if made := verify(signed); !private.PublicKey.Equal(made.PublicKey) || time.Until(made.NotAfter) < time.Hour {
		t.Errorf("signed %v until %s", made.Subject, made.NotAfter)
	}
	der[len(der)-1] ^= 1
	forged := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	for _, csr := range []string{"", "text", certificate, forged, strings.Replace(signed, "CERTIFICATE", "CERTIFICATE REQUEST", 2)} {
		if _, err := ca.Sign(csr); err == nil {
			t.Errorf("signed %.40q", csr)
		}
	}
	if _, _, err := startFleet(t, testOptions(t, 0)).CA().Issue("a"); err == nil || !strings.Contains(err.Error(), "X509") {
		t.Errorf("a fleet without CA: %v", err)
	}
}

func TestAlteredRepliesOfProtocolOne(t *testing.T) {
	f, c, node := newX509Rig(t, WorkerOptions{})
	other := strings.Repeat("ab", 16)
	f.SetFault(node, "jwt", Fault{Kind: Alter, Alter: Alteration{RequestID: other, Sender: "other.example.net"}})
	reply := c.call(node, "jwt", nil).next(deadline(t))
	if reply.RequestID != other || reply.Sender != "other.example.net" || reply.Code != 0 {
		t.Errorf("%+v", reply)
	}
}

func TestX509WorkerFiles(t *testing.T) {
	opts := testOptions(t, 1)
	opts.X509, opts.Upgradable = true, true
	f := startFleet(t, opts)
	node := f.Nodes()[0]
	files, err := f.WriteWorkerFiles(t.TempDir(), WorkerOptions{
		Defer: []string{"d.example.net"}, Shutdown: []string{"s.example.net"}, Upgrade: "1.2.3", Configuration: map[string]string{"loglevel": "info"},
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(files.Config)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"pki: true", "upgrades: true", "upgrades_repository: " + f.Repository(), "jwt_verify_cert: "} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the YAML lacks %q", want)
		}
	}
	for _, not := range []string{"ed25519", "jwt_signing"} {
		if strings.Contains(string(text), not) {
			t.Errorf("the YAML has %q", not)
		}
	}
	c := &testClient{t: t, files: files}
	input := func(node string) map[string]any {
		return map[string]any{"identity": node, "csr": map[string]any{"csr": "none", "ssldir": "/etc/choria/ssl"}}
	}
	if a := helperAnswer(t, c, input("d.example.net")); a["defer"] != true {
		t.Errorf("defer: %v", a)
	}
	if a := helperAnswer(t, c, input("s.example.net")); a["shutdown"] != true {
		t.Errorf("shutdown: %v", a)
	}
	answered := newTestClient(t, f, "provisioning")
	answered.files = files
	var csr map[string]any
	answered.check(json.Unmarshal(answered.provision(node, "gencsr", map[string]any{"cn": node}), &csr))
	a := helperAnswer(t, answered, map[string]any{"identity": node, "csr": csr})
	settings, err := f.NodeConfiguration(node, map[string]string{"loglevel": "info"})
	answered.check(err)
	if got, want := fmt.Sprint(a["configuration"]), fmt.Sprint(settings); got != want || a["upgrade"] != "1.2.3" {
		t.Errorf("configuration %s, want %s; upgrade %v", got, want, a["upgrade"])
	}
	if _, err := f.NodeConfiguration("nobody", nil); !errors.Is(err, ErrUnknownNode) {
		t.Errorf("%v", err)
	}
	for name, in := range map[string]string{"no JSON": "x", "no identity": "{}", "no ssldir": `{"identity":"a"}`, "no CSR": `{"identity":"a","csr":{"csr":"x","ssldir":"/s"}}`} {
		cmd := exec.Command(files.Helper)
		cmd.Stdin = strings.NewReader(in)
		if out, err := cmd.Output(); err == nil || len(out) != 0 {
			t.Errorf("%s: answered %s", name, out)
		}
	}
}
