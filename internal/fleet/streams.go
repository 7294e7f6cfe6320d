package fleet

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/choria-io/tokens"
	"github.com/nats-io/nats.go"
	"github.com/sirupsen/logrus"
)

// The stream behind the election bucket, and where the provisioning account may ask about it
// (broker/network/network_accounts.go:57).
const (
	electionStream = "KV_CHORIA_LEADER_ELECTION"
	electionInfo   = "choria.streams.STREAM.INFO." + electionStream
)

// streamSettings turn Choria Streams on. With the default number of replicas, the count of the broker's peers, go-choria waits
// 10 to 70 s before it makes the streams (broker/network/network_jetstream.go:57).
func (b *broker) streamSettings() []string {
	if !b.streams.on {
		return nil
	}
	s := []string{
		"plugin.choria.network.stream.store=" + b.streams.dir,
		"plugin.choria.network.stream.executor_retention=0",
	}
	for _, what := range []string{"event", "machine", "advisory", "leader_election", "executor"} {
		s = append(s, "plugin.choria.network.stream."+what+"_replicas=1")
	}
	if b.streams.ttl > 0 {
		s = append(s, "plugin.choria.network.stream.leader_election_ttl="+b.streams.ttl.String())
	}
	return s
}

// streams says whether the broker keeps streams, where, and how long a leader's key lives; 0 is Choria's minute.
type streams struct {
	on  bool
	dir string
	ttl time.Duration
}

func (o Options) streams() streams {
	return streams{on: o.Streams, dir: filepath.Join(o.Dir, "streams"), ttl: o.ElectionTTL}
}

// awaitStreams returns when the election bucket, the last that a starting broker makes, can be reached as a provisioner does.
func (b *broker) awaitStreams(ctx context.Context) error {
	if !b.streams.on {
		return nil
	}
	nc, err := b.provisioner()
	if err != nil {
		return fmt.Errorf("waiting for the election bucket: %w", err)
	}
	defer nc.Close()
	for {
		last := bucketThere(ctx, nc)
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the broker on %s made no election bucket: %w (last answer: %w)", b.address(), ctx.Err(), last)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func bucketThere(ctx context.Context, nc *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, electionInfo, nil)
	if err != nil {
		return err
	}
	var answer struct {
		Error *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return fmt.Errorf("its answer cannot be read: %w", err)
	}
	if answer.Error != nil {
		return fmt.Errorf("%s: %s", electionStream, answer.Error.Description)
	}
	return nil
}

// provisioner connects to the provisioning account as a worker does.
func (b *broker) provisioner() (*nats.Conn, error) {
	token, err := os.ReadFile(b.keys.signerJWT)
	if err != nil {
		return nil, err
	}
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	_, jwt, sign, err := tokens.NatsConnectionHelpers(string(token), "provisioning", b.keys.signerSeed, logrus.NewEntry(quiet))
	if err != nil {
		return nil, err
	}
	return nats.Connect("nats://"+b.address(), nats.UserInfo("provisioner", b.keys.password), nats.Token(string(token)),
		nats.UserJWT(jwt, sign), nats.Secure(&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}))
}
