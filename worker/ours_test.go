package worker

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"provctl/internal/helper"
	"provctl/receipt"
)

// TestWorkerThatWasReplacedGivesUp takes the lock away in mid-pass: the worker asks its node nothing more and ends, though no effect is
// due that the fence would refuse.
func TestWorkerThatWasReplacedGivesUp(t *testing.T) {
	r, net := newRig(t), newFakeNet("n")
	var lost atomic.Bool
	w, _ := r.life(func(o *Options) {
		o.Interval = time.Second
		o.Ours = func() error {
			if lost.Load() {
				return fmt.Errorf("%w: the lock was replaced", receipt.ErrFenced)
			}
			return nil
		}
		o.Advisor = fakeAdvisor(func() (*helper.Reply, error) {
			lost.Store(true)
			return helper.Decode([]byte(`{"defer":true}`)) // no effect comes after it
		})
	})
	ended := make(chan error, 1)
	go func() { ended <- w.Run(r.ctx, net) }()
	select {
	case err := <-ended:
		if !errors.Is(err, receipt.ErrFenced) {
			t.Errorf("it ended with %v", err)
		}
	case <-r.ctx.Done():
		t.Fatal("it goes on")
	}
}
