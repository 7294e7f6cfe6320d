package wiring

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"provctl/internal/helper"
	"provctl/receipt"
	"provctl/sequence"
)

// Advisor runs the site's helper; it implements sequence.Advisor.
type Advisor struct {
	Command string // as the configuration has it
	Timeout time.Duration
	Flow    sequence.Flow // what of a reply may be used
	Log     *slog.Logger
	Meter   HelperMeter // nil: nobody is told
}

// HelperMeter is told of each run of the helper. It is called by several goroutines at a time and must not block.
type HelperMeter interface {
	// Helped tells how a run ended. One that the worker itself ended, because it stops, is not told.
	Helped(took time.Duration, shutdown bool, err error)
}

// Ask runs the helper once. Job and claim are in its environment, so that it can tell a second run for the same job.
func (a Advisor) Ask(ctx context.Context, job receipt.Job, in helper.Input) (*helper.Reply, error) {
	begun := time.Now()
	reply, err := helper.Run(ctx, helper.Options{
		Command: a.Command, Timeout: a.Timeout, Log: a.Log, PKI: a.Flow.PKI, Upgrades: a.Flow.Upgrades,
		Env: []string{"PROVCTL_JOB=" + string(job.ID), fmt.Sprintf("PROVCTL_CLAIM=%d", job.Claims)},
	}, in)
	if a.Meter != nil && ctx.Err() == nil {
		a.Meter.Helped(time.Since(begun), err == nil && reply.Decision() == helper.Shutdown, err)
	}
	return reply, err
}
