package fleet

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/choria-io/go-choria/choria"
	"github.com/choria-io/tokens"
)

// serverToken signs a node's token as a provisioner does: in the issuer's name, through its own signer token.
func serverToken(t *testing.T, c *testClient, node, publicKey string) string {
	t.Helper()
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

// helperAnswer runs the written helper as a worker would.
func helperAnswer(t *testing.T, c *testClient, input map[string]any) map[string]any {
	t.Helper()
	text, err := json.Marshal(input)
	c.check(err)
	cmd := exec.Command(c.files.Helper)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(text), t.Output()
	out, err := cmd.Output()
	c.check(err)
	var answer map[string]any
	if err = json.Unmarshal(out, &answer); err != nil {
		t.Fatalf("the helper answered %s: %v", out, err)
	}
	return answer
}

type keyReply struct {
	PublicKey string `json:"public_key"`
	Directory string `json:"directory"`
	Signature string `json:"signature"`
}

// configure brings a node to its configuration, all but the restart.
func configure(t *testing.T, c *testClient, node string) {
	t.Helper()
	var jwt struct {
		JWT string `json:"jwt"`
	}
	c.check(json.Unmarshal(c.provision(node, "jwt", nil), &jwt))
	issuer, err := hex.DecodeString(c.files.IssuerPublic)
	c.check(err)
	_, err = tokens.ParseProvisioningToken(jwt.JWT, ed25519.PublicKey(issuer))
	c.check(err)
	nonce := "0123456789"
	var key keyReply
	c.check(json.Unmarshal(c.provision(node, "gen25519", map[string]any{"nonce": nonce}), &key))
	public, err := hex.DecodeString(key.PublicKey)
	c.check(err)
	signature, err := hex.DecodeString(key.Signature)
	c.check(err)
	if !ed25519.Verify(public, []byte(nonce), signature) {
		t.Fatal("the node's signature does not match its key")
	}
	inventory := c.ok(node, "rpcutil", "inventory", map[string]any{})
	answer := helperAnswer(t, c, map[string]any{
		"identity": node, "inventory": string(inventory),
		"ed25519_pubkey": map[string]any{"public_key": key.PublicKey, "directory": key.Directory, "signature": key.Signature},
	})
	configuration, err := json.Marshal(answer["configuration"])
	c.check(err)
	c.provision(node, "configure", map[string]any{
		"config": string(configuration), "server_jwt": serverToken(t, c, node, key.PublicKey),
	})
}

// incarnation is what a worker knows a node's process by.
type incarnation struct {
	PID   int   `json:"pid"`
	Start int64 `json:"starttime"`
}

func stats(c *testClient, node string) incarnation {
	c.t.Helper()
	var i incarnation
	c.check(json.Unmarshal(c.ok(node, "rpcutil", "daemon_stats", map[string]any{}), &i))
	return i
}

func isProvisioned(s NodeState) bool { return s.Joined && s.Mode == Provisioned }

// checkBoots compares the boots and joins of a node's log.
func checkBoots(t *testing.T, f *Fleet, node string, want ...string) {
	t.Helper()
	entries, err := f.Log(node)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		if e.Phase == PhaseBoot || e.Phase == PhaseJoined {
			got = append(got, string(e.Phase)+" "+string(e.Mode))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("boots of %s: %q, want %q", node, got, want)
	}
}

func TestCycleBringsNodesIntoTheirCollective(t *testing.T) {
	f := startFleet(t, testOptions(t, 3))
	c := newTestClient(t, f, "provisioning")
	node := f.Nodes()[1]
	before := stats(c, node)
	state := f.State().Nodes[node]
	if before.PID != state.PID || before.Start != state.Start.Unix() {
		t.Errorf("daemon_stats says %+v, the fleet %d %d", before, state.PID, state.Start.Unix())
	}
	configure(t, c, node)
	c.provision(node, "restart", map[string]any{"splay": 1})
	await(t, f, node, isProvisioned)

	joined := newTestClient(t, f, "choria")
	after := stats(joined, node)
	if after.PID != before.PID || after.Start <= before.Start {
		t.Errorf("incarnation %+v after %+v; want the same pid and a later start", after, before)
	}
	dir, err := f.NodeDir(node)
	c.check(err)
	for _, name := range []string{"server.conf", "server.seed", "server.jwt"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, action := range []string{"jwt", "gen25519", "configure", "restart"} {
		if got, want := phases(t, f, node, action), []string{"received", "begin", "end:0"}; !slices.Equal(got, want) {
			t.Errorf("log of %s: %q, want %q", action, got, want)
		}
	}
	checkBoots(t, f, node, "boot provisioning", "joined provisioning", "boot provisioned", "joined provisioned")
	if n := f.State().Count(func(s NodeState) bool { return s.Joined && s.Mode == Provisioning }); n != 2 {
		t.Errorf("%d nodes in provisioning mode, want 2", n)
	}
	checkEntries(t, f, node, before)
}

// checkEntries looks at what the log says of each request.
func checkEntries(t *testing.T, f *Fleet, node string, first incarnation) {
	t.Helper()
	entries, err := f.Log(node)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Boot == 1 && (e.PID != first.PID || e.Start/int64(time.Second) != first.Start) {
			t.Errorf("entry %+v is not of incarnation %+v", e, first)
		}
		if e.Action == "" {
			continue
		}
		if e.RequestID == "" || e.Caller != signerCaller || e.Sender == "" || e.Effect != (e.Action != "jwt") {
			t.Errorf("entry %+v lacks something", e)
		}
	}
}

func TestMismatchedKeyFallsBackToProvisioning(t *testing.T) {
	f := startFleet(t, testOptions(t, 1))
	c := newTestClient(t, f, "provisioning")
	node := f.Nodes()[0]
	configure(t, c, node)
	// A key made after the configuration leaves the node without a token, as on a real one.
	c.provision(node, "gen25519", map[string]any{"nonce": "again"})
	c.provision(node, "restart", map[string]any{"splay": 1})
	s := await(t, f, node, func(s NodeState) bool { return s.Joined && s.Boots == 2 })
	if s.Mode != Provisioning {
		t.Errorf("mode %q, want provisioning", s.Mode)
	}
	c.provision(node, "jwt", nil)
}

func TestRealSplay(t *testing.T) {
	t.Parallel()
	opts := testOptions(t, 2)
	opts.RealSplay = true
	f := startFleet(t, opts)
	c := newTestClient(t, f, "provisioning")
	restarting, leaving := f.Nodes()[0], f.Nodes()[1]
	configure(t, c, restarting)
	sent := time.Now()
	c.provision(restarting, "restart", map[string]any{"splay": 1})
	queued := c.call(restarting, "jwt", nil)
	c.ok(restarting, "rpcutil", "ping", map[string]any{})
	// The shutdown's splay may be 0 and lose its reply, so it is not waited for.
	c.call(leaving, "shutdown", nil)
	await(t, f, restarting, isProvisioned)
	if took := time.Since(sent); took < 2*time.Second {
		t.Errorf("the restart took %s, the real splay is 2 s at least", took)
	}
	queued.none()
	if got := phases(t, f, restarting, "jwt"); got[len(got)-1] != "received" {
		t.Errorf("log of jwt: %q; a request in the splay must not run", got)
	}
	s := await(t, f, leaving, func(s NodeState) bool { return !s.Alive })
	if s.Exit != "exit status 0" {
		t.Errorf("the shutdown ended with %q", s.Exit)
	}
}
