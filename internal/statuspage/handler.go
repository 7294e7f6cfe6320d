package statuspage

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"time"

	"provctl/inspect"
	"provctl/receipt"
)

// Prefix is the path under which the handler expects its requests. The page itself names everything relative to it.
const Prefix = "/status/"

// Source is what the page shows. Its methods may be called at any time and by several goroutines at once; they should return by the
// end of their context. A panic becomes an error that the reader sees.
type Source interface {
	// Report is one consistent moment, as inspect.Build makes it. It is not called again before it returned.
	Report(ctx context.Context) (inspect.Report, error)
	// Timeline is what the journal keeps of a node. journal.ErrNotFound: it knows no such node.
	Timeline(ctx context.Context, node receipt.NodeID) (inspect.Timeline, error)
	// Samples are those of a Meter, oldest first.
	Samples() []Sample
}

// Options are what a handler needs besides its source. The zero value works.
type Options struct {
	Log      *slog.Logger     // nil: nothing is logged
	Now      func() time.Time // nil: time.Now
	Patience time.Duration    // how long a reader waits for the source; 0: 10 s
}

// Bounds of what readers can ask of the worker.
const (
	defaultPatience = 10 * time.Second
	requestsAtOnce  = 32 // beyond that a request is refused: each may hold one answer in memory
	timelinesAtOnce = 2
)

//go:embed assets
var embedded embed.FS

type handler struct {
	src       Source
	log       *slog.Logger
	patience  time.Duration
	report    *shared
	timelines chan struct{} // one token for each timeline that the source may be asked for
}

// Handler serves the page, its assets and its JSON under Prefix, to GET and HEAD requests from this host alone: docs/status-page.md.
// Errors are JSON with a text; a request from elsewhere is refused in plain text.
func Handler(src Source, o Options) http.Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Patience <= 0 {
		o.Patience = defaultPatience
	}
	h := &handler{src: src, log: o.Log, patience: o.Patience, timelines: make(chan struct{}, timelinesAtOnce)}
	h.report = &shared{now: o.Now, fetch: h.fetchReport}

	assets, err := fs.Sub(embedded, "assets")
	if err != nil {
		panic(err) // the name is embed's own
	}
	files := http.FileServerFS(assets)
	mux := http.NewServeMux()
	mux.HandleFunc(Prefix+"report.json", h.serveReport)
	mux.HandleFunc(Prefix+"items.json", h.serveItems)
	mux.HandleFunc(Prefix+"timeline.json", h.serveTimeline)
	mux.HandleFunc(Prefix+"samples.json", h.serveSamples)
	mux.Handle(Prefix+"{$}", http.StripPrefix(Prefix, files))
	for _, name := range assetNames(assets) {
		mux.Handle(Prefix+name, http.StripPrefix(Prefix, files))
	}
	home := http.RedirectHandler(Prefix, http.StatusFound)
	mux.Handle("/{$}", home)
	mux.Handle("/status", home)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		h.fail(w, http.StatusNotFound, fmt.Errorf("nothing is at %.80q: the page is at %s", r.URL.Path, Prefix))
	})
	return h.guarded(mux)
}

// assetNames are the files that the page consists of. Its directory has no listing, and nothing else is served.
func assetNames(assets fs.FS) (names []string) {
	_ = fs.WalkDir(assets, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && name != "index.html" {
			names = append(names, name)
		}
		return err
	})
	return names
}

// serveJSON writes a value that is small. One that cannot be encoded is an error, not half an answer.
func (h *handler) serveJSON(w http.ResponseWriter, v any) {
	var body bytes.Buffer
	if err := inspect.WriteJSON(&body, v); err != nil {
		h.fail(w, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	if _, err := w.Write(body.Bytes()); err != nil {
		h.log.Debug("a status page's reader left", "error", err)
	}
}

// fail says what is wrong and what to do. The text may quote what came from outside: it travels as JSON.
func (h *handler) fail(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Del("ETag")
	w.WriteHeader(code)
	_ = inspect.WriteJSON(w, struct {
		Error string `json:"error"`
	}{inspect.Printable(err.Error())})
}

// plain refuses a request that may not come from this host's reader at all.
func plain(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text+"\n")
}
