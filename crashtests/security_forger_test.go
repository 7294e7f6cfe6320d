package crashtests

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"provctl/internal/fleet"
)

// says publishes a lifecycle event in a node's name.
func (f *forger) says(kind, node string) {
	f.t.Helper()
	event := fmt.Sprintf(`{"protocol":"io.choria.lifecycle.v1.%s","id":"forged","identity":%q,"component":"provision_mode_server","timestamp":%d}`, kind, node, time.Now().Unix())
	if err := f.conn.Publish("choria.lifecycle.event."+kind+".provision_mode_server", []byte(event)); err != nil {
		f.t.Fatal(err)
	}
	if err := f.conn.FlushTimeout(10 * time.Second); err != nil || f.conn.LastError() != nil {
		f.t.Fatalf("the forged event did not pass: %v, %v", err, f.conn.LastError())
	}
}

// TestSecurityForgedEvidence has the holder of one node's provisioning token say in another node's name that a configure was done which is
// still on its way. With evidence: auto he is believed, which is as far as he gets: the node refuses the restart, is held each time until its
// process is another, nothing runs twice, and no node counts as provisioned that is not. With evidence: manual he has proposed a verdict.
func TestSecurityForgedEvidence(t *testing.T) {
	t.Parallel()
	for _, evidence := range []string{"auto", "manual"} {
		t.Run(evidence, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, options{nodes: 2, worker: fleet.WorkerOptions{Values: short(map[string]any{"workers": 2, "evidence": evidence})}})
			victim := s.fleet.Nodes()[1]
			s.fleet.SetFault(victim, "configure", fleet.Fault{Kind: fleet.Hold, Detached: true})
			mallory := newForger(s)
			s.start()
			s.awaitFleet("the configure is on its way", func(st fleet.State) bool { return slices.Contains(st.Nodes[victim].Held, "configure") })
			mallory.says("provisioned", victim)
			if evidence == "manual" {
				s.awaitView("the forged event proposes a verdict", func(v view) bool {
					i, ok := v.of(victim)
					return ok && i.Status == "unknown" && v.proposes(victim) == "applied provisioned-event"
				})
			} else {
				s.await("the restart is refused, and the node is held for it", func() bool { return strings.Contains(s.heldWhy(victim), "could not be parsed") })
				if told, _ := s.provctl("history", victim, "--json", "--state-dir", s.files.StateDir); !strings.Contains(told, "provisioned-event") {
					t.Errorf("what settled the configure is not on record: %s", told)
				}
			}
			s.await("the other node's job has ended", func() bool { return s.inspect().Counts.Results["provisioned"] > 0 })
			if n := s.inspect().Counts.Results["provisioned"]; n != 1 {
				t.Errorf("%d nodes count as provisioned, want the one that is", n)
			}
			s.fleet.Release(victim, "configure")
			if evidence == "manual" && s.begins(victim, "restart") != 0 {
				t.Error("an effect was sent on a forged proof")
			}
			if n := s.begins(victim, "configure"); n != 0 {
				t.Errorf("the configure ran %d times, although its time was over", n)
			}
			s.noneTwice()
		})
	}
}

// proposes is the verdict that the evidence on a node's receipt supports, and its rule.
func (v view) proposes(node string) string {
	for _, i := range v.Items {
		if i.Node == node && i.Proposed != nil {
			return i.Proposed.Verdict + " " + i.Proposed.Rule
		}
	}
	return ""
}
