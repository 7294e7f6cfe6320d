package lightnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"provctl/internal/fleet"
)

// ErrOptions is returned by Start for options that cannot describe nodes.
var ErrOptions = errors.New("invalid options of light nodes")

// ErrUnknown is returned for a name that no node has.
var ErrUnknown = errors.New("no such light node")

// ErrRunning is returned by Boot for a node that runs, ErrStopped by Kill for one that does not.
var (
	ErrRunning = errors.New("the light node runs already")
	ErrStopped = errors.New("the light node does not run")
)

// Options describe light nodes.
type Options struct {
	// Dir holds a directory for each node with its files and its effect log.
	Dir string
	// Broker is a fleet whose broker the nodes use, commonly one without nodes of its own.
	Broker *fleet.Fleet
	// Names are the identities of the nodes.
	Names []string
	// Hook is asked as fleet.Options.Hook is: when a request of the provision agent begins and when it has ended, while the
	// node waits. It may call the methods of Nodes, except Reset and Close.
	Hook func(fleet.Call) fleet.Fault
	// Splay is the time between the reply of a restart or shutdown and its execution; 0 means 10 ms.
	Splay time.Duration
	// Upgradable gives the nodes tokens that allow release_update. The fleet must have versions (fleet.Options.Upgradable).
	Upgradable bool
	// Log gets what the nodes log, errors alone; nil discards.
	Log io.Writer
}

const (
	defaultSplay = 10 * time.Millisecond
	parallel     = 8
)

// Nodes are running light nodes. All methods may be called from several goroutines.
type Nodes struct {
	opts   Options
	log    *logrus.Logger
	faults fleet.Faults
	nodes  map[string]*node // fixed after Start

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
	closed  bool
	state   map[string]*fleet.NodeState
	calls   uint64
	held    []*held
}

// Start prepares and boots the nodes. When it returns all are connected in provisioning mode and take requests. ctx bounds the
// start alone; Close ends the nodes.
func Start(ctx context.Context, opts Options) (*Nodes, error) {
	if opts.Dir == "" || opts.Broker == nil || len(opts.Names) == 0 || opts.Splay < 0 {
		return nil, fmt.Errorf("%w: Dir, Broker and Names are needed and Splay must not be negative", ErrOptions)
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("%w: Dir %q: %w", ErrOptions, opts.Dir, err)
	}
	opts.Dir, opts.Names = dir, slices.Clone(opts.Names)
	if opts.Splay == 0 {
		opts.Splay = defaultSplay
	}
	n := &Nodes{opts: opts, nodes: map[string]*node{}, changed: make(chan struct{}), state: map[string]*fleet.NodeState{}, log: logrus.New()}
	n.log.SetLevel(logrus.ErrorLevel)
	if n.log.SetOutput(io.Discard); opts.Log != nil {
		n.log.SetOutput(opts.Log)
	}
	for i, name := range opts.Names {
		if n.nodes[name] != nil {
			return nil, fmt.Errorf("%w: two nodes are named %q", ErrOptions, name)
		}
		if n.nodes[name], err = n.newNode(name, i); err != nil {
			return nil, err
		}
		n.state[name] = blank(name)
	}
	if err = n.Reset(ctx); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// Reset makes every node fresh: in provisioning mode, with no files but its token, an empty effect log and a new life that
// waits for requests. Faults and held requests are forgotten. Requests made before the Reset are dropped without a trace when
// they arrive later (with protocol 1 those of the same second are not). No worker may run meanwhile.
func (n *Nodes) Reset(ctx context.Context) error {
	n.faults.Clear()
	return n.each(func(node *node) error { return node.reset(ctx) })
}

// each runs do for all nodes, a few at a time.
func (n *Nodes) each(do func(*node) error) error {
	slots := make(chan struct{}, parallel)
	errs := make(chan error, len(n.opts.Names))
	for _, name := range n.opts.Names {
		slots <- struct{}{}
		go func() {
			errs <- do(n.nodes[name])
			<-slots
		}()
	}
	var all []error
	for range n.opts.Names {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// Close ends all nodes. Their files stay. It may be called twice, but not by a Hook.
func (n *Nodes) Close() {
	n.update(func() { n.closed = true })
	_ = n.each(func(node *node) error {
		node.stop()
		return nil
	})
}

// Kill ends a node's life as SIGKILL does: at once, with no reply and no entry, and its connection breaks. Files that an action
// writes at that moment are written to their end. The node stays down until Boot.
func (n *Nodes) Kill(name string) error {
	node, err := n.node(name)
	if err != nil {
		return err
	}
	if !node.kill("signal: killed", nil) {
		return fmt.Errorf("%w: %s", ErrStopped, name)
	}
	return nil
}

// Boot starts a node that was killed or shut down, as a new process on the same files, and returns when it has joined in the mode
// that they give it.
func (n *Nodes) Boot(ctx context.Context, name string) error {
	node, err := n.node(name)
	if err != nil {
		return err
	}
	return node.start(ctx)
}

// SetFault befalls the next fault.Times requests of that action on that node, as fleet.Fleet.SetFault does; a fault that the Hook
// returns comes first.
func (n *Nodes) SetFault(name, action string, f fleet.Fault) { n.faults.Add(name, action, f) }

// ClearFaults forgets every fault that has not come to pass. Requests already held stay held.
func (n *Nodes) ClearFaults() { n.faults.Clear() }

// Names lists the identities in the order of Options.Names.
func (n *Nodes) Names() []string { return slices.Clone(n.opts.Names) }

// Dir is the directory of a node's server.conf, keys, token and effect log.
func (n *Nodes) Dir(name string) string { return filepath.Join(n.opts.Dir, name) }

func (n *Nodes) node(name string) (*node, error) {
	node, ok := n.nodes[name]
	if !ok {
		return nil, fmt.Errorf("%w: %q; Names lists them", ErrUnknown, name)
	}
	return node, nil
}

// Log reads a node's effect log from its file, oldest entry first.
func (n *Nodes) Log(name string) ([]fleet.Entry, error) {
	if _, err := n.node(name); err != nil {
		return nil, err
	}
	return fleet.ReadEffectLog(n.Dir(name))
}

// Entries reads the effect logs of all nodes, in order of time.
func (n *Nodes) Entries() ([]fleet.Entry, error) {
	var all []fleet.Entry
	for _, name := range n.opts.Names {
		entries, err := n.Log(name)
		if err != nil {
			return nil, err
		}
		all = append(all, entries...)
	}
	slices.SortStableFunc(all, func(a, b fleet.Entry) int { return a.Time.Compare(b.Time) })
	return all, nil
}

// Audit judges all effect logs as fleet.Fleet.Audit does.
func (n *Nodes) Audit() (fleet.Audit, error) {
	entries, err := n.Entries()
	if err != nil {
		return fleet.Audit{}, err
	}
	return fleet.AuditEntries(entries), nil
}
