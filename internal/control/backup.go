package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"provctl/journal"
	"provctl/receipt"
)

// Backer is a worker that copies its journal: a copy of its own for each call, or journal.ErrCopying.
type Backer interface {
	Backup(ctx context.Context) (*journal.Copy, error)
}

// The headers of a backup say which moment of which journal follows.
const (
	backupID    = "Provctl-Journal"
	backupEpoch = "Provctl-Epoch"
	backupSeq   = "Provctl-Sequence"
)

// backup sends a copy of the journal as it is. The copy is complete before its first byte leaves: a caller who reads slowly holds a
// request's place and that copy, for as long as any answer may take, and nothing of the journal.
func (s *server) backup(w http.ResponseWriter, r *http.Request) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		s.answer(w, nil, fmt.Errorf("%w: it serves %d requests already; try again in a moment", ErrOverloaded, maxAtOnce))
		return
	}
	uid, err := allowed(r.Context())
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	out, err := s.guarded(s.copied, r, uid)
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	c := out.(*journal.Copy) //nolint:errcheck,forcetypeassert // copied returns nothing else
	defer func() { _ = c.Close() }()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatInt(c.Size, 10))
	h.Set(backupID, c.Info.ID)
	h.Set(backupEpoch, strconv.FormatUint(uint64(c.Info.Epoch), 10))
	h.Set(backupSeq, strconv.FormatUint(uint64(c.Info.Seq), 10))
	if n, err := io.Copy(w, c); err != nil { // the caller sees by its length that it is not the whole
		s.log.Warn("a backup was not read to its end", "bytes", n, "of", c.Size, "err", err)
	}
}

func (s *server) copied(r *http.Request, _ int) (any, error) {
	b, ok := s.w.(Backer)
	if !ok {
		return nil, fmt.Errorf("%w: this worker makes no backups", ErrProtocol)
	}
	c, err := b.Backup(r.Context())
	if errors.Is(err, journal.ErrCopying) {
		err = fmt.Errorf("%w: %w", ErrOverloaded, err)
	}
	return c, err
}

// backupPatience is longer than what the worker gives an answer, so that it is the worker which ends a slow one.
const backupPatience = writePatience + 15*time.Second

// Backup writes a copy of the worker's journal, of one moment while it goes on, and says what it is. The info has id, epoch and sequence
// alone. After an error what was written is not the whole. ErrOverloaded: another backup is being made; ErrHung; ErrProtocol from a worker
// that makes none; ErrUnavailable if it ended, or its time was over, in the midst; errors of w as they are.
func (c *Client) Backup(ctx context.Context, w io.Writer) (journal.Info, error) {
	if _, err := c.Live(ctx); err != nil { // so that a worker which hangs is noticed with the usual patience
		return journal.Info{}, err
	}
	waiting, cancel := context.WithTimeoutCause(ctx, backupPatience, &HungError{Path: SocketPath(c.dir), After: backupPatience})
	defer cancel()
	res, err := c.exchange(waiting, http.MethodGet, "backup", nil)
	if err != nil {
		return journal.Info{}, c.explain(waiting, err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		var e wireError
		if err := json.UnmarshalRead(io.LimitReader(res.Body, maxRequest), &e); err != nil || e.Code == "" {
			return journal.Info{}, fmt.Errorf("worker at %s: %w: status %d; use the provctl of the worker's version", SocketPath(c.dir), ErrProtocol, res.StatusCode)
		}
		return journal.Info{}, e.fromWire()
	}
	info, err := backupInfo(res)
	if err != nil {
		return journal.Info{}, fmt.Errorf("answer of the worker at %s: %w: %w; use the provctl of the worker's version", SocketPath(c.dir), ErrProtocol, err)
	}
	to := &noting{w: w}
	n, err := io.Copy(to, res.Body)
	switch {
	case to.err != nil:
		return journal.Info{}, to.err
	case err != nil:
		return journal.Info{}, fmt.Errorf("after %d of %d bytes, of which all must be taken within %s: %w", n, res.ContentLength, writePatience, c.explain(waiting, err))
	}
	return info, nil
}

func backupInfo(res *http.Response) (journal.Info, error) {
	epoch, err1 := strconv.ParseUint(res.Header.Get(backupEpoch), 10, 64)
	seq, err2 := strconv.ParseUint(res.Header.Get(backupSeq), 10, 64)
	err := errors.Join(err1, err2)
	if res.ContentLength < 0 { // else its end could not be told from a connection's
		err = errors.Join(err, errors.New("it does not say how long it is"))
	}
	return journal.Info{ID: res.Header.Get(backupID), Epoch: receipt.Epoch(epoch), Seq: receipt.Seq(seq)}, err
}

// noting keeps the error of a write, to tell it from those of the connection.
type noting struct {
	w   io.Writer
	err error
}

func (n *noting) Write(b []byte) (int, error) {
	k, err := n.w.Write(b)
	n.err = errors.Join(n.err, err)
	return k, err
}
