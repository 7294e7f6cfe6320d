// Package wiring puts the real engine, credentials and helper behind the ports of sequence and worker.
package wiring

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"provctl/internal/choria"
	"provctl/internal/config"
	"provctl/internal/credentials"
	"provctl/internal/helper"
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
	if err != nil {
		g.refused(err)
	}
	return err
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
func (n Network) JWT(ctx context.Context, node receipt.NodeID) (string, error) {
	reply, err := n.Engine.JWT(ctx, node, n.Token)
	return reply.JWT, blame(err)
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

// Identities implements sequence.Credentials: it checks what nodes present and issues what they get.
type Identities struct {
	verifier *credentials.Verifier
	signer   *credentials.Signer
	validity time.Duration
}

// NewIdentities reads the key and token files. What is wrong with one is wrong with the configuration, for good.
func NewIdentities(cfg *config.Config, now time.Time) (Identities, error) {
	verifier, err := credentials.LoadVerifier(cfg.JWTVerifyCert)
	if err != nil {
		return Identities{}, cfg.Refuse("jwt_verify_cert", err)
	}
	signer, err := credentials.LoadSigner(cfg.JWTSigningKey, cfg.JWTSigningToken, rand.Reader)
	if err != nil {
		key := "jwt_signing_key"
		if e := (*credentials.Error)(nil); errors.As(err, &e) && e.Where == cfg.JWTSigningToken {
			key = "jwt_signing_token"
		}
		return Identities{}, cfg.Refuse(key, err)
	}
	// Found out later, it would cost each node a key and a hold.
	if end := signer.ExpiresAt(); !end.IsZero() && !now.Before(end) {
		return Identities{}, cfg.Refuse("jwt_signing_token", &credentials.Error{
			Kind: credentials.ErrIssuerExpired, Where: cfg.JWTSigningToken, Detail: "at " + end.UTC().Format(time.RFC3339), Remedy: "issue a new one for the same key",
		})
	}
	return Identities{verifier, signer, cfg.ServerJWTValidity}, nil
}

// VerifyNode checks a provisioning token and returns its claims.
func (i Identities) VerifyNode(token string) (json.RawMessage, error) {
	claims, err := i.verifier.VerifyNodeJWT(token)
	if err != nil {
		return nil, err
	}
	return claims.JSON(), nil
}

// ReadKey decodes a gen25519 reply and verifies its signature.
func (i Identities) ReadKey(data json.RawMessage, nonce string) (receipt.Key, error) {
	key, err := choria.DecodeKey(receipt.Gen25519, data)
	if err != nil {
		return receipt.Key{}, err
	}
	return key, credentials.VerifyEd25519Reply(key.Public, key.Signature, []byte(nonce))
}

// ServerJWT signs a node's server token.
func (i Identities) ServerJWT(node receipt.NodeID, publicKey string, reply *helper.Reply) (string, error) {
	return i.signer.ServerJWT(string(node), publicKey, reply.ServerClaims, reply.Configuration, i.validity, time.Now())
}

// Advisor runs the site's helper; it implements sequence.Advisor.
type Advisor struct {
	Command string // as the configuration has it
	Timeout time.Duration
	Log     *slog.Logger
	Meter   HelperMeter // nil: nobody is told
}

// HelperMeter is told of each run of the helper. It is called by several goroutines at a time and must not block.
type HelperMeter interface {
	// Helped tells how a run ended. One that the worker itself ended, because it stops, is not told.
	Helped(took time.Duration, shutdown bool, err error)
}

// Ask runs the helper once. Job and claim are in its environment, so that it can tell a second run for the same job.
func (a Advisor) Ask(ctx context.Context, job receipt.Job, in helper.Input) (*helper.Reply, error) {
	begun := time.Now()
	reply, err := helper.Run(ctx, helper.Options{
		Command: a.Command, Timeout: a.Timeout, Log: a.Log,
		Env: []string{"PROVCTL_JOB=" + string(job.ID), fmt.Sprintf("PROVCTL_CLAIM=%d", job.Claims)},
	}, in)
	if a.Meter != nil && ctx.Err() == nil {
		a.Meter.Helped(time.Since(begun), err == nil && reply.Decision() == helper.Shutdown, err)
	}
	return reply, err
}
