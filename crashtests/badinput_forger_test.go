package crashtests

import (
	"crypto/md5"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"provctl/internal/fleet"
)

// forger is somebody in the provisioning account who is no node of it: the token of any node opens the door, and behind it
// everybody may publish what looks like a reply.
type forger struct {
	t    testing.TB
	conn *nats.Conn
}

func newForger(s *site) *forger {
	s.t.Helper()
	dir, err := s.fleet.NodeDir(s.fleet.Nodes()[0])
	if err != nil {
		s.t.Fatal(err)
	}
	conn, err := nats.Connect(s.fleet.BrokerURL(), nats.Name("mallory"), nats.Token(read(s.t, filepath.Join(dir, "provisioning.jwt"))),
		nats.Secure(&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(conn.Close)
	return &forger{t: s.t, conn: conn}
}

// forge answers a request before the node that was asked does, in somebody's name and to some request.
func (f *forger) forge(c fleet.Call, sender, request, agent, body string) {
	reply := f.encode(map[string]any{
		"protocol": "io.choria.protocol.v2.reply", "message": []byte(body), "request": request, "sender": sender, "agent": agent, "time": time.Now().UnixNano(),
	})
	sum := sha256.Sum256(reply)
	secure := f.encode(map[string]any{
		"protocol": "io.choria.protocol.v2.secure_reply", "reply": reply, "hash": base64.StdEncoding.EncodeToString(sum[:]),
	})
	wire := f.encode(map[string]any{
		"protocol": "io.choria.protocol.v2.transport", "data": secure, "headers": map[string]any{"sender": sender},
	})
	subject := fmt.Sprintf("provisioning.reply.%x.provctl.%s", md5.Sum([]byte(c.Caller)), c.RequestID)
	if err := f.conn.Publish(subject, wire); err != nil {
		f.t.Error(err)
	}
	// The real reply leaves when the hook returns; by then the broker has this one.
	if err := f.conn.FlushTimeout(10 * time.Second); err != nil {
		f.t.Error(err)
	}
	if err := f.conn.LastError(); err != nil {
		f.t.Errorf("the forged reply did not pass: %v", err)
	}
}

func (f *forger) encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		f.t.Error(err)
	}
	return b
}
