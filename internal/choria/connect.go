package choria

import (
	"context"
	"crypto/fips140"
	"crypto/md5"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/choria-io/go-choria/protocol"
	"github.com/choria-io/go-choria/tlssetup"
	"github.com/choria-io/tokens"
	"github.com/nats-io/nats.go"
)

const (
	pingEvery      = 15 * time.Second // two unanswered ones end a dead connection
	connectFirst   = 200 * time.Millisecond
	connectLongest = 2 * time.Second // it is one connection: trying often costs nothing
)

// hashOf hashes a caller id as the broker does for the subjects that it allows to that caller (choria/connection.go:565).
func hashOf(caller string) string {
	if fips140.Enabled() {
		return fmt.Sprintf("%x", sha256.Sum256([]byte(caller)))
	}
	return fmt.Sprintf("%x", md5.Sum([]byte(caller)))
}

// Connect opens the shared connection and subscribes to replies and lifecycle events. It tries until it succeeds or the
// context ends. After that the connection restores itself for as long as the engine is open; while it is down nothing is
// buffered. A second call returns an error.
func (e *Engine) Connect(ctx context.Context) error {
	opts, err := e.natsOptions()
	if err != nil {
		return fmt.Errorf("connect to the broker: %w", err)
	}
	for try := 0; ; try++ {
		nc, err := e.dial(ctx, opts)
		if err == nil {
			return e.adopt(ctx, nc)
		}
		if ctx.Err() != nil {
			return e.gaveUp(ctx, err)
		}
		e.log.Warn("could not connect to the broker, trying again", "try", try+1, "error", clean(err.Error()))
		if !e.pause(ctx, e.jitter(connectFirst, connectLongest, try)) {
			return e.gaveUp(ctx, err)
		}
	}
}

func (e *Engine) gaveUp(ctx context.Context, last error) error {
	return fmt.Errorf("connect to the broker: %w (last attempt: %w); check plugin.choria.middleware_hosts, the token and broker_provisioning_password", e.stopped(ctx), last)
}

// dial makes one attempt. The NATS client knows no context, so an attempt that outlives it is left behind and closed.
func (e *Engine) dial(ctx context.Context, opts []nats.Option) (*nats.Conn, error) {
	servers, err := e.fw.MiddlewareServers()
	if err != nil {
		return nil, fmt.Errorf("find the broker: %w", err)
	}
	type result struct {
		nc  *nats.Conn
		err error
	}
	ch := make(chan result, 1)
	go func() {
		nc, err := nats.Connect(strings.Join(servers.Strings(), ","), opts...)
		ch <- result{nc, err}
	}()
	leave := func(err error) (*nats.Conn, error) {
		go func() {
			if r := <-ch; r.nc != nil {
				r.nc.Close()
			}
		}()
		return nil, err
	}
	select {
	case r := <-ch:
		return r.nc, r.err
	case <-ctx.Done():
		return leave(ctx.Err())
	case <-e.closing:
		return leave(ErrClosed)
	}
}

// adopt makes a fresh connection the engine's own: subscriptions first, so that no reply is missed.
func (e *Engine) adopt(ctx context.Context, nc *nats.Conn) error {
	if err := e.install(nc); err != nil {
		nc.Close()
		return err
	}
	err := func() error {
		if err := e.listen(nc); err != nil {
			return err
		}
		flush, cancel := context.WithTimeout(ctx, e.opt.FlushTimeout)
		defer cancel()
		if err := nc.FlushWithContext(flush); err != nil {
			return err
		}
		// a refused subscription is only told on the side, before the flush is acknowledged
		if err := nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
			return fmt.Errorf("%w; the broker must let this caller read %s.*", err, e.inbox)
		}
		return nil
	}()
	if err != nil {
		e.Close()
		return fmt.Errorf("subscribe at the broker: %w", err)
	}
	e.log.Info("connected to the broker", "url", nc.ConnectedUrlRedacted())
	return nil
}

func (e *Engine) install(nc *nats.Conn) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return ErrClosed
	}
	if e.nc != nil {
		return fmt.Errorf("%w: Connect was called before", ErrMisuse)
	}
	e.nc = nc
	return nil
}

// listen starts the goroutines of the engine and its subscriptions.
func (e *Engine) listen(nc *nats.Conn) error {
	e.notes.start(&e.wg)
	e.events.start(&e.wg)
	e.spawn(e.runMux)
	if _, err := nc.ChanSubscribe(e.inbox+".*", e.mux.in); err != nil {
		return err
	}
	return e.watchEvents(nc)
}

// conn gives the connection if it is up.
func (e *Engine) conn() (*nats.Conn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.ended:
		return nil, ErrClosed
	case e.nc == nil || !e.nc.IsConnected():
		return nil, ErrNotConnected
	}
	return e.nc, nil
}

// Connected reports whether the connection is up now.
func (e *Engine) Connected() bool {
	_, err := e.conn()
	return err == nil
}

// Close ends the connection and everything that waits on it: open calls end as lost, facts with ErrClosed. It may be called
// more than once, and before Connect.
func (e *Engine) Close() {
	e.mu.Lock()
	first := !e.ended
	e.ended = true
	nc := e.nc
	e.mu.Unlock()
	if first {
		close(e.closing)
		if nc != nil {
			nc.Close()
		}
	}
	e.wg.Wait()
}

// spawn runs a goroutine that Close waits for. It reports false, and runs nothing, once the engine is closed.
func (e *Engine) spawn(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return false
	}
	e.wg.Go(f)
	return true
}

// pause waits, and reports false if the context or the engine ended first.
func (e *Engine) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	case <-e.closing:
		return false
	}
}

// stopped says why a wait ended early.
func (e *Engine) stopped(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return ErrClosed
}

// jitter doubles a wait with each try up to a longest, and takes a random half to whole of it.
func (e *Engine) jitter(first, longest time.Duration, try int) time.Duration {
	d := longest
	if try < 16 && first<<try < longest {
		d = first << try
	}
	return d/2 + time.Duration(e.opt.Rand()*float64(d/2))
}

// natsOptions are those of Choria's own connector (choria/connection.go:691), but for the reconnect buffer.
func (e *Engine) natsOptions() ([]nats.Option, error) {
	opts := []nats.Option{
		// The name must never be a node's identity, since connections are counted by it: an identity has no space.
		nats.Name("provctl " + e.fw.Config.Identity),
		nats.Timeout(e.fw.Config.Choria.NetworkConnectTimeout),
		nats.MaxReconnects(-1),
		// A buffered effect would be published after a reconnect, when everybody has given it up.
		nats.ReconnectBufSize(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.PingInterval(pingEvery),
		nats.CustomInboxPrefix(e.base + ".provctl-inbox"),
		nats.CustomReconnectDelay(func(n int) time.Duration { return e.jitter(connectFirst, connectLongest, n) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				e.log.Warn("the broker connection is down", "error", clean(err.Error()))
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			e.log.Info("the broker connection is up again", "url", nc.ConnectedUrlRedacted())
			if e.opt.OnReconnect != nil {
				e.notes.add(e.opt.OnReconnect)
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrSlowConsumer) {
				e.stats.slow.Add(1)
			}
			e.log.Error("the broker connection reports an error", "error", clean(err.Error()))
		}),
	}
	if c := e.fw.Config.Choria; c.NatsUser != "" && c.NatsPass != "" {
		opts = append(opts, nats.UserInfo(c.NatsUser, c.NatsPass))
	}
	if c := e.fw.Config.Choria.NatsCredentials; c != "" {
		opts = append(opts, nats.UserCredentials(c))
	}
	auth, err := e.authOptions()
	return append(opts, auth...), err
}

// authOptions are TLS and, with tokens, the token and the signature over the broker's nonce.
func (e *Engine) authOptions() ([]nats.Option, error) {
	cfg := e.fw.Config
	withToken := !e.opt.Insecure && (e.fw.RequestProtocol() == protocol.RequestV2 || cfg.Choria.ClientAnonTLS)
	var opts []nats.Option
	switch {
	case cfg.DisableTLS:
		e.log.Warn("the broker connection does without TLS")
	case withToken && e.fw.RequestProtocol() != protocol.RequestV2:
		setup := tlssetup.TLSConfig(cfg)
		// client_anon_tls: the token authenticates, the broker's certificate is not verified (choria/connection.go:643)
		opts = append(opts, nats.Secure(&tls.Config{
			MinVersion: tls.VersionTLS12, CipherSuites: setup.CipherSuites, CurvePreferences: setup.CurvePreferences, InsecureSkipVerify: true,
		}))
	default:
		c, err := e.fw.ClientTLSConfig()
		if err != nil {
			return nil, fmt.Errorf("TLS of the broker connection: %w", err)
		}
		opts = append(opts, nats.Secure(c))
	}
	if !withToken {
		return opts, nil
	}
	seed, err := e.fw.SignerSeedFile()
	if err != nil {
		return nil, fmt.Errorf("seed file of the broker connection: %w", err)
	}
	if _, _, err := e.fw.SignerToken(); err != nil {
		return nil, fmt.Errorf("token of the broker connection: %w", err)
	}
	return append(opts, nats.TokenHandler(e.token), nats.UserJWT(
		func() (string, error) { return e.token(), nil },
		func(nonce []byte) ([]byte, error) {
			_, _, sign, err := tokens.NatsConnectionHelpers(e.token(), collective, seed, e.fw.Config.CustomLogger.WithField("component", "nonce"))
			if err != nil {
				return nil, err
			}
			return sign(nonce)
		})), nil
}

// token reads the token at each connect, so that a renewed file is used at the next one.
func (e *Engine) token() string {
	t, _, err := e.fw.SignerToken()
	if err != nil {
		e.log.Error("cannot read the token of the broker connection; check plugin.security.choria.token_file", "error", clean(err.Error()))
	}
	return t
}
