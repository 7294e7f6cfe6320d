package lightnode

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/choria-io/go-choria/choria"
	"github.com/choria-io/go-choria/inter"
	"github.com/choria-io/go-choria/lifecycle"
	"github.com/choria-io/go-choria/providers/agent/mcorpc/golang/discovery"
	"github.com/choria-io/go-choria/providers/agent/mcorpc/golang/rpcutil"
	"github.com/choria-io/go-choria/server"
	"github.com/choria-io/go-choria/server/agents"
	serverdiscovery "github.com/choria-io/go-choria/server/discovery"

	"provctl/internal/fleet"
)

// errOver is for what a life tries after its end.
var errOver = errors.New("the node's life is over")

// life is one server instance of a node: what a real one keeps in memory.
type life struct {
	node    *node
	pid     int
	boot    int
	start   time.Time
	born    time.Time // requests made before are not for this life's node, if it is the first
	mode    fleet.Mode
	version string
	ctx     context.Context
	cancel  context.CancelFunc
	link    *link
	agents  *agents.Manager
	filter  *serverdiscovery.Manager
	counts  counts

	// turn is the action mutex; after an accepted restart or shutdown it is never given back.
	turn chan struct{}
	// acting is held while an action touches files, and by end.
	acting sync.Mutex
	owner  owner
	ecdh   []byte // private key of the last jwt
	// leaves is set by the restart or shutdown that was accepted, parting is the request that brought it, and dealt gets a
	// word when the reply to it has left or never will.
	leaves  atomic.Bool
	parting atomic.Pointer[string]
	dealt   chan struct{}

	mu   sync.Mutex // guards log and over
	log  *fleet.EffectLog
	over bool
}

// running is false for no life, and for one that is over.
func (l *life) running() bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.over
}

func (d *node) newLife(start time.Time, boot int) (*life, error) {
	l := &life{
		node: d, pid: d.pid, boot: boot, start: start, born: time.Now(), version: d.fw.BuildInfo().Version(),
		turn: make(chan struct{}, 1), dealt: make(chan struct{}, 1),
	}
	var err error
	if d.guest.Executable != "" {
		if l.version, err = fleet.VersionOf(d.guest.Executable); err != nil {
			return nil, err
		}
	}
	if l.mode, err = fleet.BootMode(d.guest.Config); err != nil {
		return nil, err
	}
	if l.log, err = fleet.OpenEffectLog(d.dir); err != nil {
		return nil, err
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l, nil
}

// begin runs the life: with a provisioned configuration it only says so, else it connects, subscribes, announces itself and
// takes requests. The node's turnover is held.
func (l *life) begin(ctx context.Context) error {
	if err := l.append(l.entry(fleet.PhaseBoot)); err != nil {
		return err
	}
	l.update(func() {
		s := l.state()
		s.Alive, s.Exit, s.Mode, s.PID, s.Boots, s.Version, s.Start = true, "", l.mode, l.pid, l.boot, l.version, l.start
	})
	if l.mode == fleet.Provisioned {
		if err := l.append(l.entry(fleet.PhaseJoined)); err != nil {
			return err
		}
		l.update(func() { l.state().Joined = true })
		if l.node.link != nil {
			l.node.link.close()
			l.node.link = nil
		}
		return nil
	}
	if err := l.node.connect(ctx); err != nil {
		return err
	}
	l.link = l.node.link
	if err := l.subscribe(); err != nil {
		return err
	}
	if err := l.event(lifecycle.Startup); err != nil {
		return err
	}
	if err := l.append(l.entry(fleet.PhaseJoined)); err != nil {
		return err
	}
	l.link.life.Store(l)
	if err := l.link.conn.FlushTimeout(flushTimeout); err != nil {
		return fmt.Errorf("subscribing: %w", err)
	}
	l.update(func() { l.state().Joined, l.state().Connected = true, true })
	return nil
}

// subscribe registers the agents, which subscribes to their broadcasts, and subscribes to the node's own subject
// (server/connection.go:69).
func (l *life) subscribe() error {
	logger := l.node.fw.Logger("lightnode").WithField("identity", l.node.name)
	l.filter = serverdiscovery.New(l.node.fw.Configuration(), l, logger)
	l.agents = agents.New(nil, l.node.fw, l.link, l, logger)
	util, err := rpcutil.New(l.agents)
	if err != nil {
		return fmt.Errorf("making the rpcutil agent: %w", err)
	}
	disco, err := discovery.New(l.agents)
	if err != nil {
		return fmt.Errorf("making the discovery agent: %w", err)
	}
	for _, agent := range []agents.Agent{
		&watcher{Agent: l.provisionAgent(l.agents), life: l},
		&factual{Agent: util, life: l},
		&factual{Agent: disco, life: l},
	} {
		if err := l.agents.RegisterAgent(l.ctx, agent.Name(), agent, l.link); err != nil {
			return fmt.Errorf("registering the %s agent: %w", agent.Name(), err)
		}
	}
	target := choria.NodeDirectedTarget(collective, l.node.name)
	return l.link.QueueSubscribe(l.ctx, "node."+collective, target, "", nil)
}

var (
	_ server.AgentManager  = (*agents.Manager)(nil)
	_ inter.AgentConnector = (*link)(nil)
)

// end ends the life as the end of its process would. When it returns no action runs and nothing more is written.
func (l *life) end() {
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.cancel()
	if l.link != nil {
		l.link.life.CompareAndSwap(l, nil)
	}
	l.acting.Lock()
	defer l.acting.Unlock()
	_ = l.log.Close()
}

// entry starts an effect log entry.
func (l *life) entry(p fleet.Phase) fleet.Entry {
	return fleet.Entry{
		Node: l.node.name, PID: l.pid, Start: l.start.UnixNano(), Boot: l.boot,
		Phase: p, Mode: l.mode, Status: fleet.NoStatus,
	}
}

func (l *life) append(e fleet.Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return errOver
	}
	return l.log.Append(e)
}

// update changes the node's state, unless this life is no longer the node's.
func (l *life) update(change func()) {
	l.node.all.update(func() {
		if l.running() {
			change()
		}
	})
}

func (l *life) state() *fleet.NodeState { return l.node.all.state[l.node.name] }

// event publishes a lifecycle event (server/lifecycle.go).
func (l *life) event(t lifecycle.Type, more ...lifecycle.Option) error {
	e, err := lifecycle.New(t, append(more, lifecycle.Component("provision_mode_server"), lifecycle.Identity(l.node.name), lifecycle.Version(l.version))...)
	if err != nil {
		return fmt.Errorf("making an event: %w", err)
	}
	e.SetFormat(lifecycle.CloudEventV1Format)
	if err = lifecycle.PublishEvent(e, l.link); err != nil {
		return fmt.Errorf("publishing an event: %w", err)
	}
	l.counts.events.Add(1)
	return nil
}

// leave executes an accepted restart or shutdown once its reply is dealt with and the splay is over. What cannot be executed
// gives the node back (providers/agent/mcorpc/golang/provision/restart_action.go:101).
func (l *life) leave(restarts bool) {
	if restarts {
		if err := l.event(lifecycle.Shutdown); err != nil {
			l.note("%v", err)
		}
	}
	select {
	case <-l.dealt:
	case <-l.ctx.Done():
		return
	}
	_ = l.link.conn.FlushTimeout(flushTimeout)
	t := time.NewTimer(l.node.all.opts.Splay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.ctx.Done():
		return
	}
	if !restarts {
		l.node.kill("exit status 0", l)
		return
	}
	if exe := l.node.guest.Executable; exe != "" {
		if _, err := fleet.VersionOf(exe); err != nil {
			l.note("restart: %v", err)
			l.leaves.Store(false)
			<-l.turn
			return
		}
	}
	if err := l.node.restart(l); err != nil {
		l.note("%v", err)
	}
}

func (l *life) note(format string, args ...any) {
	l.node.all.log.Errorf("light node "+l.node.name+": "+format, args...)
}
