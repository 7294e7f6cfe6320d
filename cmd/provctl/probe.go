package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/urfave/cli/v2"

	"provctl/inspect"
	"provctl/internal/choria"
	"provctl/internal/config"
	"provctl/internal/control"
	"provctl/journal"
	"provctl/receipt"
)

// probeTime is how long a probe without a worker may take: reaching the broker, and asking node and broker once.
const probeTime = 30 * time.Second

// probe has somebody look again at the one open receipt that a name means, before it is shown: the running worker, which keeps what it
// learns and settles; or, without one, this process, whose evidence is returned and kept nowhere.
func probe(ctx context.Context, c *cli.Context, dir, name string) (inspect.Probe, error) {
	w, err := control.Dial(dir)
	if errors.Is(err, control.ErrNoWorker) {
		return probeAlone(ctx, c, dir, name)
	}
	if err != nil {
		return inspect.Probe{}, err
	}
	s, err := w.Snapshot(ctx)
	if err != nil {
		return inspect.Probe{}, err
	}
	r, err := probed(s, dir, name)
	if err == nil {
		_, err = w.Probe(ctx, r.ID)
	}
	return inspect.Probe{}, err
}

// probed is the one open receipt that a name means.
func probed(s journal.Snapshot, dir, name string) (receipt.Receipt, error) {
	hits := inspect.Build(inspect.View{Snapshot: s}, dir).Only(name).Items
	if len(hits) != 1 {
		return receipt.Receipt{}, usagef("--probe needs one open receipt, %q names %d; 'provctl inspect' lists them", name, len(hits))
	}
	for _, r := range s.Open {
		if r.ID == hits[0].Receipt {
			return r, nil
		}
	}
	return receipt.Receipt{}, fmt.Errorf("receipt %s: %w", hits[0].Receipt, journal.ErrNotFound)
}

// probeAlone asks node and broker with the worker's configuration. It takes no lock and writes nothing.
func probeAlone(ctx context.Context, c *cli.Context, dir, name string) (inspect.Probe, error) {
	if c.String("config") == "" {
		return inspect.Probe{}, usagef("no worker runs that could be asked: give its configuration with --config and --choria-config, and this command asks node and broker itself")
	}
	cfg, _, err := config.Load(c.String("config"))
	if err != nil {
		return inspect.Probe{}, err
	}
	s, err := journal.Read(dir)
	if err != nil {
		return inspect.Probe{}, err
	}
	r, err := probed(s, dir, name)
	if err != nil {
		return inspect.Probe{}, err
	}
	engine, err := newEngine(choria.Options{
		ConfigFile: c.String("choria-config"), Password: cfg.BrokerProvisioningPassword.Reveal(), Insecure: cfg.ChoriaInsecure,
		TTL: cfg.EffectTTL, Skew: cfg.ClockSkew, Epoch: s.Info.Epoch, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return inspect.Probe{}, err
	}
	defer engine.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, probeTime, fmt.Errorf("the broker was not reached within %s", probeTime))
	defer cancel()
	if err := engine.Connect(ctx); err != nil {
		return inspect.Probe{}, fmt.Errorf("--probe: %w: %w; without it: provctl inspect shows what the journal knows", err, context.Cause(ctx))
	}
	return askBoth(ctx, engine, r), nil
}

// askBoth asks the node who it is and the broker for its connections. What does not answer is no evidence, but worth saying.
func askBoth(ctx context.Context, engine *choria.Engine, r receipt.Receipt) inspect.Probe {
	out := inspect.Probe{Receipt: r.ID}
	asked := time.Now().UTC()
	if stats, err := engine.Stats(ctx, r.Node); err != nil {
		out.Missing = append(out.Missing, fmt.Sprintf("the node's daemon_stats: %v", err))
	} else {
		out.Evidence = append(out.Evidence, receipt.Evidence{Kind: receipt.SawStats, Source: "node", At: asked, Stats: &stats})
	}
	asked = time.Now().UTC()
	if conns, err := engine.Connections(ctx, r.Node, r.RequestTime); err != nil {
		out.Missing = append(out.Missing, fmt.Sprintf("the broker's connection list: %v", err))
	} else {
		out.Evidence = append(out.Evidence, receipt.Evidence{Kind: receipt.SawConnections, Source: "broker", At: asked, Connections: &conns})
	}
	return out
}
