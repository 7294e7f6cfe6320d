package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"provctl/journal"
	"provctl/receipt"
)

// DefaultPatience is how long a client waits for an answer.
const DefaultPatience = 5 * time.Second

// probePatience is longer: a probe asks the node and the broker.
const probePatience = time.Minute

// Client speaks to the worker of one place: a state directory, or a SocketPlace. It may be used by several goroutines.
type Client struct {
	// Patience is how long one call waits before the worker counts as hung; Dial sets DefaultPatience.
	Patience time.Duration

	dir  string // the place
	pid  atomic.Int64
	http *http.Client
}

// Dial finds out whether a worker serves the place. It sends nothing yet. ErrNoWorker: nobody does; ErrHung: the worker does not even
// take the connection; ErrDenied: it is for other users, or whoever listens is not the worker's user.
func Dial(place string) (*Client, error) { return DialPatience(place, DefaultPatience) }

// DialPatience is Dial with another patience.
func DialPatience(place string, patience time.Duration) (*Client, error) {
	c := &Client{Patience: patience, dir: place}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return c.connect(ctx) },
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 8 << 10,
	}}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	_ = conn.Close()
	return c, nil
}

// PID is the worker's process, 0 if it is not known.
func (c *Client) PID() int { return int(c.pid.Load()) }

// Live asks the worker how it is.
func (c *Client) Live(ctx context.Context) (Live, error) {
	return ask[Live](ctx, c, http.MethodGet, "live", c.Patience, nil)
}

// Snapshot asks for what the journal holds.
func (c *Client) Snapshot(ctx context.Context) (journal.Snapshot, error) {
	return ask[journal.Snapshot](ctx, c, http.MethodGet, "snapshot", 3*c.Patience, nil)
}

// Story asks for all that is kept of a node.
func (c *Client) Story(ctx context.Context, node receipt.NodeID) (journal.Story, error) {
	return ask[journal.Story](ctx, c, http.MethodGet, "story?"+url.Values{"node": {string(node)}}.Encode(), c.Patience, nil)
}

// Find asks for the receipts, ended ones included, whose id begins with a text.
func (c *Client) Find(ctx context.Context, prefix string) ([]receipt.Receipt, error) {
	return ask[[]receipt.Receipt](ctx, c, http.MethodGet, "find?"+url.Values{"prefix": {prefix}}.Encode(), c.Patience, nil)
}

// Audit asks for the acts of people from a sequence number on.
func (c *Client) Audit(ctx context.Context, from receipt.Seq) ([]journal.Act, error) {
	return ask[[]journal.Act](ctx, c, http.MethodGet, "audit?from="+strconv.FormatUint(uint64(from), 10), 3*c.Patience, nil)
}

// Standings asks for nodes by name, from the one after a given name on.
func (c *Client) Standings(ctx context.Context, after receipt.NodeID, most int) ([]journal.Standing, error) {
	q := url.Values{"after": {string(after)}, "most": {strconv.Itoa(most)}}
	return ask[[]journal.Standing](ctx, c, http.MethodGet, "standings?"+q.Encode(), c.Patience, nil)
}

// Decide records a verdict. Its By is ignored: the worker records this process's user, with operator as a claim beside it.
// After ErrHung it is not known whether the verdict was recorded; giving it again on the same version is safe.
func (c *Client) Decide(ctx context.Context, d journal.Decision, operator string) (receipt.Receipt, error) {
	in := decideRequest{
		Receipt: d.Receipt, Seen: d.Seen, Verdict: d.Verdict, Reason: d.Reason, Operator: operator,
		Evidence: d.Evidence, Contradict: d.Contradict,
	}
	return ask[receipt.Receipt](ctx, c, http.MethodPost, "decide", c.Patience, in)
}

// AdmitByHand queues a node. Who asks is recorded as for Decide.
func (c *Client) AdmitByHand(ctx context.Context, node receipt.NodeID, operator, reason string) (receipt.Job, error) {
	return ask[receipt.Job](ctx, c, http.MethodPost, "admit", c.Patience, admitRequest{Node: node, Reason: reason, Operator: operator})
}

// Release ends a node's hold. Who asks is recorded as for Decide.
func (c *Client) Release(ctx context.Context, node receipt.NodeID, operator, reason string) (receipt.Node, error) {
	return ask[receipt.Node](ctx, c, http.MethodPost, "release", c.Patience, releaseRequest{Node: node, Reason: reason, Operator: operator})
}

// Pause has the worker begin nothing. Who asks is recorded as for Decide.
func (c *Client) Pause(ctx context.Context, operator, reason string) (journal.Pause, error) {
	return ask[journal.Pause](ctx, c, http.MethodPost, "pause", c.Patience, pauseRequest{Reason: reason, Operator: operator})
}

// Resume ends a pause and returns it, nil if there was none.
func (c *Client) Resume(ctx context.Context, operator string) (*journal.Pause, error) {
	return ask[*journal.Pause](ctx, c, http.MethodPost, "resume", c.Patience, resumeRequest{Operator: operator})
}

// Probe makes the worker gather evidence about a receipt now.
func (c *Client) Probe(ctx context.Context, r receipt.ReceiptID) (receipt.Receipt, error) {
	return ask[receipt.Receipt](ctx, c, http.MethodPost, "probe", max(c.Patience, probePatience), probeRequest{Receipt: r})
}

func (c *Client) connect(ctx context.Context) (net.Conn, error) {
	addr, release, err := address(filepath.Split(SocketPath(c.dir)))
	if err != nil {
		return nil, err
	}
	defer release()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", addr)
	if err != nil {
		return nil, err
	}
	listens, err := peer(conn)
	if err == nil {
		c.pid.Store(int64(listens.pid))
		err = c.trusted(listens)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func ask[T any](ctx context.Context, c *Client, method, what string, patience time.Duration, in any) (T, error) {
	var zero, out T
	waiting, cancel := context.WithTimeoutCause(ctx, patience, &HungError{Path: SocketPath(c.dir), After: patience})
	defer cancel()
	res, err := c.exchange(waiting, method, what, in)
	if err != nil {
		return zero, c.explain(waiting, err)
	}
	defer func() { _ = res.Body.Close() }()
	body := &limited{r: res.Body, left: maxResponse}
	if res.StatusCode != http.StatusOK {
		var e wireError
		if err := json.UnmarshalRead(body, &e); err != nil || e.Code == "" {
			return zero, fmt.Errorf("worker at %s: %w: status %d; use the provctl of the worker's version", SocketPath(c.dir), ErrProtocol, res.StatusCode)
		}
		return zero, e.fromWire()
	}
	err = json.UnmarshalRead(body, &out)
	switch {
	case body.err != nil:
		return zero, c.explain(waiting, body.err)
	case err != nil:
		return zero, fmt.Errorf("answer of the worker at %s: %w: %w; use the provctl of the worker's version", SocketPath(c.dir), ErrProtocol, err)
	}
	return out, nil
}

// exchange sends a request. The answer's body is the caller's to read and to close.
func (c *Client) exchange(ctx context.Context, method, what string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		if len(b) > maxRequest {
			return nil, fmt.Errorf("request: %w: %d bytes, at most %d", ErrTooLarge, len(b), maxRequest)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://worker/v1/"+what, body)
	if err != nil {
		return nil, err
	}
	return c.http.Do(req)
}

// limited reads an answer up to a length, and keeps the error that is none of what it says.
type limited struct {
	r    io.Reader
	left int64
	err  error
}

func (l *limited) Read(b []byte) (int, error) {
	n, err := l.r.Read(b)
	if l.left -= int64(n); l.left < 0 {
		err = fmt.Errorf("answer of the worker: %w: more than %d bytes", ErrTooLarge, maxResponse)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		l.err = err
	}
	return n, err
}

// explain turns what the network said into what it means for the operator.
func (c *Client) explain(ctx context.Context, err error) error {
	path := SocketPath(c.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOTDIR):
		return c.absent()
	case errors.Is(err, fs.ErrPermission):
		return c.refused()
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.EAGAIN):
		hung := &HungError{Path: path, After: c.Patience, PID: c.holder()}
		if cause := (*HungError)(nil); errors.As(context.Cause(ctx), &cause) {
			hung.After = cause.After
		}
		return hung
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, ErrTooLarge):
		return err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("worker at %s: it ended before it had answered: %w; run this again", path, ErrUnavailable)
	}
	return fmt.Errorf("worker at %s: %w", path, err)
}

// holder is the worker's pid: from the kernel if a connection was made, else from the lock file, which names its holder.
func (c *Client) holder() int {
	if pid := c.PID(); pid > 0 {
		return pid
	}
	f, err := os.OpenFile(filepath.Join(filepath.Dir(SocketPath(c.dir)), "worker.lock"), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}
