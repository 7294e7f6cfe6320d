package choria

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"provctl/internal/fleet"
)

func TestIdentityOfATokenAndOfACertificate(t *testing.T) {
	o := options(t, broker(t))
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	id, err := e.Identity()
	if err != nil || !id.Token || !id.Provisioner || !id.TLS || id.Verified || id.Caller != "choria=provisioner_signer" {
		t.Errorf("%+v, %v", id, err)
	}
	if left := time.Until(id.Ends); left < 360*24*time.Hour || id.From.After(time.Now()) {
		t.Errorf("from %s until %s", id.From, id.Ends)
	}
	secrets := 0
	for _, f := range id.Files {
		if _, err := os.Stat(f.Path); err != nil {
			t.Error(err)
		}
		if f.Secret {
			secrets++
		}
	}
	if secrets != 2 {
		t.Errorf("token and seed are secret: %+v", id.Files)
	}

	f, err := fleet.Start(deadline(t), fleet.Options{Dir: t.TempDir(), X509: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	o = options(t, f)
	o.TTL = 30 * time.Second
	e, err = New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	id, err = e.Identity()
	if err != nil || id.Token || !id.TLS || !id.Verified || id.Ends.IsZero() || len(id.Files) != 3 {
		t.Errorf("%+v, %v", id, err)
	}
	seen := look(t, e)
	if seen.Account != Account || seen.TLS == "" || seen.Ends.IsZero() {
		t.Errorf("%+v", seen)
	}
}

func look(t *testing.T, e *Engine) ServerSeen {
	t.Helper()
	servers, err := e.Servers()
	if err != nil || len(servers) != 1 {
		t.Fatal(servers, err)
	}
	seen, err := e.Look(deadline(t), servers[0])
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

// TestLookLeavesAWorkerOfTheSameIdentityAlone: the other one stays connected, is found, and gets its replies.
func TestLookLeavesAWorkerOfTheSameIdentityAlone(t *testing.T) {
	worker := engine(t, broker(t), func(o *Options) { o.OnEvent = func(Event) {} })
	e, err := New(options(t, broker(t)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	seen := look(t, e)
	if seen.Account != Account || seen.Version == "" || seen.Time.IsZero() || seen.Ahead.Abs() > seen.Off+time.Second {
		t.Errorf("%+v", seen)
	}
	names, err := e.Provisioners(deadline(t))
	if err != nil || !slices.Contains(names, "provctl provisioner") {
		t.Errorf("provisioners %q, %v", names, err)
	}
	if !worker.Connected() {
		t.Error("the worker was cut off")
	}
}

func TestLookNamesWhatIsWrong(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // its backlog takes connections, and nobody answers
	for name, c := range map[string]struct {
		server string
		change func(*Options)
		want   error
	}{
		"nobody there":  {"nats://127.0.0.1:1", func(*Options) {}, ErrUnreachable},
		"unknown host":  {"nats://broker.invalid:4222", func(*Options) {}, ErrUnreachable},
		"silent":        {"nats://" + l.Addr().String(), func(*Options) {}, ErrSilent},
		"password":      {broker(t).BrokerURL(), func(o *Options) { o.Password = "wrong" }, ErrRefused},
		"not our CA":    {broker(t).BrokerURL(), func(o *Options) { o.ConfigFile = otherAuthority(t, o.ConfigFile) }, ErrTLS},
		"all as it was": {broker(t).BrokerURL(), func(*Options) {}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, broker(t))
			c.change(&o)
			e, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(e.Close)
			if _, err := e.Look(deadline(t), c.server); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

func TestLookHearsOfARefusedSubject(t *testing.T) {
	b := newFakeBroker(t)
	b.set(func() { b.refuse = func(subject string) bool { return strings.Contains(subject, ".reply.") } })
	e := unconnected(t, b, func(o *Options) { o.FlushTimeout = time.Second })
	if _, err := e.Look(deadline(t), "nats://"+b.addr); !errors.Is(err, ErrRefused) {
		t.Errorf("%v, want %v", err, ErrRefused)
	}
}

// otherAuthority has a configuration trust somebody else.
func otherAuthority(t *testing.T, file string) string {
	t.Helper()
	dir := t.TempDir()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "other"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, public, key)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	authority, out := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "choria.conf")
	err = errors.Join(
		os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(out, []byte(string(b)+"plugin.security.choria.ca="+authority+"\n"), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
