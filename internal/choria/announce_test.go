package choria

import (
	"bytes"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"testing"
	"time"

	fw "github.com/choria-io/go-choria/choria"
	"github.com/choria-io/go-choria/lifecycle"
	"github.com/choria-io/tokens"
	"github.com/nats-io/nats.go"
	"github.com/sirupsen/logrus"

	"provctl/internal/fleet"
)

// viewer connects to the main account as an operator who may see events and streams.
func viewer(t *testing.T, f *fleet.Fleet) *nats.Conn {
	t.Helper()
	_, issuer, err := fw.Ed25519KeyPairFromSeedFile(filepath.Join(f.Dir(), "keys", "issuer.seed"))
	if err != nil {
		t.Fatal(err)
	}
	seed := filepath.Join(t.TempDir(), "viewer.seed")
	public, _, err := fw.Ed25519KeyPairToFile(seed)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := tokens.NewClientIDClaims("choria=viewer", nil, "choria", nil, "", "test", time.Hour,
		&tokens.ClientPermissions{EventsViewer: true, StreamsAdmin: true}, public)
	if err != nil {
		t.Fatal(err)
	}
	token, err := tokens.SignToken(claims, ed25519.PrivateKey(issuer))
	if err != nil {
		t.Fatal(err)
	}
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	inbox, jwt, sign, err := tokens.NatsConnectionHelpers(token, "choria", seed, quiet.WithField("t", 1))
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(f.BrokerURL(), nats.Token(token), nats.UserJWT(jwt, sign), nats.CustomInboxPrefix(inbox), nats.Secure(&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func TestAnnounce(t *testing.T) {
	f := streamsBroker(t, 0)
	e := engine(t, f)
	nc := viewer(t, f)
	seen := make(chan *nats.Msg, 10)
	if _, err := nc.ChanSubscribe("choria.lifecycle.event.>", seen); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := e.Announce(deadline(t), "1.2.3"); err != nil {
		t.Fatal(err)
	}
	m := receive(t, seen)
	if m.Subject != "choria.lifecycle.event.startup.provisioner" {
		t.Errorf("subject %s", m.Subject)
	}
	ev, err := lifecycle.NewFromJSON(m.Data)
	if err != nil {
		t.Fatal(err)
	}
	startup, ok := ev.(*lifecycle.StartupEvent)
	if !ok || startup.Version != "1.2.3" || ev.Component() != "provisioner" || ev.Identity() != e.fw.Config.Identity {
		t.Errorf("event %s", m.Data)
	}
	if age := time.Since(ev.TimeStamp()); age < -time.Second || age > time.Minute {
		t.Errorf("it is dated %s", ev.TimeStamp())
	}
	until(t, "the event is in the stream", func() bool {
		reply, err := nc.RequestWithContext(deadline(t), "$JS.API.STREAM.MSG.GET.CHORIA_EVENTS", []byte(`{"last_by_subj":"`+m.Subject+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		var stored struct {
			Message struct {
				Data []byte `json:"data"`
			} `json:"message"`
		}
		return json.Unmarshal(reply.Data, &stored) == nil && bytes.Equal(stored.Message.Data, m.Data)
	})
}

func TestAnnounceWithoutConnection(t *testing.T) {
	e, err := New(options(t, broker(t)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	if err := e.Announce(deadline(t), "1.2.3"); !errors.Is(err, ErrNotConnected) {
		t.Errorf("%v, want ErrNotConnected", err)
	}
}
