package lightnode

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/choria-io/go-choria/choria"

	"provctl/internal/fleet"
)

// subject is one node, real or light, as the conformance script sees it.
type subject struct {
	name, dir string
	log       func() ([]fleet.Entry, error)
	await     func(func(fleet.NodeState) bool)
	event     *events
	seen      []string
}

// note records something that must be the same on both.
func (s *subject) note(step, format string, args ...any) {
	s.seen = append(s.seen, step+": "+s.plain(fmt.Sprintf(format, args...)))
}

var (
	digits = regexp.MustCompile(`after \d+s`)
	hexes  = regexp.MustCompile(`[0-9a-f]{32,}`)
	temps  = regexp.MustCompile(`\$DIR/provision[.a-z0-9]*`)
)

// plain takes out what differs between any two nodes and any two runs.
func (s *subject) plain(text string) string {
	text = strings.NewReplacer(s.dir, "$DIR", s.name, "$NODE").Replace(text)
	return temps.ReplaceAllString(hexes.ReplaceAllString(digits.ReplaceAllString(text, "after Ns"), "HEX"), "$$DIR/TEMP")
}

// shape is a reply: code, text and the fields of its data, with a message in full.
func shape(r reply) string {
	var data map[string]json.RawMessage
	_ = json.Unmarshal(r.Data, &data)
	text := fmt.Sprintf("code %d %q %q", r.Code, r.Text, slices.Sorted(maps.Keys(data)))
	for _, field := range []string{"message", "directory", "ssldir", "agents", "collectives", "main_collective", "upgradable", "version", "data_plugins", "classes", "machines", "configfile"} {
		if value, ok := data[field]; ok {
			text += fmt.Sprintf(" %s=%s", field, value)
		}
	}
	if len(data) == 0 {
		text += string(r.Data)
	}
	return text
}

// refusals are requests that change nothing lasting, in the order of the script.
var refusals = []struct {
	step, action string
	data         map[string]any
}{
	{"wrong token", "jwt", map[string]any{"token": "wrong"}},
	{"no token", "gen25519", map[string]any{"token": nil}},
	{"mistyped token", "configure", map[string]any{"token": 7}},
	{"unknown action", "nonsense", nil},
	{"jwt", "jwt", nil},
	{"wrong token of an unlocked action", "restart", map[string]any{"token": "wrong"}},
	{"wrong token of shutdown", "shutdown", map[string]any{"token": "wrong"}},
	{"restart without a configuration", "restart", map[string]any{"splay": 1}},
	{"upgrade", "release_update", map[string]any{"version": "1.2.3", "repository": "http://127.0.0.1:1"}},
	{"reprovision", "reprovision", nil},
	{"empty configuration", "configure", map[string]any{"config": ""}},
	{"undecodable configuration", "configure", map[string]any{"config": "no json"}},
	{"configuration that is no map of strings", "configure", map[string]any{"config": `{"a":1}`}},
	{"key without ECDH", "configure", map[string]any{"config": `{"a":"1"}`, "key": "k"}},
	{"key that is none", "configure", map[string]any{
		"config": `{"a":"1"}`, "key": "k", "ecdh_public": strings.Repeat("09", 32), "certificate": "c", "ca": "a", "ssldir": "$DIR/ssl",
	}},
	{"key for a bad ECDH key", "configure", map[string]any{
		"config": `{"a":"1"}`, "key": "k", "ecdh_public": "zz", "certificate": "c", "ca": "a", "ssldir": "$DIR/ssl",
	}},
	{"configuration that cannot be parsed", "configure", map[string]any{"config": `{"plugin.choria.network.client_port":"x"}`}},
	{"configuration of a wrong value", "configure", map[string]any{"config": `{"registerinterval":"x"}`}},
	{"csr", "gencsr", map[string]any{"cn": "some.example.net", "O": "org"}},
	{"csr without a name", "gencsr", nil},
	{"key", "gen25519", map[string]any{"nonce": "123"}},
	{"configuration that keeps provisioning", "configure", map[string]any{"config": `{"plugin.choria.server.provision":"true"}`, "server_jwt": "x"}},
	{"restart of what keeps provisioning", "restart", map[string]any{"splay": 1}},
	{"policy of a wrong name", "configure", map[string]any{"config": `{"loglevel":"info"}`, "action_policies": map[string]string{"a": "b"}}},
	{"rego of a wrong name", "configure", map[string]any{"config": `{"loglevel":"info"}`, "opa_policies": map[string]string{"a": "b"}}},
	{"policies", "configure", map[string]any{
		"config": `{"loglevel":"info"}`, "action_policies": map[string]string{"a.policy": "b"}, "opa_policies": map[string]string{"c.rego": "d", "e.rego": ""},
	}},
}

// script is what both nodes are put through.
func script(c, other *client, s *subject) {
	c.t.Helper()
	before := c.stats(s.name)
	count := func(step string) {
		now, again := settled(c, s.name, before)
		s.note(step, "total %d validated %d unvalidated %d passed %d filtered %d replies %d ttlexpired %d events %d; same process %t, same start %t",
			now.Total-before.Total-again, now.Validated-before.Validated-again, now.Unvalidated-before.Unvalidated, now.Passed-before.Passed-again,
			now.Filtered-before.Filtered, now.Replies-before.Replies-again, now.Ttlexpired-before.Ttlexpired, now.Events-before.Events,
			now.PID == before.PID, now.Starttime == before.Starttime)
		before = now
	}
	connection(c, s)
	rpcs(c, s)
	count("counters of rpcutil")
	undelivered(c, s)
	count("counters of what was dropped")
	for _, r := range refusals {
		data := map[string]any{}
		for k, v := range r.data {
			if text, ok := v.(string); ok {
				v = strings.ReplaceAll(text, "$DIR", s.dir)
			}
			data[k] = v
		}
		s.note(r.step, "%s", shape(c.call(s.name, r.action, data).next()))
	}
	s.note("lock", "%s", shape(other.call(s.name, "jwt", nil).next()))
	s.note("lock of an unlocked action", "%s", shape(other.call(s.name, "reprovision", nil).next()))
	twice := c.call(s.name, "jwt", nil)
	twice.next()
	twice.send()
	s.note("the same bytes again", "%s", shape(twice.next()))
	count("counters of the agent")
	files(c, s)
}

// settled asks for the counters until every reply is counted, which is done after it was sent, and tells how often it asked again.
func settled(c *client, node string, before stats) (now stats, again int64) {
	c.t.Helper()
	ctx := deadline(c.t)
	for now = c.stats(node); now.Replies-before.Replies != now.Validated-before.Validated; now = c.stats(node) {
		if again++; ctx.Err() != nil {
			c.t.Fatalf("%s does not count its replies: %+v after %+v", node, now, before)
		}
	}
	return now, again
}

// rpcs are the facts.
func rpcs(c *client, s *subject) {
	for _, action := range []string{"ping", "inventory", "daemon_stats", "agent_inventory", "collective_info", "nonsense"} {
		s.note("rpcutil."+action, "%s", shape(c.make(s.name, "rpcutil", rpc("rpcutil", action, map[string]any{}), 0).send().next()))
	}
	s.note("discovery", "%s", c.make(s.name, "discovery", []byte("cGluZw=="), 0).send().next().Body)
}

// connection notes what the broker tells the account of the node's connections: one, under its name, with its subscriptions.
func connection(c *client, s *subject) {
	c.t.Helper()
	m, err := c.conn.Request("$SYS.REQ.ACCOUNT.PING.CONNZ", []byte(`{"subscriptions":true}`), 10*time.Second)
	c.check(err)
	var list struct {
		Data struct {
			Connections []struct {
				Name string
				Subs []string `json:"subscriptions_list"`
			}
		}
	}
	c.check(json.Unmarshal(m.Data, &list))
	found := 0
	for _, one := range list.Data.Connections {
		if one.Name == s.name {
			found++
			slices.Sort(one.Subs)
			s.note("connection", "%q", one.Subs)
		}
	}
	if found != 1 {
		c.t.Errorf("%s has %d connections: %s", s.name, found, m.Data)
	}
}

// undelivered are requests that reach no agent, and those whose body no agent can read.
func undelivered(c *client, s *subject) {
	c.make(s.name, "absent", rpc("absent", "x", nil), 0).send()
	garbage := c.make(s.name, "rpcutil", []byte("{}"), 0)
	garbage.wire = []byte("garbage")
	garbage.send()
	garbage.wire = []byte(`{"protocol":"io.choria.protocol.v2.transport","data":"eyJhIjoxfQ==","headers":{}}`)
	garbage.send()
	expired := c.make(s.name, "choria_provision", rpc("choria_provision", "jwt", map[string]any{"token": c.files.Token}), 1)
	select {
	case <-time.After(1100 * time.Millisecond): // its age is what is tested
	case <-c.t.Context().Done():
	}
	expired.send()
	for _, body := range []string{"no json", "[]", "null", "{}", `{"action":7}`} {
		s.note("body "+body, "%s", shape(c.make(s.name, "choria_provision", []byte(body), 0).send().next()))
	}
	s.note("data of a wrong kind", "%s", shape(c.make(s.name, "choria_provision", rpc("choria_provision", "jwt", "text"), 0).send().next()))
	if n, _, err := expired.sub.Pending(); n != 0 || err != nil {
		c.t.Errorf("%s answered an expired request: %v", s.name, err)
	}
}

// files notes which files the node has.
func files(c *client, s *subject) {
	var list []string
	c.check(filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
		own := []string{"node.json", "node.log", "identity.conf", "facts.json", "effects.jsonl", "provisioning.jwt"}
		if err == nil && !d.IsDir() && !slices.Contains(own, d.Name()) {
			list = append(list, strings.TrimPrefix(path, s.dir))
		}
		return err
	}))
	s.note("files", "%q", list)
}

// configure brings a node to a configuration of its own, all but the restart.
func configure(c *client, f *fleet.Fleet, s *subject) {
	c.t.Helper()
	var key struct {
		Public    string `json:"public_key"`
		Signature string `json:"signature"`
	}
	c.check(json.Unmarshal(c.call(s.name, "gen25519", map[string]any{"nonce": "nonce"}).next().Data, &key))
	public, err := hex.DecodeString(key.Public)
	c.check(err)
	signature, err := hex.DecodeString(key.Signature)
	c.check(err)
	if ok, err := choria.Ed24419Verify(public, []byte("nonce"), signature); !ok || err != nil {
		c.t.Errorf("%s signs wrongly: %v", s.name, err)
	}
	// The settings of a real node, in the names of this one.
	settings, err := f.NodeConfiguration(f.Nodes()[0], nil)
	c.check(err)
	real, err := f.NodeDir(f.Nodes()[0])
	c.check(err)
	for k, v := range settings {
		settings[k] = strings.NewReplacer(real, s.dir, f.Nodes()[0], s.name).Replace(v)
	}
	text, err := json.Marshal(settings)
	c.check(err)
	s.note("configure", "%s", shape(c.call(s.name, "configure", map[string]any{"config": string(text), "server_jwt": c.serverToken(s.name, key.Public)}).next()))
}

// cycle restarts the node twice: once with a key that its token does not match, once for good.
func cycle(c *client, f *fleet.Fleet, s *subject) {
	c.t.Helper()
	configure(c, f, s)
	s.note("key after the configuration", "%s", shape(c.call(s.name, "gen25519", map[string]any{"nonce": "again"}).next()))
	before := c.stats(s.name)
	s.note("restart", "%s", shape(c.call(s.name, "restart", map[string]any{"splay": 1}).next()))
	s.await(func(n fleet.NodeState) bool { return n.Boots == 2 && n.Joined && n.Mode == fleet.Provisioning })
	after := c.stats(s.name)
	s.note("incarnation", "same process %t, later start %t, counters anew %t", before.PID == after.PID, after.Starttime > before.Starttime, after.Validated == 1)
	s.note("jwt of the next life", "%s", shape(c.call(s.name, "jwt", nil).next()))
	files(c, s)
	configure(c, f, s)
	s.note("restart", "%s", shape(c.call(s.name, "restart", map[string]any{"splay": 1}).next()))
	s.await(func(n fleet.NodeState) bool { return n.Boots == 3 && n.Joined && n.Mode == fleet.Provisioned })
	files(c, s)
}

// entries notes the effect log.
func entries(c *client, s *subject) {
	c.t.Helper()
	log, err := s.log()
	c.check(err)
	process := log[0].PID
	for i, e := range log {
		s.note(fmt.Sprintf("entry %d", i), "boot %d %s %s action %q effect %t status %d %q fault %q caller %q sender %q request %t same process %t start %t",
			e.Boot, e.Mode, e.Phase, e.Action, e.Effect, e.Status, e.Message, e.Fault, e.Caller, e.Sender, e.RequestID != "", e.PID == process, e.Start > 0)
	}
	if s.event == nil {
		return
	}
	for _, e := range s.event.of(s.name) {
		s.note("event", "%s", e)
	}
}

// compare prints what the two saw differently.
func compare(t *testing.T, real, light *subject, least int) {
	t.Helper()
	for i := range max(len(real.seen), len(light.seen)) {
		r, l := "(nothing)", "(nothing)"
		if i < len(real.seen) {
			r = real.seen[i]
		}
		if i < len(light.seen) {
			l = light.seen[i]
		}
		if r != l {
			t.Errorf("differs:\n  real  %s\n  light %s", r, l)
		}
	}
	if len(real.seen) < least {
		t.Errorf("only %d observations were compared; the script is not what it was", len(real.seen))
	}
}

// TestConformance puts a real node and a light one through the same requests; what they answer, count, write and announce must be
// the same but for paths and times.
func TestConformance(t *testing.T) {
	f := broker(t, 1, nil)
	n := light(t, f, 1, nil)
	c, other := newClient(t, f, "provisioner"), newClient(t, f, "another")
	real := realSubject(t, f, f.Nodes()[0])
	both := []*subject{real, lightSubject(t, n, n.Names()[0])}
	seen := c.events()
	for _, s := range both {
		s.event = seen
		script(c, other, s)
		cycle(c, f, s)
		entries(c, s)
	}
	compare(t, both[0], both[1], 100)
}

func realSubject(t *testing.T, f *fleet.Fleet, name string) *subject {
	t.Helper()
	dir, err := f.NodeDir(name)
	if err != nil {
		t.Fatal(err)
	}
	return &subject{
		name: name, dir: dir, log: func() ([]fleet.Entry, error) { return f.Log(name) },
		await: func(is func(fleet.NodeState) bool) {
			t.Helper()
			if err := f.Wait(deadline(t), func(s fleet.State) bool { return is(s.Nodes[name]) }); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func lightSubject(t *testing.T, n *Nodes, name string) *subject {
	t.Helper()
	return &subject{
		name: name, dir: n.Dir(name), log: func() ([]fleet.Entry, error) { return n.Log(name) },
		await: func(is func(fleet.NodeState) bool) {
			t.Helper()
			if err := n.Wait(deadline(t), func(s fleet.State) bool { return is(s.Nodes[name]) }); err != nil {
				t.Fatal(err)
			}
		},
	}
}
