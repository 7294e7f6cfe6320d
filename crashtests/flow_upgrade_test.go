package crashtests

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"provctl/internal/fleet"
)

const (
	oldVersion = fleet.DefaultVersion
	newVersion = "1.2.3"
)

func (s *site) publish(releases ...fleet.Release) {
	s.t.Helper()
	for _, r := range releases {
		if err := s.fleet.Publish(r); err != nil {
			s.t.Fatal(err)
		}
	}
}

// runs wants a node to report a version and to run from an executable of it.
func (s *site) runs(node, version string) {
	s.t.Helper()
	path, err := s.fleet.Executable(node)
	if err != nil {
		s.t.Fatal(err)
	}
	installed, err := fleet.VersionOf(path)
	if reported := s.fleet.State().Nodes[node].Version; err != nil || installed != version || reported != version {
		s.t.Errorf("%s has version %q installed (%v) and reports %q, want %q", node, installed, err, reported, version)
	}
}

// story is what a node's own log says: the ends of effects and the starts, in order.
func (s *site) story(node string) string {
	s.t.Helper()
	entries, err := s.fleet.Log(node)
	if err != nil {
		s.t.Fatal(err)
	}
	var told []string
	for _, e := range entries {
		switch {
		case e.Phase == fleet.PhaseJoined:
			told = append(told, string(e.Mode))
		case e.Phase == fleet.PhaseEnd && e.Effect && e.Status == 0:
			told = append(told, e.Action)
		case e.Phase == fleet.PhaseEnd && e.Effect, e.Phase == fleet.PhaseAnswered:
			told = append(told, e.Action+" failed")
		}
	}
	return strings.Join(told, ", ")
}

func (s *site) tells(node, want string) {
	s.t.Helper()
	if got := s.story(node); got != want {
		s.t.Errorf("the story of %s is\n%s, want\n%s", node, got, want)
	}
}

// TestUpgradedNodesAreConfiguredByTheirNewServer: a node that was upgraded is taken again by itself, an hour before the next discovery,
// and everything that its configuration needs happens in its new incarnation.
func TestUpgradedNodesAreConfiguredByTheirNewServer(t *testing.T) {
	for flow, c := range map[string]struct {
		x509, splay bool
		key         string
	}{
		"upgrade":            {key: "gen25519"},
		"upgrade-pki":        {key: "gencsr", x509: true},
		"upgrade-real-times": {key: "gen25519", splay: true},
	} {
		t.Run(flow, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, options{
				nodes: 2, splay: c.splay, fleet: func(o *fleet.Options) { o.X509 = c.x509 }, releases: []fleet.Release{{Version: newVersion}},
				worker: fleet.WorkerOptions{Upgrade: newVersion, Values: patient(map[string]any{"interval": "1h"})},
			})
			s.keepAnswers("")
			s.enrolled()
			for _, node := range s.fleet.Nodes() {
				s.configured(node)
				s.runs(node, newVersion)
				s.tells(node, "provisioning, "+c.key+", release_update, provisioning, "+c.key+", configure, restart, provisioned")
			}
			s.answers(c.x509, s.fleet.Nodes()...)
			if r := s.inspect(); r.Counts.Results["upgraded"] != 2 {
				t.Errorf("results %v", r.Counts.Results)
			}
			s.discreet()
			s.told(flow)
		})
	}
}

// helperUpgrades has the helper want a version of its own of each node; none is "".
func (s *site) helperUpgrades(version map[string]string) {
	s.t.Helper()
	var b strings.Builder
	b.WriteString("case \"$identity\" in\n")
	for node, v := range version {
		b.WriteString(node + ") version='" + v + "' ;;\n")
	}
	b.WriteString("*) exit 9 ;;\nesac\nanswer | sed \"s/\\\"upgrade\\\":\\\"[^\\\"]*\\\"/\\\"upgrade\\\":\\\"$version\\\"/\"\n")
	s.wrapHelper(b.String())
}

// unwilling is a site with a node for each reason why an upgrade does not happen.
type unwilling struct {
	*site
	same, fixed, refusing, rolledBack, missing, never string
}

func newUnwilling(t *testing.T, more map[string]any) *unwilling {
	t.Helper()
	s := newSite(t, options{
		nodes: 6, fleet: func(o *fleet.Options) { o.Fixed = []string{"node-002.example.net"} },
		releases: []fleet.Release{{Version: "2.0.0", WrongChecksum: true}, {Version: "3.0.0", Reports: oldVersion}},
		worker:   fleet.WorkerOptions{Upgrade: newVersion, Values: patient(more)},
	})
	n := s.fleet.Nodes()
	u := &unwilling{s, n[0], n[1], n[2], n[3], n[4], n[5]}
	s.fleet.SetFault(u.refusing, "release_update", fleet.Fault{Kind: fleet.Answer, Code: 1, Text: "Version updates is not enabled in the configuration", Times: -1})
	s.helperUpgrades(map[string]string{
		u.same: oldVersion, u.fixed: newVersion, u.refusing: newVersion, u.rolledBack: "2.0.0", u.missing: "2.0.1", u.never: "3.0.0",
	})
	return u
}

// holdTime is how long a node is held in all by what inspect says, from when the log says that its job ended.
func (s *site) holdTime(node string) time.Duration {
	s.t.Helper()
	var ended time.Time
	for _, l := range s.logSince(0) {
		if l.Msg == "job ended" && l.Node == node {
			ended = l.Time
		}
	}
	var r struct {
		Nodes []struct {
			Node  string
			Until time.Time
		}
	}
	s.inspected(&r)
	for _, n := range r.Nodes {
		if n.Node == node {
			return n.Until.Sub(ended)
		}
	}
	return 0
}

// requested counts how often an action was asked of a node, run or not.
func (s *site) requested(node, action string) int {
	s.t.Helper()
	return s.entries(node, action, fleet.PhaseReceived)
}

// TestRequiredUpgradesThatFail: a node that cannot be upgraded is held and not configured; one whose version never changes is upgraded
// three times in vain and then left alone, until an operator admits it.
func TestRequiredUpgradesThatFail(t *testing.T) {
	t.Parallel()
	u := newUnwilling(t, nil)
	u.start()
	u.awaitFleet("the node with the wanted version is provisioned", func(st fleet.State) bool { return joined(st.Nodes[u.same]) })
	v := u.awaitView("every other node is given up for now", func(v view) bool {
		return v.Counts.Results["failed"] == 4 && v.Counts.Results["exhausted"] == 1 && v.Counts.Results["upgraded"] == 3
	})
	for node, words := range map[string]string{
		u.fixed:      "it does not allow upgrades",
		u.refusing:   "Version updates is not enabled in the configuration",
		u.rolledBack: "release rolled back",
		u.missing:    "404",
	} {
		if state, why := v.out(node); state != "held" || !strings.Contains(why, words) {
			t.Errorf("%s is %q for %q, want it held for %q", node, state, why, words)
		}
		if all := u.holdTime(node); all < 50*time.Second || all > time.Minute {
			t.Errorf("%s is held for %s, want a minute but for the time that a commit takes", node, all)
		}
	}
	if state, why := v.out(u.never); state != "out" || !strings.Contains(why, "exhausted") || !u.logged("3 upgrades to 3.0.0 changed nothing") {
		t.Errorf("the node whose version never shows is %q for %q, or the log has no reason", state, why)
	}
	for node, n := range map[string]int{u.same: 0, u.fixed: 0, u.refusing: 1, u.rolledBack: 1, u.missing: 1, u.never: 3} {
		if got := u.requested(node, "release_update"); got != n {
			t.Errorf("%s was asked to upgrade %d times, want %d", node, got, n)
		}
		if node != u.same {
			u.ran(node, map[string]int{"configure": 0, "restart": 0})
		}
	}
	u.runs(u.rolledBack, oldVersion)
	u.admitted()
}

// admitted puts the repository right and lets the operator have what failed tried again.
func (u *unwilling) admitted() {
	u.t.Helper()
	u.publish(fleet.Release{Version: "2.0.0"}, fleet.Release{Version: "3.0.0"})
	for _, node := range []string{u.rolledBack, u.never} {
		if out, code := u.provctl("admit", node, "--reason", "the release is right now", "--state-dir", u.files.StateDir); code != 0 {
			u.t.Errorf("admit %s: exit %d: %s", node, code, out)
		}
	}
	u.awaitFleet("the admitted nodes are provisioned", func(st fleet.State) bool {
		return joined(st.Nodes[u.rolledBack]) && joined(st.Nodes[u.never])
	})
	u.await("their jobs have ended", func() bool { return u.inspect().Counts.Results["provisioned"] == 3 })
	if code := u.stop(); code != 0 {
		u.t.Errorf("exit code %d", code)
	}
	u.runs(u.rolledBack, "2.0.0")
	u.runs(u.never, "3.0.0")
	u.tells(u.same, "provisioning, gen25519, configure, restart, provisioned")
	u.tells(u.rolledBack, "provisioning, gen25519, release_update failed, release_update, provisioning, gen25519, configure, restart, provisioned")
	u.ran(u.never, map[string]int{"release_update": 4, "configure": 1, "restart": 1})
	u.noneTwice()
	u.discreet()
	u.told("upgrade-required-fails")
}

// TestOptionalUpgradesThatFail: then every node is configured as it is, and no upgrade is tried more often than it may change anything.
func TestOptionalUpgradesThatFail(t *testing.T) {
	t.Parallel()
	u := newUnwilling(t, map[string]any{"upgrades_optional": true})
	u.enrolled()
	nothing := "provisioning, gen25519, configure, restart, provisioned"
	failed := "provisioning, gen25519, release_update failed, configure, restart, provisioned"
	vain := strings.Repeat("provisioning, gen25519, release_update, ", 3)
	for node, want := range map[string]string{
		u.same: nothing, u.fixed: nothing, u.refusing: failed, u.rolledBack: failed, u.missing: failed, u.never: vain + nothing,
	} {
		u.tells(node, want)
		u.runs(node, oldVersion)
	}
	u.answers(false, u.fleet.Nodes()...)
	u.discreet()
	u.told("upgrade-optional-fails")
}

// how finds by which rule a node's receipt of an action was settled; "" if by a reply.
func (s *site) how(node, action string) string {
	s.t.Helper()
	for text := range strings.Lines(read(s.t, s.log)) {
		var l struct{ Msg, Node, Action, Rule string }
		if json.Unmarshal([]byte(text), &l) == nil && l.Msg == "settled by evidence" && l.Node == node && l.Action == action {
			return l.Rule
		}
	}
	return ""
}

// TestReplyOfAnUpgradeLost: one reply is dropped, one node dies between its upgrade and the reply. Neither is upgraded again.
func TestReplyOfAnUpgradeLost(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{
		nodes: 2, releases: []fleet.Release{{Version: newVersion}},
		worker: fleet.WorkerOptions{Upgrade: newVersion, Values: short(map[string]any{"workers": 2, "effect_ttl": "10s"})},
	})
	dropped, died := s.fleet.Nodes()[0], s.fleet.Nodes()[1]
	s.fleet.SetFault(dropped, "release_update", fleet.Fault{Kind: fleet.Drop})
	s.fleet.SetFault(died, "release_update", fleet.Fault{Kind: fleet.DieAfter})
	s.start()
	s.awaitFleet("one node died", func(st fleet.State) bool { return !st.Nodes[died].Alive })
	s.startNode(died)
	s.awaitFleet("both nodes are provisioned", func(st fleet.State) bool { return st.Count(joined) == 2 })
	s.done(map[string]int{"release_update": 1, "configure": 1, "restart": 1})
	for _, node := range s.fleet.Nodes() {
		// The event leaves before the reply would; the node that died may have taken it along.
		if rule := s.how(node, "release_update"); rule != "upgraded-event" && (node == dropped || rule != "new-start") {
			t.Errorf("the upgrade of %s was settled by %q", node, rule)
		}
		if !slices.ContainsFunc(s.logSince(0), func(l logLine) bool {
			return l.Node == node && l.Action == "release_update" && strings.HasPrefix(l.Msg, "effect unknown")
		}) {
			t.Errorf("the upgrade of %s was never unknown", node)
		}
		s.runs(node, newVersion)
		s.tells(node, "provisioning, gen25519, release_update, provisioning, gen25519, configure, restart, provisioned")
	}
}

// TestDownloadThatOutlastsTheAgent: after 20 s the node's agent gives up replying while the download goes on, and swaps the server
// nevertheless (go-choria v0.30.2 server/agents/agents.go:369).
func TestDownloadThatOutlastsTheAgent(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{
		nodes: 1, releases: []fleet.Release{{Version: newVersion, Held: true}},
		worker: fleet.WorkerOptions{Upgrade: newVersion, Values: short(map[string]any{"effect_ttl": "10s"})},
	})
	node := s.fleet.Nodes()[0]
	s.start()
	s.awaitFleet("the download began", func(st fleet.State) bool { return st.Downloads[newVersion].Waiting == 1 })
	agent := time.NewTimer(agentTimeout + time.Second)
	defer agent.Stop()
	v := s.awaitView("the upgrade is unknown past its horizon", func(v view) bool {
		i, ok := v.of(node)
		return ok && i.Action == "release_update" && i.Status == "unknown" && i.HorizonLeft <= 0
	})
	select {
	case <-agent.C: // the only way to see that the agent has given up
	case <-s.ctx.Done():
		t.Fatal(s.ctx.Err())
	}
	if after, ok := s.view().of(node); !ok || after.Receipt != v.Items[0].Receipt || after.Status != "unknown" {
		t.Errorf("meanwhile the receipt became %+v", after)
	}
	if n := s.fleet.FreeDownloads(newVersion); n != 1 {
		t.Errorf("%d downloads waited", n)
	}
	s.awaitFleet("the node is provisioned", func(st fleet.State) bool { return joined(st.Nodes[node]) })
	s.done(map[string]int{"release_update": 1, "configure": 1, "restart": 1})
	if rule := s.how(node, "release_update"); rule != "upgraded-event" {
		t.Errorf("the upgrade was settled by %q", rule)
	}
	s.runs(node, newVersion)
	s.tells(node, "provisioning, gen25519, release_update, provisioning, gen25519, configure, restart, provisioned")
}

// agentTimeout is how long a node's agents may take until nobody waits for their reply any more
// (go-choria v0.30.2 providers/agent/mcorpc/golang/provision/provision.go:49).
const agentTimeout = 20 * time.Second
