package main

import (
	"cmp"
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

	"provctl/doctor"
	"provctl/fence"
	"provctl/internal/choria"
	"provctl/internal/config"
	"provctl/internal/control"
	"provctl/internal/localfs"
	"provctl/internal/service"
	"provctl/journal"
)

// holdAfterPass is how long a node is left alone after a pass, as in the existing provisioner: it may be in its restart splay.
const holdAfterPass = time.Minute

func runCommand() *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "provision nodes until told to stop",
		UsageText: "provctl run --config FILE [--choria-config FILE]",
		Description: "Takes the lock on the state directory, settles what an earlier run left, then provisions. SIGTERM stops it in order:\n" +
			"no new work, effects in flight end or are recorded as unknown after stop_timeout. It tells systemd, if that started it, when\n" +
			"it is ready, what it is at, and that it makes progress. After provctl drain it exits with 75. SIGHUP opens its logfile again.",
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
	if err := keepSecretsInMemory(); err != nil {
		return err
	}
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
	log, logTo, err := newLog(cfg.Logfile, level)
	if err != nil {
		return cfg.Refuse("logfile", err)
	}
	defer logTo.Close()
	slog.SetDefault(log)
	if found, remedy := doctor.ClockWarning(doctor.KernelClock); found != "" {
		log.Warn(found, "hint", remedy)
	}
	ctx, stop := stopOnSignal(ctx, log, logTo)
	defer stop()
	state := newCondition()
	manager, err := service.Connect(cfg.StopTimeout, state.report, log)
	if err != nil {
		return err
	}
	defer manager.Attend(ctx.Done())()
	return runLocked(ctx, cfg, choriaConfig, pidFile, state, log)
}

// stopOnSignal ends the context at the first SIGTERM or SIGINT. Further ones are noted and change nothing: stopping already
// does the least that loses nothing. SIGHUP opens the logfile again, and is no reason to end: a terminal that closes, or a rotation
// without a logfile, would leave effects unknown.
func stopOnSignal(ctx context.Context, log *slog.Logger, logTo *logFile) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	go func() {
		for s := range signals {
			if s == syscall.SIGHUP {
				if err := logTo.Reopen(); err != nil {
					log.Error("going on with the log as it was", "signal", s.String(), "error", err)
				} else {
					log.Info("the log goes on", "signal", s.String(), "logfile", cmp.Or(logTo.path, "none: standard error"))
				}
				continue
			}
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

// A lock that no worker has is a command's, which gives it back when it has recorded what it was told.
const (
	lockTries = 30
	lockAgain = 100 * time.Millisecond
)

// acquire takes the worker's lock: at once, unless a command holds it for a moment. Exit code 5 is for good under a service manager, which must
// not be lost to a verdict that is just being given.
func acquire(ctx context.Context, cfg *config.Config) (*fence.Lock, error) {
	lock, err := acquireDir(cfg.StateDir)
	for n := 0; n < lockTries && errors.Is(err, fence.ErrHeld); n++ {
		if _, none := control.Dial(cfg.StateDir); !errors.Is(none, control.ErrNoWorker) {
			break
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(lockAgain):
		}
		lock, err = acquireDir(cfg.StateDir)
	}
	if errors.Is(err, localfs.ErrNetwork) {
		return nil, cfg.Refuse("state_dir", err)
	}
	return lock, err
}

// acquireDir takes the lock of a state directory. One that is not there is a journal that is not there.
func acquireDir(dir string) (*fence.Lock, error) {
	lock, err := fence.Acquire(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the state directory %s does not exist: mount or restore it; only if there never was one, run: provctl init --state-dir %s",
			journal.ErrMissing, dir, dir)
	}
	return lock, err
}

// writePID names the holder of the lock: a second worker, which is refused, must not overwrite it.
func writePID(file string) error {
	if file == "" {
		return nil
	}
	f, err := openOwn(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err == nil {
		_, err = f.WriteString(strconv.Itoa(os.Getpid()))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
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
