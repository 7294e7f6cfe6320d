package lightnode

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/choria-io/go-choria/config"
	"github.com/choria-io/go-choria/inter"
	"github.com/choria-io/go-choria/lifecycle"
	"github.com/choria-io/go-choria/providers/agent/mcorpc"
	"github.com/choria-io/go-choria/providers/agent/mcorpc/golang/provision"
	"github.com/choria-io/go-choria/server/agents"
	updater "github.com/choria-io/go-updater"
)

// The texts, their order and what each check leaves behind are those of providers/agent/mcorpc/golang/provision, whose types of
// inputs and replies are used; the worker classifies replies by them. The conformance test holds them to the real agent.

// lockWindow is how long a caller owns the node, from its last locked request (provision.go:34).
const lockWindow = 2 * time.Minute

// owner is the caller who holds the provisioning lock.
type owner struct {
	mu    sync.Mutex
	name  string
	until time.Time
}

// take gives the lock to who already has it or finds it free, and extends it.
func (o *owner) take(sender, caller string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, name := time.Now(), sender+"."+caller
	if now.Before(o.until) && o.name != name {
		return false
	}
	o.name, o.until = name, now.Add(lockWindow)
	return true
}

// work is what an action does: the data of its reply, or a refusal.
type work func(req *mcorpc.Request, reply *mcorpc.Reply) (any, error)

// refusal is a reply that the action has made itself.
type refusal struct{}

func (refusal) Error() string { return "refused" }

// provisionAgent makes the agent of one life.
func (l *life) provisionAgent(m *agents.Manager) *mcorpc.Agent {
	meta := &agents.Metadata{
		Name: "choria_provision", Description: "Choria Provisioner", Author: "R.I.Pienaar <rip@devco.net>", Version: l.version,
		License: "Apache-2.0", Timeout: 20, URL: "https://choria.io",
	}
	a := mcorpc.New(meta.Name, meta, m.Choria(), m.Logger())
	locked := map[string]work{
		"configure": l.configure, "gen25519": l.gen25519, "gencsr": l.gencsr, "jwt": l.jwt, "release_update": l.releaseUpdate,
	}
	for name, do := range locked {
		a.MustRegisterAction(name, l.action(do, true))
	}
	for name, do := range map[string]work{"reprovision": l.reprovision, "restart": l.restart, "shutdown": l.shutdown} {
		a.MustRegisterAction(name, l.action(do, false))
	}
	return a
}

func (l *life) action(do work, locked bool) mcorpc.Action {
	return func(_ context.Context, req *mcorpc.Request, reply *mcorpc.Reply, _ *mcorpc.Agent, _ inter.ConnectorInfo) {
		if locked && !l.owner.take(req.SenderID, req.CallerID) {
			abort(reply, "Could not obtain provisioning lock")
			return
		}
		switch data, err := do(req, reply); err {
		case nil:
			reply.Data = data
		case refusal{}:
		default:
			abort(reply, err.Error())
		}
	}
}

func abort(reply *mcorpc.Reply, text string) {
	reply.Statuscode, reply.Statusmsg = mcorpc.Aborted, text
}

// parse reads the input and checks the token in it.
func (l *life) parse(input any, token *string, req *mcorpc.Request, reply *mcorpc.Reply) error {
	if !mcorpc.ParseRequestData(input, req, reply) {
		return refusal{}
	}
	if *token != l.node.guest.Secret {
		return agentError("Incorrect provision token supplied")
	}
	return nil
}

func (l *life) releaseUpdate(req *mcorpc.Request, reply *mcorpc.Reply) (any, error) {
	if !l.node.all.opts.Upgradable {
		return nil, agentError("Version updates is not enabled in the configuration")
	}
	var in provision.ReleaseUpdateRequest
	if err := l.parse(&in, &in.Token, req, reply); err != nil {
		return nil, err
	}
	err := updater.Apply(updater.Version(in.Version), updater.SourceRepo(in.Repository), updater.Logger(l.node.fw.Logger("updater")),
		updater.TargetFile(l.node.guest.Executable))
	if err != nil {
		if broken := updater.RollbackError(err); broken != nil {
			return nil, agentError("Update to version %s failed, rollback also failed, server in broken state: %s", in.Version, broken)
		}
		return nil, agentError("Update to version %s failed, release rolled back: %s", in.Version, err)
	}
	l.announce(lifecycle.Upgraded, lifecycle.NewVersion(in.Version))
	l.depart(true)
	return provision.Reply{Message: "Restarting Choria Server after 2s"}, nil
}

func (l *life) reprovision(*mcorpc.Request, *mcorpc.Reply) (any, error) {
	return nil, agentError("Server is already in provisioning mode, cannot enable provisioning mode again")
}

func (l *life) restart(req *mcorpc.Request, reply *mcorpc.Reply) (any, error) {
	var in provision.RestartRequest
	if err := l.parse(&in, &in.Token, req, reply); err != nil {
		return nil, err
	}
	path := l.node.guest.Config
	cfg, err := config.NewConfig(path)
	if err != nil {
		return nil, agentError("Configuration %s could not be parsed, restart cannot continue: %s", path, err)
	}
	if cfg.Choria.Provision {
		return nil, agentError("Configuration %s enables provisioning, restart cannot continue", path)
	}
	if in.Splay == 0 {
		in.Splay = 10
	}
	l.depart(true)
	return provision.Reply{Message: fmt.Sprintf("Restarting Choria Server after %v", splay(in.Splay)+2*time.Second)}, nil
}

func (l *life) shutdown(req *mcorpc.Request, reply *mcorpc.Reply) (any, error) {
	var in provision.ShutdownRequest
	if err := l.parse(&in, &in.Token, req, reply); err != nil {
		return nil, err
	}
	l.depart(false)
	return provision.Reply{Message: fmt.Sprintf("Shutting Choria Server down after %v", splay(10))}, nil
}

// splay is what the reply announces; the node really waits Options.Splay.
func splay(most int) time.Duration { return time.Duration(rand.N(max(most, 1))) * time.Second }

// depart begins the way out, once (restart_action.go:88).
func (l *life) depart(restarts bool) {
	if l.leaves.CompareAndSwap(false, true) {
		go l.leave(restarts)
	}
}

func (l *life) announce(t lifecycle.Type, more ...lifecycle.Option) {
	if err := l.event(t, more...); err != nil {
		l.note("%v", err)
	}
}

// agentError is a text of the agent as it stands on the wire, where it begins with a capital.
func agentError(format string, args ...any) error { return agentText(fmt.Sprintf(format, args...)) }

type agentText string

func (t agentText) Error() string { return string(t) }

var _ agents.ServerInfoSource = (*life)(nil)
