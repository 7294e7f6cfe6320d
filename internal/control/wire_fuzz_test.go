package control

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"provctl/journal"
	"provctl/receipt"
)

// strict fails the test for everything that no worker may be asked to do.
type strict struct{ t *testing.T }

func (s strict) by(by, reason string) {
	s.t.Helper()
	if by == "" || CheckText("reason", reason, MaxReason) != nil || CheckText("by", by, 4*MaxOperator) != nil {
		s.t.Fatalf("%q acts for %q", by, reason)
	}
}

func (s strict) Live() Live { return Live{PID: 1, State: Running} }

func (s strict) Snapshot() (journal.Snapshot, error) { return journal.Snapshot{}, nil }

func (s strict) Decide(_ context.Context, d journal.Decision) (receipt.Receipt, error) {
	s.by(d.By, d.Reason)
	if d.Evidence != "" && CheckText("evidence", d.Evidence, MaxReason) != nil {
		s.t.Fatalf("%q is put on record", d.Evidence)
	}
	if d.Verdict.Event() == 0 {
		return receipt.Receipt{}, receipt.ErrInvalid // as the journal does
	}
	return receipt.Receipt{}, receipt.ErrStale
}

func (s strict) AdmitByHand(_ context.Context, n receipt.NodeID, by, reason string) (receipt.Job, error) {
	s.by(by, reason)
	if _, err := receipt.ParseNodeID(string(n)); err != nil {
		s.t.Fatalf("node %q is admitted", n)
	}
	return receipt.Job{}, journal.ErrBlocked
}

func (s strict) Release(_ context.Context, n receipt.NodeID, by, reason string) (receipt.Node, error) {
	s.by(by, reason)
	if _, err := receipt.ParseNodeID(string(n)); err != nil {
		s.t.Fatalf("node %q is released", n)
	}
	return receipt.Node{}, journal.ErrNotHeld
}

func (s strict) Pause(_ context.Context, by, reason string) (journal.Pause, error) {
	s.by(by, reason)
	return journal.Pause{By: by, Reason: reason}, nil
}

func (s strict) Drain(by string) Draining {
	s.by(by, "none is needed")
	return Draining{}
}

func (s strict) Resume(_ context.Context, by string) (*journal.Pause, error) {
	s.by(by, "none is needed")
	return nil, nil
}

func (s strict) Probe(context.Context, receipt.ReceiptID) (receipt.Receipt, error) {
	return receipt.Receipt{}, journal.ErrNotFound
}

// FuzzRequests sends any body to any path: no worker is asked for what an operator may not put on record, nothing panics, and each
// refusal is one that the client understands.
func FuzzRequests(f *testing.F) {
	paths := []string{"decide", "admit", "release", "pause", "resume", "probe", "live", "nothing"}
	f.Add(byte(0), []byte(`{"receipt":"R","seen":5,"verdict":"applied","reason":"x"}`))
	f.Add(byte(1), []byte(`{"node":"n1.example.net","reason":"x","operator":"me"}`))
	f.Fuzz(func(t *testing.T, path byte, body []byte) {
		var log bytes.Buffer
		s := &server{w: strict{t}, log: slog.New(slog.NewTextHandler(&log, nil)), slots: make(chan struct{}, 1), snapshots: make(chan struct{}, 1)}
		ctx := context.WithValue(t.Context(), peerKey{}, peerInfo{uid: os.Geteuid()})
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://worker/v1/"+paths[int(path)%len(paths)], bytes.NewReader(body))
		w := httptest.NewRecorder()
		s.routes().ServeHTTP(w, r)
		if strings.Contains(log.String(), "panic") || strings.Contains(log.String(), "could not be encoded") {
			t.Fatalf("%s", log.String())
		}
		if w.Code == http.StatusOK {
			return
		}
		var e wireError
		if err := json.Unmarshal(w.Body.Bytes(), &e, json.RejectUnknownMembers(true)); err != nil || e.Code == "" || e.Code == "error" || e.Message == "" {
			t.Fatalf("status %d: %s: %v", w.Code, w.Body, err)
		}
		if len(body) > maxRequest && paths[int(path)%len(paths)] == "decide" && e.Code != "too-large" && e.Code != "not-understood" {
			t.Fatalf("%d bytes are %s", len(body), e.Code)
		}
	})
}

// FuzzErrorsTravel sends each of the errors that callers branch on, in any words: the client gets the same error, in words that are
// bounded, and a horizon's time is not turned into another. A journal that was closed is one of the reasons for ErrUnavailable there.
func FuzzErrorsTravel(f *testing.F) {
	f.Add(byte(0), "it waits", int64(1500))
	f.Fuzz(func(t *testing.T, which byte, text string, left int64) {
		c := codes[int(which)%len(codes)]
		err := error(&remoteError{message: text, is: c.err})
		if c.code == "before-horizon" {
			err = &journal.BeforeHorizonError{Receipt: "R", Left: time.Duration(left)}
		}
		out, status := toWire(err)
		if out.Code != c.code || status != c.status {
			t.Fatalf("%v travels as %s with %d", c.err, out.Code, status)
		}
		b, err := json.Marshal(out)
		if err != nil {
			t.Fatalf("%s in the words %q cannot be sent: %v", c.code, text, err)
		}
		var in wireError
		if err := json.Unmarshal(b, &in); err != nil {
			t.Fatal(err)
		}
		got := in.fromWire()
		if again, _ := toWire(got); again.Code != c.code || !errors.Is(got, c.err) && c.err != journal.ErrClosed || !utf8.ValidString(got.Error()) || len(got.Error()) > maxMessage+400 {
			t.Fatalf("%v arrived as %v", c.err, got)
		}
		var early *journal.BeforeHorizonError
		if errors.As(got, &early) && early.Left != time.Duration(left).Truncate(time.Millisecond) {
			t.Fatalf("%s are left, %s arrived", time.Duration(left), early.Left)
		}
	})
}

// FuzzAnswers reads what a worker may answer: an error in it is never taken for a result, whatever it says, and no time in it runs over.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{`{"code":"stale","message":"x"}`, `{"code":"before-horizon","left_ms":9223372036854775807}`, "{}", "null", `{"status":"applied"}`} {
		f.Add(409, []byte(s))
		f.Add(200, []byte(s))
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if status < 200 || status > 599 || status == 204 || status == 304 {
			return
		}
		c := &Client{Patience: time.Minute, dir: "dir", http: &http.Client{Transport: answering(func() (int, []byte) { return status, body })}}
		got, err := ask[receipt.Receipt](t.Context(), c, http.MethodPost, "decide", c.Patience, probeRequest{})
		if status != http.StatusOK && err == nil || err != nil && !reflect.DeepEqual(got, receipt.Receipt{}) {
			t.Fatalf("status %d, %s: %v with %+v", status, body, err, got)
		}
		var e wireError
		if json.Unmarshal(body, &e) != nil {
			if err == nil {
				return // a field of another type than an error has
			}
			if !errors.Is(err, ErrProtocol) {
				t.Fatalf("%s: %v, want ErrProtocol", body, err)
			}
			return
		}
		var early *journal.BeforeHorizonError
		if status != http.StatusOK && errors.As(err, &early) && (early.Left < 0) != (e.LeftMS < 0) {
			t.Fatalf("%d ms became %s", e.LeftMS, early.Left)
		}
	})
}

// answering is a worker behind no socket.
type answering func() (int, []byte)

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := a()
	w := httptest.NewRecorder()
	w.WriteHeader(status)
	_, _ = w.Write(body)
	res := w.Result()
	res.Request = r
	return res, nil
}
