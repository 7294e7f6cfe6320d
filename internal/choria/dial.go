package choria

import (
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

const pingEvery = 15 * time.Second // two unanswered ones end a dead connection

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
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			e.lose(nc)
			if err != nil {
				e.log.Warn("the broker connection is down", "error", clean(err.Error()))
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			if !e.owns(nc) {
				return // Connect still works on it
			}
			e.log.Info("the broker connection is up again", "url", nc.ConnectedUrlRedacted())
			if e.opt.OnReconnect != nil {
				e.notes.add(e.opt.OnReconnect)
			}
		}),
		nats.ErrorHandler(func(nc *nats.Conn, _ *nats.Subscription, err error) { e.asyncError(nc, err) }),
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

// asyncError hears of what goes wrong beside the calls, at the first connect as at every later one.
func (e *Engine) asyncError(nc *nats.Conn, err error) {
	about := func(subject string) bool { return strings.Contains(err.Error(), `"`+subject+`"`) }
	switch {
	case errors.Is(err, nats.ErrSlowConsumer):
		e.stats.slow.Add(1)
		e.log.Error("the broker sends faster than we read; messages were lost", "error", clean(err.Error()))
	case refused(err) && about(eventSubject):
		e.log.Warn("the broker refuses lifecycle events, so less can be proved and new nodes are found later; let this caller read the subject",
			"subject", eventSubject, "error", clean(err.Error()))
	case refused(err) && about(e.inbox+".*"):
		if e.owns(nc) { // else Connect says so
			e.log.Error("the broker refuses the subscription to our replies; let this caller read the subject and restart",
				"subject", e.inbox+".*", "error", clean(err.Error()))
		}
	default:
		e.log.Error("the broker connection reports an error", "error", clean(err.Error()))
	}
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
