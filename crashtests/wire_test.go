package crashtests

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"provctl/crashtests/oracle"
	"provctl/internal/fleet"
)

// wireFault is something that befalls one request or its reply on the wire.
type wireFault struct {
	name  string
	fault fleet.Fault
	// then runs while the node waits with the request; nil: nothing.
	then func(*trial, *wireCase)
	// kills says that the worker dies at that moment; freed is when a request that is held goes on.
	kills bool
	freed moment
	// hasty says that a person decides before anybody has started again, and before the horizon: that must be refused.
	hasty bool
	// stuck says that a person decides beyond the horizon while the node still has the request to do: not-applied must be refused.
	stuck bool
	// linger is how long the worker stays at least, for what comes late.
	linger time.Duration
	slow   bool // full tier only
}

// moment is a time in the life of the worker that follows one that was killed.
type moment int

const (
	never        moment = iota
	inTime              // as soon as it runs, before the horizon if that can be
	afterHorizon        // and before any verdict
	atVerdict           // when a person has decided
)

var wireFaults = []wireFault{
	{name: "reply-dropped", fault: fleet.Fault{Kind: fleet.Drop}},
	{name: "reply-duplicated", fault: fleet.Fault{Kind: fleet.Duplicate}},
	{name: "reply-past-the-horizon", fault: fleet.Fault{Kind: fleet.Delay, Delay: ttl + 500*time.Millisecond}, linger: ttl + time.Second},
	{name: "reply-after-25s", fault: fleet.Fault{Kind: fleet.Delay, Delay: 25 * time.Second}, linger: 27 * time.Second, slow: true},
	{name: "reply-of-another-sender", fault: fleet.Fault{Kind: fleet.Alter, Alter: fleet.Alteration{Sender: "other.example.net"}}},
	{name: "reply-to-another-request", fault: fleet.Fault{Kind: fleet.Alter, Alter: fleet.Alteration{RequestID: "00000000000000000000000000000000"}}},
	{name: "reply-cut-short", fault: fleet.WireReply([]byte(`{"protocol":"io.choria.protocol.v2.transport","data":"ey`))},
	{name: "reply-empty", fault: fleet.WireReply(nil)},
	{name: "body-cut-short", fault: fleet.BodyReply(`{"statuscode":0,"statusmsg":"OK","da`)},
	{name: "broker-stops-briefly", then: func(tr *trial, c *wireCase) { tr.outage(c, 200*time.Millisecond) }},
	{name: "broker-stops-past-the-horizon", then: func(tr *trial, c *wireCase) { tr.outage(c, ttl+time.Second) }},
	{name: "held-back-in-time", fault: fleet.Fault{Kind: fleet.Hold, Detached: true}, kills: true, freed: inTime},
	{name: "held-back-past-the-horizon", fault: fleet.Fault{Kind: fleet.Hold, Detached: true}, kills: true, freed: afterHorizon},
	{name: "held-back-past-the-verdict", fault: fleet.Fault{Kind: fleet.Hold, Detached: true}, kills: true, freed: atVerdict},
	{name: "verdict-at-once", fault: fleet.Fault{Kind: fleet.Hold, Detached: true}, kills: true, freed: inTime, hasty: true},
	{name: "held-in-the-node", fault: fleet.Fault{Kind: fleet.Hold}, kills: true, freed: inTime},
	{name: "held-in-the-node-for-long", fault: fleet.Fault{Kind: fleet.Hold}, kills: true, freed: afterHorizon, stuck: true},
	{name: "node-dies-before", fault: fleet.Fault{Kind: fleet.DieBefore}, then: func(tr *trial, c *wireCase) { tr.reboot(c) }},
	{name: "node-dies-after", fault: fleet.Fault{Kind: fleet.DieAfter}, then: func(tr *trial, c *wireCase) { tr.reboot(c) }},
}

// wireCase is a fault of one effect's request.
type wireCase struct {
	wireFault
	action string
	hit    chan struct{} // closed when it happened
	side   sync.WaitGroup
}

func (c *wireCase) id() string { return c.name + "/" + c.action }

// scene is a run in which the fault befalls the first request of the action.
func (c *wireCase) scene() *scene {
	s := &scene{name: c.id(), nodes: 1, plain: true}
	if c.action == "shutdown" {
		s.down = []int{0}
	}
	if c.hasty {
		s.values = map[string]any{"effect_ttl": "12s"} // the horizon must be ahead until the verdicts were refused
	}
	var once sync.Once
	s.hook = func(tr *trial, call fleet.Call) (f fleet.Fault) {
		if call.Action != c.action || call.Phase != fleet.PhaseBegin {
			return f
		}
		once.Do(func() {
			f = c.fault
			if c.kills {
				p := tr.present()
				_ = p.cmd.Process.Kill()
				<-p.done
			}
			if c.then != nil {
				c.then(tr, c)
			}
			close(c.hit)
		})
		return f
	}
	return s
}

func (tr *trial) present() *process {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.worker
}

// outage stops the broker for a time.
func (tr *trial) outage(c *wireCase, d time.Duration) {
	from := time.Now()
	tr.lab.broker.StopBroker()
	c.side.Go(func() {
		waitUntil(tr, from.Add(d))
		if err := tr.lab.broker.StartBroker(tr.ctx); err != nil {
			tr.t.Errorf("start the broker again: %v", err)
		}
		tr.mu.Lock()
		defer tr.mu.Unlock()
		tr.run.Outages = append(tr.run.Outages, oracle.Span{From: from, To: time.Now()})
	})
}

// reboot starts the node again once it has died.
func (tr *trial) reboot(c *wireCase) {
	c.side.Go(func() {
		name := tr.lab.nodes.Names()[0]
		err := tr.lab.nodes.Wait(tr.ctx, func(s fleet.State) bool { return !s.Nodes[name].Alive })
		if err == nil {
			err = tr.lab.nodes.Boot(tr.ctx, name)
		}
		if err != nil {
			tr.t.Errorf("boot the node again: %v", err)
		}
	})
}

// wireCases are all of them, or those of the quick tier: each fault of a configure, and each effect's reply lost.
func wireCases(quick bool) []*wireCase {
	var all []*wireCase
	for _, action := range []string{"configure", "gen25519", "restart", "shutdown"} {
		for _, f := range wireFaults {
			if quick && (f.slow || action != "configure" && f.name != "reply-dropped") {
				continue
			}
			if f.name == "node-dies-after" && action == "shutdown" {
				continue // it comes back as what it was, which no shutdown asks for
			}
			all = append(all, &wireCase{wireFault: f, action: action, hit: make(chan struct{})})
		}
	}
	return all
}

// TestSweep8Wire has each fault of the wire befall each effect.
func TestSweep8Wire(t *testing.T) { sweep(t, wireCases(quick())) }

func (c *wireCase) run(t *testing.T, l *lab) {
	add("wire faults", 1)
	tr := l.begin(t, c.scene(), program)
	p := tr.start()
	select {
	case <-c.hit:
	case <-p.done:
		<-c.hit
	case <-tr.ctx.Done():
		t.Fatalf("CASE=%s %s was never reached", t.Name(), c.action)
	}
	began := time.Now()
	if c.kills {
		<-p.done
		if c.hasty {
			tr.decideTooEarly()
		}
		p = tr.start()
		tr.awaitRunning(p)
		c.free(tr, began)
	}
	waitUntil(tr, began.Add(c.linger))
	if tr.drive(p) {
		t.Fatal("the worker was killed by nobody")
	}
	c.side.Wait()
	tr.lab.nodes.Release(fleet.Any, fleet.Any)
	tr.judge()
}

// decideWhileStuck wants not-applied refused although the horizon is over, unless it makes keys, which may simply be made again.
func (tr *trial) decideWhileStuck() {
	tr.t.Helper()
	for _, i := range tr.look().Items {
		if i.Action == "gen25519" {
			continue
		}
		out, code := tr.provctl("reconcile", i.Receipt, "--verdict", "not-applied", "--reason", "guesswork", "--yes", "--state-dir", tr.files.StateDir)
		if code != 1 {
			tr.t.Errorf("CASE=%s a guess was taken for a verdict: exit %d: %s", tr.t.Name(), code, out)
		}
	}
}

// decideTooEarly wants a verdict refused while the request can still be accepted.
func (tr *trial) decideTooEarly() {
	tr.t.Helper()
	items := tr.look().Items
	if len(items) != 1 || time.Until(items[0].Horizon) < time.Second {
		tr.t.Fatalf("there is no receipt whose horizon is still to come: %+v", items)
	}
	// Of a request that may still run not-applied is refused for that alone; to abandon it is a matter of the horizon.
	for _, verdict := range []string{"not-applied", "abandon"} {
		out, code := tr.provctl("reconcile", items[0].Receipt, "--verdict", verdict, "--reason", "impatience", "--yes", "--state-dir", tr.files.StateDir)
		if code != 1 {
			tr.t.Fatalf("CASE=%s a verdict before the horizon was taken: %s: exit %d: %s", tr.t.Name(), verdict, code, out)
		}
	}
}

// free lets a held request go on at its moment.
func (c *wireCase) free(tr *trial, began time.Time) {
	switch c.freed {
	case afterHorizon:
		waitUntil(tr, began.Add(ttl+200*time.Millisecond))
		if c.stuck {
			tr.decideWhileStuck()
		}
	case atVerdict, never:
		return // decide releases it
	case inTime:
	}
	if n := tr.lab.nodes.Release(fleet.Any, fleet.Any); n != 1 { // jwt, which waits behind it, is not held
		tr.t.Errorf("CASE=%s %d requests were held, not one", tr.t.Name(), n)
	}
}

// TestWireFaultsAreKnown keeps the names unique: a case is replayed by its name.
func TestWireFaultsAreKnown(t *testing.T) {
	var names []string
	for _, f := range wireFaults {
		if slices.Contains(names, f.name) {
			t.Error(fmt.Errorf("%s is there twice", f.name))
		}
		names = append(names, f.name)
	}
}
