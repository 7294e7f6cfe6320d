package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"provctl/internal/choria"
	"provctl/internal/config"
)

// identity looks at the Choria configuration, and at who we are to the broker by it.
func (v *visit) identity() {
	if failed, _ := v.problems(checkClient); failed {
		return
	}
	var err error
	v.engine, err = choria.New(choria.Options{
		ConfigFile: v.o.ChoriaConfig, Password: v.cfg.BrokerProvisioningPassword.Reveal(), Insecure: v.cfg.ChoriaInsecure,
		TTL: v.cfg.EffectTTL, Skew: v.cfg.ClockSkew, Component: v.cfg.LifecycleComponent,
	})
	if err != nil {
		v.fail(checkClient, &config.Invalid{}, "correct it, or name another file with --choria-config", "%v", err)
		return
	}
	id, err := v.engine.Identity()
	if err != nil {
		v.fail(checkClient, nil, "correct "+v.o.ChoriaConfig, "%v", err)
		return
	}
	before := len(v.r.Checks)
	for _, f := range id.Files {
		if _, err := os.Stat(f.Path); errors.Is(err, fs.ErrNotExist) {
			v.warn(checkClient, "correct the path, or remove the key", "%s names %s, which does not exist: Choria goes on without it", f.Key, f.Path)
		}
		v.readable(f.Key, f.Path, f.Secret)
	}
	v.valid(id)
	v.trust(id)
	if len(v.r.Checks) == before {
		v.ok(checkClient, "%s: %s by %s (%s)%s", v.o.ChoriaConfig, id.Caller, papers(id), id.Provider, until(id.Ends, v.o.Now()))
	}
}

func papers(id choria.Identity) string {
	if id.Token {
		return "token"
	}
	return "certificate"
}

func until(end, now time.Time) string {
	if end.IsZero() {
		return ""
	}
	return fmt.Sprintf(", until %s (in %s)", stamp(end), days(end.Sub(now)))
}

// valid holds the token or certificate against the clock.
func (v *visit) valid(id choria.Identity) {
	now, what := v.o.Now(), papers(id)
	renew := "renew it (choria jwt client, with --provisioner)"
	if !id.Token {
		renew = "renew the certificate"
	}
	switch {
	case id.Ends.IsZero():
	case !now.Before(id.Ends):
		v.fail(checkClient, nil, renew+"; the worker reads it at each connect", "the %s of %s expired at %s: the broker refuses it", what, id.Caller, stamp(id.Ends))
	case now.Before(id.From.Add(-v.cfg.ClockSkew)):
		v.fail(checkClient, nil, setClock, "the %s of %s counts from %s, and it is %s here", what, id.Caller, stamp(id.From), stamp(now))
	case id.Ends.Sub(now) < expirySoon:
		v.warn(checkClient, renew, "the %s of %s expires at %s (in %s)", what, id.Caller, stamp(id.Ends), days(id.Ends.Sub(now)))
	}
}

// trust tells what the broker may refuse, and what nobody verifies. What choria_insecure switches off has been told.
func (v *visit) trust(id choria.Identity) {
	if v.cfg.ChoriaInsecure {
		return
	}
	if id.Token && !id.Provisioner {
		v.warn(checkClient, "issue one with that permission: choria jwt client, with --provisioner",
			"the token of %s lacks the permission server_provisioner, without which a broker refuses it at its nodes' account", id.Caller)
	}
	if v.cfg.BrokerProvisioningPassword == "" && !v.config.Failed("broker_provisioning_password") {
		// The user "provisioner" with this password is the one way into the account (broker/network/choria_auth.go:1306).
		v.warn(checkClient, "set broker_provisioning_password to the broker's plugin.choria.network.provisioning.client_password",
			"broker_provisioning_password is not set: a broker lets nobody at its nodes' account without it")
	}
	switch {
	case !id.TLS:
		v.warn(checkClient, "remove what disables TLS from "+v.o.ChoriaConfig, "the broker connection does without TLS")
	case !id.Verified:
		v.warn(checkClient, "have the broker's authority (CA) named in "+v.o.ChoriaConfig+", as plugin.security.choria.ca is for",
			"the broker's certificate is not verified: whoever answers at its address learns broker_provisioning_password")
	}
}

// look is one server, looked at.
type look struct {
	server string
	seen   choria.ServerSeen
	err    error
}

// broker connects to every server of the broker, as a worker would, and asks it about ourselves alone.
func (v *visit) broker(ctx context.Context) {
	switch {
	case v.engine == nil:
		v.skip(checkBroker, "not looked at: the Choria configuration cannot be used")
		return
	case !v.o.Network:
		v.skip(checkBroker, "not looked at: --no-network")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, v.o.Timeout)
	defer cancel()
	servers, err := v.engine.Servers()
	if err != nil || len(servers) == 0 {
		v.fail(checkBroker, nil, "name it with plugin.choria.middleware_hosts in "+v.o.ChoriaConfig, "no server of the broker is known: %v", err)
		return
	}
	looks := make([]look, len(servers))
	var wg sync.WaitGroup
	for i, server := range servers {
		wg.Go(func() {
			seen, err := v.engine.Look(ctx, server)
			looks[i] = look{server, seen, err}
		})
	}
	wg.Wait()
	up := slices.IndexFunc(looks, func(l look) bool { return l.err == nil })
	for _, l := range looks {
		v.server(l, up >= 0)
	}
	if up < 0 {
		v.skip(checkAccount, "not looked at: no server of the broker lets us in")
		return
	}
	v.compareClock(looks[up].server, looks[up].seen)
	if v.account(looks[up]) {
		v.others(ctx)
		v.election(ctx)
	}
}

// server tells of one server; while another one works, a broken one is a warning.
func (v *visit) server(l look, another bool) {
	if l.err != nil {
		remedy := v.brokerRemedy(l.err)
		if another {
			v.warn(checkBroker, remedy, "%s: %v; another server works", l.server, l.err)
		} else {
			v.fail(checkBroker, nil, remedy, "%s: %v", l.server, l.err)
		}
		return
	}
	s := l.seen
	about := fmt.Sprintf("%s lets us in, after %s, NATS %s", l.server, s.Took.Round(time.Millisecond), s.Version)
	if s.TLS != "" {
		about += ", " + s.TLS
	}
	if left := s.Ends.Sub(v.o.Now()); !s.Ends.IsZero() && left < expirySoon {
		v.warn(checkBroker, "have the broker's certificate renewed", "%s; its certificate expires at %s (in %s)", about, stamp(s.Ends), days(left))
		return
	}
	v.ok(checkBroker, "%s", about)
}

func (v *visit) brokerRemedy(err error) string {
	switch {
	case errors.Is(err, choria.ErrRefused):
		return "compare broker_provisioning_password with the broker's plugin.choria.network.provisioning.client_password, and the token's or certificate's issuer with the broker's; its log says why"
	case errors.Is(err, choria.ErrTLS):
		return "check the authority and certificates of " + v.o.ChoriaConfig + " and of the broker, and the clock"
	case errors.Is(err, choria.ErrSilent):
		return "something takes connections there and says nothing: see that it is a Choria broker, and that it is not overloaded or behind a firewall"
	}
	return "start the broker, open the way to it, or correct plugin.choria.middleware_hosts in " + v.o.ChoriaConfig
}

// account tells whether we are where the nodes are.
func (v *visit) account(l look) bool {
	switch got := l.seen.Account; got {
	case choria.Account:
		v.ok(checkAccount, "%s, where nodes wait to be provisioned", got)
		return true
	case "":
		v.warn(checkAccount, "give the broker a system account: plugin.choria.network.system.user and .password",
			"%s does not tell: it has no system account, so it does not tell its connections either, and less can be proved", l.server)
		return true
	default:
		v.fail(checkAccount, nil, "set broker_provisioning_password to the broker's plugin.choria.network.provisioning.client_password",
			"the broker puts us into account %s, and nodes wait in %s: none would be found", got, choria.Account)
		return false
	}
}

// others looks for provisioners beside ours: whoever asks a node first holds its provisioning lock for two minutes, which nobody can see
// without taking it.
func (v *visit) others(ctx context.Context) {
	names, err := v.engine.Provisioners(ctx)
	if errors.Is(err, choria.ErrNoConnectionList) {
		v.warn(checkOthers, "give the broker a system account: plugin.choria.network.system.user and .password",
			"the broker does not tell its connections: %v", err)
		return
	}
	if err != nil {
		v.skip(checkOthers, "the broker could not be asked: %v", err)
		return
	}
	more := len(names)
	if v.live != nil && v.live.Connected && more > 0 {
		more--
	}
	switch list := strings.Join(names, ", "); {
	case more == 0:
		v.ok(checkOthers, "none: no other connection waits for nodes")
	case v.cfg.LeaderElection:
		v.ok(checkOthers, "%d, which must hold elections as well; connected are: %s", more, list)
	default:
		v.warn(checkOthers, "stop them, or set leader_election on all of them",
			"%d: each holds the provisioning lock of a node that it asks for two minutes, and configures it; connected are: %s", more, list)
	}
}

// election asks whether one can be held, and takes no part.
func (v *visit) election(ctx context.Context) {
	if !v.cfg.LeaderElection {
		return
	}
	ttl, err := v.engine.ElectionKeysLive(ctx)
	if err != nil {
		v.fail(checkLeader, nil, "without an election every worker stands by: mend that on the broker", "%v", err)
		return
	}
	v.ok(checkLeader, "can be held: a leader's key lives for %s", ttl)
}
