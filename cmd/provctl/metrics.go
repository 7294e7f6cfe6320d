package main

import (
	"log/slog"

	"provctl/internal/config"
	"provctl/internal/metrics"
	"provctl/journal"
	"provctl/worker"
)

// serveMetrics makes the worker's metrics and, if the configuration names a port, serves them.
func serveMetrics(cfg *config.Config, log *slog.Logger) (*metrics.Metrics, func(), error) {
	m := metrics.New(cfg.Site)
	if cfg.MonitorPort == 0 {
		return m, func() {}, nil
	}
	stop, err := m.Serve(cfg.MonitorPort, log)
	return m, stop, err
}

// stateOf reads what metrics show of a worker.
func stateOf(w *worker.Worker, j *journal.Journal) metrics.Source {
	return func() (metrics.State, error) {
		open, err := j.OpenReceipts()
		if err != nil {
			return metrics.State{}, err
		}
		live := w.Live()
		return metrics.State{
			Epoch: live.Epoch, Busy: live.Busy, Queued: live.Queue, Parked: live.Parked, Requeues: j.Tally().Requeues, Open: open,
			Paused: w.Permit() != nil, Leading: live.Standby == "", Connected: live.Connected,
		}, nil
	}
}
