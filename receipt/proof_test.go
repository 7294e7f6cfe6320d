package receipt_test

import (
	"testing"
	"time"

	"provctl/receipt"
)

// nothing is what a rule that stays silent concludes.
const nothing receipt.Event = 0

// proofCase is one receipt with its evidence, and what must follow from it.
type proofCase struct {
	name    string
	receipt receipt.Receipt
	history receipt.History
	now     time.Time
	want    receipt.Event
	rule    string
}

func prove(t *testing.T, cases []proofCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p, ok := receipt.Prove(c.receipt, c.history, c.now)
			if ok != (c.want != nothing) {
				t.Fatalf("proved %t: %s by %s (%s), want %s", ok, p.Event, p.Rule, p.Why, c.want)
			}
			if !ok {
				return
			}
			if p.Event != c.want || p.Rule != c.rule || p.Why == "" {
				t.Errorf("%s by %q (%q), want %s by %q", p.Event, p.Rule, p.Why, c.want, c.rule)
			}
			if to, err := receipt.Unknown.Apply(p.Event); err != nil || to.Open() {
				t.Errorf("the proof leads to %s, %v", to, err)
			}
		})
	}
}

// TestProveByLateReply: one reply says what happened; none, two or an unusable one say nothing.
func TestProveByLateReply(t *testing.T) {
	c := sample(receipt.Configure, receipt.Unknown)
	applied, refused := reply(early, 0, receipt.ReplyApplied), reply(early, 1, receipt.ReplyRefused)
	lost := reply(early, 0, receipt.Lost)
	prove(t, []proofCase{
		{"applied, before the horizon", with(c, applied), receipt.History{}, early, receipt.ProvedApplied, "late-reply"},
		{"refused", with(c, refused), receipt.History{}, early, receipt.ProvedRefused, "late-reply"},
		{"failed", with(c, reply(early, 1, receipt.ReplyFailed)), receipt.History{}, late, receipt.ProvedFailed, "late-reply"},
		{"none", c, receipt.History{}, late, nothing, ""},
		{"unusable", with(c, lost), receipt.History{}, late, nothing, ""},
		{"two that contradict", with(c, applied, refused), receipt.History{}, late, nothing, ""},
		{"two alike", with(c, applied, applied), receipt.History{}, late, nothing, ""},
		{"an unusable one and a good one", with(c, lost, applied), receipt.History{}, late, nothing, ""},
		{"a good one and an unusable one", with(c, applied, lost), receipt.History{}, late, nothing, ""},
		{"a proof is no meaning of a reply", with(c, reply(early, 0, receipt.ProvedApplied)), receipt.History{}, late, nothing, ""},
		{"a verdict is no meaning of a reply", with(c, reply(early, 0, receipt.SaidNotDone)), receipt.History{}, late, nothing, ""},
	})
}

// TestLateDuplicatesProveNothing goes through Note, as the journal does: the second copy is kept and voids the first, even
// when the receipt holds all the events it can.
func TestLateDuplicatesProveNothing(t *testing.T) {
	r := sample(receipt.Restart, receipt.Unknown)
	for i := range 100 {
		r.Note(event(early.Add(time.Duration(i)*time.Second), "startup"))
	}
	if !r.Note(reply(early, 0, receipt.ReplyApplied)) {
		t.Fatal("the first reply is not kept")
	}
	if p, ok := receipt.Prove(r, receipt.History{}, early); !ok || p.Event != receipt.ProvedApplied {
		t.Fatalf("one late reply proves %s, %t", p.Event, ok)
	}
	if !r.Note(reply(early, 0, receipt.ReplyApplied)) {
		t.Fatal("the duplicate is not kept")
	}
	for _, now := range []time.Time{early, late} {
		if p, ok := receipt.Prove(r, receipt.History{}, now); ok {
			t.Errorf("two replies prove %s by %s", p.Event, p.Rule)
		}
	}
}

// TestLateReplyBringsItsKey: what a gen25519 gave is handed on.
func TestLateReplyBringsItsKey(t *testing.T) {
	e := reply(early, 0, receipt.ReplyApplied)
	e.Reply.Key = &receipt.Key{Public: "aa", Directory: "/etc/choria", Signature: "bb"}
	p, ok := receipt.Prove(with(sample(receipt.Gen25519, receipt.Unknown), e), receipt.History{}, early)
	if !ok || p.Event != receipt.ProvedApplied || p.Key != e.Reply.Key {
		t.Errorf("%+v, %t", p, ok)
	}
}

// TestProveByProvisionedEvent: the event is the configure's own; no other effect, no other event and no silence counts.
func TestProveByProvisionedEvent(t *testing.T) {
	done := event(early, "provisioned")
	cases := []proofCase{
		{"configure", with(sample(receipt.Configure, receipt.Unknown), done), receipt.History{}, early, receipt.ProvedApplied, "provisioned-event"},
		{"two of them", with(sample(receipt.Configure, receipt.Unknown), done, event(late, "provisioned")), receipt.History{}, early, receipt.ProvedApplied, "provisioned-event"},
		{"no event", sample(receipt.Configure, receipt.Unknown), receipt.History{}, late, nothing, ""},
	}
	for _, kind := range []string{"startup", "shutdown", "upgraded", "alive", "Provisioned", "provisioned ", ""} {
		cases = append(cases, proofCase{"event " + kind, with(sample(receipt.Configure, receipt.Unknown), event(early, kind)), receipt.History{}, late, nothing, ""})
	}
	for _, a := range []receipt.Action{receipt.ReleaseUpdate, receipt.Restart, receipt.Shutdown} {
		cases = append(cases, proofCase{a.String(), with(sample(a, receipt.Unknown), done), receipt.History{}, late, nothing, ""})
	}
	prove(t, cases)
}

// TestProveByUpgradedEvent: the event counts for an upgrade alone, and only with the version that was asked for.
func TestProveByUpgradedEvent(t *testing.T) {
	done := func(version string) receipt.Evidence {
		e := event(early, "upgraded")
		e.Event.Version = version
		return e
	}
	r := sample(receipt.ReleaseUpdate, receipt.Unknown)
	cases := []proofCase{
		{"to the version", with(r, done("1.2.3")), receipt.History{}, early, receipt.ProvedApplied, "upgraded-event"},
		{"to the version's package", with(r, done("1.2.3-1")), receipt.History{}, early, receipt.ProvedApplied, "upgraded-event"},
		{"to another version", with(r, done("1.2.2")), receipt.History{}, late, nothing, ""},
		{"to no version", with(r, done("")), receipt.History{}, late, nothing, ""},
		{"another one before", with(r, done("1.2.2"), done("1.2.3")), receipt.History{}, early, receipt.ProvedApplied, "upgraded-event"},
		{"another event", with(r, event(early, "provisioned")), receipt.History{}, late, nothing, ""},
	}
	for _, a := range []receipt.Action{receipt.Configure, receipt.Restart, receipt.Shutdown} {
		cases = append(cases, proofCase{a.String(), with(sample(a, receipt.Unknown), done("1.2.3")), receipt.History{}, late, nothing, ""})
	}
	prove(t, cases)
}

// TestProveUpgradeByVersion: past the horizon another incarnation with the wanted version proves the upgrade, and with any other version
// it is moot; the version without another incarnation proves nothing.
func TestProveUpgradeByVersion(t *testing.T) {
	runs := func(i receipt.Incarnation, version string) receipt.Evidence {
		e := stats(early, i, 1, 1)
		e.Stats.Version = version
		return e
	}
	r := sample(receipt.ReleaseUpdate, receipt.Unknown)
	prove(t, []proofCase{
		{"wanted version, new start", with(r, runs(second, "1.2.3")), receipt.History{}, late, receipt.ProvedApplied, "new-start"},
		{"wanted version, new start, early", with(r, runs(second, "1.2.3")), receipt.History{}, early, nothing, ""},
		{"old version, new start, early", with(r, runs(second, "1.2.2")), receipt.History{}, early, nothing, ""},
		{"old version, new start, late", with(r, runs(second, "1.2.2")), receipt.History{}, late, receipt.ProvedMoot, "new-start"},
		{"no version, new start, late", with(r, runs(second, "")), receipt.History{}, late, receipt.ProvedMoot, "new-start"},
		{"wanted version, same start", with(r, runs(first, "1.2.3")), receipt.History{}, late, nothing, ""},
		{"wanted version, a twin answered", with(r, runs(second, "1.2.3"), connections(early, 2, early)), receipt.History{}, late, nothing, ""},
		{"a restart proves nothing of a version", with(sample(receipt.Configure, receipt.Unknown), runs(second, "1.2.3")), receipt.History{}, early, nothing, ""},
	})
}

// TestProveByNewIncarnation: a restart is proved by it, everything else is moot, and both only past the horizon: a node can restart by
// itself, and the request arrive in its new life.
func TestProveByNewIncarnation(t *testing.T) {
	back := stats(early, second, 1, 1)
	moved := stats(early, receipt.Incarnation{PID: 101, Start: first.Start}, 1, 1)
	var cases []proofCase
	for _, a := range receipt.Actions() {
		r := sample(a, receipt.Unknown)
		// A configure receipt keeps the rule for repeatable keys out of this.
		h := receipt.History{Receipts: []receipt.Receipt{sample(receipt.Configure, receipt.Refused)}}
		after := receipt.ProvedMoot
		if a == receipt.Restart {
			after = receipt.ProvedApplied
		}
		cases = append(cases,
			proofCase{a.String() + " early", with(r, back), h, early, nothing, ""},
			proofCase{a.String() + " at the horizon", with(r, back), h, horizon.Time, nothing, ""},
			proofCase{a.String() + " late", with(r, back), h, late, after, "new-start"},
			proofCase{a.String() + " another pid", with(r, moved), h, late, after, "new-start"},
			proofCase{a.String() + " a twin answered", with(r, back, connections(late, 2, early)), h, late, nothing, ""},
			proofCase{a.String() + " a twin answered and is gone", with(r, back, stats(late, first, 1, 1)), h, late, nothing, ""},
			proofCase{a.String() + " same incarnation", with(r, stats(late, first, 1, 1)), h, late, nothing, ""},
			proofCase{a.String() + " incarnation not known", with(r, stats(late, receipt.Incarnation{PID: 100}, 1, 1)), h, late, nothing, ""},
			proofCase{a.String() + " a startup event alone", with(r, event(early, "startup")), h, late, nothing, ""},
			proofCase{a.String() + " a closed connection alone", with(r, connections(early, 0, early)), h, late, nothing, ""},
		)
	}
	prove(t, cases)
}

// TestProveByLeaving: gone after a restart or shutdown, and still gone after horizon and splay.
func TestProveByLeaving(t *testing.T) {
	edge := horizon.Add(receipt.LeaveSplay)
	past := edge.Add(time.Millisecond)
	var cases []proofCase
	for _, a := range []receipt.Action{receipt.Restart, receipt.Shutdown} {
		r := sample(a, receipt.Unknown)
		gone := connections(past, 0, early)
		add := func(name string, r receipt.Receipt, now time.Time, want receipt.Event) {
			cases = append(cases, proofCase{a.String() + " " + name, r, receipt.History{}, now, want, "left"})
		}
		add("left", with(r, gone), late, receipt.ProvedMoot)
		add("left, asked too early", with(r, gone), edge, nothing)
		add("seen gone before the horizon only", with(r, connections(early, 0, early)), late, nothing)
		add("seen gone at the very edge", with(r, connections(edge, 0, early)), late, nothing)
		add("closed before the request", with(r, connections(past, 0, asked.Add(-time.Second))), late, nothing)
		add("closed with the request", with(r, connections(past, 0, asked)), late, nothing)
		add("no closure known", with(r, connections(past, 0, time.Time{})), late, nothing)
		add("connected again", with(r, connections(past, 1, early)), late, nothing)
		add("answered before it left", with(r, stats(early, first, 5, 1), gone), late, receipt.ProvedMoot)
		add("answers again", with(r, gone, stats(late, first, 5, 1)), late, nothing)
		add("a shutdown event alone", with(r, event(early, "shutdown")), late, nothing)
	}
	for _, a := range []receipt.Action{receipt.Configure, receipt.ReleaseUpdate} {
		cases = append(cases, proofCase{
			a.String() + " left", with(sample(a, receipt.Unknown), connections(past, 0, early)), receipt.History{}, late, nothing, "",
		})
	}
	prove(t, cases)
}

// TestProveByRepeatable: keys may be made again once the request has expired, unless anything was configured.
func TestProveByRepeatable(t *testing.T) {
	var cases []proofCase
	for _, a := range receipt.Actions() {
		r := sample(a, receipt.Unknown)
		own := receipt.History{Receipts: []receipt.Receipt{r}}
		want := nothing
		if a == receipt.Gen25519 || a == receipt.GenCSR {
			want = receipt.ProvedMoot
		}
		cases = append(cases,
			proofCase{a.String() + " late", r, own, late, want, "repeatable"},
			proofCase{a.String() + " at the horizon", r, own, horizon.Time, nothing, ""},
			proofCase{a.String() + " early", r, own, early, nothing, ""},
		)
		for _, s := range receipt.Statuses() {
			h := receipt.History{Receipts: []receipt.Receipt{sample(receipt.Configure, s), r}}
			cases = append(cases, proofCase{a.String() + " beside a configure that is " + s.String(), r, h, late, nothing, ""})
		}
	}
	prove(t, cases)
}

// TestProveOnlyUnknown: whatever the evidence, a receipt in any other status proves nothing.
func TestProveOnlyUnknown(t *testing.T) {
	for _, a := range receipt.Actions() {
		for _, s := range append(receipt.Statuses(), 0) {
			if s == receipt.Unknown {
				continue
			}
			r := with(sample(a, s), reply(early, 0, receipt.ReplyApplied), event(early, "provisioned"), stats(late, second, 1, 1), connections(late, 0, early))
			if p, ok := receipt.Prove(r, receipt.History{}, late); ok {
				t.Errorf("%s, %s: proved %s", a, s, p.Event)
			}
		}
	}
}
