package choria

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/choria-io/go-choria/inter"
	election "github.com/choria-io/go-choria/providers/election/streams"
	"github.com/nats-io/nats.go"

	"provctl/receipt"
)

// warnings counts what is logged, by message.
type warnings struct {
	slog.Handler
	mu   sync.Mutex
	seen []slog.Record
}

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, r.Clone())
	return nil
}

// times lists the counts that failures were logged with.
func (w *warnings) times() (counts []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.seen {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "times" && r.Level == slog.LevelWarn {
				counts = append(counts, a.Value.String())
			}
			return true
		})
	}
	return counts
}

func TestElectionWithoutStreamsIsLoudAndGoesOn(t *testing.T) {
	t.Parallel()
	log := &warnings{Handler: slog.DiscardHandler}
	a := campaign(t, engine(t, broker(t)), "worker a", func(o *ElectionOptions) { o.Log = slog.New(loud{log}) })
	until(t, "four failures", func() bool { return strings.Join(log.times(), " ") == "1 2 4" })
	a.refuses("no election yet: ")
	a.refuses("enable Choria Streams on the broker (plugin.choria.network.stream.store)")
	if s := a.State(); s.Err == nil || s.Role != Standby {
		t.Errorf("state %+v", s)
	}
	select {
	case <-a.done:
		t.Error("it gave the election up")
	default:
	}
}

// loud takes every level.
type loud struct{ *warnings }

func (loud) Enabled(context.Context, slog.Level) bool { return true }

func TestElectionStartsBeforeTheBroker(t *testing.T) {
	t.Parallel()
	f := streamsBroker(t, 5*time.Second)
	f.StopBroker()
	e, err := New(options(t, f))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	a := campaign(t, e, "worker a")
	until(t, "the failure shows", func() bool { return errors.Is(a.State().Err, ErrNotConnected) })
	a.refuses("no election yet: ")
	if err := f.StartBroker(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if err := e.Connect(deadline(t)); err != nil {
		t.Fatal(err)
	}
	a.leads()
}

func TestElectionThatNobodyHolds(t *testing.T) {
	var none *Election
	for name, e := range map[string]*Election{
		"nil": none, "zero": {}, "no engine": NewElection(ElectionOptions{}),
		"long name": NewElection(ElectionOptions{Engine: engine(t, broker(t)), Name: strings.Repeat("n", 513)}),
		"not run":   NewElection(ElectionOptions{Engine: engine(t, broker(t))}),
	} {
		if err := e.Check(); !errors.Is(err, receipt.ErrStandby) {
			t.Errorf("%s: %v, want ErrStandby", name, err)
		}
		if s := e.State(); s.Role != Standby {
			t.Errorf("%s: %+v", name, s)
		}
		if name == "not run" {
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); e.Run(ctx) }()
		select {
		case <-done:
			t.Errorf("%s: Run returned before its context ended", name)
		default:
		}
		cancel()
		receive(t, done)
	}
}

// keyWriter writes to the key as others do.
type keyWriter struct {
	t  *testing.T
	nc *nats.Conn
}

func (w keyWriter) write(value string, at uint64, checked bool) uint64 {
	w.t.Helper()
	m := &nats.Msg{Subject: electionKey, Header: nats.Header{}, Data: []byte(value)}
	if checked {
		m.Header.Set(expectRevision, strconv.FormatUint(at, 10))
	}
	reply, err := w.nc.RequestMsgWithContext(deadline(w.t), m)
	if err != nil {
		w.t.Fatal(err)
	}
	var ack struct {
		Sequence uint64 `json:"seq"`
	}
	if err := readStreams(electionKey, reply.Data, &ack); err != nil {
		w.t.Fatal(err)
	}
	return ack.Sequence
}

func TestHostileLeaderName(t *testing.T) {
	t.Parallel()
	f := streamsBroker(t, 10*time.Second)
	w := keyWriter{t, dial(t, f, "other")}
	evil := "\x1b[31m\xff\n" + strings.Repeat("x", 800)
	revision := w.write(evil, 0, true)
	a := campaign(t, engine(t, f), "worker a")
	until(t, "a knows that another leads", func() bool { return strings.Contains(a.Check().Error(), "another worker leads") })
	a.refuses("its name is known once it renews")
	w.write(evil, revision, true)
	until(t, "the leader is named", func() bool { return a.State().Leader != "" })
	name := a.State().Leader
	if len(name) > maxRival || !strings.HasPrefix(name, "?[31m??xxx") || strings.ContainsFunc(name, unicode.IsControl) {
		t.Errorf("the name is shown as %q (%d bytes)", name, len(name))
	}
}

func TestOnlyRenewalsNameALeader(t *testing.T) {
	e := NewElection(ElectionOptions{Engine: engine(t, broker(t)), Name: "worker a"})
	e.ttl = time.Minute
	write := func(value, expected string) {
		m := &nats.Msg{Header: nats.Header{}, Data: []byte(value)}
		if expected != "" {
			m.Header.Set(expectRevision, expected)
		}
		e.onWrite(m)
	}
	for _, w := range []struct{ value, expected, leader string }{
		{"candidate", "0", ""},
		{"no election at all", "", ""},
		{"leader", "4", "leader"},
		{"candidate", "0", "leader"},
		{"", "5", "leader"}, // a deletion
		{"worker a", "5", "leader"},
	} {
		write(w.value, w.expected)
		if got := e.State().Leader; got != w.leader {
			t.Errorf("after %q at %q the leader is %q, want %q", w.value, w.expected, got, w.leader)
		}
	}
	e.opt.Now = func() time.Time { return time.Now().Add(2 * time.Minute) }
	if got := e.State().Leader; got != "" {
		t.Errorf("%q leads although it has not renewed for two minutes", got)
	}
}

func TestOverwrittenKeyIsLostAtOnce(t *testing.T) {
	t.Parallel()
	f := streamsBroker(t, 2*time.Second)
	a := campaign(t, engine(t, f), "worker a")
	a.leads()
	keyWriter{t, dial(t, f, "other")}.write("somebody", 0, false)
	a.becomes(Standby)
	if s := a.State(); s.Err != nil || a.revision() != 0 {
		t.Errorf("the key was lost, yet: %+v", s)
	}
	a.refuses("another worker leads")
	a.leads() // once what somebody wrote has expired
}

func TestForgedReleaseTakesNothing(t *testing.T) {
	t.Parallel()
	f := streamsBroker(t, 0)
	a := campaign(t, engine(t, f), "worker a")
	a.becomes(Waiting)
	e := engine(t, f)
	b := campaign(t, e, "worker b")
	until(t, "b stands by", func() bool { return strings.Contains(b.Check().Error(), "another worker leads") })
	nc := dial(t, f, "other")
	garbage := e.stats.garbage.Load()
	for _, note := range []string{`{"revision":999}`, `{"revision":-1}`, `{"revision":0}`, `[`, ``, `{"revision":1,"x":"` + strings.Repeat("y", 2000) + `"}`} {
		if err := nc.Publish(releaseSubject, []byte(note)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the garbage is counted", func() bool { return e.stats.garbage.Load()-garbage == 5 })
	b.refuses("another worker leads")
	if a.State().Role != Waiting {
		t.Errorf("a is %s", a.State().Role)
	}
}

// foreign is the existing provisioner's election (its name is the engine's identity).
func foreign(t *testing.T, e *Engine, opts ...election.Option) (inter.Election, context.CancelFunc) {
	t.Helper()
	conn, err := e.fw.NewConnector(deadline(t), e.fw.MiddlewareServers, "foreign", e.fw.Logger("foreign"))
	if err != nil {
		t.Fatal(err)
	}
	el, err := e.fw.NewElection(deadline(t), conn, "provisioner", true, opts...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = el.Start(ctx) }()
	stop := func() { cancel(); <-done }
	t.Cleanup(func() { stop(); conn.Close() })
	return el, stop
}

// TestNeverLeadsTogetherWithTheExistingProvisioner takes the leadership from the existing provisioner's election and back.
func TestNeverLeadsTogetherWithTheExistingProvisioner(t *testing.T) {
	t.Parallel()
	f := streamsBroker(t, 4*time.Second) // about the least that Choria's election takes
	e := engine(t, f)
	other, stopOther := foreign(t, e)
	until(t, "the existing provisioner leads", other.IsLeader)
	a := campaign(t, engine(t, f), "worker a")
	until(t, "a knows who leads", func() bool { return a.State().Leader == e.fw.Config.Identity })
	a.refuses("another worker leads: " + e.fw.Config.Identity)
	begun := time.Now()
	stopOther()
	until(t, "a leads", func() bool {
		leads := a.Check() == nil
		if leads && other.IsLeader() {
			t.Fatal("both lead")
		}
		return leads
	})
	t.Logf("took over from the existing provisioner %s after it stopped", time.Since(begun))

	campaigns := make(chan election.State, 100)
	again, _ := foreign(t, e, election.OnCampaign(func(s election.State) { campaigns <- s }))
	for range 2 {
		receive(t, campaigns)
		if again.IsLeader() || a.Check() != nil {
			t.Fatalf("the existing provisioner leads: %t; ours: %v", again.IsLeader(), a.Check())
		}
	}
	begun = time.Now()
	a.resign()
	until(t, "the existing provisioner leads again", again.IsLeader)
	t.Logf("the existing provisioner took over %s after ours stopped", time.Since(begun))
}
