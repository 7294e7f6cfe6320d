package control

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"provctl/journal"
	"provctl/receipt"
)

var (
	// ErrNoWorker is returned when nobody serves the state directory: there is no socket, or only a dead worker's.
	ErrNoWorker = errors.New("no worker runs")
	// ErrHung is returned when a worker has the socket and does not answer in time. What was asked may still happen.
	ErrHung = errors.New("the worker does not answer")
	// ErrUnavailable is returned when the worker answers that it cannot do this now: it settles, stops or is overloaded.
	ErrUnavailable = errors.New("the worker cannot do this now")
	// ErrOverloaded is ErrUnavailable for a moment only, and nothing was done: too many ask at the same time.
	ErrOverloaded = fmt.Errorf("too many ask at the same time: %w", ErrUnavailable)
	// ErrUnserved is ErrUnavailable of a socket without its directory: nobody serves it, and there is nothing else to turn to.
	ErrUnserved = fmt.Errorf("no worker serves it: %w", ErrUnavailable)
	// ErrTooLarge is returned for a request or an answer beyond the limits.
	ErrTooLarge = errors.New("too large")
	// ErrProtocol is returned when the two sides do not understand each other, as after an update of one of them.
	ErrProtocol = errors.New("not understood")
	// ErrDenied is returned when the socket belongs to another user.
	ErrDenied = errors.New("not permitted")
)

// HungError is ErrHung with what the operator needs.
type HungError struct {
	PID   int // 0 if it is not known
	Path  string
	After time.Duration
}

// Error names the process and the remedy.
func (e *HungError) Error() string {
	who := "its process is not known"
	look := "find its process"
	if e.PID > 0 {
		who = fmt.Sprintf("pid %d", e.PID)
		look = fmt.Sprintf("look at it with 'ps -o pid,stat,wchan,args -p %d'", e.PID)
	}
	return fmt.Sprintf("%s: %s (%s) within %s; %s; let it go on (kill -CONT) or end it (kill -KILL is safe), then run this again",
		e.Path, ErrHung, who, e.After, look)
}

// Is makes it ErrHung.
func (e *HungError) Is(target error) bool { return target == ErrHung }

// wireError is an error as it travels.
type wireError struct {
	Code    string            `json:"code"`
	Message string            `json:"message"`
	Receipt receipt.ReceiptID `json:"receipt,omitempty"`
	LeftMS  int64             `json:"left_ms,omitzero"` // of a horizon
}

// codes pairs the errors that callers branch on with their names on the wire, the narrower before the wider.
var codes = []struct {
	code   string
	err    error
	status int
}{
	{"before-horizon", receipt.ErrBeforeHorizon, http.StatusConflict},
	{"stale", receipt.ErrStale, http.StatusConflict},
	{"may-still-run", journal.ErrMayStillRun, http.StatusConflict},
	{"in-flight", journal.ErrInFlight, http.StatusConflict},
	{"contradicted", journal.ErrContradicted, http.StatusConflict},
	{"not-held", journal.ErrNotHeld, http.StatusConflict},
	{"blocked", journal.ErrBlocked, http.StatusConflict},
	{"not-found", journal.ErrNotFound, http.StatusNotFound},
	{"repeat", receipt.ErrRepeat, http.StatusConflict},
	{"fenced", receipt.ErrFenced, http.StatusConflict},
	{"illegal-transition", receipt.ErrIllegalTransition, http.StatusConflict},
	{"invalid", receipt.ErrInvalid, http.StatusBadRequest},
	{"stopped", journal.ErrStopped, http.StatusServiceUnavailable},
	{"missing", journal.ErrMissing, http.StatusInternalServerError},
	{"damaged", receipt.ErrDamaged, http.StatusInternalServerError},
	{"too-large", ErrTooLarge, http.StatusRequestEntityTooLarge},
	{"not-understood", ErrProtocol, http.StatusBadRequest},
	{"denied", ErrDenied, http.StatusForbidden},
	{"overloaded", ErrOverloaded, http.StatusServiceUnavailable},
	{"unavailable", journal.ErrClosed, http.StatusServiceUnavailable},
	{"unavailable", ErrUnavailable, http.StatusServiceUnavailable},
}

// toWire names an error; what has no name is "error".
func toWire(err error) (wireError, int) {
	out, status := wireError{Code: "error", Message: bounded(err.Error())}, http.StatusInternalServerError
	for _, c := range codes {
		if errors.Is(err, c.err) {
			out.Code, status = c.code, c.status
			break
		}
	}
	var early *journal.BeforeHorizonError
	if errors.As(err, &early) {
		out.Receipt, out.LeftMS = early.Receipt, early.Left.Milliseconds()
	}
	return out, status
}

// fromWire is the opposite: errors.Is and errors.As work as they do at the worker.
func (w wireError) fromWire() error {
	if w.Code == "before-horizon" {
		const most = math.MaxInt64 / int64(time.Millisecond)
		return &journal.BeforeHorizonError{Receipt: w.Receipt, Left: time.Duration(max(-most, min(w.LeftMS, most))) * time.Millisecond}
	}
	e := &remoteError{message: bounded(w.Message), is: errors.New("error of the worker")}
	for _, c := range codes {
		if c.code == w.Code {
			e.is = c.err
		}
	}
	return e
}

type remoteError struct {
	message string
	is      error
}

func (e *remoteError) Error() string { return "the worker says: " + e.message }
func (e *remoteError) Unwrap() error { return e.is }

// bounded is a text that can travel: not too long, and UTF-8 to its end, since JSON carries nothing else.
func bounded(s string) string {
	if len(s) > maxMessage {
		s = s[:maxMessage] + "…"
	}
	return strings.ToValidUTF8(s, "?")
}
