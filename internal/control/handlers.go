package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/go-json-experiment/json"

	"provctl/journal"
	"provctl/receipt"
)

type server struct {
	w         Worker
	log       *slog.Logger
	slots     chan struct{} // bounds what is served at once
	snapshots chan struct{} // a snapshot is large: one at a time
}

// call does one request: uid is the caller's user id.
type call func(r *http.Request, uid int) (any, error)

func (s *server) routes() http.Handler {
	m := http.NewServeMux()
	m.Handle("GET /v1/live", s.handle(func(*http.Request, int) (any, error) { return s.w.Live(), nil }))
	m.Handle("GET /v1/snapshot", s.handle(s.snapshot))
	m.Handle("GET /v1/story", s.handle(func(r *http.Request, _ int) (any, error) { return s.w.Story(receipt.NodeID(r.FormValue("node"))) }))
	m.Handle("GET /v1/find", s.handle(func(r *http.Request, _ int) (any, error) { return s.w.Find(r.FormValue("prefix")) }))
	m.Handle("GET /v1/audit", s.handle(s.audit))
	m.Handle("GET /v1/standings", s.handle(s.standings))
	m.HandleFunc("GET /v1/backup", s.backup)
	m.Handle("POST /v1/decide", s.handle(s.decide))
	m.Handle("POST /v1/admit", s.handle(s.admit))
	m.Handle("POST /v1/release", s.handle(s.release))
	m.Handle("POST /v1/pause", s.handle(s.pause))
	m.Handle("POST /v1/resume", s.handle(s.resume))
	m.Handle("POST /v1/probe", s.handle(s.probe))
	m.Handle("POST /v1/drain", s.handle(s.drain))
	m.Handle("/", s.handle(func(r *http.Request, _ int) (any, error) {
		return nil, fmt.Errorf("%w: this worker does not know %s %.80q; use the provctl of the worker's version", ErrProtocol, r.Method, r.URL.Path)
	}))
	return m
}

// handle checks the caller, bounds the load, and turns a panic into an error answer.
func (s *server) handle(do call) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
		default:
			s.answer(w, nil, fmt.Errorf("%w: it serves %d requests already; try again in a moment", ErrOverloaded, maxAtOnce))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
		uid, err := allowed(r.Context())
		if err != nil {
			s.answer(w, nil, err)
			return
		}
		out, err := s.guarded(do, r, uid)
		s.answer(w, out, err)
	})
}

func (s *server) guarded(do call, r *http.Request, uid int) (out any, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("a control request failed inside the worker: please report this", "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			out, err = nil, fmt.Errorf("internal error in %s; see the worker's log", r.URL.Path)
		}
	}()
	return do(r, uid)
}

// allowed: the socket's mode keeps others out already; this holds even if somebody widened it.
func allowed(ctx context.Context) (int, error) {
	p, ok := ctx.Value(peerKey{}).(peerInfo)
	switch {
	case !ok:
		return 0, fmt.Errorf("%w: the caller is not known", ErrDenied)
	case p.err != nil:
		return 0, fmt.Errorf("%w: the caller is not known: %w", ErrDenied, p.err)
	case p.uid == unmapped && p.door.group != nil: // before the next: a worker that runs as this user would take all of them for its own
		return 0, p.door.group.admits(p.uid, p.gids)
	case p.uid == 0 || p.uid == os.Geteuid():
		return p.uid, nil
	case p.door.group == nil:
		return 0, fmt.Errorf("%w: user id %d may not command this worker; use the worker's user or root", ErrDenied, p.uid)
	}
	return p.uid, p.door.group.admits(p.uid, p.gids)
}

func (s *server) snapshot(r *http.Request, _ int) (any, error) {
	select {
	case s.snapshots <- struct{}{}:
		defer func() { <-s.snapshots }()
		return s.w.Snapshot()
	case <-r.Context().Done():
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, r.Context().Err())
	}
}

func (s *server) audit(r *http.Request, _ int) (any, error) {
	from, err := strconv.ParseUint(r.FormValue("from"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("from: %w: %w", ErrProtocol, err)
	}
	return s.w.Audit(receipt.Seq(from))
}

func (s *server) standings(r *http.Request, _ int) (any, error) {
	most, err := strconv.Atoi(r.FormValue("most"))
	if err != nil {
		return nil, fmt.Errorf("most: %w: %w", ErrProtocol, err)
	}
	return s.w.Standings(receipt.NodeID(r.FormValue("after")), most)
}

// signed checks the reason and says who gives it.
func signed(uid int, operator, reason string) (by string, err error) {
	if err := CheckText("reason", reason, MaxReason); err != nil {
		return "", err
	}
	return NameOf(uid, operator)
}

func (s *server) decide(r *http.Request, uid int) (any, error) {
	var in decideRequest
	if err := read(r, &in); err != nil {
		return nil, err
	}
	by, err := signed(uid, in.Operator, in.Reason)
	if err != nil {
		return nil, err
	}
	if in.Evidence != "" {
		if err := CheckText("evidence", in.Evidence, MaxReason); err != nil {
			return nil, err
		}
	}
	d := journal.Decision{
		Receipt: in.Receipt, Seen: in.Seen, Verdict: in.Verdict, By: by, Reason: in.Reason, Evidence: in.Evidence, Contradict: in.Contradict,
	}
	out, err := s.w.Decide(r.Context(), d)
	if err != nil { // the worker logs the others
		s.log.Info("verdict refused", "receipt", in.Receipt, "verdict", in.Verdict.String(), "seen", in.Seen, "by", by, "err", err)
	}
	return out, err
}

func (s *server) admit(r *http.Request, uid int) (any, error) {
	var in admitRequest
	if err := read(r, &in); err != nil {
		return nil, err
	}
	node, err := receipt.ParseNodeID(string(in.Node))
	if err != nil {
		return nil, err
	}
	by, err := signed(uid, in.Operator, in.Reason)
	if err != nil {
		return nil, err
	}
	out, err := s.w.AdmitByHand(r.Context(), node, by, in.Reason)
	if err != nil {
		s.log.Info("admission by hand refused", "node", node, "by", by, "err", err)
	}
	return out, err
}

func (s *server) release(r *http.Request, uid int) (any, error) {
	var in releaseRequest
	if err := read(r, &in); err != nil {
		return nil, err
	}
	node, err := receipt.ParseNodeID(string(in.Node))
	if err != nil {
		return nil, err
	}
	by, err := signed(uid, in.Operator, in.Reason)
	if err != nil {
		return nil, err
	}
	out, err := s.w.Release(r.Context(), node, by, in.Reason)
	if err != nil {
		s.log.Info("release refused", "node", node, "by", by, "err", err)
	}
	return out, err
}

func (s *server) pause(r *http.Request, uid int) (any, error) {
	var in pauseRequest
	if err := read(r, &in); err != nil {
		return nil, err
	}
	by, err := signed(uid, in.Operator, in.Reason)
	if err != nil {
		return nil, err
	}
	return s.w.Pause(r.Context(), by, in.Reason)
}

func (s *server) resume(r *http.Request, uid int) (any, error) {
	var in resumeRequest
	if err := read(r, &in); err != nil {
		return nil, err
	}
	by, err := NameOf(uid, in.Operator)
	if err != nil {
		return nil, err
	}
	return s.w.Resume(r.Context(), by)
}

func (s *server) probe(r *http.Request, _ int) (any, error) {
	var in probeRequest
	if err := read(r, &in); err != nil {
		return nil, err
	}
	return s.w.Probe(r.Context(), in.Receipt)
}

// read decodes a request strictly: unknown, duplicate or mistyped fields are errors, and nothing may follow.
func read(r *http.Request, v any) error {
	err := json.UnmarshalRead(r.Body, v, json.RejectUnknownMembers(true))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return fmt.Errorf("request: %w: more than %d bytes", ErrTooLarge, maxRequest)
	case err != nil:
		return fmt.Errorf("request: %w: %w", ErrProtocol, err)
	}
	return nil
}

func (s *server) answer(w http.ResponseWriter, out any, err error) {
	w.Header().Set("Content-Type", "application/json")
	to := &answer{w: w, status: http.StatusOK}
	if err != nil {
		out, to.status = toWire(err)
	}
	b := bufio.NewWriterSize(to, answerBuffer)
	if err = json.MarshalWrite(b, out); err == nil {
		_ = b.Flush() // the caller may have gone; it asks again
		return
	}
	if to.gone {
		return
	}
	s.log.Error("a control answer could not be encoded", "err", err)
	if to.begun {
		panic(http.ErrAbortHandler) // the caller must not take what it has got for the whole
	}
	to.status = http.StatusInternalServerError
	_, _ = to.Write([]byte(`{"code":"error","message":"the answer could not be encoded; see the worker's log"}`))
}

// answerBuffer is how much of an answer is made before the first of it is sent. A long one is read while the rest is being made, and what
// the worker has to do besides comes first after each piece.
const answerBuffer = 64 << 10

type answer struct {
	w           http.ResponseWriter
	status      int
	begun, gone bool
}

func (a *answer) Write(b []byte) (int, error) {
	if !a.begun {
		a.w.WriteHeader(a.status)
	}
	a.begun = true
	n, err := a.w.Write(b)
	a.gone = a.gone || err != nil
	runtime.Gosched()
	return n, err
}
