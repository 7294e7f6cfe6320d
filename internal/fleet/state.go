package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Mode is how a node runs.
type Mode string

// The modes of a node; it has none before its first boot.
const (
	Provisioning Mode = "provisioning"
	Provisioned  Mode = "provisioned"
)

// ErrUnknownNode is returned when no node of the fleet has that name.
var ErrUnknownNode = errors.New("no such node in the fleet")

// ErrClosed is returned when the fleet was closed.
var ErrClosed = errors.New("the fleet is closed")

// NodeState is what the fleet knows of one node from its process and its control messages.
type NodeState struct {
	Name string
	Mode Mode
	PID  int
	// Start is when the running server instance started: with PID it is the incarnation.
	Start time.Time
	// Boots counts the starts of the process, those by a restart of itself included.
	Boots int
	// Version is what the process that runs, or ran last, reports as its server's version.
	Version string
	// Alive: the process runs. Joined: its instance is connected and subscribed in Mode. Connected: its connection to
	// the broker stands at this moment.
	Alive, Joined, Connected bool
	// Exit says how the last process ended, empty while none has.
	Exit string
	// Begins and Ends count the requests of the provision agent by action, of all boots; Requests those of other
	// agents, as agent.action.
	Begins, Ends, Requests map[string]int
	// Held are the actions of requests that wait for Release.
	Held []string
}

// State is a snapshot of a fleet.
type State struct {
	Broker bool
	Nodes  map[string]NodeState
	// Downloads counts by version what was asked of the repository.
	Downloads map[string]Downloads
}

// Count tells of how many nodes that is true.
func (s State) Count(is func(NodeState) bool) int {
	count := 0
	for _, n := range s.Nodes {
		if is(n) {
			count++
		}
	}
	return count
}

// String lists the nodes by name, for messages.
func (s State) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "broker up: %t", s.Broker)
	for _, name := range slices.Sorted(maps.Keys(s.Nodes)) {
		n := s.Nodes[name]
		fmt.Fprintf(&b, "\n%s: mode %q version %s boots %d alive %t joined %t connected %t held %v begins %v ends %v %s",
			name, n.Mode, n.Version, n.Boots, n.Alive, n.Joined, n.Connected, n.Held, n.Begins, n.Ends, n.Exit)
	}
	return b.String()
}

func (s NodeState) clone() NodeState {
	s.Begins, s.Ends, s.Requests = maps.Clone(s.Begins), maps.Clone(s.Ends), maps.Clone(s.Requests)
	s.Held = slices.Clone(s.Held)
	return s
}

// State takes a snapshot.
func (f *Fleet) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.snapshot()
}

func (f *Fleet) snapshot() State {
	s := State{Broker: f.brokerUp, Nodes: make(map[string]NodeState, len(f.nodes)), Downloads: f.downloads()}
	for name, n := range f.nodes {
		s.Nodes[name] = n.state.clone()
	}
	return s
}

// update changes what the fleet knows and wakes those who wait for it.
func (f *Fleet) update(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

// Wait returns when is holds, asking again after every change. The error, with the state in it, is that of ctx, or
// ErrClosed.
func (f *Fleet) Wait(ctx context.Context, is func(State) bool) error {
	return f.wait(ctx, func() bool { return is(f.snapshot()) })
}

// waitNode is Wait for one node, without a snapshot of all.
func (f *Fleet) waitNode(ctx context.Context, n *node, is func(NodeState) bool) error {
	return f.wait(ctx, func() bool { return is(n.state) })
}

func (f *Fleet) wait(ctx context.Context, is func() bool) error {
	for {
		f.mu.Lock()
		ok, closed, changed := is(), f.closed, f.changed
		f.mu.Unlock()
		if ok {
			return nil
		}
		if closed {
			return ErrClosed
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w while waiting for the fleet; %s", ctx.Err(), f.State())
		case <-changed:
		}
	}
}

func (f *Fleet) node(name string) (*node, error) {
	n, ok := f.nodes[name]
	if !ok {
		return nil, fmt.Errorf("%w: %q; Nodes lists them", ErrUnknownNode, name)
	}
	return n, nil
}
