package control

import (
	"context"
	"net/http"
)

// Draining is what a worker says that ends the work at hand.
type Draining struct {
	PID  int `json:"pid"`
	Busy int `json:"busy"` // nodes whose job is at work
}

type drainRequest struct {
	Operator string `json:"operator,omitempty"`
}

func (s *server) drain(r *http.Request, uid int) (any, error) {
	var in drainRequest
	if err := read(r, &in); err != nil {
		return nil, err
	}
	by, err := NameOf(uid, in.Operator)
	if err != nil {
		return nil, err
	}
	return s.w.Drain(by), nil
}

// Drain has the worker take no new work, end what is at work, and exit. Who asks is logged. It does not wait, and asking again is safe.
func (c *Client) Drain(ctx context.Context, operator string) (Draining, error) {
	return ask[Draining](ctx, c, http.MethodPost, "drain", c.Patience, drainRequest{Operator: operator})
}
