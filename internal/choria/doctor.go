package choria

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/choria-io/go-choria/protocol"
	"github.com/choria-io/tokens"
	"github.com/nats-io/nats.go"
)

// What can go wrong when Look looks at a broker.
var (
	// ErrUnreachable is returned when nothing takes the connection, or its address is not known.
	ErrUnreachable = errors.New("the broker cannot be reached")
	// ErrSilent is returned when something takes the connection and does not answer in time.
	ErrSilent = errors.New("the broker does not answer")
	// ErrTLS is returned when the two sides do not agree on TLS, or the broker's certificate is not trusted.
	ErrTLS = errors.New("the broker's TLS is refused")
	// ErrRefused is returned when the broker refuses us, or the subjects that we need.
	ErrRefused = errors.New("the broker refuses us")
)

// Account is the broker's account that nodes in provisioning mode and their provisioner are in (broker/network/network_accounts.go:26).
const Account = collective

// userInfo tells a client who it is to the broker (nats-server v2.14.2 server/events.go:1526).
const userInfo = "$SYS.REQ.USER.INFO"

// Identity is who we are to the broker, by the Choria configuration.
type Identity struct {
	Caller   string
	Provider string // of security, with the protocol's version
	Files    []File
	// From and Ends are the token's, or without one the certificate's; zero: not known.
	From, Ends  time.Time
	Token       bool // the broker knows us by a token, else by a certificate
	Provisioner bool // the token has the permission server_provisioner
	TLS         bool
	Verified    bool // the broker's certificate is verified
}

// File is a file that the connection needs.
type File struct {
	Key, Path string
	Secret    bool
}

// Identity tells who we are to the broker. It reads files and connects to nothing.
func (e *Engine) Identity() (Identity, error) {
	cfg := e.fw.Config.Choria
	id := Identity{
		Caller:   clean(e.fw.CallerID()),
		Provider: e.fw.SecurityProvider() + ", protocol " + strings.TrimPrefix(string(e.fw.RequestProtocol()), "io.choria.protocol."),
		TLS:      !e.fw.Config.DisableTLS,
	}
	add := func(key, path string, secret bool) {
		if path != "" {
			id.Files = append(id.Files, File{Key: key, Path: path, Secret: secret})
		}
	}
	add("plugin.security.file.certificate", cfg.FileSecurityCertificate, false)
	add("plugin.security.file.key", cfg.FileSecurityKey, true)
	add("plugin.security.file.ca", cfg.FileSecurityCA, false)
	add("plugin.security.choria.certificate", cfg.ChoriaSecurityCertificate, false)
	add("plugin.security.choria.key", cfg.ChoriaSecurityKey, true)
	add("plugin.security.choria.ca", cfg.ChoriaSecurityCA, false)
	if id.TLS {
		if err := id.certificate(e); err != nil {
			return id, err
		}
	}
	if e.opt.Insecure || e.fw.RequestProtocol() != protocol.RequestV2 && !cfg.ClientAnonTLS {
		return id, nil
	}
	if token, err := e.fw.SignerTokenFile(); err == nil {
		add("plugin.security.choria.token_file", token, true)
	}
	if seed, err := e.fw.SignerSeedFile(); err == nil {
		add("plugin.security.choria.seed_file", seed, true)
	}
	return id, id.token(e)
}

func (i *Identity) certificate(e *Engine) error {
	c, err := e.fw.ClientTLSConfig()
	if err != nil {
		return fmt.Errorf("TLS of the broker connection: %s", clean(err.Error()))
	}
	i.Verified = !c.InsecureSkipVerify || c.VerifyConnection != nil || c.VerifyPeerCertificate != nil
	if len(c.Certificates) == 0 || len(c.Certificates[0].Certificate) == 0 {
		return nil
	}
	own, err := x509.ParseCertificate(c.Certificates[0].Certificate[0])
	if err != nil {
		return fmt.Errorf("the certificate of the broker connection: %s", clean(err.Error()))
	}
	i.From, i.Ends = own.NotBefore, own.NotAfter
	return nil
}

func (i *Identity) token(e *Engine) error {
	text, _, err := e.fw.SignerToken()
	if err != nil {
		return fmt.Errorf("the token of plugin.security.choria.token_file: %s", clean(err.Error()))
	}
	claims, err := tokens.ParseClientIDTokenUnverified(text)
	if err != nil {
		return fmt.Errorf("the token of plugin.security.choria.token_file is no client token: %s", clean(err.Error()))
	}
	i.Token, i.Caller = true, clean(claims.CallerID)
	i.Provisioner = claims.Permissions != nil && claims.Permissions.ServerProvisioner
	i.From, i.Ends = time.Time{}, time.Time{}
	if claims.NotBefore != nil {
		i.From = claims.NotBefore.Time
	} else if claims.IssuedAt != nil {
		i.From = claims.IssuedAt.Time
	}
	if claims.ExpiresAt != nil {
		i.Ends = claims.ExpiresAt.Time
	}
	return nil
}

// Servers lists the broker's servers, by configuration or DNS.
func (e *Engine) Servers() ([]string, error) {
	servers, err := e.fw.MiddlewareServers()
	if err != nil {
		return nil, fmt.Errorf("plugin.choria.middleware_hosts: %s", clean(err.Error()))
	}
	return servers.Strings(), nil
}

// ServerSeen is one server of the broker, as a look at it showed.
type ServerSeen struct {
	Version string        // of the NATS server
	TLS     string        // version of TLS; empty: none
	Ends    time.Time     // of the server's certificate; zero without TLS
	Took    time.Duration // for the connection, credentials included

	Account string        // in which the broker puts us; empty if it does not tell
	Time    time.Time     // the broker's clock, at Asked by ours; zero if it does not tell
	Ahead   time.Duration // how far the broker's clock is ahead of ours, give or take Off
	Off     time.Duration
}

// Look makes one attempt to connect to a server, as Connect does, asks the broker who we are to it, and closes the connection. Nothing of
// that reaches a node. An error is ErrUnreachable, ErrSilent, ErrTLS or ErrRefused where that is known.
func (e *Engine) Look(ctx context.Context, server string) (ServerSeen, error) {
	var seen ServerSeen
	opts, err := e.natsOptions()
	if err != nil {
		return seen, fmt.Errorf("%w: %w", ErrTLS, err)
	}
	began := e.opt.Now()
	nc, err := e.dialOne(ctx, server, append(opts, nats.NoReconnect()))
	if err != nil {
		return seen, lookError(reason(ctx, server, err))
	}
	defer nc.Close()
	seen.Took, seen.Version = e.opt.Now().Sub(began), clean(nc.ConnectedServerVersion())
	if state, err := nc.TLSConnectionState(); err == nil {
		seen.TLS = tls.VersionName(state.Version)
		if len(state.PeerCertificates) > 0 {
			seen.Ends = state.PeerCertificates[0].NotAfter
		}
	}
	// Beside the subject of a worker that runs with the same credentials, whose replies are its own.
	subject := e.base + ".provctl-doctor.*"
	if _, err := nc.SubscribeSync(subject); err != nil {
		return seen, err
	}
	if err := e.flush(ctx, nc); err != nil {
		return seen, fmt.Errorf("%w: %w", ErrSilent, err)
	}
	if err := nc.LastError(); refused(err) {
		return seen, fmt.Errorf("%w: %s", ErrRefused, clean(err.Error()))
	}
	return seen, e.askWho(ctx, nc, &seen)
}

// dialOne is dial for one server.
func (e *Engine) dialOne(ctx context.Context, server string, opts []nats.Option) (*nats.Conn, error) {
	type result struct {
		nc  *nats.Conn
		err error
	}
	ch := make(chan result, 1)
	go func() {
		nc, err := nats.Connect(server, opts...)
		ch <- result{nc, err}
	}()
	select {
	case r := <-ch:
		return r.nc, r.err
	case <-ctx.Done():
		go func() {
			if r := <-ch; r.nc != nil {
				r.nc.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// reason finds out why a server cannot be reached, which the NATS client keeps to itself.
func reason(ctx context.Context, server string, err error) error {
	u, uerr := url.Parse(server)
	if !errors.Is(err, nats.ErrNoServers) || uerr != nil {
		return err
	}
	conn, derr := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
	if derr != nil {
		return derr
	}
	_ = conn.Close()
	return err
}

func lookError(err error) error {
	kind := ErrUnreachable
	var verify *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var timeout net.Error
	text := err.Error()
	switch {
	case errors.As(err, &verify), errors.As(err, &record), errors.As(err, &alert), errors.Is(err, nats.ErrSecureConnRequired),
		errors.Is(err, nats.ErrSecureConnWanted), strings.Contains(text, "x509: "), strings.Contains(text, "tls: "):
		kind = ErrTLS
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked), errors.Is(err, nats.ErrMaxConnectionsExceeded):
		kind = ErrRefused
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout), errors.As(err, &timeout) && timeout.Timeout():
		kind = ErrSilent
	}
	return fmt.Errorf("%w: %s", kind, clean(text))
}

// askWho asks the broker for our account and its time. A broker without a system account does not tell, which is no error.
func (e *Engine) askWho(ctx context.Context, nc *nats.Conn, seen *ServerSeen) error {
	ctx, cancel := context.WithTimeout(ctx, e.opt.FlushTimeout)
	defer cancel()
	began := e.opt.Now()
	reply, err := nc.RequestWithContext(ctx, userInfo, nil)
	took := e.opt.Now().Sub(began)
	if err != nil || len(reply.Data) > maxMessage {
		return nil //nolint:nilerr // see above
	}
	var answer struct {
		Server struct {
			Time time.Time `json:"time"`
		} `json:"server"`
		Data struct {
			Account string `json:"account"`
		} `json:"data"`
	}
	if err := lenient(json.RawMessage(reply.Data), &answer); err != nil {
		return nil //nolint:nilerr // it told nothing that we understand
	}
	seen.Account = clean(answer.Data.Account)
	if seen.Time = answer.Server.Time; !seen.Time.IsZero() {
		seen.Off = took / 2
		seen.Ahead = seen.Time.Sub(began.Add(seen.Off))
	}
	return nil
}

// Provisioners lists, by name, the connections of our account that wait for nodes to start in provisioning mode: every provisioner does,
// ours and the existing one. ErrNoConnectionList if the broker does not tell. The engine must not be connected, and is of no other use
// after this than to be closed.
func (e *Engine) Provisioners(ctx context.Context) ([]string, error) {
	if err := e.join(ctx); err != nil {
		return nil, err
	}
	component := e.opt.Component
	if component == "" {
		component = "*"
	}
	answers, err := e.connz(ctx, connzQuestion{
		page: connzRequest{Sort: "cid", Filter: "choria.lifecycle.event.startup." + component, Limit: connzPage},
	})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, a := range answers {
		for _, c := range a.Data.Conns {
			names = append(names, clean(c.Name))
		}
	}
	return names, nil
}

// join connects once for the questions that need the engine's own connection. No subscription comes with it.
func (e *Engine) join(ctx context.Context) error {
	if e.Connected() {
		return nil
	}
	opts, err := e.natsOptions()
	if err != nil {
		return err
	}
	nc, err := e.dial(ctx, append(opts, nats.NoReconnect()))
	if err != nil {
		return lookError(err)
	}
	return e.install(nc)
}

// ElectionKeysLive asks for how long a leader's key lives, which says that an election can be held. It takes no part in one. As for
// Provisioners, the engine is of no other use after this.
func (e *Engine) ElectionKeysLive(ctx context.Context) (time.Duration, error) {
	if err := e.join(ctx); err != nil {
		return 0, err
	}
	return NewElection(ElectionOptions{Engine: e}).bucketTTL(ctx)
}
