// Package config reads the worker's YAML configuration: the existing
// provisioner's keys, so that a site can keep its file, and this project's own.
//
// Everything that is wrong is reported at once, each with place, value and
// remedy (see [Invalid]); what is accepted but deserves a look is a [Warning].
//
// Relative paths are resolved against the directory of the configuration file,
// never against the working directory of the process: a service manager and an
// operator's shell then read the same file the same way. A helper program
// without a slash is looked up in PATH.
package config

import (
	"log/slog"
	"runtime"
	"time"
)

// OnUnknown says what an effect whose outcome is unknown blocks.
type OnUnknown string

// Values of the key on_unknown.
const (
	// BlockNode blocks the node alone.
	BlockNode OnUnknown = "node"
	// BlockFleet stops all effects.
	BlockFleet OnUnknown = "fleet"
)

// Evidence says whether proofs settle unknown effects by themselves.
type Evidence string

// Values of the key evidence.
const (
	// EvidenceAuto settles what a proof rule accepts.
	EvidenceAuto Evidence = "auto"
	// EvidenceManual shows the same proofs as advice only.
	EvidenceManual Evidence = "manual"
)

// Features are the parts of the cycle that a site switches on.
type Features struct {
	PKI      bool // enrol with x509 certificates; excludes Ed25519
	JWT      bool // fetch and verify provisioning.jwt; implied by Ed25519
	Ed25519  bool // issue a server token for a fresh ed25519 key
	Upgrades bool // in-place upgrades of the node's Choria
}

// Config is a configuration that passed every check of [Load]. All paths are
// absolute, all durations and limits within range.
type Config struct {
	File string // absolute path of the file read

	Places map[string]Position // of the keys that are set

	Workers            int           // lanes, at least 1
	Interval           time.Duration // between discoveries, see [Load]
	Logfile            string        // empty: standard error
	Loglevel           slog.Level
	Helper             string // command line, quoted for a shell-like split; its program is absolute
	Token              Secret // sent with each provisioning request
	LifecycleComponent string // one subject token
	ChoriaInsecure     bool
	Site               string // label of all metrics
	MonitorPort        int    // 0: no metrics listener
	StatusPort         int    // of the status page, on the loopback address; 0: none

	BrokerProvisioningPassword Secret

	JWTVerifyCert     string // absolute path, or 64 hex digits; see [IsHexKey]
	JWTSigningKey     string
	JWTSigningToken   string
	ServerJWTValidity time.Duration

	CertDenyList       []string // valid patterns, as the file has them; names that no certificate may have
	UpgradesRepository Secret   // URL without a slash at its end; it may hold credentials
	UpgradesOptional   bool
	LeaderElection     bool
	Features           Features

	StateDir         string
	EffectTTL        time.Duration // whole seconds
	ClockSkew        time.Duration
	StopTimeout      time.Duration
	OnUnknown        OnUnknown
	MaxUnknown       int
	MaxRequeues      int
	Evidence         Evidence
	HelperTimeout    time.Duration
	HistoryRetention time.Duration

	ControlGroup  string // its members may command the worker; empty: nobody else may
	ControlGID    int    // its id, if ControlGroup is set
	ControlSocket string // absolute path of the group's socket, if ControlGroup is set
}

const (
	defaultComponent = "provision_mode_server"
	defaultSocket    = "/run/provctl/control.sock"
	day              = 24 * time.Hour
	year             = 365 * day
	// stopSlack is what the default stop_timeout leaves after the last horizon
	// for settling and closing.
	stopSlack = 20 * time.Second
	// tokenDDLLimit is the length that the node's agent declares for the token
	// (go-choria client/choria_provisionclient/ddl.json); neither side enforces it.
	tokenDDLLimit = 128
)

func defaults() *Config {
	return &Config{
		Workers:            runtime.NumCPU(),
		Interval:           time.Minute,
		Loglevel:           slog.LevelInfo,
		LifecycleComponent: defaultComponent,
		ServerJWTValidity:  year,
		CertDenyList: []string{
			`\.privileged.mcollective$`, `\.privileged.choria$`, `\.mcollective$`, `\.choria$`,
		},
		EffectTTL:        time.Minute,
		ClockSkew:        10 * time.Second,
		OnUnknown:        BlockNode,
		MaxUnknown:       10,
		MaxRequeues:      2,
		Evidence:         EvidenceAuto,
		HelperTimeout:    10 * time.Second,
		HistoryRetention: 30 * day,
	}
}

// Load reads, decodes and checks the file at path. The error is an [*Invalid]
// that lists everything wrong; with it the configuration is nil, the warnings
// are still returned. Load changes nothing and connects nowhere.
//
// One deviation from the existing provisioner: it refuses an interval under
// one minute, Load accepts one second and more and warns under a minute, so
// that tests and demonstrations need not wait.
func Load(path string) (*Config, []Warning, error) {
	r := Examine(path)
	if len(r.Problems) > 0 {
		return nil, r.Warnings, &Invalid{Problems: r.Problems}
	}
	return r.Config, r.Warnings, nil
}

// Refuse makes an [*Invalid] of what comes out only when a setting is used: the content of a file that it names, a directory
// that will not do. The error's text is one line without secrets that says the remedy.
func (c *Config) Refuse(key string, err error) *Invalid {
	return &Invalid{Problems: []Problem{{File: c.File, At: c.Places[key], Key: key, Text: err.Error()}}}
}

// decode fills c from the entries. Each accessor marks its key as known, so the
// list of known keys is this function.
func (d *decoder) decode(c *Config) {
	d.workers(&c.Workers)
	d.duration("interval", &c.Interval, time.Second, year)
	d.path("logfile", &c.Logfile)
	d.level("loglevel", &c.Loglevel)
	d.str("helper", &c.Helper)
	d.secret("token", &c.Token)
	d.component("lifecycle_component", &c.LifecycleComponent)
	d.boolean("choria_insecure", &c.ChoriaInsecure)
	d.str("site", &c.Site)
	d.integer("monitor_port", &c.MonitorPort, 0, 65535)
	d.secret("broker_provisioning_password", &c.BrokerProvisioningPassword)
	d.patterns("cert_deny_list", &c.CertDenyList)
	d.str("jwt_verify_cert", &c.JWTVerifyCert)
	d.path("jwt_signing_key", &c.JWTSigningKey)
	d.path("jwt_signing_token", &c.JWTSigningToken)
	d.duration("server_jwt_validity", &c.ServerJWTValidity, time.Minute, 100*year)
	d.boolean("leader_election", &c.LeaderElection)
	d.repository("upgrades_repository", &c.UpgradesRepository)
	d.boolean("upgrades_optional", &c.UpgradesOptional)

	var ignoredPort int
	var ignoredPolicy string
	d.integer("broker_port", &ignoredPort, 0, 65535)
	d.str("rego_policy", &ignoredPolicy)

	d.section("features")
	d.boolean("features.pki", &c.Features.PKI)
	d.boolean("features.jwt", &c.Features.JWT)
	d.boolean("features.ed25519", &c.Features.Ed25519)
	d.boolean("features.upgrades", &c.Features.Upgrades)

	d.path("state_dir", &c.StateDir)
	d.seconds("effect_ttl", &c.EffectTTL, 2*time.Second, 10*time.Minute)
	d.duration("clock_skew", &c.ClockSkew, 0, 5*time.Minute)
	c.StopTimeout = c.EffectTTL + c.ClockSkew + stopSlack
	d.duration("stop_timeout", &c.StopTimeout, time.Second, time.Hour)
	choice(d, "on_unknown", &c.OnUnknown, BlockNode, BlockFleet)
	d.integer("max_unknown", &c.MaxUnknown, 1, 1_000_000)
	d.integer("max_requeues", &c.MaxRequeues, 0, 1_000)
	choice(d, "evidence", &c.Evidence, EvidenceAuto, EvidenceManual)
	d.duration("helper_timeout", &c.HelperTimeout, 100*time.Millisecond, 10*time.Minute)
	d.integer("status_port", &c.StatusPort, 0, 65535)
	d.duration("history_retention", &c.HistoryRetention, time.Hour, 100*year)
	d.str("control_group", &c.ControlGroup)
	d.path("control_socket", &c.ControlSocket)
}
