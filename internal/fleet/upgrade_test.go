package fleet

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// upgradeRig is one upgradable node.
type upgradeRig struct {
	*testClient
	f    *Fleet
	node string
}

func newUpgradeRig(t *testing.T, nodes int, more func(*Options)) *upgradeRig {
	t.Helper()
	opts := testOptions(t, nodes)
	opts.Upgradable = true
	if more != nil {
		more(&opts)
	}
	f := startFleet(t, opts)
	return &upgradeRig{testClient: newTestClient(t, f, "provisioning"), f: f, node: f.Nodes()[0]}
}

func (r *upgradeRig) publish(release Release) {
	r.t.Helper()
	r.check(r.f.Publish(release))
}

func (r *upgradeRig) ask(version string) *request {
	r.t.Helper()
	return r.call(r.node, "release_update", map[string]any{"repository": r.f.Repository(), "version": version})
}

// upgrade asks and gives the reply.
func (r *upgradeRig) upgrade(version string) rpcReply {
	r.t.Helper()
	return r.ask(version).next(deadline(r.t))
}

// installed reads the versions of the executable and of its backup, empty where there is none.
func (r *upgradeRig) installed() (current, backup string) {
	r.t.Helper()
	path, err := r.f.Executable(r.node)
	r.check(err)
	current, _ = VersionOf(path)
	backup, _ = VersionOf(path + ".backup")
	return current, backup
}

// shows fails the test unless the node reports that version everywhere.
func (r *upgradeRig) shows(version string, upgradable bool) {
	r.t.Helper()
	var stats, inventory struct {
		Version    string `json:"version"`
		Upgradable bool   `json:"upgradable"`
	}
	r.check(json.Unmarshal(r.ok(r.node, "rpcutil", "daemon_stats", map[string]any{}), &stats))
	r.check(json.Unmarshal(r.ok(r.node, "rpcutil", "inventory", map[string]any{}), &inventory))
	state := r.f.State().Nodes[r.node].Version
	if stats.Version != version || inventory.Version != version || state != version || inventory.Upgradable != upgradable {
		r.t.Errorf("daemon_stats %q, inventory %q, upgradable %t, the fleet %q; want %q, %t",
			stats.Version, inventory.Version, inventory.Upgradable, state, version, upgradable)
	}
}

func (r *upgradeRig) rebooted(boots int) NodeState {
	r.t.Helper()
	return await(r.t, r.f, r.node, func(s NodeState) bool { return s.Joined && s.Boots == boots })
}

func TestUpgradeSwapsTheExecutable(t *testing.T) {
	r := newUpgradeRig(t, 1, nil)
	r.publish(Release{Version: "1.2.3"})
	r.shows(DefaultVersion, true)
	events, err := r.conn.SubscribeSync("choria.lifecycle.event.upgraded.provision_mode_server")
	r.check(err)
	r.check(r.conn.Flush())
	before := stats(r.testClient, r.node)
	if reply := r.upgrade("1.2.3"); reply.Code != 0 || !strings.Contains(string(reply.Data), "Restarting") {
		t.Fatalf("%d %s %s", reply.Code, reply.Text, reply.Data)
	}
	if s := r.rebooted(2); s.Mode != Provisioning {
		t.Errorf("mode %q", s.Mode)
	}
	r.shows("1.2.3", true)
	if after := stats(r.testClient, r.node); after.PID != before.PID || after.Start <= before.Start {
		t.Errorf("incarnation %+v after %+v", after, before)
	}
	if current, backup := r.installed(); current != "1.2.3" || backup != DefaultVersion {
		t.Errorf("installed %q, backup %q", current, backup)
	}
	event, err := events.NextMsgWithContext(deadline(t))
	r.check(err)
	if !strings.Contains(string(event.Data), `"1.2.3"`) {
		t.Errorf("event %s", event.Data)
	}
	if got, want := phases(t, r.f, r.node, "release_update"), []string{"received", "begin", "end:0"}; !slices.Equal(got, want) {
		t.Errorf("log %q, want %q", got, want)
	}
	configure(t, r.testClient, r.node)
	r.provision(r.node, "restart", map[string]any{"splay": 1})
	if s := await(t, r.f, r.node, isProvisioned); s.Version != "1.2.3" {
		t.Errorf("provisioned with version %q", s.Version)
	}
}

func TestFailedUpgradesChangeNothing(t *testing.T) {
	r := newUpgradeRig(t, 1, nil)
	r.publish(Release{Version: "2.0.0", WrongChecksum: true})
	r.publish(Release{Version: "2.0.1", NoBinary: true})
	for version, want := range map[string]string{"2.0.0": "invalid checksum", "2.0.1": "404", "2.0.2": "404"} {
		reply := r.upgrade(version)
		if reply.Code != 1 || !strings.Contains(reply.Text, want) || !strings.Contains(reply.Text, "release rolled back") {
			t.Errorf("%s: %d %s; want %s", version, reply.Code, reply.Text, want)
		}
	}
	if current, backup := r.installed(); current != DefaultVersion || backup != "" {
		t.Errorf("installed %q, backup %q", current, backup)
	}
	r.publish(Release{Version: "2.0.0"})
	if reply := r.upgrade("2.0.0"); reply.Code != 0 {
		t.Errorf("%d %s", reply.Code, reply.Text)
	}
	r.rebooted(2)
	r.shows("2.0.0", true)
	if d := r.f.State().Downloads; d["2.0.0"].Binaries != 2 || d["2.0.2"].Announcements != 1 {
		t.Errorf("downloads %+v", d)
	}
	if a, err := r.f.Audit(); err != nil || len(a.Twice) != 0 || a.Effects != 4 {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestHeldDownload(t *testing.T) {
	r := newUpgradeRig(t, 1, nil)
	r.publish(Release{Version: "1.2.3", Held: true})
	waiting := func(n int) {
		t.Helper()
		r.check(r.f.Wait(deadline(t), func(s State) bool { return s.Downloads["1.2.3"].Waiting == n }))
	}
	upgrade := r.ask("1.2.3")
	waiting(1)
	// The download holds the node's action mutex, and a crash of the node ends it.
	queued := r.call(r.node, "jwt", nil)
	r.ok(r.node, "rpcutil", "ping", map[string]any{})
	queued.none()
	r.check(r.f.KillNode(r.node))
	waiting(0)
	upgrade.none()
	r.check(r.f.StartNode(deadline(t), r.node))
	r.shows(DefaultVersion, true)
	upgrade = r.ask("1.2.3")
	waiting(1)
	if n := r.f.FreeDownloads("1.2.3"); n != 1 {
		t.Errorf("%d downloads freed", n)
	}
	if reply := upgrade.next(deadline(t)); reply.Code != 0 {
		t.Errorf("%d %s", reply.Code, reply.Text)
	}
	r.rebooted(3)
	r.shows("1.2.3", true)
}

func TestUpgradeThatNeverShows(t *testing.T) {
	r := newUpgradeRig(t, 1, nil)
	r.publish(Release{Version: "1.2.3", Reports: DefaultVersion})
	for boots := 2; boots <= 3; boots++ {
		if reply := r.upgrade("1.2.3"); reply.Code != 0 {
			t.Errorf("%d %s", reply.Code, reply.Text)
		}
		r.rebooted(boots)
		r.shows(DefaultVersion, true)
	}
	if a, err := r.f.Audit(); err != nil || len(a.Twice) != 0 {
		t.Errorf("%+v, %v; each upgrade was of an incarnation of its own", a, err)
	}
}

func TestUpgradeToWhatCannotRun(t *testing.T) {
	r := newUpgradeRig(t, 1, nil)
	r.publish(Release{Version: "3.0.0", Content: []byte("no program at all")})
	r.publish(Release{Version: "3.0.1", Content: []byte("#!/bin/sh\nexit 7\n")})
	if reply := r.upgrade("3.0.0"); reply.Code != 0 {
		t.Errorf("%d %s", reply.Code, reply.Text)
	}
	// The restart's exec fails and the old server goes on, with the action mutex free again.
	r.provision(r.node, "jwt", nil)
	r.shows(DefaultVersion, true)
	if current, backup := r.installed(); current != "" || backup != DefaultVersion {
		t.Errorf("installed %q, backup %q", current, backup)
	}
	if reply := r.upgrade("3.0.1"); reply.Code != 0 {
		t.Errorf("%d %s", reply.Code, reply.Text)
	}
	if s := await(t, r.f, r.node, func(s NodeState) bool { return !s.Alive }); s.Exit != "exit status 7" || s.Boots != 1 {
		t.Errorf("exit %q after %d boots", s.Exit, s.Boots)
	}
	if a, err := r.f.Audit(); err != nil || len(a.Twice) != 1 {
		t.Errorf("%+v, %v; the second upgrade of this incarnation is one too many", a, err)
	}
}

func TestCrashAfterTheSwapStartsTheNewVersion(t *testing.T) {
	r := newUpgradeRig(t, 1, nil)
	r.publish(Release{Version: "1.2.3"})
	r.f.SetFault(r.node, "release_update", Fault{Kind: DieAfter})
	r.ask("1.2.3")
	await(t, r.f, r.node, func(s NodeState) bool { return !s.Alive })
	r.check(r.f.StartNode(deadline(t), r.node))
	r.shows("1.2.3", true)
}

func TestFixedNodesRefuseUpgrades(t *testing.T) {
	var fixed string
	r := newUpgradeRig(t, 2, func(o *Options) {
		o.Names = func(i int) string { return []string{"fixed.example.net", "free.example.net"}[i-1] }
		fixed, o.Fixed, o.Version = "fixed.example.net", []string{"fixed.example.net"}, "0.29.1~rc1"
	})
	r.publish(Release{Version: "1.2.3"})
	r.shows("0.29.1~rc1", false)
	if reply := r.upgrade("1.2.3"); reply.Code != 1 || !strings.Contains(reply.Text, "Version updates is not enabled") {
		t.Errorf("%s: %d %s", fixed, reply.Code, reply.Text)
	}
	r.node = "free.example.net"
	r.shows("0.29.1~rc1", true)
}

func TestRealSplayExecutesTheNewVersion(t *testing.T) {
	t.Parallel()
	r := newUpgradeRig(t, 1, func(o *Options) { o.RealSplay = true })
	r.publish(Release{Version: "1.2.3"})
	if reply := r.upgrade("1.2.3"); reply.Code != 0 {
		t.Errorf("%d %s", reply.Code, reply.Text)
	}
	r.rebooted(2)
	r.shows("1.2.3", true)
}

func TestUpgradeTwiceIsFound(t *testing.T) {
	entry := func(phase Phase, request string, status int) Entry {
		return Entry{Node: "n", PID: 1, Start: 1, Phase: phase, Action: "release_update", RequestID: request, Effect: true, Status: status}
	}
	for name, c := range map[string]struct {
		entries []Entry
		twice   int
	}{
		"after a success":    {[]Entry{entry(PhaseBegin, "a", NoStatus), entry(PhaseEnd, "a", 0), entry(PhaseBegin, "b", NoStatus)}, 1},
		"without an end":     {[]Entry{entry(PhaseBegin, "a", NoStatus), entry(PhaseBegin, "b", NoStatus)}, 1},
		"after a failure":    {[]Entry{entry(PhaseBegin, "a", NoStatus), entry(PhaseEnd, "a", 1), entry(PhaseBegin, "b", NoStatus)}, 0},
		"the same request":   {[]Entry{entry(PhaseBegin, "a", NoStatus), entry(PhaseEnd, "a", 1), entry(PhaseBegin, "a", NoStatus)}, 1},
		"another that began": {[]Entry{entry(PhaseReceived, "a", NoStatus), entry(PhaseBegin, "b", NoStatus)}, 0},
	} {
		if a := AuditEntries(c.entries); len(a.Twice) != c.twice {
			t.Errorf("%s: %v, want %d", name, a.Twice, c.twice)
		}
	}
}

func TestUpgradeOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"fixed and none upgradable": {Fixed: []string{"a"}},
		"a version with a space":    {Version: "1 2"},
		"a version with a quote":    {Version: "1'2"},
		"two that exclude":          {X509: true, Streams: true},
		"fixed and unknown":         {Upgradable: true, Fixed: []string{"nobody"}},
	} {
		o.Dir = filepath.Join(t.TempDir(), "fleet")
		if _, err := Start(deadline(t), o); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
	plain := startFleet(t, testOptions(t, 0))
	if err := plain.Publish(Release{Version: "1.2.3"}); !errors.Is(err, ErrNoRepository) || plain.Repository() != "" {
		t.Errorf("a fleet without repository: %v, %q", err, plain.Repository())
	}
	opts := testOptions(t, 0)
	opts.Version = "1.0.0"
	f := startFleet(t, opts)
	for _, r := range []Release{{}, {Version: "a/b"}, {Version: "1", Reports: "\n"}, {Version: "1", Content: make([]byte, maxPacked+1)}} {
		if err := f.Publish(r); err == nil {
			t.Errorf("published %.20q %q", r.Version, r.Reports)
		}
	}
	if n := f.FreeDownloads("none"); n != 0 {
		t.Errorf("%d downloads freed of a release that is none", n)
	}
}
