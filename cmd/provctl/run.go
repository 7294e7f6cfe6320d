package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	gochoria "github.com/choria-io/go-choria/choria"
	"github.com/urfave/cli/v2"

	"provctl/fence"
	"provctl/internal/choria"
	"provctl/internal/config"
	"provctl/internal/control"
	"provctl/internal/localfs"
	"provctl/internal/wiring"
	"provctl/journal"
	"provctl/worker"
)

// holdAfterPass is how long a node is left alone after a pass, as in the existing provisioner: it may be in its restart splay.
const holdAfterPass = time.Minute

func runCommand() *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "provision nodes until told to stop",
		UsageText: "provctl run --config FILE [--choria-config FILE]",
		Description: "Takes the lock on the state directory, settles what an earlier run left, then provisions. SIGTERM stops it in order:\n" +
			"no new work, effects in flight end or are recorded as unknown after stop_timeout.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "config", Usage: "the worker's `FILE` of settings (YAML)", Required: true},
			&cli.StringFlag{Name: "choria-config", Usage: "Choria client configuration `FILE`", Value: defaultChoriaConfig()},
			&cli.StringFlag{Name: "pid", Usage: "write the process id to `FILE`"},
			&cli.BoolFlag{Name: "debug", Usage: "log in detail"},
		},
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			return run(c.Context, c.String("config"), c.String("choria-config"), c.String("pid"), c.Bool("debug"))
		},
	}
}

// defaultChoriaConfig is what the existing provisioner takes when nothing is said.
func defaultChoriaConfig() string { return gochoria.UserConfig() }

func run(ctx context.Context, configFile, choriaConfig, pidFile string, debug bool) error {
	cfg, warnings, err := config.Load(configFile)
	for _, w := range warnings {
		fmt.Fprintln(os.Stderr, "warning: "+w.String())
	}
	if err != nil {
		return err
	}
	level := cfg.Loglevel
	if debug {
		level = slog.LevelDebug
	}
	log, closeLog, err := newLog(cfg.Logfile, level)
	if err != nil {
		return cfg.Refuse("logfile", err)
	}
	defer closeLog()
	slog.SetDefault(log)
	ctx, stop := stopOnSignal(ctx, log)
	defer stop()
	return runLocked(ctx, cfg, choriaConfig, pidFile, log)
}

// stopOnSignal ends the context at the first SIGTERM or SIGINT. Further ones are noted and change nothing: stopping already
// does the least that loses nothing.
func stopOnSignal(ctx context.Context, log *slog.Logger) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for s := range signals {
			if ctx.Err() == nil {
				log.Info("stopping", "signal", s.String())
			} else {
				log.Info("already stopping", "signal", s.String())
			}
			cancel()
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		cancel()
	}
}

// acquire takes the worker's lock. A state directory that is not there is a journal that is not there.
func acquire(cfg *config.Config) (*fence.Lock, error) {
	lock, err := fence.Acquire(cfg.StateDir)
	switch {
	case errors.Is(err, localfs.ErrNetwork):
		return nil, cfg.Refuse("state_dir", err)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: the state directory %s does not exist: mount or restore it; only if there never was one, run: provctl init --state-dir %s",
			journal.ErrMissing, cfg.StateDir, cfg.StateDir)
	}
	return lock, err
}

// writePID names the holder of the lock: a second worker, which is refused, must not overwrite it.
func writePID(file string) error {
	if file == "" {
		return nil
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		return fmt.Errorf("write the pid file: %w: name one in a directory that this user may write to with --pid", err)
	}
	return nil
}

// newEngine makes the connection's engine; a Choria configuration that cannot be used is a configuration error.
func newEngine(o choria.Options) (*choria.Engine, error) {
	engine, err := choria.New(o)
	if errors.Is(err, choria.ErrConfig) {
		text := strings.TrimPrefix(err.Error(), choria.ErrConfig.Error()+" "+o.ConfigFile+": ")
		return nil, &config.Invalid{Problems: []config.Problem{{
			File: o.ConfigFile, Text: "this Choria configuration cannot be used: " + text, Remedy: "correct it, or name another file with --choria-config",
		}}}
	}
	return engine, err
}

// runLocked is everything between taking the lock and releasing it.
func runLocked(ctx context.Context, cfg *config.Config, choriaConfig, pidFile string, log *slog.Logger) error {
	credentials, err := wiring.NewIdentities(cfg, time.Now())
	if err != nil {
		return err
	}
	lock, err := acquire(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release() }()
	// After the lock: a second worker is to hear of the first, not of its port.
	meter, stopMetrics, err := serveMetrics(cfg, log)
	if err != nil {
		return err
	}
	defer stopMetrics()
	if err := writePID(pidFile); err != nil {
		return err
	}
	j, err := journal.Open(cfg.StateDir, journal.Options{
		Now: time.Now, Log: log, Verify: verifyInChild, Hold: holdAfterPass, Observe: meter.Committed,
	})
	if err != nil {
		return err
	}
	defer func() { _ = j.Close() }()

	var w *worker.Worker
	engine, err := newEngine(choria.Options{
		ConfigFile: choriaConfig, Password: cfg.BrokerProvisioningPassword.Reveal(), Insecure: cfg.ChoriaInsecure,
		TTL: cfg.EffectTTL, Skew: cfg.ClockSkew, Log: log, Now: time.Now, Meter: meter,
		OnLate: func(l choria.LateReply) {
			w.OnLate(worker.Late{Request: l.Request, Node: l.Node, Reply: l.Reply, Second: l.Second, At: l.At})
		},
		OnEvent:     func(e choria.Event) { w.OnEvent(worker.Happening{Node: e.Node, Seen: e.Seen, At: e.At}) },
		OnReconnect: func() { w.OnReconnect() },
	})
	if err != nil {
		return err
	}
	defer engine.Close()

	epoch, err := j.RaiseEpoch()
	if err != nil {
		return err
	}
	engine.SetEpoch(epoch)
	recovery, err := j.Recover(context.WithoutCancel(ctx), journal.RecoverPolicy{
		MaxRequeues: cfg.MaxRequeues, StaleAfter: 2 * cfg.Interval, Hold: holdAfterPass,
	})
	if err != nil {
		return err
	}
	logRecovery(log, recovery)

	w = worker.New(worker.Options{
		Journal: j, Credentials: credentials, Token: cfg.Token.Reveal(), Meter: meter,
		Advisor: wiring.Advisor{Command: cfg.Helper, Timeout: cfg.HelperTimeout, Log: log, Meter: meter},
		Lanes:   cfg.Workers, Interval: cfg.Interval, StopTimeout: cfg.StopTimeout, Hold: holdAfterPass, Retention: cfg.HistoryRetention,
		MaxUnknown: cfg.MaxUnknown, FleetBlocks: cfg.OnUnknown == config.BlockFleet, Manual: cfg.Evidence == config.EvidenceManual,
		Component: cfg.LifecycleComponent, Version: version, Epoch: epoch, Now: time.Now, Log: log,
	})
	meter.Watch(stateOf(w, j))
	stopControl, err := control.Serve(ctx, cfg.StateDir, w, log)
	if err != nil {
		return err
	}
	defer stopControl()
	guard := fence.New(fence.Checks{
		Lock: lock, Journal: j.Current, Revoked: j.Revoked, Now: time.Now, Epoch: epoch,
		MinLeft: cfg.ClockSkew + minTTL(cfg.EffectTTL),
	})
	log.Info("starting", "version", version, "state_dir", cfg.StateDir, "epoch", epoch, "lanes", cfg.Workers)
	if err := w.Run(ctx, wiring.Network{Engine: engine, Guard: guard, Token: cfg.Token.Reveal(), Refused: meter.Refused}); err != nil {
		log.Error("giving up, nothing was sent after this", "error", err) // a logfile tells it too
		return fmt.Errorf("the worker gave up, nothing was sent after this: %w", err)
	}
	log.Info("stopped", "epoch", epoch)
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
