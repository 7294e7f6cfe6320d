package crashtests

import (
	"testing"

	"provctl/internal/fleet"
)

// TestKilledAtCertificateRequestAndUpgrade kills the worker at the effects that only these flows have. Neither may leave anything to
// decide on: a key may be made again once its request has expired, and an upgrade shows in the node's new server.
func TestKilledAtCertificateRequestAndUpgrade(t *testing.T) {
	t.Parallel()
	var steps []boundary
	for _, action := range []string{"gencsr", "release_update"} {
		steps = append(steps, boundary{action, fleet.PhaseBegin}, boundary{action, fleet.PhaseEnd})
	}
	s := killedAtEach(t, steps, options{
		fleet: withCertificates, releases: []fleet.Release{{Version: newVersion}},
		worker: fleet.WorkerOptions{Upgrade: newVersion, Values: patient(map[string]any{"interval": "2s"})},
	})
	s.done(map[string]int{"release_update": 1, "configure": 1, "restart": 1, "gen25519": 0})
	for _, node := range s.fleet.Nodes() {
		s.runs(node, newVersion)
	}
}
