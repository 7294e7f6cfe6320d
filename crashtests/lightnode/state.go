package lightnode

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"provctl/internal/fleet"
)

func blank(name string) *fleet.NodeState {
	return &fleet.NodeState{Name: name, Begins: map[string]int{}, Ends: map[string]int{}, Requests: map[string]int{}}
}

// State is a snapshot in the terms of a fleet. A provisioned node is Joined and not Connected, since it joins no collective.
func (n *Nodes) State() fleet.State {
	broker := n.opts.Broker.State().Broker
	n.mu.Lock()
	defer n.mu.Unlock()
	s := fleet.State{Broker: broker, Nodes: make(map[string]fleet.NodeState, len(n.state))}
	for name, node := range n.state {
		c := *node
		c.Begins, c.Ends, c.Requests, c.Held = maps.Clone(c.Begins), maps.Clone(c.Ends), maps.Clone(c.Requests), slices.Clone(c.Held)
		s.Nodes[name] = c
	}
	return s
}

// Wait returns when is holds, asking again after every change of a node. The error, with the state in it, is that of ctx, or
// fleet.ErrClosed.
func (n *Nodes) Wait(ctx context.Context, is func(fleet.State) bool) error {
	for {
		n.mu.Lock()
		closed, changed := n.closed, n.changed
		n.mu.Unlock()
		if is(n.State()) {
			return nil
		}
		if closed {
			return fleet.ErrClosed
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w while waiting for light nodes; %s", ctx.Err(), n.State())
		case <-changed:
		}
	}
}

// update changes what is known and wakes those who wait for it.
func (n *Nodes) update(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
	close(n.changed)
	n.changed = make(chan struct{})
}

// held is a request that waits for Release.
type held struct {
	node, action string
	release      chan struct{}
}

// hold keeps a request until it is released or its life ends.
func (n *Nodes) hold(l *life, action string) {
	h := &held{node: l.node.name, action: action, release: make(chan struct{})}
	n.update(func() {
		n.held = append(n.held, h)
		n.showHeld(h.node)
	})
	select {
	case <-h.release:
	case <-l.ctx.Done():
		n.update(func() {
			n.held = slices.DeleteFunc(n.held, func(o *held) bool { return o == h })
			n.showHeld(h.node)
		})
	}
}

func (n *Nodes) showHeld(name string) {
	s := n.state[name]
	s.Held = nil
	for _, h := range n.held {
		if h.node == name {
			s.Held = append(s.Held, h.action)
		}
	}
}

// Release lets held requests of that action on that node go on, and tells how many there were; fleet.Any stands for all. Await
// them with Wait and NodeState.Held.
func (n *Nodes) Release(name, action string) int {
	count := 0
	n.update(func() {
		n.held = slices.DeleteFunc(n.held, func(h *held) bool {
			if name != fleet.Any && name != h.node || action != fleet.Any && action != h.action {
				return false
			}
			close(h.release)
			count++
			return true
		})
		for name := range n.state {
			n.showHeld(name)
		}
	})
	return count
}
