package statuspage

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"provctl/inspect"
)

// An answer is kept for so long, and for longer the more it cost: a report of thousands of receipts must not keep the worker busy.
const (
	freshFor    = time.Second
	freshAtMost = 30 * time.Second
	costShare   = 10 // a report takes at most one tenth of the time

	itemsAtOnce = 100
)

var errNoAnswer = errors.New("the worker did not answer in time")

// answer is one report, or why there is none.
type answer struct {
	report inspect.Report
	brief  *form // as the page polls it
	full   func() (*form, error)
	err    error
	until  time.Time // fresh until then
}

// form is a report as it is sent.
type form struct {
	body   []byte // gzip
	length int    // of the JSON
	etag   string
}

// shared asks for one answer at a time and shares it between all who want it while it is fresh.
type shared struct {
	now   func() time.Time
	fetch func() answer

	mu     sync.Mutex
	last   answer
	flight chan struct{} // closed when the answer being fetched is there; nil: none is
}

// get returns a fresh answer. It gives up with ctx; the fetch goes on for the others, and for the next one who asks.
func (s *shared) get(ctx context.Context) (answer, error) {
	s.mu.Lock()
	if s.flight == nil && s.now().Before(s.last.until) {
		defer s.mu.Unlock()
		return s.last, s.last.err
	}
	if s.flight == nil {
		s.flight = make(chan struct{})
		go s.fly(s.flight)
	}
	done := s.flight
	s.mu.Unlock()
	select {
	case <-done:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.last, s.last.err
	case <-ctx.Done():
		return answer{}, fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
	}
}

func (s *shared) fly(done chan struct{}) {
	began := s.now()
	a := s.fetch()
	end := s.now()
	a.until = end.Add(min(max(freshFor, costShare*end.Sub(began)), freshAtMost))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.flight = a, nil
	close(done)
}

// fetchReport asks the source and encodes what it says, once for all readers. The tag leaves out what only the clock changes: the
// page computes ages and what is left of a horizon itself.
func (h *handler) fetchReport() (a answer) {
	defer func() {
		if p := recover(); p != nil {
			a = answer{err: h.panicked("reading the worker's state", p)}
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), h.patience)
	defer cancel()
	r, err := h.src.Report(ctx)
	if err != nil {
		h.log.Warn("the status page has no report", "error", err)
		return answer{err: fmt.Errorf("reading the worker's state: %w", err)}
	}
	brief, err := encode(withoutDetails(r))
	return answer{report: r, brief: brief, err: err, full: sync.OnceValues(func() (*form, error) { return encode(r) })}
}

// withoutDetails leaves out of each item what is shown of few at a time, and is most of a long report.
func withoutDetails(r inspect.Report) inspect.Report {
	items := make([]inspect.Item, len(r.Items))
	for n, i := range r.Items {
		i.Evidence, i.Weights, i.Look, i.Commands, i.FirstLine = nil, nil, nil, nil, ""
		items[n] = i
	}
	r.Items = items
	return r
}

func encode(r inspect.Report) (*form, error) {
	var body bytes.Buffer
	if err := inspect.WriteJSON(&body, r); err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err == nil {
		_, err = z.Write(body.Bytes())
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("compress the report: %w", err)
	}
	tag := sha256.New()
	timeless(tag.Write, body.Bytes())
	return &form{body: packed.Bytes(), length: body.Len(), etag: fmt.Sprintf(`"%x"`, tag.Sum(nil)[:16])}, nil
}

// timeless hands on the report's lines without those that change with the clock alone. Each field has a line of its own, and a
// string cannot hold a line break, so no text from outside is taken for a field.
func timeless(write func([]byte) (int, error), body []byte) {
	for line := range bytes.Lines(body) {
		field := bytes.TrimLeft(line, " ")
		if bytes.HasPrefix(field, []byte(`"taken":`)) || bytes.HasPrefix(field, []byte(`"age_seconds":`)) || bytes.HasPrefix(field, []byte(`"horizon_left_seconds":`)) {
			continue
		}
		_, _ = write(line) // a hash takes all
	}
}

// current is the report as of now, or of a moment ago.
func (h *handler) current(r *http.Request) (answer, error) {
	ctx, cancel := context.WithTimeout(r.Context(), h.patience)
	defer cancel()
	return h.report.get(ctx)
}

// serveReport answers with the whole report, or with ?brief without what is shown of few items at a time.
func (h *handler) serveReport(w http.ResponseWriter, r *http.Request) {
	a, err := h.current(r)
	if err != nil {
		h.fail(w, status(err), err)
		return
	}
	f := a.brief
	if !r.URL.Query().Has("brief") {
		if f, err = a.full(); err != nil {
			h.fail(w, http.StatusInternalServerError, err)
			return
		}
	}
	head := w.Header()
	head.Set("Cache-Control", "no-cache")
	head.Set("ETag", f.etag)
	head.Set("Vary", "Accept-Encoding")
	if matches(r.Header.Get("If-None-Match"), f.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	head.Set("Content-Type", "application/json; charset=utf-8")
	if err := f.send(w, strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")); err != nil {
		h.log.Debug("a status page's reader left", "error", err)
	}
}

// send writes the report, unpacked for a reader that does not take gzip.
func (f *form) send(w http.ResponseWriter, packed bool) error {
	if packed {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Length", strconv.Itoa(len(f.body)))
		_, err := w.Write(f.body)
		return err
	}
	w.Header().Set("Content-Length", strconv.Itoa(f.length))
	z, err := gzip.NewReader(bytes.NewReader(f.body))
	if err != nil {
		return err
	}
	_, err = io.Copy(w, z)
	return err
}

// matches reports whether an If-None-Match header names the tag.
func matches(header, etag string) bool {
	for one := range strings.SplitSeq(header, ",") {
		if one = strings.TrimSpace(one); one == etag || one == "W/"+etag || one == "*" {
			return true
		}
	}
	return false
}

// serveItems answers with the open receipts that ?receipt= names, in full; one that is not open any more is left out.
func (h *handler) serveItems(w http.ResponseWriter, r *http.Request) {
	wanted := r.URL.Query()["receipt"]
	if len(wanted) == 0 || len(wanted) > itemsAtOnce {
		h.fail(w, http.StatusBadRequest, fmt.Errorf("items.json?receipt= wants 1 to %d receipts, not %d", itemsAtOnce, len(wanted)))
		return
	}
	a, err := h.current(r)
	if err != nil {
		h.fail(w, status(err), err)
		return
	}
	items := []inspect.Item{}
	for _, i := range a.report.Items {
		if slices.Contains(wanted, string(i.Receipt)) {
			items = append(items, i)
		}
	}
	h.serveJSON(w, struct {
		Items []inspect.Item `json:"items"`
	}{items})
}
