package main

import (
	"context"
	"log/slog"
	"time"

	"provctl/inspect"
	"provctl/internal/config"
	"provctl/internal/statuspage"
	"provctl/journal"
	"provctl/receipt"
	"provctl/worker"
)

// statusSource is what the status page shows of this process.
type statusSource struct {
	dir     string
	worker  *worker.Worker
	journal *journal.Journal
	meter   *statuspage.Meter
}

// Report implements statuspage.Source.
func (s statusSource) Report(context.Context) (inspect.Report, error) {
	snapshot, err := s.journal.Snapshot()
	if err != nil {
		return inspect.Report{}, err
	}
	live := s.worker.Live()
	return inspect.Build(inspect.View{Source: inspect.FromWorker, Live: &live, Snapshot: snapshot}, s.dir), nil
}

// Timeline implements statuspage.Source.
func (s statusSource) Timeline(_ context.Context, node receipt.NodeID) (inspect.Timeline, error) {
	story, err := s.journal.Story(node)
	if err != nil {
		return inspect.Timeline{}, err
	}
	return inspect.MakeTimeline(story, node, inspect.FromWorker, time.Now(), s.dir), nil
}

// Samples implements statuspage.Source.
func (s statusSource) Samples() []statuspage.Sample { return s.meter.Samples() }

// serveStatus serves the status page if the configuration names a port.
func serveStatus(ctx context.Context, cfg *config.Config, s statusSource, log *slog.Logger) (stop func(), err error) {
	if cfg.StatusPort == 0 {
		return func() {}, nil
	}
	return statuspage.Serve(context.WithoutCancel(ctx), cfg.StatusPort, statuspage.Handler(s, statuspage.Options{Log: log}), log)
}
