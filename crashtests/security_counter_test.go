package crashtests

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"provctl/internal/fleet"
)

// listener is a forger who answers in a victim's name from its configure on: who it is, with a counter that leaves the configure out, and
// the question for its token with her own token.
type listener struct {
	*forger
	victim, token string
	subject       string // where she listens for the victim's requests
	leaves        bool   // she stops listening just before each forged counter

	mu      sync.Mutex
	sub     *nats.Subscription
	counted int    // requests that the victim got, but for configures
	sent    int    // configures
	who     string // the victim's pid and start time, as daemon_stats has them; empty: she answers nothing
	mute    bool   // she says nothing of its process
}

// newListener has to be there before anything is asked: she counts what the victim counts.
func newListener(s *site, victim, subject string, leaves bool) *listener {
	s.t.Helper()
	dir, err := s.fleet.NodeDir(s.fleet.Nodes()[0])
	if err != nil {
		s.t.Fatal(err)
	}
	l := &listener{forger: newForger(s), victim: victim, subject: subject, leaves: leaves}
	l.token = read(s.t, filepath.Join(dir, "provisioning.jwt"))
	if _, err := l.conn.Subscribe("provisioning.broadcast.agent.discovery", func(*nats.Msg) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.counted++
	}); err != nil {
		s.t.Fatal(err)
	}
	l.listen()
	return l
}

// listen returns when the broker knows that she listens.
func (l *listener) listen() {
	l.t.Helper()
	sub, err := l.conn.Subscribe(l.subject, l.heard)
	if err == nil {
		err = l.conn.FlushTimeout(10 * time.Second)
	}
	if err != nil || l.conn.LastError() != nil {
		l.t.Fatalf("the forger cannot listen: %v, %v", err, l.conn.LastError())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sub = sub
}

// speak lets her begin. What she has to know of the victim's process she is told.
func (l *listener) speak(n fleet.NodeState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.who = fmt.Sprintf(`"pid":%d,"starttime":%d`, n.PID, n.Start.Unix())
}

// stay has her listen all the time from now on.
func (l *listener) stay() {
	l.mu.Lock()
	l.leaves = false
	l.mu.Unlock()
	l.listen()
}

// rest has her answer nothing any more.
func (l *listener) rest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.who = ""
}

// configures is how many were sent to the victim while she listened.
func (l *listener) configures() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent
}

// heard counts and answers a request to the victim.
func (l *listener) heard(m *nats.Msg) {
	if m.Subject != "provisioning.node."+l.victim {
		return
	}
	var transport, secure struct{ Data, Request []byte }
	var r struct {
		ID, Caller, Agent string
		Message           []byte
	}
	var rpc struct{ Action string }
	for _, step := range []struct {
		from *[]byte
		to   any
	}{{&m.Data, &transport}, {&transport.Data, &secure}, {&secure.Request, &r}, {&r.Message, &rpc}} {
		if err := json.Unmarshal(*step.from, step.to); err != nil {
			l.t.Errorf("a request cannot be decoded: %v", err)
			return
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if rpc.Action == "configure" {
		l.sent++
		return
	}
	l.counted++
	data := ""
	switch {
	case l.who == "":
	case rpc.Action == "jwt":
		data = fmt.Sprintf(`"jwt":%q`, strings.TrimSpace(l.token))
	case rpc.Action == "inventory":
		data = `"facts":{},"version":"0.29.4"`
	case rpc.Action == "daemon_stats" && !l.mute:
		data = fmt.Sprintf(`%s,"validated":%d`, l.who, l.counted)
		if l.leaves { // before her reply on the same connection, so that the broker knows it when the worker has the reply
			if err := l.sub.Unsubscribe(); err != nil {
				l.t.Error(err)
			}
		}
	}
	if data != "" {
		l.forge(fleet.Call{Caller: r.Caller, RequestID: r.ID}, l.victim, r.ID, r.Agent, `{"statuscode":0,"statusmsg":"OK","data":{`+data+`}}`)
	}
}

// twoListen is what the counter rule lacks once the forged counter is all that it wants.
const twoListen = "missing: a single connection at the broker that gets this node's requests, which lists 2"

// weighed is what is shown of the victim's open receipt, with what it says of the counter.
type weighed struct {
	item
	Horizon  time.Time
	Evidence []struct {
		Kind string
		At   time.Time
		Text string
	}
	Weights []struct{ Source, Says string }
}

func (s *site) weighed(node string) (w weighed) {
	s.t.Helper()
	var all struct{ Items []weighed }
	s.inspected(&all)
	for _, i := range all.Items {
		if i.Node == node {
			return i
		}
	}
	return w
}

func (s *site) settledByEvidence(node string) bool {
	s.t.Helper()
	return slices.ContainsFunc(s.logSince(0), func(l logLine) bool { return l.Msg == "settled by evidence" && l.Node == node })
}

// says tells what is shown of a source, "" if nothing is.
func (w weighed) says(source string) string {
	for _, weight := range w.Weights {
		if weight.Source == source {
			return weight.Says
		}
	}
	return ""
}

// at is when evidence of that kind is from.
func (w weighed) at(kind string) (at time.Time) {
	for _, e := range w.Evidence {
		if e.Kind == kind {
			at = e.At
		}
	}
	return at
}

// TestSecurityForgedCounter has the holder of one node's provisioning token answer in another node's name that a configure never arrived which
// that node holds. While the broker's list shows that two get its requests, its counter proves nothing. A forger whom the list does not give
// away, since she leaves in time, and who alone answers, is believed until the configure was sent again, which runs twice: that is a
// weakness which docs/security.md admits, and the last case tells when it is gone.
func TestSecurityForgedCounter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		wide, leaves bool
		believed     bool
	}{
		{name: "listening"},
		{name: "wide", wide: true},
		{name: "hidden", leaves: true, believed: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// One discovery alone: another would be counted by whoever answers it, and nobody does for a suspended node.
			s := newSite(t, options{nodes: 2, worker: fleet.WorkerOptions{
				Values: short(map[string]any{"workers": 2, "evidence": "auto", "effect_ttl": "5s", "interval": "1h"}),
			}})
			victim := s.fleet.Nodes()[1]
			subject := "provisioning.node." + victim
			if c.wide {
				subject = "provisioning.node.>"
			}
			mallory := newListener(s, victim, subject, c.leaves)
			s.fleet.SetFault(victim, "configure", fleet.Fault{Kind: fleet.Hold})
			s.start()
			s.awaitFleet("the victim has its configure", func(st fleet.State) bool { return stillIn(st, victim, "configure") })
			// A suspended node does not answer besides.
			if err := s.fleet.SuspendNode(victim); err != nil {
				t.Fatal(err)
			}
			mallory.speak(s.fleet.State().Nodes[victim])
			if c.believed {
				s.believes(mallory)
			} else {
				s.doubts(mallory)
			}
			s.awaitFleet("both nodes are provisioned", func(st fleet.State) bool { return st.Count(joined) == 2 })
			s.await("both jobs have ended", func() bool { return s.inspect().Counts.Results["provisioned"] == 2 })
		})
	}
}

// doubts: the forged counter is good enough, and proves nothing because of who listens.
func (s *site) doubts(mallory *listener) {
	s.t.Helper()
	victim := mallory.victim
	var first weighed
	s.await("all that the counter lacks is a single listener", func() bool {
		if s.settledByEvidence(victim) {
			s.t.Fatal("a forged counter was believed although two listen")
		}
		first = s.weighed(victim)
		return first.says("rule counter") == twoListen
	})
	// Only now is it certain that the look before has concluded nothing.
	if out, code := s.provctl("inspect", first.Receipt, "--probe", "--state-dir", s.files.StateDir); code != 3 {
		s.t.Errorf("probing ended with exit code %d: %s", code, out)
	}
	second := s.weighed(victim)
	if second.Receipt != first.Receipt || second.Status != "unknown" || second.says("rule counter") != twoListen || !second.at("daemon_stats").After(first.at("daemon_stats")) {
		s.t.Errorf("after another look it is %+v, before it was %+v", second, first)
	}
	for _, kind := range []string{"daemon_stats", "connections"} {
		if at := second.at(kind); !at.After(second.Horizon) {
			s.t.Errorf("the %s are of %s, and the horizon is %s", kind, at, second.Horizon)
		}
	}
	// She goes on listening: what she answered and the victim never got would make its own counter look like hers.
	mallory.rest()
	s.fleet.Release(victim, "configure")
	if err := s.fleet.ResumeNode(victim); err != nil {
		s.t.Fatal(err)
	}
	s.awaitFleet("the victim has restarted", func(st fleet.State) bool { return joined(st.Nodes[victim]) })
	s.ran(victim, map[string]int{"configure": 1, "restart": 1})
	if n := mallory.configures(); n != 1 {
		s.t.Errorf("%d configures were sent to the victim, want the one", n)
	}
	s.noneTwice()
}

// believes: the forged counter settles the configure as not applied, and it is sent again.
func (s *site) believes(mallory *listener) {
	s.t.Helper()
	victim := mallory.victim
	s.await("the forged counter is believed", func() bool {
		if s.settledByEvidence(victim) {
			return true
		}
		if s.weighed(victim).says("rule counter") == twoListen {
			s.t.Fatal("the list gives this forger away too: believe her no longer here, and have docs/security.md say so")
		}
		return false
	})
	mallory.stay() // what the next pass asks she answers as well, and nobody asks the broker
	s.await("the configure was sent again", func() bool {
		if s.heldWhy(victim) != "" { // it was asked when she was away
			s.admit(victim)
		}
		return mallory.configures() == 2
	})
	mallory.rest()
	if err := s.fleet.ResumeNode(victim); err != nil {
		s.t.Fatal(err)
	}
	s.await("the victim has another configure", func() bool { return s.entries(victim, "configure", fleet.PhaseReceived) == 2 })
	if told, _ := s.provctl("history", victim, "--json", "--state-dir", s.files.StateDir); !strings.Contains(told, `"by": "evidence: counter"`) {
		s.t.Errorf("that the counter settled the configure is not on record: %s", told)
	}
	if n := s.begins(victim, "configure"); n != 0 {
		s.t.Errorf("the configure ran %d times while it was held", n)
	}
	s.fleet.Release(victim, "configure")
	// The victim has answered as well by then what she answered for it.
	s.heldFor(victim, "two servers answer under its name")
	s.admit(victim)
	s.awaitFleet("the victim has restarted", func(st fleet.State) bool { return joined(st.Nodes[victim]) })
	s.ran(victim, map[string]int{"configure": 2, "restart": 1})
	if n := mallory.configures(); n != 2 {
		s.t.Errorf("%d configures were sent to the victim, want two", n)
	}
	audit, err := s.fleet.Audit()
	if err != nil {
		s.t.Fatal(err)
	}
	if len(audit.Twice) != 1 || !slices.ContainsFunc(audit.Twice, func(r fleet.Repeat) bool { return r.Node == victim && r.Action == "configure" }) {
		s.t.Errorf("ran twice: %v", audit.Twice)
	}
}

// TestSecuritySecondAnswer has her answer beside the node, as a second server of its name does without any malice: the node is held with
// the reason, and gets nothing that counts.
func TestSecuritySecondAnswer(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{nodes: 2, worker: fleet.WorkerOptions{Values: short(map[string]any{"workers": 2, "effect_ttl": "10s"})}})
	victim := s.fleet.Nodes()[1]
	mallory := newListener(s, victim, "provisioning.node."+victim, false)
	mallory.mu.Lock()
	mallory.mute = true // of the victim's process she says nothing
	mallory.mu.Unlock()
	mallory.speak(fleet.NodeState{})
	s.start()
	s.heldFor(victim, "two servers answer under its name", "give each an identity of its own")
	s.awaitFleet("the other node is provisioned", func(st fleet.State) bool { return st.Count(joined) == 1 })
	s.ran(victim, map[string]int{"configure": 0, "restart": 0})
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.noneTwice()
}
