package config

import (
	"fmt"
	"strings"
)

// Plan says on one line, without secrets, what a worker with this configuration does.
func (c *Config) Plan() string {
	f := c.Features
	flow := "plain flow (configure only)"
	switch {
	case f.Ed25519 && c.JWTSigningToken != "":
		flow = "ed25519 flow with a chain of trust"
	case f.Ed25519:
		flow = "ed25519 flow"
	case f.PKI:
		flow = "pki flow"
	}
	tokens := "node tokens not verified"
	if f.JWT {
		tokens = "node tokens verified"
	}
	lanes := count(c.Workers, "lane")
	upgrades := "upgrades off"
	switch {
	case f.Upgrades && c.UpgradesOptional:
		upgrades = "upgrades on and optional"
	case f.Upgrades:
		upgrades = "upgrades on and required"
	}
	election := "no leader election"
	if c.LeaderElection {
		election = "leader election"
	}
	metrics := "no metrics"
	if c.MonitorPort > 0 {
		metrics = fmt.Sprintf("metrics on port %d", c.MonitorPort)
	}
	if c.StatusPort > 0 {
		metrics += fmt.Sprintf(", status page on port %d of 127.0.0.1", c.StatusPort)
	}
	unknown := "an unknown outcome blocks its node"
	if c.OnUnknown == BlockFleet {
		unknown = "an unknown outcome stops all effects"
	}
	proofs := "proofs settle"
	if c.Evidence == EvidenceManual {
		proofs = "proofs advise only"
	}
	return strings.Join([]string{
		flow, tokens, upgrades, lanes, "discovery every " + formatDuration(c.Interval),
		election, metrics, unknown, proofs,
	}, ", ")
}
