package fleet

import (
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/choria-io/tokens"
)

// bootRig is a node that was configured and then killed, with its files at hand.
type bootRig struct {
	*testClient
	f     *Fleet
	node  string
	dir   string
	files map[string]string
}

func newBootRig(t *testing.T) *bootRig {
	t.Helper()
	f := startFleet(t, testOptions(t, 1))
	r := &bootRig{testClient: newTestClient(t, f, "provisioning"), f: f, node: f.Nodes()[0], files: map[string]string{}}
	configure(t, r.testClient, r.node)
	r.check(f.KillNode(r.node))
	dir, err := f.NodeDir(r.node)
	r.check(err)
	r.dir = dir
	for _, name := range []string{"server.conf", "server.seed", "server.jwt"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		r.check(err)
		r.files[name] = string(text)
	}
	return r
}

// restore writes the files as they were, some of them changed.
func (r *bootRig) restore(changed map[string]string) {
	r.t.Helper()
	for name, text := range r.files {
		if other, ok := changed[name]; ok {
			text = other
		}
		r.check(os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600))
	}
}

// tokenFor signs a token for the node's present seed.
func (r *bootRig) tokenFor(validity time.Duration) string {
	r.t.Helper()
	seed, err := hex.DecodeString(r.files["server.seed"])
	r.check(err)
	public, ok := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	if !ok {
		r.t.Fatal("no public key")
	}
	claims, err := tokens.NewServerClaims(r.node, []string{"choria"}, "choria", nil, nil, public, "test", validity)
	r.check(err)
	token, err := tokens.SignToken(claims, r.f.keys.issuer)
	r.check(err)
	return token
}

func TestBootDecidesAsTheRealServer(t *testing.T) {
	r := newBootRig(t)
	conf := r.files["server.conf"]
	for name, c := range map[string]struct {
		changed map[string]string
		want    Mode
	}{
		"as it was configured":     {nil, Provisioned},
		"another seed":             {map[string]string{"server.seed": strings.Repeat("ab", 32)}, Provisioning},
		"a seed that is none":      {map[string]string{"server.seed": "xyz"}, Provisioning},
		"a token that is none":     {map[string]string{"server.jwt": "xyz"}, Provisioning},
		"a token that expired":     {map[string]string{"server.jwt": r.tokenFor(-time.Hour)}, Provisioning},
		"a token of the issuer":    {map[string]string{"server.jwt": r.tokenFor(time.Hour)}, Provisioned},
		"provisioning not refused": {map[string]string{"server.conf": strings.ReplaceAll(conf, "plugin.choria.server.provision=false", "")}, Provisioning},
		"provisioning asked for":   {map[string]string{"server.conf": strings.ReplaceAll(conf, "provision=false", "provision=true")}, Provisioning},
	} {
		t.Run(name, func(t *testing.T) {
			r.restore(c.changed)
			if err := r.f.StartNode(deadline(t), r.node); err != nil {
				t.Fatal(err)
			}
			if mode := r.f.State().Nodes[r.node].Mode; mode != c.want {
				t.Errorf("mode %q, want %q", mode, c.want)
			}
			_, err := os.Stat(filepath.Join(r.dir, "server.seed"))
			if removed := errors.Is(err, os.ErrNotExist); removed != (c.want == Provisioning) {
				t.Errorf("seed removed: %t in mode %q", removed, c.want)
			}
			if err := r.f.KillNode(r.node); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("a configuration that cannot run", func(t *testing.T) {
		r.restore(map[string]string{"server.conf": conf + "\nplugin.security.provider=none\n"})
		if err := r.f.StartNode(deadline(t), r.node); !errors.Is(err, ErrNodeStopped) {
			t.Errorf("%v, want ErrNodeStopped", err)
		}
	})
}
