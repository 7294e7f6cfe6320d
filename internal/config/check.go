package config

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// longTakeover is how long a takeover may stand still without a word: twice what the defaults give.
const longTakeover = 2 * time.Minute

// checkFlow checks what depends on more than one key.
func (d *decoder) checkFlow(c *Config) {
	if c.StatusPort > 0 && c.StatusPort == c.MonitorPort {
		d.problemAt("status_port", strconv.Itoa(c.StatusPort), "is the monitor_port as well", "give the status page a port of its own, or 0 for none")
	}
	if c.Features.PKI && c.Features.Ed25519 {
		d.problemAt("features.pki", "true", "excludes features.ed25519", "keep one of the two")
	}
	// The ed25519 flow starts from the node's verified token
	// (existing provisioner, configuration of features).
	c.Features.JWT = c.Features.JWT || c.Features.Ed25519
	d.required("state_dir", c.StateDir, "name the directory that provctl init made")
	d.required("helper", c.Helper, "name the program that makes the nodes' configurations")
	if c.Features.JWT {
		d.required("jwt_verify_cert", c.JWTVerifyCert, "name the certificate or key that provisioning.jwt is verified with, or switch features.jwt off")
	}
	if c.Features.Ed25519 {
		d.required("jwt_signing_key", c.JWTSigningKey, "name the seed file that signs server tokens, or switch features.ed25519 off")
	}
	if c.Features.Upgrades {
		d.required("upgrades_repository", c.UpgradesRepository.Reveal(), "name the go-updater repository that nodes download from, or switch features.upgrades off")
	}
	d.warnRisks(c)
	d.warnTrust(c)
	d.warnElection(c)
}

func (d *decoder) required(key, value, remedy string) {
	if value == "" && !d.failed(key) {
		d.problemAt(key, "", "is missing", remedy)
	}
}

func (d *decoder) warnRisks(c *Config) {
	if c.Interval < time.Minute {
		d.warn("interval", fmt.Sprintf("%s is under one minute, which choria-provisioner refuses: meant for tests, it loads the broker", c.Interval))
	}
	if horizon := c.EffectTTL + c.ClockSkew; c.StopTimeout < horizon {
		d.warn("stop_timeout", fmt.Sprintf("%s is shorter than effect_ttl + clock_skew (%s): a stop may leave effects unknown", c.StopTimeout, horizon))
	}
	if c.ServerJWTValidity < time.Hour {
		d.warn("server_jwt_validity", fmt.Sprintf("%s is under one hour: nodes whose token expires come back to be provisioned", c.ServerJWTValidity))
	}
	if len(c.Token) > tokenDDLLimit {
		d.warn("token", fmt.Sprintf("longer than the %d characters that nodes declare for it", tokenDDLLimit))
	}
}

// warnTrust says what nobody verifies.
func (d *decoder) warnTrust(c *Config) {
	f := c.Features
	if c.ChoriaInsecure {
		d.warn("choria_insecure", "neither TLS nor signatures: whoever reaches the broker can pass for the provisioner or for a node; meant for tests")
	}
	if d.failed("features") || d.failed("features.jwt") || d.failed("features.ed25519") || d.failed("features.pki") {
		return // which flow is meant is not known
	}
	if !f.JWT {
		d.warn("features.jwt", "is off: nodes' provisioning tokens are not verified, so whoever reaches the provisioning account is provisioned")
	}
	if !f.PKI && !f.Ed25519 {
		d.warn("features", "neither ed25519 nor pki is on: nodes are configured and get no key, token or certificate of their own")
	}
	// The broker knows the provisioner by its user name alone, and asks that user for the password (go-choria
	// broker/network/choria_auth.go:110, 485).
	if !c.ChoriaInsecure && c.BrokerProvisioningPassword == "" && !d.failed("broker_provisioning_password") {
		d.warn("broker_provisioning_password", "is not set: the broker lets nobody at its nodes in provisioning mode without this password, "+
			"whatever certificate or token there is besides; no node would be found")
	}
}

func (d *decoder) warnElection(c *Config) {
	if !c.LeaderElection {
		return
	}
	d.warn("leader_election", "each worker has a journal of its own: a node half-way at a takeover starts anew after one horizon, and what is blocked in "+
		"one journal is not known to the others; see docs/migrating.md")
	if wait := c.EffectTTL + c.ClockSkew; wait > longTakeover {
		d.warn("effect_ttl", fmt.Sprintf("with leader_election a new leader waits effect_ttl + clock_skew (%s) before its first effect", wait))
	}
}

// warnUnused names every key that is set and changes nothing; what else there
// is to warn of in it does not matter then.
func (d *decoder) warnUnused(c *Config) {
	unused := func(why string, keys ...string) {
		for _, key := range keys {
			if e, ok := d.entries[key]; ok && e.node != nil && !d.failed(key) {
				d.warnings = slices.DeleteFunc(d.warnings, func(w Warning) bool { return w.Key == key })
				d.warn(key, "unused: "+why)
			}
		}
	}
	unused("this key has no effect, as in choria-provisioner", "broker_port", "rego_policy")
	if c.ControlGroup == "" {
		unused("control_group is not set", "control_socket")
	}
	if !c.Features.Upgrades {
		unused("features.upgrades is off", "upgrades_repository", "upgrades_optional")
	}
	if !c.Features.JWT {
		unused("features.jwt is off", "jwt_verify_cert")
	}
	if !c.Features.Ed25519 {
		unused("features.ed25519 is off", "jwt_signing_key", "jwt_signing_token", "server_jwt_validity")
	}
}
