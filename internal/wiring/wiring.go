// Package wiring puts the real engine, credentials and helper behind the ports of sequence and worker.
package wiring

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"provctl/internal/choria"
	"provctl/journal"
	"provctl/receipt"
	"provctl/sequence"
)

// Network is the engine as the worker wants it: with the fence before every publish and the site's token with every request.
type Network struct {
	*choria.Engine
	Guard  choria.Guard  // *fence.Fence
	Token  string        // provisioning token of the site; secret
	Window time.Duration // how long a discovery waits after the last answer; 0: 2 s
	// Version, if set, is announced to the network once it is connected.
	Version string
	Log     *slog.Logger // needed with Version
	// Refused, if set, is called for each effect that the fence refused. It must not block.
	Refused func(error)
}

// watchedGuard tells of refusals.
type watchedGuard struct {
	choria.Guard
	refused func(error)
}

func (g watchedGuard) Check(r receipt.Receipt) error {
	err := g.Guard.Check(r)
	// A request that grew old, and a worker that was paused or does not lead, are nothing to be alarmed about.
	if err != nil && !errors.Is(err, receipt.ErrExpired) && !errors.Is(err, receipt.ErrStandby) {
		g.refused(err)
	}
	return err
}

// Connect waits until the broker is reached, and announces this provisioner's start. Nothing depends on the announcement.
func (n Network) Connect(ctx context.Context) error {
	if err := n.Engine.Connect(ctx); err != nil || n.Version == "" {
		return err
	}
	if err := n.Announce(ctx, n.Version); err != nil {
		n.Log.Warn("the start was not announced", "error", err)
	}
	return nil
}

// Stats asks rpcutil#daemon_stats once.
func (n Network) Stats(ctx context.Context, node receipt.NodeID) (receipt.StatsSeen, receipt.Baseline, error) {
	stats, err := n.Engine.Stats(ctx, node)
	if err != nil {
		return receipt.StatsSeen{}, receipt.Baseline{}, blame(err)
	}
	return stats, n.BaselineOf(node, stats), nil
}

// JWT asks for the provisioning token, three times at most.
func (n Network) JWT(ctx context.Context, node receipt.NodeID) (sequence.Introduction, error) {
	reply, err := n.Engine.JWT(ctx, node, n.Token)
	if choria.NoToken(err) {
		return sequence.Introduction{}, fmt.Errorf("%w: %w", sequence.ErrNoToken, err)
	}
	return sequence.Introduction{Token: reply.JWT, ECDH: reply.ECDHPublic}, blame(err)
}

// Inventory asks rpcutil#inventory, five times at most.
func (n Network) Inventory(ctx context.Context, node receipt.NodeID) (json.RawMessage, error) {
	inventory, err := n.Engine.Inventory(ctx, node)
	return inventory, blame(err)
}

// blame tells what a failed fact says: that the node is not there, that the broker is away, or else that the node does not answer.
func blame(err error) error {
	switch {
	case errors.Is(err, choria.ErrNobody):
		return fmt.Errorf("%w: %w", sequence.ErrAbsent, err)
	case errors.Is(err, choria.ErrNotConnected):
		return fmt.Errorf("%w: %w", sequence.ErrCut, err)
	default:
		return err
	}
}

// Discover broadcasts once.
func (n Network) Discover(ctx context.Context, found func(receipt.NodeID)) error {
	_, err := n.Engine.Discover(ctx, n.Window, found)
	return err
}

// Prepare builds and signs a request.
func (n Network) Prepare(node receipt.NodeID, a receipt.Action, input any) (sequence.Prepared, error) {
	p, err := n.Engine.Prepare(node, a, input)
	if err != nil {
		return sequence.Prepared{}, err
	}
	return sequence.Prepared{Request: p.Request, Time: p.Time, Horizon: p.Horizon, Digest: p.Digest, Carried: p}, nil
}

// Publish asks the fence and sends.
func (n Network) Publish(ctx context.Context, pending *journal.Pending, p sequence.Prepared) (sequence.Call, error) {
	guard := n.Guard
	if n.Refused != nil && guard != nil {
		guard = watchedGuard{guard, n.Refused}
	}
	c, err := n.Engine.Publish(ctx, pending, guard, p.Carried.(*choria.Prepared))
	var unsent *choria.NotSentError
	switch {
	case errors.As(err, &unsent):
		return nil, fmt.Errorf("%w: %w", sequence.ErrNotSent, err)
	case err != nil:
		return nil, err
	}
	return call{c}, nil
}

type call struct{ *choria.Call }

func (c call) Outcome() sequence.Outcome {
	o := c.Call.Outcome()
	out := sequence.Outcome{Event: o.Event, Why: o.Why, Data: o.Data}
	if answered := o.Event != receipt.NeverSent && o.Event != receipt.Lost; answered || o.Reply != (receipt.Reply{}) {
		out.Reply = &o.Reply
	}
	return out
}
