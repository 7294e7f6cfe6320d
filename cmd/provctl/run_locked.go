package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"provctl/fence"
	"provctl/internal/choria"
	"provctl/internal/config"
	"provctl/internal/crashpoint"
	"provctl/internal/metrics"
	"provctl/internal/statuspage"
	"provctl/internal/wiring"
	"provctl/journal"
	"provctl/receipt"
	"provctl/worker"
)

// running is what a run is made of, between taking the lock and releasing it.
type running struct {
	cfg      *config.Config
	state    *condition
	log      *slog.Logger
	meter    *metrics.Metrics
	lock     *fence.Lock
	journal  *journal.Journal
	engine   *choria.Engine
	epoch    receipt.Epoch
	election *choria.Election // nil: there is none
	worker   *worker.Worker
}

// runLocked takes the lock, settles what the journal alone tells, and works until told to stop.
func runLocked(ctx context.Context, cfg *config.Config, choriaConfig, pidFile string, state *condition, log *slog.Logger) error {
	credentials, err := wiring.NewIdentities(cfg, time.Now())
	if err != nil {
		return err
	}
	r := &running{cfg: cfg, state: state, log: log}
	if r.lock, err = acquire(ctx, cfg); err != nil {
		return err
	}
	defer func() { _ = r.lock.Release() }()
	crashpoint.Here(crashpoint.LockTaken)
	// After the lock: a second worker is to hear of the first, not of its port.
	var stopMetrics func()
	if r.meter, stopMetrics, err = serveMetrics(cfg, log); err != nil {
		return err
	}
	defer stopMetrics()
	if err := writePID(pidFile); err != nil {
		return err
	}
	state.at("checking the journal")
	if err := journal.Room(cfg.StateDir); err != nil {
		return err
	}
	pace := statuspage.NewMeter(time.Now)
	r.journal, err = journal.Open(cfg.StateDir, journal.Options{
		Now: time.Now, Log: log, Verify: verifyInChild, Hold: holdAfterPass,
		Observe: func(c journal.CommitStats) {
			r.meter.Committed(c)
			pace.Observe(c)
		},
	})
	if err != nil {
		return err
	}
	defer func() { _ = r.journal.Close() }()
	if r.engine, err = r.newEngine(choriaConfig); err != nil {
		return err
	}
	defer r.engine.Close()
	state.at("settling what an earlier run left")
	if err := r.recover(ctx); err != nil {
		return err
	}
	r.hire(credentials)
	stopControl, err := serveControl(ctx, cfg, r.worker, log)
	if err != nil {
		return err
	}
	defer stopControl()
	stopStatus, err := serveStatus(ctx, cfg, statusSource{dir: cfg.StateDir, worker: r.worker, journal: r.journal, meter: pace}, log)
	if err != nil {
		return err
	}
	defer stopStatus()
	defer r.campaign()()
	return r.work(ctx)
}

func (r *running) newEngine(choriaConfig string) (*choria.Engine, error) {
	return newEngine(choria.Options{
		ConfigFile: choriaConfig, Password: r.cfg.BrokerProvisioningPassword.Reveal(), Insecure: r.cfg.ChoriaInsecure,
		TTL: r.cfg.EffectTTL, Skew: r.cfg.ClockSkew, Log: r.log, Now: time.Now, Meter: r.meter,
		OnLate: func(l choria.LateReply) {
			r.worker.OnLate(worker.Late{Request: l.Request, Node: l.Node, Reply: l.Reply, Second: l.Second, At: l.At})
		},
		OnTwin:      func(n receipt.NodeID) { r.worker.OnTwin(n) },
		OnEvent:     func(e choria.Event) { r.worker.OnEvent(worker.Happening{Node: e.Node, Seen: e.Seen, At: e.At}) },
		OnReconnect: func() { r.worker.OnReconnect() },
	})
}

// recover begins this worker's term and settles what an earlier one left, as far as the journal tells.
func (r *running) recover(ctx context.Context) (err error) {
	if r.epoch, err = r.journal.RaiseEpoch(); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.EpochRaised)
	r.engine.SetEpoch(r.epoch)
	recovery, err := r.journal.Recover(context.WithoutCancel(ctx), journal.RecoverPolicy{
		MaxRequeues: r.cfg.MaxRequeues, StaleAfter: 2 * r.cfg.Interval, Hold: holdAfterPass,
	})
	if err != nil {
		return err
	}
	crashpoint.Here(crashpoint.Recovered)
	logRecovery(r.log, recovery)
	return nil
}

// hire makes the worker, and the election if there is to be one.
func (r *running) hire(credentials wiring.Identities) {
	cfg, flow := r.cfg, wiring.FlowOf(r.cfg)
	o := worker.Options{
		Journal: r.journal, Credentials: credentials, Flow: flow, Token: cfg.Token.Reveal(), Meter: r.meter,
		Advisor: wiring.Advisor{Command: cfg.Helper, Timeout: cfg.HelperTimeout, Flow: flow, Log: r.log, Meter: r.meter},
		Lanes:   cfg.Workers, Interval: cfg.Interval, StopTimeout: cfg.StopTimeout, Hold: holdAfterPass, Horizon: cfg.EffectTTL + cfg.ClockSkew,
		Accepted: r.journal.Info().Accepted, Retention: cfg.HistoryRetention,
		MaxUnknown: cfg.MaxUnknown, AdviceTime: cfg.HelperTimeout, FleetBlocks: cfg.OnUnknown == config.BlockFleet, Manual: cfg.Evidence == config.EvidenceManual,
		Ours:      r.ours,
		Component: cfg.LifecycleComponent, Version: version, Epoch: r.epoch, Now: time.Now, Log: r.log,
	}
	if cfg.LeaderElection {
		r.election = choria.NewElection(choria.ElectionOptions{
			Engine: r.engine, Wait: cfg.EffectTTL + cfg.ClockSkew, Log: r.log, Now: time.Now,
			Changed: func(string) { r.worker.OnLeadership() },
		})
		o.Leadership = r.election
	}
	r.worker = worker.New(o)
	r.state.hire(r.worker)
	r.meter.Watch(stateOf(r.worker, r.journal))
}

// ours tells whether lock and journal are still this process's: one reason is enough, and an error is one line.
func (r *running) ours() error {
	if err := r.lock.Check(); err != nil {
		return err
	}
	return r.journal.Current()
}

// campaign runs the election, and returns how to end it: after the worker, so that nobody else leads while effects are in flight.
func (r *running) campaign() (end func()) {
	if r.election == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { r.election.Run(ctx) })
	return func() {
		cancel()
		wg.Wait()
	}
}

func (r *running) work(ctx context.Context) error {
	guard := fence.New(fence.Checks{
		Lock: r.lock, Journal: r.journal.Current, Revoked: r.journal.Revoked, Permit: r.worker.Permit, Now: time.Now, Epoch: r.epoch,
		MinLeft: r.cfg.ClockSkew + minTTL(r.cfg.EffectTTL),
	})
	r.log.Info("starting", "version", version, "state_dir", r.cfg.StateDir, "epoch", r.epoch, "lanes", r.cfg.Workers)
	net := wiring.Network{
		Engine: r.engine, Guard: guard, Token: r.cfg.Token.Reveal(), Version: version, Log: r.log, Refused: r.meter.Refused,
	}
	err := r.worker.Run(ctx, net)
	crashpoint.Here(crashpoint.Stopped)
	if errors.Is(err, worker.ErrDrained) {
		r.log.Info("drained", "epoch", r.epoch, "exit", exitDrained)
		return err
	}
	if err != nil {
		r.log.Error("giving up, nothing was sent after this", "error", err) // a logfile tells it too
		return fmt.Errorf("the worker gave up, nothing was sent after this: %w", err)
	}
	r.log.Info("stopped", "epoch", r.epoch)
	return nil
}

// minTTL is how much of a request's TTL must be left at its publish: a second, or a quarter of a short one.
func minTTL(ttl time.Duration) time.Duration { return min(time.Second, ttl/4) }

func logRecovery(log *slog.Logger, recovery journal.Recovery) {
	for _, item := range recovery.Items {
		args := []any{"did", item.Did.String(), "node", item.Job.Node, "job", item.Job.ID, "why", item.Why}
		if r := item.Receipt; r != nil {
			args = append(args, "receipt", r.ID, "request", r.Request, "action", r.Action, "hint", "provctl inspect "+string(r.ID))
		}
		log.Warn("recovered from an interrupted run", args...)
	}
}
