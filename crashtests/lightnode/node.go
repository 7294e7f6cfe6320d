package lightnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/choria-io/go-choria/choria"
	"github.com/choria-io/go-choria/config"

	"provctl/internal/fleet"
)

// collective is that of servers in provisioning mode (choria/framework.go:264).
const collective = "provisioning"

// node is one light node through all its lives.
type node struct {
	all   *Nodes
	name  string
	dir   string
	index int
	guest fleet.Guest
	fw    *choria.Framework

	// turnover makes the end of one life and the beginning of the next one step.
	turnover sync.Mutex
	link     *link
	life     *life
	pid      int
}

// newNode writes a node's files and sets go-choria up for it, without connecting.
func (n *Nodes) newNode(name string, i int) (*node, error) {
	d := &node{all: n, name: name, dir: n.Dir(name), index: i}
	var err error
	if d.guest, err = n.opts.Broker.AddGuest(d.dir, name, i, n.opts.Upgradable); err != nil {
		return nil, err
	}
	if n.opts.Upgradable && d.guest.Executable == "" {
		return nil, fmt.Errorf("%w: Upgradable needs a fleet with versions", ErrOptions)
	}
	cfg, err := config.NewSystemConfig(d.guest.Identity, true)
	if err != nil {
		return nil, fmt.Errorf("light node %s: %w", name, err)
	}
	d.configure(cfg)
	if d.fw, err = choria.NewWithConfig(cfg); err != nil {
		return nil, fmt.Errorf("light node %s: setting up go-choria: %w", name, err)
	}
	return d, nil
}

// configure is what a server sets in provisioning mode (choria/framework.go:255, cmd/server_run.go), in its own configuration
// alone: what go-choria keeps once per process stays as it is.
func (d *node) configure(cfg *config.Config) {
	cfg.ConfigFile = d.guest.Config
	cfg.CustomLogger = d.all.log
	cfg.DisableSecurityProviderVerify = true
	cfg.RPCAuthorization = false
	cfg.Collectives, cfg.MainCollective = []string{collective}, collective
	cfg.Registration = nil
	cfg.FactSourceFile = d.guest.Facts
	cfg.Choria.FederationCollectives = nil
	cfg.Choria.ProvisionAllowUpdate = d.all.opts.Upgradable
	cfg.Choria.SSLDir = filepath.Join(d.dir, "ssl")
	cfg.Choria.SecurityProvider = "file"
	if !d.guest.X509 {
		cfg.Choria.SecurityProvider = "choria"
		cfg.Choria.ChoriaSecurityTokenFile = d.guest.TokenFile
		cfg.Choria.ChoriaSecuritySignReplies = false
	}
}

// reset makes the node fresh and boots it. A connection that stands is kept.
func (d *node) reset(ctx context.Context) error {
	d.turnover.Lock()
	defer d.turnover.Unlock()
	d.end(true)
	for _, path := range []string{d.guest.Config, "server.seed", "server.jwt", "ssl", "policies"} {
		if !filepath.IsAbs(path) {
			path = filepath.Join(d.dir, path)
		}
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("resetting light node %s: %w", d.name, err)
		}
	}
	if err := fleet.RemoveEffectLog(d.dir); err != nil {
		return fmt.Errorf("resetting light node %s: %w", d.name, err)
	}
	if d.guest.Executable != "" {
		var err error
		if d.guest, err = d.all.opts.Broker.AddGuest(d.dir, d.name, d.index, d.all.opts.Upgradable); err != nil {
			return err
		}
	}
	d.all.update(func() { d.all.state[d.name] = blank(d.name) })
	d.life, d.pid = nil, firstPID+d.index
	return d.boot(ctx)
}

// Process ids are made up: a real node has its own, and it changes when the process does.
const (
	firstPID = 100_000
	pidStep  = 10_000
)

// start boots a node that is down as a new process.
func (d *node) start(ctx context.Context) error {
	d.turnover.Lock()
	defer d.turnover.Unlock()
	if d.life.running() {
		return fmt.Errorf("%w: %s", ErrRunning, d.name)
	}
	d.pid += pidStep
	return d.boot(ctx)
}

// boot begins the next life; turnover is held. Its start is the present second, or the one after that of the life before:
// incarnations are told apart by whole seconds, which nobody has to wait for here.
func (d *node) boot(ctx context.Context) error {
	start, boots := time.Now(), 1
	if d.life != nil {
		boots = d.life.boot + 1
		if next := d.life.start.Truncate(time.Second).Add(time.Second); start.Before(next) {
			start = next
		}
	}
	l, err := d.newLife(start, boots)
	if err == nil {
		d.life = l
		err = l.begin(ctx)
	}
	if err != nil {
		return fmt.Errorf("booting light node %s: %w", d.name, err)
	}
	return nil
}

// restart gives the node its next life in the same process, unless that one is over already. The error is that of a life that
// cannot begin.
func (d *node) restart(l *life) error {
	d.turnover.Lock()
	defer d.turnover.Unlock()
	if d.life != l || !l.running() {
		return nil
	}
	d.end(false)
	// The broker may be away: a server waits for it until it is stopped.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	return d.boot(ctx)
}

// kill ends a life, the present one if l is nil, and tells whether it ran.
func (d *node) kill(exit string, l *life) bool {
	d.turnover.Lock()
	defer d.turnover.Unlock()
	if !d.life.running() || l != nil && l != d.life {
		return false
	}
	d.end(false)
	d.all.update(func() { d.all.state[d.name].Exit = exit })
	return true
}

func (d *node) stop() {
	d.turnover.Lock()
	defer d.turnover.Unlock()
	d.end(false)
}

// end ends the present life, if there is one, and returns when no action of it writes any more.
func (d *node) end(keepLink bool) {
	if d.life.running() {
		d.life.end()
		d.all.update(func() {
			s := d.all.state[d.name]
			s.Alive, s.Joined, s.Connected = false, false, false
		})
	}
	if d.link != nil && (!keepLink || !d.link.conn.IsConnected()) {
		d.link.close()
		d.link = nil
	}
}

// connect gives the node its connection to the broker, asking again while the broker is away.
func (d *node) connect(ctx context.Context) error {
	if d.link != nil {
		return nil
	}
	for {
		l, err := d.dial()
		if err == nil {
			d.link = l
			return nil
		}
		t := time.NewTimer(reconnectWait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return errors.Join(ctx.Err(), err)
		}
		if d.all.isClosed() {
			return fleet.ErrClosed
		}
	}
}

func (n *Nodes) isClosed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.closed
}
