package choria

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	fw "github.com/choria-io/go-choria/choria"
	"github.com/choria-io/go-choria/config"
	"github.com/choria-io/go-choria/protocol"
	"github.com/nats-io/nats.go"

	"provctl/receipt"
)

// collective is the only collective that nodes in provisioning mode join (choria/framework.go:264).
const collective = "provisioning"

// provisioningUser is the NATS user that the broker puts into the provisioning account (broker/network/choria_auth.go:74).
const provisioningUser = "provisioner"

// Options says how to reach the broker and whom to tell. Zero values get the defaults named here.
type Options struct {
	ConfigFile string        // Choria client configuration
	Password   string        // broker_provisioning_password
	Insecure   bool          // choria_insecure: no TLS, no signatures
	TTL        time.Duration // how long a node accepts a request; whole seconds, default 60 s, at least 30 s with protocol 1
	Skew       time.Duration // how far a node's clock may be off
	Component  string        // lifecycle component whose startup events are passed on; empty passes all
	Epoch      receipt.Epoch // the worker's term; see SetEpoch

	Log  *slog.Logger
	Now  func() time.Time
	Rand func() float64 // in [0,1), for jitter

	// The callbacks run one at a time on goroutines of the engine, never on the intake. What does not fit their bounded
	// queues is dropped, counted and logged.
	OnLate      func(LateReply)
	OnTwin      func(receipt.NodeID) // two servers answered a question, or a discovery, under this name
	OnEvent     func(Event)
	OnReconnect func()

	Meter Meter // told of requests; nil: nobody is

	FactTimeout  time.Duration // one try of a fact, and the wait for its turn at the node; default 10 s, also for 0
	StatsTimeout time.Duration // daemon_stats; default 5 s
	FlushTimeout time.Duration // how long the broker has to acknowledge a publish or, when connecting, a subscription; default 5 s
	Backoff      time.Duration // before the second try of a fact, doubled each time; default 500 ms
}

// Meter is told of each request to a node, named as agent#action. Its methods are called by several goroutines at a time and
// must not block.
type Meter interface {
	// Asked tells how long a request was under way, from its publish to its answer or to the end of the waiting. Each try
	// of a fact counts.
	Asked(rpc string, took time.Duration)
	// Failed tells of a request without the answer that was wanted; a fact once its tries are used up.
	Failed(rpc string)
}

type noMeter struct{}

func (noMeter) Asked(string, time.Duration) {}
func (noMeter) Failed(string)               {}

// Engine is the connection to the broker and everything in flight on it. Make it with New.
type Engine struct {
	opt   Options
	fw    *fw.Framework
	log   *slog.Logger
	inbox string // provisioning.reply.<hash of the caller>.provctl
	base  string // provisioning.reply.<hash of the caller>
	epoch atomic.Uint64

	locks  nodeLocks
	counts counter
	mux    mux
	stats  tally

	events *notifier
	notes  *notifier

	mu         sync.Mutex
	connecting bool          // Connect is under way
	started    bool          // the goroutines that every connection needs run
	nc         *nats.Conn    // nil until Connect succeeded
	down       chan struct{} // closed, and replaced, when nc breaks
	ended      bool
	closing    chan struct{}
	wg         sync.WaitGroup
}

// New loads and checks the Choria configuration and forces what a provisioner needs: both collectives, no federation, and with
// a password the provisioner's NATS user. It opens no connection. A refusal wraps ErrConfig.
func New(opt Options) (*Engine, error) {
	opt = opt.withDefaults()
	f, err := loadFramework(opt)
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrConfig, opt.ConfigFile, err)
	}
	e := &Engine{opt: opt, fw: f, log: opt.Log, closing: make(chan struct{}), down: make(chan struct{})}
	e.epoch.Store(uint64(opt.Epoch))
	caller, hash, err := callerHash(f, opt.Insecure)
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrConfig, opt.ConfigFile, err)
	}
	e.base = collective + ".reply." + hash
	e.inbox = e.base + ".provctl"
	e.mux.init()
	e.counts.init()
	e.events = newNotifier("lifecycle events", opt.Log, &e.stats.eventsDropped, e.closing)
	e.notes = newNotifier("late replies", opt.Log, &e.stats.lateDropped, e.closing)
	e.log.Debug("choria engine ready", "caller", caller, "protocol", string(f.RequestProtocol()), "replies", e.inbox)
	return e, nil
}

// SetEpoch tells the engine the worker's term, once it is known. It must be called before the first Stats.
func (e *Engine) SetEpoch(n receipt.Epoch) { e.epoch.Store(uint64(n)) }

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.TTL, 60*time.Second)
	def(&o.FactTimeout, 10*time.Second)
	def(&o.StatsTimeout, 5*time.Second)
	def(&o.FlushTimeout, 5*time.Second)
	def(&o.Backoff, 500*time.Millisecond)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Meter == nil {
		o.Meter = noMeter{}
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	return o
}

// loadFramework reads the configuration as the existing provisioner does and overrides what it must.
func loadFramework(opt Options) (*fw.Framework, error) {
	if opt.ConfigFile == "" {
		return nil, fmt.Errorf("no file is named; give one with --choria-config")
	}
	if opt.TTL < time.Second || opt.TTL%time.Second != 0 || opt.TTL > time.Hour {
		return nil, fmt.Errorf("effect_ttl %s is not allowed; use whole seconds from 1s to 1h", opt.TTL)
	}
	if opt.Skew < 0 {
		return nil, fmt.Errorf("clock_skew %s is negative; use 0s or more", opt.Skew)
	}
	// The framework refuses to start without it (providers/security/choria/option.go:100), and service managers do not set it.
	if os.Getenv("USER") == "" {
		if err := os.Setenv("USER", provisioningUser); err != nil {
			return nil, fmt.Errorf("set USER in the environment: %w", err)
		}
	}
	cfg, err := config.NewSystemConfig(opt.ConfigFile, false)
	if err != nil {
		return nil, err
	}
	cfg.ApplyBuildSettings(fw.BuildInfo())
	cfg.CustomLogger = bridge(opt.Log)
	cfg.Collectives, cfg.MainCollective, cfg.RegistrationCollective = []string{collective}, collective, collective
	cfg.Registration = nil
	cfg.TTL = int(opt.TTL / time.Second)
	cfg.Choria.RequireClientFilter = false // the discovery request has an agent filter only
	if opt.Password != "" {
		cfg.Choria.NatsUser, cfg.Choria.NatsPass = provisioningUser, opt.Password
	}
	if opt.Insecure {
		cfg.DisableTLS, cfg.Choria.SecurityProvider = true, "file"
		protocol.Secure = "false" // of the whole process: the framework knows it only as a global
	}
	f, err := fw.NewWithConfig(cfg)
	if err != nil {
		return nil, err
	}
	return f, checkFramework(f, opt)
}

func checkFramework(f *fw.Framework, opt Options) error {
	if f.IsFederated() {
		return fmt.Errorf("federation is configured (plugin.choria.federation.collectives or CHORIA_FED_COLLECTIVE: %s), and provctl does not speak through it; remove it",
			strings.Join(f.FederationCollectives(), ", "))
	}
	switch f.RequestProtocol() {
	case protocol.RequestV2:
	case protocol.RequestV1:
		// the schema's minimum; a shorter one is dropped by every node
		if opt.TTL < 30*time.Second {
			return fmt.Errorf("effect_ttl %s is too short for protocol version 1; use 30s or more", opt.TTL)
		}
	default:
		return fmt.Errorf("security provider %s speaks no known protocol; use choria, file or puppet", f.SecurityProvider())
	}
	if _, err := f.MiddlewareServers(); err != nil {
		return fmt.Errorf("plugin.choria.middleware_hosts: %w", err)
	}
	return nil
}

// callerHash gives our caller id and its hash in the reply subject that the broker allows to that caller
// (broker/network/choria_auth.go:851, choria/connection.go:565).
func callerHash(f *fw.Framework, insecure bool) (caller, hash string, err error) {
	if f.RequestProtocol() == protocol.RequestV2 && !insecure {
		caller, hash, _, _, err = f.UniqueIDFromUnverifiedToken()
		if err != nil {
			return "", "", fmt.Errorf("the token of plugin.security.choria.token_file cannot be used: %w", err)
		}
		return caller, hash, checkSeed(f)
	}
	caller = f.CallerID()
	return caller, hashOf(caller), nil
}
