package sequence_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"provctl/internal/helper"
	"provctl/journal"
	"provctl/journal/journaltest"
	"provctl/receipt"
	"provctl/sequence"
)

const node = receipt.NodeID("n1.example.net")

var (
	life  = receipt.Incarnation{PID: 7, Start: 1_700_000_000}
	other = receipt.Incarnation{PID: 7, Start: 1_700_000_100}
	key   = receipt.Key{Public: strings.Repeat("a", 64), Directory: "/etc/choria", Signature: strings.Repeat("b", 128)}
)

// bench is a cycle on a real journal, with a node, a helper and lanes that do as told. calls is what was asked, in order.
type bench struct {
	t     *testing.T
	j     *journal.Journal
	calls []string

	stats   func(n int) (receipt.Incarnation, error) // the n-th answer, from 1
	jwt     error
	helper  string
	keyErr  error
	publish func(*journal.Pending) (sequence.Outcome, error)
	prepare error
	gate    func(call string) error // asked with the last call
	cut     error                   // Disturbed
	waits   chan struct{}           // calls never end; effects' context does
	inHand  bool                    // ... but when one is given up its reply is there
	flow    sequence.Flow
	sighted bool                   // jobs come by sightings
	age     time.Duration          // how long ago requests are signed
	ecdh    string                 // the node's key for secrets
	stock   string                 // its inventory
	csr     error                  // what CheckCSR says
	sent    map[receipt.Action]any // the inputs that were prepared
	asked   helper.Input           // what the helper was told last
	looks   int
	retaken int // how many calls had been made when a lane was last asked for
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return &bench{t: t, j: journaltest.Open(t), flow: sequence.Flow{JWT: true, Ed25519: true}, stock: `{}`, sent: map[receipt.Action]any{}, helper: `{"configuration":{"plugin.choria.server.provision":"false"}}`}
}

// pass admits the node if it has no job, claims its job, makes one pass and records what it says.
func (b *bench) pass() (receipt.Job, error) {
	b.t.Helper()
	b.calls = nil
	ctx := b.t.Context()
	job, err := b.admit(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	if job, err = b.j.Claim(ctx, job.ID); err != nil {
		b.t.Fatal(err)
	}
	effects := ctx
	if b.waits != nil {
		var cancel context.CancelFunc
		effects, cancel = context.WithCancel(ctx)
		cancel()
	}
	c := &sequence.Cycle{
		Journal: b.j, Wire: b, Advisor: b, Credentials: b, Flow: b.flow, Hold: time.Minute, Retry: time.Second, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	next, err := c.Run(ctx, effects, b, job)
	if err != nil {
		return job, err
	}
	if next.Event != 0 {
		if _, err := b.j.Move(ctx, job.ID, next); err != nil {
			b.t.Fatal(err)
		}
	}
	if job, err = b.j.Job(job.ID); err != nil {
		b.t.Fatal(err)
	}
	return job, nil
}

// admit gives the node a job: by the operator's hand, which forgives, or by a sighting.
func (b *bench) admit(ctx context.Context) (receipt.Job, error) {
	if !b.sighted {
		return b.j.AdmitByHand(ctx, node, "test", "a pass")
	}
	a, err := b.j.Admit(ctx, []journal.Sighting{{Node: node, Source: "discovery"}}, 1)
	if err != nil || a[0].State != journal.Admitted {
		return receipt.Job{}, fmt.Errorf("admission %+v, %w", a, err)
	}
	return a[0].Job, nil
}

func (b *bench) called(what string) { b.calls = append(b.calls, what) }

// effects are the published ones.
func (b *bench) effects() string {
	var out []string
	for _, c := range b.calls {
		if e, ok := strings.CutPrefix(c, "publish "); ok {
			out = append(out, e)
		}
	}
	return strings.Join(out, " ")
}

// The ports.

func (b *bench) Stats(context.Context, receipt.NodeID) (receipt.StatsSeen, receipt.Baseline, error) {
	b.called("stats")
	b.looks++
	at := life
	if b.stats != nil {
		var err error
		if at, err = b.stats(b.looks); err != nil {
			return receipt.StatsSeen{}, receipt.Baseline{}, err
		}
	}
	return receipt.StatsSeen{Incarnation: at, Validated: 10}, receipt.Baseline{Validated: 10, Epoch: 1, Ordinal: 1}, nil
}

func (b *bench) JWT(context.Context, receipt.NodeID) (sequence.Introduction, error) {
	b.called("jwt")
	return sequence.Introduction{Token: "token", ECDH: b.ecdh}, b.jwt
}

func (b *bench) Inventory(context.Context, receipt.NodeID) (json.RawMessage, error) {
	b.called("inventory")
	return json.RawMessage(b.stock), nil
}

func (b *bench) Prepare(_ receipt.NodeID, a receipt.Action, input any) (sequence.Prepared, error) {
	b.called("prepare " + a.String())
	b.sent[a] = input
	now := time.Now().Add(-b.age)
	return sequence.Prepared{
		Request: receipt.RequestID(fmt.Sprintf("%032d", len(b.calls)+100*b.looks)), Time: now,
		Horizon: receipt.HorizonOf(now, time.Minute, time.Second), Digest: strings.Repeat("0", 64),
	}, b.prepare
}

func (b *bench) Publish(_ context.Context, p *journal.Pending, _ sequence.Prepared) (sequence.Call, error) {
	a := p.Receipt().Action
	out := sequence.Outcome{Reply: &receipt.Reply{Text: map[receipt.Action]string{
		receipt.Configure: "Wrote 3 lines to /etc/choria/server.conf", receipt.Restart: "Restarting Choria Server after 2s",
		receipt.Shutdown: "Shutting Choria Server down after 1s", receipt.ReleaseUpdate: "Restarting Choria Server after 2s",
	}[a]}}
	if b.publish != nil {
		o, err := b.publish(p)
		switch {
		case err != nil:
			return nil, err
		case o.Event != 0 || o.Reply != nil:
			out = o
		}
	}
	b.called("publish " + a.String())
	return newCall(out, b.waits, b.inHand), p.MarkPublished()
}

// call has its outcome when open is closed, at once without one, or has lost it when it is given up.
type call struct {
	out        sequence.Outcome
	done, gone chan struct{}
}

func newCall(out sequence.Outcome, open <-chan struct{}, inHand bool) *call {
	c := &call{out, make(chan struct{}), make(chan struct{})}
	if open == nil {
		close(c.done)
		return c
	}
	go func() {
		defer close(c.done)
		select {
		case <-open:
		case <-c.gone:
			if !inHand {
				c.out = sequence.Outcome{Event: receipt.Lost, Why: "given up"}
			}
		}
	}()
	return c
}

func (c *call) Done() <-chan struct{} { return c.done }

func (c *call) Outcome() sequence.Outcome { return c.out }

func (c *call) GiveUp() { close(c.gone) }

func (b *bench) Ask(_ context.Context, _ receipt.Job, in helper.Input) (*helper.Reply, error) {
	b.called("helper")
	b.asked = in
	return helper.Decode([]byte(b.helper))
}

func (b *bench) VerifyNode(string) (json.RawMessage, error) { return json.RawMessage(`{}`), nil }

func (b *bench) ReadKey(a receipt.Action, _ json.RawMessage, _ string) (receipt.Key, error) {
	if a == receipt.GenCSR {
		return receipt.Key{Public: "public pem", Directory: "/etc/choria/ssl", CSR: "csr pem"}, b.keyErr
	}
	return key, b.keyErr
}

func (b *bench) CheckCSR(_ receipt.NodeID, csr string) error {
	b.called("check " + csr)
	return b.csr
}

func (b *bench) CheckIssued(_ receipt.NodeID, csr string, r *helper.Reply) error {
	b.called("check " + r.Certificate + " against " + csr)
	return nil
}

func (b *bench) SealKey(key, ecdh string) (sealed, public string, err error) {
	return "sealed " + key + " for " + ecdh, "ours", nil
}

func (b *bench) ServerJWT(receipt.NodeID, string, *helper.Reply) (string, error) { return "jwt", nil }

func (b *bench) Park(ctx context.Context, done <-chan struct{}) {
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func (b *bench) Await(ctx context.Context, done <-chan struct{}, _ receipt.Receipt) error {
	b.Park(ctx, done)
	select {
	case <-done:
		return nil
	default:
		return errors.New("the worker stopped before a reply came")
	}
}

func (b *bench) Retake() { b.retaken = len(b.calls) }

func (b *bench) Gate() error {
	if b.gate == nil || len(b.calls) == 0 {
		return nil
	}
	return b.gate(b.calls[len(b.calls)-1])
}

func (b *bench) Disturbed() error { return b.cut }

func TestCycleInOrder(t *testing.T) {
	b := newBench(t)
	job, err := b.pass()
	if err != nil || job.Result != receipt.Provisioned {
		t.Fatalf("job %+v, %v", job, err)
	}
	want := []string{
		"stats", "jwt", "prepare gen25519", "publish gen25519", "inventory", "helper",
		"stats", "prepare configure", "publish configure", "stats", "prepare restart", "publish restart",
	}
	if !slices.Equal(b.calls, want) {
		t.Errorf("asked %q, want %q", b.calls, want)
	}
	n, err := b.j.Node(node)
	if err != nil || !n.HeldUntil.After(time.Now()) {
		t.Errorf("a node in its restart splay is not held: %+v, %v", n, err)
	}
}

// TestEndings has one thing go wrong, or go otherwise, in each pass.
func TestEndings(t *testing.T) {
	errOdd := errors.New("odd")
	at := func(action receipt.Action, out sequence.Outcome, err error) func(*bench) {
		return func(b *bench) {
			b.publish = func(p *journal.Pending) (sequence.Outcome, error) {
				if p.Receipt().Action == action {
					return out, err
				}
				return sequence.Outcome{}, nil
			}
		}
	}
	reply := func(code int, text string) sequence.Outcome {
		return sequence.Outcome{Reply: &receipt.Reply{Code: code, Text: text}}
	}
	for _, c := range []struct {
		name    string
		change  func(*bench)
		status  receipt.JobStatus
		result  receipt.Result
		effects string
		held    bool
		fatal   bool
	}{
		{"defer", func(b *bench) { b.helper = `{"defer":true}` }, receipt.Ended, receipt.Deferred, "gen25519", true, false},
		{"shutdown", func(b *bench) { b.helper = `{"shutdown":true}` }, receipt.Ended, receipt.ShutDown, "gen25519 shutdown", true, false},
		{"shutdown refused", func(b *bench) {
			b.helper = `{"shutdown":true}`
			at(receipt.Shutdown, reply(1, "Incorrect provision token supplied"), nil)(b)
		}, receipt.Ended, receipt.FailedJob, "gen25519 shutdown", true, false},
		{"helper prints garbage", func(b *bench) { b.helper = `{` }, receipt.Ended, receipt.FailedJob, "gen25519", true, false},
		{"node does not answer", func(b *bench) { b.stats = func(int) (receipt.Incarnation, error) { return life, errOdd } }, receipt.Ended, receipt.FailedJob, "", true, false},
		{"node is not there", func(b *bench) {
			b.stats = func(int) (receipt.Incarnation, error) { return life, fmt.Errorf("%w: nobody", sequence.ErrAbsent) }
		}, receipt.Ended, receipt.Left, "", false, false},
		{"broker went away meanwhile", func(b *bench) { b.jwt, b.cut = errOdd, errOdd }, receipt.Queued, 0, "", false, false},
		{"broker is away", func(b *bench) { b.jwt = fmt.Errorf("%w: odd", sequence.ErrCut) }, receipt.Queued, 0, "", false, false},
		{"no incarnation", func(b *bench) { b.stats = func(int) (receipt.Incarnation, error) { return receipt.Incarnation{}, nil } }, receipt.Ended, receipt.FailedJob, "", true, false},
		{"another incarnation before configure", func(b *bench) {
			b.stats = func(n int) (receipt.Incarnation, error) {
				if n == 2 {
					return other, nil
				}
				return life, nil
			}
		}, receipt.Ended, receipt.Superseded, "gen25519", false, false},
		{"key of no use", func(b *bench) { b.keyErr = errOdd }, receipt.Blocked, 0, "gen25519", false, false},
		{"configure refused", at(receipt.Configure, reply(1, "Could not obtain provisioning lock"), nil), receipt.Ended, receipt.FailedJob, "gen25519 configure", true, false},
		{"configure failed", at(receipt.Configure, reply(1, "TLS Setup Failed: x"), nil), receipt.Ended, receipt.FailedJob, "gen25519 configure", true, false},
		{"configure unknown", at(receipt.Configure, sequence.Outcome{Event: receipt.Lost, Why: "no reply"}, nil), receipt.Blocked, 0, "gen25519 configure", false, false},
		{"success in odd words", at(receipt.Configure, reply(0, "done"), nil), receipt.Blocked, 0, "gen25519 configure", false, false},
		{"delivered to nobody", at(receipt.Configure, sequence.Outcome{Event: receipt.NeverSent, Why: "503"}, nil), receipt.Queued, 0, "gen25519 configure", false, false},
		{"not sent", at(receipt.Configure, sequence.Outcome{}, sequence.ErrNotSent), receipt.Queued, 0, "gen25519", false, false},
		{"expired before the publish", at(receipt.Configure, sequence.Outcome{}, fmt.Errorf("%w: %w: %w", sequence.ErrNotSent, receipt.ErrFenced, receipt.ErrExpired)), receipt.Queued, 0, "gen25519", false, false},
		{"fenced", at(receipt.Configure, sequence.Outcome{}, fmt.Errorf("%w: %w", sequence.ErrNotSent, receipt.ErrFenced)), receipt.Queued, 0, "gen25519", false, true},
		{"publish breaks in an unknown way", at(receipt.Configure, sequence.Outcome{}, errOdd), receipt.Blocked, 0, "gen25519", false, true},
		{"request cannot be built", func(b *bench) { b.prepare = errOdd }, receipt.Ended, receipt.FailedJob, "", true, false},
		{"gate closes during the look", func(b *bench) {
			b.gate = func(last string) error {
				if last == "prepare configure" {
					return errOdd
				}
				return nil
			}
		}, receipt.Queued, 0, "gen25519", false, false},
		{"two servers of its name", func(b *bench) {
			b.gate = func(last string) error {
				if last == "helper" {
					return fmt.Errorf("%w: x", sequence.ErrTwin)
				}
				return nil
			}
		}, receipt.Ended, receipt.FailedJob, "gen25519", true, false},
		{"given up with the reply in hand", func(b *bench) { b.waits, b.inHand = make(chan struct{}), true }, receipt.Ended, receipt.Provisioned, "gen25519 configure restart", true, false},
		{"stopped before the reply", func(b *bench) { b.waits = make(chan struct{}) }, receipt.Blocked, 0, "gen25519", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			c.change(b)
			job, err := b.pass()
			if (err != nil) != c.fatal {
				t.Fatalf("error %v, want one: %t", err, c.fatal)
			}
			if err != nil {
				if job, err = b.j.Job(job.ID); err != nil {
					t.Fatal(err)
				}
			}
			if job.Status != c.status || job.Result != c.result || b.effects() != c.effects {
				t.Errorf("job %s (%s) after %q: %s; want %s (%s) after %q", job.Status, job.Result, b.effects(), job.Why, c.status, c.result, c.effects)
			}
			n, err := b.j.Node(node)
			if err != nil || n.HeldUntil.After(time.Now()) != c.held {
				t.Errorf("held until %s, want held: %t, %v", n.HeldUntil, c.held, err)
			}
			if (n.Open != "") != (c.status == receipt.Blocked) {
				t.Errorf("open receipt %q of a job that is %s", n.Open, job.Status)
			}
		})
	}
}

// TestLaneIsTakenBackOnlyToGoOn: a pass that is over after its effect must not wait for a lane, since what follows from the outcome,
// above all the watch on an unknown receipt and the block of the fleet, would wait with it.
func TestLaneIsTakenBackOnlyToGoOn(t *testing.T) {
	for event, goesOn := range map[receipt.Event]bool{receipt.ReplyApplied: true, receipt.Lost: false, receipt.ReplyFailed: false} {
		b := newBench(t)
		b.publish = func(p *journal.Pending) (sequence.Outcome, error) {
			if p.Receipt().Action != receipt.Configure {
				return sequence.Outcome{}, nil
			}
			return sequence.Outcome{Event: event, Why: "as told"}, nil
		}
		if _, err := b.pass(); err != nil {
			t.Fatal(err)
		}
		after := slices.Index(b.calls, "publish configure") + 1
		if b.retaken >= after != goesOn {
			t.Errorf("%s: a lane was asked for after %d calls, the configure was number %d", event, b.retaken, after)
		}
	}
}

// TestSecondPassGoesOn: what the incarnation's history shows as applied is not done again.
func TestSecondPassGoesOn(t *testing.T) {
	b := newBench(t)
	b.helper = `{"defer":true}`
	if _, err := b.pass(); err != nil {
		t.Fatal(err)
	}
	b.helper = `{"configuration":{"plugin.choria.server.provision":"false"}}`
	b.publish = func(p *journal.Pending) (sequence.Outcome, error) {
		if p.Receipt().Action == receipt.Restart {
			return sequence.Outcome{}, sequence.ErrNotSent
		}
		return sequence.Outcome{}, nil
	}
	if job, err := b.pass(); err != nil || b.effects() != "configure" || job.Status != receipt.Queued {
		t.Fatalf("the key was made already: %q, job %+v, %v", b.effects(), job, err)
	}
	b.publish = nil
	if job, err := b.pass(); err != nil || b.effects() != "restart" || job.Result != receipt.Provisioned {
		t.Fatalf("the node was configured already: %q, job %+v, %v", b.effects(), job, err)
	}
	// The node is still there, in the same incarnation, and nobody said that it may be restarted again... but an admit by hand did.
	if job, err := b.pass(); err != nil || b.effects() != "restart" || job.Result != receipt.Provisioned {
		t.Fatalf("after an admit by hand: %q, job %+v, %v", b.effects(), job, err)
	}
	// Another incarnation is new work.
	b.stats = func(int) (receipt.Incarnation, error) { return other, nil }
	if job, err := b.pass(); err != nil || b.effects() != "gen25519 configure restart" || job.Result != receipt.Provisioned {
		t.Fatalf("a new incarnation: %q, job %+v, %v", b.effects(), job, err)
	}
}
