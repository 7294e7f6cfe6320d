package main

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

// network is the engine as the worker wants it: with the fence before every publish and the site's token with every request.
type network struct {
	*choria.Engine
	guard choria.Guard
	token string
}

// discoveryWindow is how long a discovery waits after the last answer.
const discoveryWindow = 2 * time.Second

func (n network) Stats(ctx context.Context, node receipt.NodeID) (receipt.StatsSeen, receipt.Baseline, error) {
	stats, err := n.Engine.Stats(ctx, node)
	if err != nil {
		return receipt.StatsSeen{}, receipt.Baseline{}, err
	}
	return stats, n.BaselineOf(node, stats), nil
}

func (n network) JWT(ctx context.Context, node receipt.NodeID) (string, error) {
	reply, err := n.Engine.JWT(ctx, node, n.token)
	return reply.JWT, err
}

func (n network) Discover(ctx context.Context, found func(receipt.NodeID)) error {
	_, err := n.Engine.Discover(ctx, discoveryWindow, found)
	return err
}

func (n network) Prepare(node receipt.NodeID, a receipt.Action, input any) (sequence.Prepared, error) {
	p, err := n.Engine.Prepare(node, a, input)
	if err != nil {
		return sequence.Prepared{}, err
	}
	return sequence.Prepared{Request: p.Request, Time: p.Time, Horizon: p.Horizon, Digest: p.Digest, Carried: p}, nil
}

func (n network) Publish(ctx context.Context, pending *journal.Pending, p sequence.Prepared) (sequence.Call, error) {
	c, err := n.Engine.Publish(ctx, pending, n.guard, p.Carried.(*choria.Prepared))
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

// identities checks what nodes present and issues what they get.
type identities struct {
	verifier *credentials.Verifier
	signer   *credentials.Signer
	validity time.Duration
}

// newIdentities reads the key and token files. What is wrong with one is wrong with the configuration, for good.
func newIdentities(cfg *config.Config, now time.Time) (identities, error) {
	verifier, err := credentials.LoadVerifier(cfg.JWTVerifyCert)
	if err != nil {
		return identities{}, cfg.Refuse("jwt_verify_cert", err)
	}
	signer, err := credentials.LoadSigner(cfg.JWTSigningKey, cfg.JWTSigningToken, rand.Reader)
	if err != nil {
		key := "jwt_signing_key"
		if e := (*credentials.Error)(nil); errors.As(err, &e) && e.Where == cfg.JWTSigningToken {
			key = "jwt_signing_token"
		}
		return identities{}, cfg.Refuse(key, err)
	}
	// Found out later, it would cost each node a key and a hold.
	if end := signer.ExpiresAt(); !end.IsZero() && !now.Before(end) {
		return identities{}, cfg.Refuse("jwt_signing_token", &credentials.Error{
			Kind: credentials.ErrIssuerExpired, Where: cfg.JWTSigningToken, Detail: "at " + end.UTC().Format(time.RFC3339), Remedy: "issue a new one for the same key",
		})
	}
	return identities{verifier, signer, cfg.ServerJWTValidity}, nil
}

func (i identities) VerifyNode(token string) (json.RawMessage, error) {
	claims, err := i.verifier.VerifyNodeJWT(token)
	if err != nil {
		return nil, err
	}
	return claims.JSON(), nil
}

func (i identities) ReadKey(data json.RawMessage, nonce string) (receipt.Key, error) {
	key, err := choria.DecodeKey(receipt.Gen25519, data)
	if err != nil {
		return receipt.Key{}, err
	}
	return key, credentials.VerifyEd25519Reply(key.Public, key.Signature, []byte(nonce))
}

func (i identities) ServerJWT(node receipt.NodeID, publicKey string, reply *helper.Reply) (string, error) {
	return i.signer.ServerJWT(string(node), publicKey, reply.ServerClaims, reply.Configuration, i.validity, time.Now())
}

// advisor runs the site's helper.
type advisor struct {
	cfg *config.Config
	log *slog.Logger
}

func (a advisor) Ask(ctx context.Context, job receipt.JobID, in helper.Input) (*helper.Reply, error) {
	return helper.Run(ctx, helper.Options{
		Command: a.cfg.Helper, Timeout: a.cfg.HelperTimeout, Log: a.log, Env: []string{"PROVCTL_JOB=" + string(job)},
	}, in)
}
