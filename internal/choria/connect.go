package choria

import (
	"context"
	"crypto/fips140"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
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
// context ends, whatever the broker does meanwhile: a connection on which it fails is closed, and the next one tried after a
// growing, random wait. After that the connection restores itself for as long as the engine is open; while it is down nothing
// is buffered. Another call returns ErrMisuse while one is under way or after one that succeeded; after Close it is ErrClosed.
func (e *Engine) Connect(ctx context.Context) error {
	if err := e.begin(); err != nil {
		return fmt.Errorf("connect to the broker: %w", err)
	}
	defer e.begun()
	opts, err := e.natsOptions()
	if err != nil {
		return fmt.Errorf("connect to the broker: %w", err)
	}
	for try := 0; ; try++ {
		err := e.attempt(ctx, opts)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || e.over() {
			return e.gaveUp(ctx, err)
		}
		if refused(err) {
			e.log.Error("the broker refuses the subscription to our replies, trying again; let this caller read the subject",
				"subject", e.inbox+".*", "try", try+1, "error", clean(err.Error()))
		} else {
			e.log.Warn("could not connect to the broker, trying again", "try", try+1, "error", clean(err.Error()), "hint",
				"see whether the broker runs where plugin.choria.middleware_hosts of "+e.opt.ConfigFile+" says; provctl doctor tells more")
		}
		if !e.pause(ctx, e.jitter(connectFirst, connectLongest, try)) {
			return e.gaveUp(ctx, err)
		}
	}
}

// begin lets one Connect at a time in, since two subscriptions would make every reply look like two, and starts what every
// connection needs.
func (e *Engine) begin() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.ended:
		return ErrClosed
	case e.connecting || e.nc != nil:
		return fmt.Errorf("%w: Connect was called before", ErrMisuse)
	}
	e.connecting = true
	if !e.started {
		e.started = true
		e.notes.start(&e.wg)
		e.events.start(&e.wg)
		e.wg.Go(e.runMux)
	}
	return nil
}

func (e *Engine) begun() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.connecting = false
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

// attempt makes one connection and subscribes on it. On failure nothing of it is left.
func (e *Engine) attempt(ctx context.Context, opts []nats.Option) error {
	nc, err := e.dial(ctx, opts)
	if err != nil {
		return err
	}
	e.log.Debug("reached the broker", "url", nc.ConnectedUrlRedacted())
	if err = e.subscribe(ctx, nc); err == nil {
		err = e.install(nc)
	}
	if err != nil {
		nc.Close()
		return fmt.Errorf("subscribe at the broker: %w", err)
	}
	e.log.Info("connected to the broker", "url", nc.ConnectedUrlRedacted())
	return nil
}

// subscribe makes a fresh connection fit for use: no reply may be missed by the time that others get it. A refusal is only told on
// the side, before the flush is acknowledged, and the last one alone is remembered: so the replies come first, for themselves.
// Refused lifecycle events are no reason to do without the rest; see asyncError.
func (e *Engine) subscribe(ctx context.Context, nc *nats.Conn) error {
	if _, err := nc.ChanSubscribe(e.inbox+".*", e.mux.in); err != nil {
		return err
	}
	if err := e.flush(ctx, nc); err != nil {
		return err
	}
	if err := nc.LastError(); refused(err) {
		return err
	}
	if e.opt.OnEvent == nil {
		return nil
	}
	if err := e.watchEvents(nc); err != nil {
		return err
	}
	return e.flush(ctx, nc)
}

func refused(err error) bool {
	return errors.Is(err, nats.ErrPermissionViolation) || errors.Is(err, nats.ErrMaxSubscriptionsExceeded)
}

// flush waits until the broker has taken what was written to a connection that Close does not know yet.
func (e *Engine) flush(ctx context.Context, nc *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, e.opt.FlushTimeout)
	defer cancel()
	if !e.spawn(func() {
		select {
		case <-e.closing:
			cancel()
		case <-ctx.Done():
		}
	}) {
		return ErrClosed
	}
	if err := nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("the broker did not acknowledge it within %s: %w", e.opt.FlushTimeout, err)
	}
	return nil
}

// install makes a connection the engine's own.
func (e *Engine) install(nc *nats.Conn) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return ErrClosed
	}
	e.nc = nc
	return nil
}

func (e *Engine) owns(nc *nats.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.nc == nc
}

// lose tells all that wait on the connection, and may give up without harm, that it broke.
func (e *Engine) lose(nc *nats.Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.nc == nc {
		close(e.down)
		e.down = make(chan struct{})
	}
}

// cutOff is the error of what gave up because the connection broke.
func (e *Engine) cutOff() error {
	if e.over() {
		return ErrClosed
	}
	return fmt.Errorf("%w: the connection broke before the answer came", ErrNotConnected)
}

// conn gives the connection if it is up.
func (e *Engine) conn() (*nats.Conn, error) {
	nc, _, err := e.link()
	return nc, err
}

// link gives the connection if it is up, and what is closed when it breaks.
func (e *Engine) link() (*nats.Conn, <-chan struct{}, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.ended:
		return nil, nil, ErrClosed
	case e.nc == nil || !e.nc.IsConnected():
		return nil, nil, ErrNotConnected
	}
	return e.nc, e.down, nil
}

// over reports whether the engine was closed.
func (e *Engine) over() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended
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
