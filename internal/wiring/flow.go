package wiring

import (
	"provctl/internal/config"
	"provctl/sequence"
)

// FlowOf says which steps a configuration asks for.
func FlowOf(cfg *config.Config) sequence.Flow {
	f := cfg.Features
	return sequence.Flow{
		JWT: f.JWT, Ed25519: f.Ed25519, PKI: f.PKI, Upgrades: f.Upgrades,
		Repository: cfg.UpgradesRepository.Reveal(), UpgradeOptional: cfg.UpgradesOptional,
	}
}
