package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/choria-io/go-choria/broker/network"
	"github.com/choria-io/go-choria/build"
	"github.com/choria-io/go-choria/choria"
	"github.com/choria-io/go-choria/config"
	"github.com/sirupsen/logrus"

	"provctl/internal/loopback"
)

// ErrBrokerRunning is returned by StartBroker when the broker already runs.
var ErrBrokerRunning = errors.New("the broker already runs")

const brokerStartTimeout = 30 * time.Second

// broker is the embedded Choria broker; it can be stopped and started again on its port with its keys.
type broker struct {
	keys    *keys
	log     io.Writer
	port    *loopback.Port
	streams streams

	mu   sync.Mutex
	stop context.CancelFunc
	done chan struct{}
}

func (b *broker) address() string { return fmt.Sprintf("127.0.0.1:%d", b.port.Number()) }

func (b *broker) configuration() string {
	return strings.Join(append([]string{
		"identity=localhost",
		"loglevel=warn",
		"plugin.choria.use_srv=false",
		"plugin.choria.broker_network=true",
		"plugin.choria.network.listen_address=127.0.0.1",
		fmt.Sprintf("plugin.choria.network.client_port=%d", b.port.Number()),
		"plugin.choria.network.system.user=system",
		"plugin.choria.network.system.password=" + b.keys.system,
		"plugin.choria.network.provisioning.client_password=" + b.keys.password,
	}, append(b.security(), b.streamSettings()...)...), "\n") + "\n"
}

// security says how the broker knows its clients: by tokens of the organisation's issuer, or by certificates of the
// authority and provisioning tokens (broker/network/choria_auth.go:565).
func (b *broker) security() []string {
	if b.keys.x509 {
		return append(b.keys.fileSecurity("broker"), "plugin.choria.network.provisioning.signer_cert="+b.keys.path("issuer.pub"))
	}
	return []string{
		"plugin.security.provider=choria",
		"plugin.security.choria.certificate=" + b.keys.path("broker.crt"),
		"plugin.security.choria.key=" + b.keys.path("broker.key"),
		"plugin.security.choria.seed_file=" + b.keys.path("broker.seed"),
		"plugin.security.choria.token_file=" + b.keys.path("broker.jwt"),
		"plugin.security.issuer.names=" + organisation,
		"plugin.security.issuer." + organisation + ".public=" + b.keys.issuerHex,
	}
}

// server makes a broker of the configuration. fatal is closed when its NATS server gives up: go-choria would end the
// whole process there.
func (b *broker) server() (server *network.Server, fatal chan struct{}, err error) {
	path := b.keys.path("broker.conf")
	if err = os.WriteFile(path, []byte(b.configuration()), 0o600); err != nil {
		return nil, nil, fmt.Errorf("writing the broker's configuration: %w", err)
	}
	cfg, err := config.NewSystemConfig(path, false)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the broker's configuration %s: %w", path, err)
	}
	cfg.ApplyBuildSettings(&build.Info{})

	fatal = make(chan struct{})
	var once sync.Once
	cfg.CustomLogger = logrus.New()
	cfg.CustomLogger.SetOutput(b.log)
	cfg.CustomLogger.SetLevel(logrus.WarnLevel)
	cfg.CustomLogger.ExitFunc = func(int) { once.Do(func() { close(fatal) }) }

	fw, err := choria.NewWithConfig(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("setting up the broker: %w", err)
	}
	server, err = network.NewServer(fw, fw.BuildInfo(), false)
	if err != nil {
		return nil, nil, fmt.Errorf("setting up the broker: %w", err)
	}
	return server, fatal, nil
}

// start returns when the broker accepts connections.
func (b *broker) start(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop != nil {
		return ErrBrokerRunning
	}
	server, fatal, err := b.server()
	if err != nil {
		return err
	}
	run, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer close(done)
		server.Start(run, &wg)
	}()
	ctx, cancel := context.WithTimeout(ctx, brokerStartTimeout)
	defer cancel()
	if err = b.await(ctx, server, fatal); err == nil {
		err = b.awaitStreams(ctx)
	}
	if err != nil {
		stop()
		return err
	}
	b.stop, b.done = stop, done
	return nil
}

func (b *broker) await(ctx context.Context, server *network.Server, fatal <-chan struct{}) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !server.Started() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the broker did not start on %s: %w", b.address(), ctx.Err())
		case <-fatal:
			return fmt.Errorf("the broker could not start on %s; is the port taken? Its log tells more", b.address())
		case <-tick.C:
		}
	}
	return nil
}

// halt ends the broker and returns when its port is free; one that does not run is left alone.
func (b *broker) halt() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop == nil {
		return
	}
	b.stop()
	<-b.done
	b.stop, b.done = nil, nil
}

// StopBroker ends the broker: every connection breaks at once. It does nothing when the broker does not run.
func (f *Fleet) StopBroker() {
	f.broker.halt()
	f.update(func() { f.brokerUp = false })
}

// StartBroker starts the broker again on its port with its keys. The nodes come back by themselves, each after a
// random part of its backoff (half a second and more; it grows while they wait).
func (f *Fleet) StartBroker(ctx context.Context) error {
	if err := f.broker.start(ctx); err != nil {
		return err
	}
	f.update(func() { f.brokerUp = true })
	return nil
}
