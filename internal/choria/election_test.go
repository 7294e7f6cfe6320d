package choria

import (
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"provctl/internal/fleet"
	"provctl/receipt"
)

// streamsBroker is a broker with an election bucket of the test's own.
func streamsBroker(t testing.TB, ttl time.Duration) *fleet.Fleet {
	t.Helper()
	f, err := fleet.Start(deadline(t), fleet.Options{Dir: t.TempDir(), Log: io.Discard, Streams: true, ElectionTTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// behind puts an engine behind a proxy of its own.
func behind(t *testing.T, f *fleet.Fleet) (*Engine, *proxy) {
	t.Helper()
	p := newProxy(t, strings.TrimPrefix(f.BrokerURL(), "nats://"))
	return engine(t, f, func(o *Options) {
		conf, err := os.ReadFile(o.ConfigFile)
		if err != nil {
			t.Fatal(err)
		}
		conf = regexp.MustCompile(`(?m)^plugin.choria.middleware_hosts=.*$`).ReplaceAll(conf, []byte("plugin.choria.middleware_hosts=nats://"+p.listener.Addr().String()))
		if err := os.WriteFile(o.ConfigFile, conf, 0o600); err != nil {
			t.Fatal(err)
		}
	}), p
}

// candidate is an election that campaigns.
type candidate struct {
	*Election
	t     testing.TB
	roles chan string // each change
	stop  context.CancelFunc
	done  chan struct{}
}

func campaign(t testing.TB, e *Engine, name string, change ...func(*ElectionOptions)) *candidate {
	t.Helper()
	c := &candidate{t: t, roles: make(chan string, 1000)}
	o := ElectionOptions{Engine: e, Name: name, Changed: func(role string) { c.roles <- role }}
	for _, f := range change {
		f(&o)
	}
	c.Election = NewElection(o)
	c.run()
	return c
}

func (c *candidate) run() {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	c.stop, c.done = stop, done
	go func() { defer close(done); c.Run(ctx) }()
	c.t.Cleanup(func() { stop(); <-done })
}

// resign ends the campaign and waits for its end.
func (c *candidate) resign() { c.stop(); <-c.done }

// becomes waits for the next change, which must be to the role.
func (c *candidate) becomes(role string) {
	c.t.Helper()
	if got := receive(c.t, c.roles); got != role {
		c.t.Fatalf("%s became %s, want %s", c.opt.Name, got, role)
	}
}

// leads waits until the candidate has won and waited.
func (c *candidate) leads() {
	c.t.Helper()
	c.becomes(Waiting)
	c.becomes(Leading)
	if err := c.Check(); err != nil {
		c.t.Fatalf("%s was told that it leads, yet: %v", c.opt.Name, err)
	}
}

func (c *candidate) revision() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held.revision
}

// refuses checks that the candidate does not lead and says why.
func (c *candidate) refuses(why string) {
	c.t.Helper()
	if err := c.Check(); !errors.Is(err, receipt.ErrStandby) || !strings.Contains(err.Error(), why) {
		c.t.Fatalf("%s: %v, want ErrStandby with %q", c.opt.Name, err, why)
	}
}

// waitedOnce checks that the candidate, who led before, has not waited since.
func (c *candidate) waitedOnce() {
	c.t.Helper()
	for len(c.roles) > 0 {
		if role := <-c.roles; role == Waiting {
			c.t.Error("it waited again although its own revision was still in the key, so nobody led in between")
		}
	}
}

// until polls a condition.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	ctx, tick := deadline(t), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		}
	}
}

func TestLeaderHandsOver(t *testing.T) {
	t.Parallel()
	f := streamsBroker(t, 0) // Choria's minute: nothing expires during this test
	a := campaign(t, engine(t, f), "worker a")
	a.becomes(Waiting)
	a.refuses("won, waits until 20")
	b := campaign(t, engine(t, f), "worker b")
	until(t, "b knows that another leads", func() bool { return strings.Contains(b.Check().Error(), "another worker leads") })

	begun := time.Now()
	a.resign()
	a.refuses("no election runs")
	b.becomes(Waiting)
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("the standby took over after %s, as if it had not been told", took)
	} else {
		t.Logf("the standby won %s after the leader began to stop", took)
	}
	if s := b.State(); s.Leader != "worker b" || s.Role != Waiting || time.Until(s.Until) < 40*time.Second || s.Err != nil {
		t.Errorf("state %+v", s)
	}
}

func TestLeaderIsNamedOnceItRenews(t *testing.T) {
	t.Parallel()
	f := streamsBroker(t, 5*time.Second)
	a := campaign(t, engine(t, f), "worker a")
	b := campaign(t, engine(t, f), "worker b")
	until(t, "one waits and the other stands by with the name", func() bool {
		return b.State().Leader == "worker a" && a.State().Role != Standby || a.State().Leader == "worker b" && b.State().Role != Standby
	})
	if a.State().Role != Standby {
		b.refuses("another worker leads: worker a")
	} else {
		a.refuses("another worker leads: worker b")
	}
}

// TestCutLeaderLapsesBeforeAnyoneWins samples that nobody can win before the former leader refuses by its own deadline.
func TestCutLeaderLapsesBeforeAnyoneWins(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*proxy){
		"cut":    func(p *proxy) { _ = p.listener.Close(); p.cut() },
		"silent": func(p *proxy) { p.keepBack() },
	} {
		t.Run(name, func(t *testing.T) {
			f := streamsBroker(t, 5*time.Second)
			e, p := behind(t, f)
			a := campaign(t, e, "worker a")
			a.leads()
			b := campaign(t, engine(t, f), "worker b")
			until(t, "b stands by", func() bool { return strings.Contains(b.Check().Error(), "another worker leads") })
			lose(p)
			begun := time.Now()
			var lapsed, won time.Duration
			until(t, "b leads", func() bool {
				role := b.State().Role
				leads := a.Check() == nil
				if !leads && lapsed == 0 {
					lapsed = time.Since(begun)
					a.refuses("lapsed at 20")
				}
				if role != Standby && won == 0 {
					won = time.Since(begun)
				}
				if leads && role != Standby {
					t.Fatalf("a still leads when b is %s", role)
				}
				return role == Leading
			})
			t.Logf("lapsed after %s, the other won after %s and led after %s", lapsed, won, time.Since(begun))
		})
	}
}

func TestSuspendedLeaderLapsesAndComesBackUnbroken(t *testing.T) {
	t.Parallel()
	e, p := behind(t, streamsBroker(t, 4*time.Second))
	var ahead atomic.Int64
	a := campaign(t, e, "worker a", func(o *ElectionOptions) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	a.leads()
	p.keepBack() // no renewal gets through any more
	ahead.Store(int64(time.Hour))
	a.refuses("leadership lapsed at 20")
	if s := a.State(); s.Role != Standby || s.Leader != "" {
		t.Errorf("suspended for an hour: %+v", s)
	}
	p.release()
	until(t, "a leads again", func() bool { return a.Check() == nil })
	a.waitedOnce()
}

func TestRegainedAfterSomebodyElseWaitsAgain(t *testing.T) {
	t.Parallel()
	f := streamsBroker(t, 5*time.Second)
	a := campaign(t, engine(t, f), "worker a")
	a.leads()
	a.resign()
	a.becomes(Standby)
	b := campaign(t, engine(t, f), "worker b")
	b.leads()
	a.run()
	until(t, "a knows that another leads", func() bool { return strings.Contains(a.Check().Error(), "another worker leads") })
	b.resign()
	a.leads()
}

func TestBrokerRestartKeepsTheChain(t *testing.T) {
	t.Parallel()
	f := streamsBroker(t, 12*time.Second)
	a := campaign(t, engine(t, f), "worker a")
	a.leads()
	revision := a.revision()
	f.StopBroker()
	until(t, "the failure shows", func() bool { return a.State().Err != nil })
	if err := f.StartBroker(deadline(t)); err != nil {
		t.Fatal(err)
	}
	until(t, "the key is renewed", func() bool { return a.revision() > revision && a.State().Err == nil })
	if err := a.Check(); err != nil {
		t.Errorf("after the restart: %v", err)
	}
	a.waitedOnce()
}
