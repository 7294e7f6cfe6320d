package crashtests

import (
	"bufio"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"provctl/internal/fleet"
)

// answer is a reply in place of an action, with what the worker must make of it.
type answer struct {
	action string
	code   int
	text   string
	status string // of the receipt; empty for a fact
}

// refusals are the texts with which a node says that it changed nothing, and some that it does not use for that.
var refusals = []answer{
	{"jwt", 1, "Could not obtain provisioning lock", ""},
	{"jwt", 1, "Incorrect provision token supplied", ""},
	{"jwt", 1, "Cannot access provision token when not in provisioning mode", ""},
	{"jwt", 2, "Unknown action jwt for agent choria_provision", ""},
	{"jwt", 5, "Unknown error", ""},
	{"gen25519", 2, "Unknown action gen25519 for agent choria_provision", "refused"},
	{"gen25519", 4, "Could not process request: unexpected end of JSON input", "refused"},
	{"gen25519", 4, "Could not parse request data for choria_provision#gen25519: invalid character", "refused"},
	{"gen25519", 4, "Validation failed: nonce is required", "refused"},
	{"gen25519", 1, "You are not authorized to call this agent or action", "refused"},
	{"gen25519", 1, "Incorrect provision token supplied", "refused"},
	{"gen25519", 1, "Could not obtain provisioning lock", "refused"},
	{"gen25519", 1, "Cannot reconfigure a server that is not in provisioning mode", "refused"},
	{"gen25519", 1, "Cannot determine where to store secure data, no configure file given", "refused"},
	{"gen25519", 1, "could not determine absolute path to config directory: no such file", "refused"},
	{"gen25519", 1, "Could not create keypair: no entropy", "refused"},
	{"gen25519", 1, "Could not write key: disk full", "failed"},
	{"gen25519", 1, "Could not obtain provisioning lock, sorry", "failed"}, // nearly a refusal is none
	{"configure", 1, "Could not obtain provisioning lock", "refused"},
	{"configure", 1, "Cannot reconfigure a server that is not in provisioning mode", "refused"},
	{"configure", 1, "Cannot determine the configuration file to manage", "refused"},
	{"configure", 1, "Did not receive any configuration to write, cannot write a empty configuration file", "refused"},
	{"configure", 1, "EDCH Public Key not supplied while providing a private key", "refused"},
	{"configure", 1, "Could not decode configuration data: invalid character", "refused"},
	{"configure", 4, "Validation failed: config is too long", "refused"},
	{"configure", 1, "Could not save Action Policies: disk full", "failed"},
	{"configure", 3, "Missing data", "failed"},
	{"restart", 1, "Cannot restart a server that is not in provisioning mode or with no token set", "refused"},
	{"restart", 1, "Configuration /etc/choria/server.conf could not be parsed, restart cannot continue: bad line", "refused"},
	{"restart", 1, "Configuration /etc/choria/server.conf enables provisioning, restart cannot continue", "refused"},
	{"restart", 1, "Could not find the binary", "failed"},
}

// badTokens are replies to jwt that are no token of the node. tries is how often it is asked.
var badTokens = []struct {
	body  string
	tries int
	words []string
}{
	{"", 3, []string{"unusable reply", "empty"}},
	{`{"statuscode":0,"data":{"jwt":`, 3, []string{"unusable reply", "no mcorpc reply"}},
	{`{"statuscode":"0","data":{}}`, 3, []string{"unusable reply"}},
	{`{"statusmsg":"OK","data":{}}`, 3, []string{"unusable reply", "no status code"}},
	{`{"statuscode":9,"data":{}}`, 3, []string{"unusable reply", "status code 9"}},
	{`{"statuscode":0,"data":["jwt"]}`, 3, []string{"unusable reply", "no object"}},
	{`{"statuscode":0,"data":{}}`, 1, []string{"jwt", "missing"}},
	{`{"statuscode":0,"data":{"jwt":42}}`, 1, []string{"jwt", "unusable reply"}},
	{`{"statuscode":0,"data":{"jwt":""}}`, 1, []string{"jwt", "missing"}},
	{`{"statuscode":0,"data":{"jwt":"a.b.c"}}`, 1, []string{"verify its provisioning token", "token does not verify"}},
	{`{"statuscode":0,"data":{"jwt":"eyJhbGciOiJub25lIn0.eyJwdXJwb3NlIjoiY2hvcmlhX3Byb3Zpc2lvbmluZyJ9."}}`, 1, []string{"verify its provisioning token", "token does not verify"}},
	{`{"statuscode":0,"data":{"jwt":"` + strings.Repeat("x", 100<<10) + `"}}`, 1, []string{"verify its provisioning token", "too long"}},
	{`{"statuscode":0,"data":{"jwt":"a.b.c","ecdh_public":"not hex"}}`, 1, []string{"ecdh_public"}},
}

const (
	aKey       = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
	aSignature = "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
)

// strange are replies that say nothing usable about an effect that did run. keys is how often the node makes a key.
var strange = []struct {
	name, action string
	fault        fleet.Fault
	keys         int
	unknown      bool // for certain
}{
	{"a key that is a number", "gen25519", fleet.BodyReply(`{"statuscode":0,"data":{"public_key":7,"directory":"/x","signature":"x"}}`), 2, true},
	{"a key without a signature", "gen25519", fleet.BodyReply(`{"statuscode":0,"data":{"public_key":"` + aKey + `","directory":"/x"}}`), 2, true},
	{"a key that signed something else", "gen25519", fleet.BodyReply(`{"statuscode":0,"data":{"public_key":"` + aKey + `","directory":"/x","signature":"` + aSignature + `"}}`), 2, true},
	{"garbage for a configure", "configure", fleet.WireReply([]byte("\x00\xff{")), 1, true},
	{"300 KiB for a configure", "configure", fleet.HugeReply(300 << 10), 1, true},
	{"four replies to a configure", "configure", fleet.Fault{Kind: fleet.Duplicate, Copies: 3}, 1, false},
	{"other words for a configure", "configure", fleet.BodyReply(`{"statuscode":0,"data":{"message":"All is well"}}`), 1, true},
	{"a refusal that is also a success", "configure", fleet.BodyReply(`{"statuscode":1,"statuscode":0,"statusmsg":"Could not obtain provisioning lock","data":{"message":"Wrote 3 lines"}}`), 1, true},
	{"a mistyped restart", "restart", fleet.BodyReply(`{"statuscode":0,"data":{"message":["Restarting Choria Server after 2s"]}}`), 1, true},
	{"nothing for a restart", "restart", fleet.WireReply(nil), 1, true},
	{"garbage once for a jwt", "jwt", fleet.WireReply([]byte("garbage")), 1, false},
	{"a jwt in another's name", "jwt", fleet.Fault{Kind: fleet.Alter, Alter: fleet.Alteration{Sender: "mallory.example.net"}}, 1, false},
	{"a jwt for another request", "jwt", fleet.Fault{Kind: fleet.Alter, Alter: fleet.Alteration{RequestID: "2aaaaaaaaaaaaaaaaaaaaaaaaaa"}}, 1, false},
}

// TestBadReplies has nodes, and one who is none, answer in every wrong way. What says that nothing changed is refused, what is
// not known is unknown until evidence settles it, and no effect is asked for again on a guess.
func TestBadReplies(t *testing.T) {
	t.Parallel()
	const refuser, tokens, forged, leaver = 0, 1, 2, 3
	names := make([]string, 4+len(strange))
	for i := range names {
		names[i] = fmt.Sprintf("node-%03d.example.net", i+1)
	}
	var mallory *forger
	s := newSite(t, options{
		nodes:  len(names),
		worker: fleet.WorkerOptions{Values: short(map[string]any{"workers": 4, "max_unknown": 100, "effect_ttl": "10s"}), Shutdown: names[leaver : leaver+1]},
		hook: func(s *site, c fleet.Call) fleet.Fault {
			if c.Node != names[forged] || c.Phase != fleet.PhaseBegin {
				return fleet.Fault{}
			}
			const lock = `{"statuscode":1,"statusmsg":"Could not obtain provisioning lock","data":{}}`
			mallory.forge(c, "mallory.example.net", c.RequestID, "choria_provision", lock)
			mallory.forge(c, c.Node, "2aaaaaaaaaaaaaaaaaaaaaaaaaa", "choria_provision", lock)
			mallory.forge(c, c.Node, c.RequestID, "rpcutil", lock)
			return fleet.Fault{}
		},
	})
	mallory = newForger(s)
	for i, c := range strange {
		s.fleet.SetFault(names[4+i], c.action, c.fault)
	}
	s.badToken(names[tokens], 0)
	s.killNode(names[refuser]) // until its turn comes: once its hold is over it would be taken again
	s.fleet.SetFault(names[leaver], "shutdown", fleet.Fault{
		Kind: fleet.Answer, Code: 1, Text: "Cannot shutdown a server that is not in provisioning mode or with no token set",
	})
	s.start()

	s.heldFor(names[leaver], "Cannot shutdown a server", "refused before any change")
	if n := s.inspect().Counts.Results["shutdown"]; n != 0 {
		t.Errorf("a refused shutdown counts as %d", n)
	}
	s.admit(names[leaver])
	for i := range badTokens {
		if i > 0 {
			s.badToken(names[tokens], i)
			s.admit(names[tokens])
		}
		s.heldFor(names[tokens], badTokens[i].words...)
	}
	s.admit(names[tokens])
	for i, r := range refusals {
		before := s.inspect().Counts.Receipts
		s.refuse(names[refuser], r)
		if i > 0 {
			s.admit(names[refuser])
		} else {
			s.startNode(names[refuser])
		}
		s.heldFor(names[refuser], r.text)
		s.judged(names[refuser], r, before)
	}
	s.admit(names[refuser])

	s.awaitFleet("all are provisioned and one is down", func(st fleet.State) bool {
		return st.Count(joined) == len(names)-1 && !st.Nodes[names[leaver]].Alive
	})
	s.await("nothing is open and every job has ended", func() bool {
		r, lost := s.inspect(), 2 // a restart whose reply was lost can only be seen to have left
		return len(r.Items) == 0 && r.Counts.Results["provisioned"] == len(names)-1-lost && r.Counts.Results["left"] == lost && r.Counts.Results["shutdown"] == 1
	})
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.noneTwice()
	for _, node := range names {
		if node != names[leaver] && (s.begins(node, "configure") != 1 || s.begins(node, "restart") != 1) {
			t.Errorf("%s: configure ran %d times and restart %d times", node, s.begins(node, "configure"), s.begins(node, "restart"))
		}
	}
	for i, c := range strange {
		node := names[4+i]
		if n := s.begins(node, "gen25519"); n != c.keys {
			t.Errorf("%s: %d keys were made, want %d", c.name, n, c.keys)
		}
		if got := s.loggedOf(node, "effect unknown: the node is blocked"); c.unknown && got != 1 || c.action == "jwt" && got != 0 {
			t.Errorf("%s: the node was blocked %d times", c.name, got)
		}
	}
	if n := s.loggedOf(names[forged], "dropping a reply from another sender or to another request"); n < 9 {
		t.Errorf("%d forged replies were noticed", n) // three for each of jwt, gen25519, configure; after the restart nobody waits
	}
	if n := s.loggedOf(names[forged], "effect unknown: the node is blocked"); n != 0 || s.begins(names[forged], "gen25519") != 1 {
		t.Error("forged replies counted")
	}
	s.discreet()
}

// refuse has the next request of that action answered.
func (s *site) refuse(node string, a answer) {
	s.fleet.SetFault(node, a.action, fleet.Fault{Kind: fleet.Answer, Code: a.code, Text: a.text})
}

// badToken has the next questions for the token answered with something else.
func (s *site) badToken(node string, i int) {
	f := fleet.BodyReply(badTokens[i].body)
	f.Times = badTokens[i].tries
	s.fleet.SetFault(node, "jwt", f)
}

func (s *site) admit(node string) {
	s.t.Helper()
	if out, code := s.provctl("admit", node, "--state-dir", s.files.StateDir, "--reason", "mended"); code != 0 {
		s.t.Fatalf("admit: exit %d: %s", code, out)
	}
}

// heldFor waits until a node is held for a reason that holds these words.
func (s *site) heldFor(node string, words ...string) {
	s.t.Helper()
	s.await(fmt.Sprintf("%s is held for %q", node, words), func() bool { return s.heldWhy(node) != "" })
	why := s.heldWhy(node)
	for _, w := range words {
		if !strings.Contains(why, w) {
			s.t.Errorf("%s is held for %q, which lacks %q", node, why, w)
		}
	}
	whole(s.t, "the reason", why)
}

// judged checks what became of the receipt that a node answered so, and that nothing ran.
func (s *site) judged(node string, a answer, before map[string]int) {
	s.t.Helper()
	if why := s.heldWhy(node); a.status == "refused" != strings.Contains(why, "refused before any change") {
		s.t.Errorf("%s %q: held for %q", a.action, a.text, why)
	}
	if n := s.begins(node, a.action); a.action != "jwt" && n != 0 {
		s.t.Errorf("%s ran %d times", a.action, n)
	}
	if a.status != "" {
		if now := s.inspect().Counts.Receipts[a.status]; now != before[a.status]+1 {
			s.t.Errorf("%s %q: receipts %s are %d, were %d", a.action, a.text, a.status, now, before[a.status])
		}
	}
}

// loggedOf counts the worker's messages about a node.
func (s *site) loggedOf(node, message string) int {
	s.t.Helper()
	n := 0
	for lines := bufio.NewScanner(strings.NewReader(read(s.t, s.log))); lines.Scan(); {
		var line struct{ Msg, Node string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == message && line.Node == node {
			n++
		}
	}
	return n
}
