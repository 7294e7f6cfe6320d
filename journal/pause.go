package journal

import (
	"context"
	"fmt"
	"strings"
	"time"

	"provctl/receipt"
)

// Pause says who has the worker begin nothing, since when and why. It outlives the worker.
type Pause struct {
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"` // wall clock
}

// SetPause records that no effect and no helper may be begun until Resume. Pausing what is paused keeps the first pause. It returns the
// pause that holds. Durable when it returns without an error.
func (j *Journal) SetPause(ctx context.Context, by, reason string) (Pause, error) {
	if strings.TrimSpace(by) == "" || strings.TrimSpace(reason) == "" {
		return Pause{}, fmt.Errorf("pause: %w: a name and a reason are needed", receipt.ErrInvalid)
	}
	var p Pause
	err := j.do(ctx, func(s *stage) error {
		if s.meta.Pause == nil {
			s.next()
			s.meta.Pause = &Pause{By: clip(by), Reason: clip(reason), At: s.now}
			if err := s.enter(Act{Did: DidPause, By: by, Reason: reason}); err != nil {
				return err
			}
		}
		p = *s.meta.Pause
		return s.saveMeta(s.meta)
	})
	if err != nil {
		return Pause{}, fmt.Errorf("pause: %w", err)
	}
	return p, nil
}

// Resume ends a pause and returns it; nil if nothing was paused. Durable when it returns without an error.
func (j *Journal) Resume(ctx context.Context, by string) (*Pause, error) {
	if strings.TrimSpace(by) == "" {
		return nil, fmt.Errorf("resume: %w: a name is needed", receipt.ErrInvalid)
	}
	var was *Pause
	err := j.do(ctx, func(s *stage) error {
		if was = s.meta.Pause; was != nil {
			s.next()
			s.meta.Pause = nil
			if err := s.enter(Act{Did: DidResume, By: by, Result: fmt.Sprintf("was paused by %s since %s: %s", was.By, was.At.UTC().Format(time.RFC3339), was.Reason)}); err != nil {
				return err
			}
		}
		return s.saveMeta(s.meta)
	})
	if err != nil {
		return nil, fmt.Errorf("resume: %w", err)
	}
	return was, nil
}
