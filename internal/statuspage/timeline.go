package statuspage

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"provctl/inspect"
	"provctl/journal"
	"provctl/receipt"
)

// serveTimeline answers for one node. The source is asked for few at a time; who comes later waits.
func (h *handler) serveTimeline(w http.ResponseWriter, r *http.Request) {
	node, err := receipt.ParseNodeID(r.URL.Query().Get("node"))
	if err != nil {
		h.fail(w, http.StatusBadRequest, fmt.Errorf("timeline.json?node=: %w", err))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.patience)
	defer cancel()
	t, err := h.timeline(ctx, node)
	if err != nil {
		h.fail(w, status(err), err)
		return
	}
	h.serveJSON(w, t)
}

func (h *handler) timeline(ctx context.Context, node receipt.NodeID) (inspect.Timeline, error) {
	select {
	case h.timelines <- struct{}{}:
	case <-ctx.Done():
		return inspect.Timeline{}, fmt.Errorf("%w: other timelines are being read: %w", errNoAnswer, ctx.Err())
	}
	type result struct {
		inspect.Timeline
		error
	}
	got := make(chan result, 1)
	go func() {
		defer func() { <-h.timelines }()
		defer func() {
			if p := recover(); p != nil {
				got <- result{error: h.panicked("reading a node's timeline", p)}
			}
		}()
		t, err := h.src.Timeline(ctx, node)
		if err != nil {
			err = fmt.Errorf("timeline of %s: %w", node, err)
		}
		got <- result{t, err}
	}()
	select {
	case r := <-got:
		return r.Timeline, r.error
	case <-ctx.Done(): // a source that ignores its context keeps its token until it returns
		return inspect.Timeline{}, fmt.Errorf("%w: timeline of %s: %w", errNoAnswer, node, ctx.Err())
	}
}

// status is the code of an error from the source.
func status(err error) int {
	switch {
	case errors.Is(err, journal.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, errNoAnswer), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}
