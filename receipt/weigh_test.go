package receipt_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"provctl/receipt"
)

// beyond is behind the horizon and the longest splay.
var beyond = horizon.Add(receipt.LeaveSplay + time.Second)

func upgradedTo(at time.Time, version string) receipt.Evidence {
	e := event(at, "upgraded")
	e.Event.Version = version
	return e
}

func runs(at time.Time, i receipt.Incarnation, version string) receipt.Evidence {
	e := stats(at, i, 3, 1)
	e.Stats.Version = version
	return e
}

func idleAt(at time.Time) receipt.Evidence {
	return receipt.Evidence{Kind: receipt.SawIdle, Source: "node", At: at, Idle: &receipt.IdleSeen{Incarnation: first}}
}

func broken(at time.Time) receipt.Evidence {
	e := reply(at, 1, receipt.ReplyFailed)
	e.Reply.Text = "update failed, " + receipt.UpgradeBroken
	return e
}

func TestContradiction(t *testing.T) {
	const none, applied, notApplied, both = "", "applied", "not-applied", "applied not-applied"
	for name, c := range map[string]struct {
		action receipt.Action
		seen   []receipt.Evidence
		now    time.Time
		want   string // the verdicts that evidence speaks against
	}{
		"nothing was seen":                      {receipt.Configure, nil, late, none},
		"a late reply of success":               {receipt.Configure, []receipt.Evidence{reply(late, 0, receipt.ReplyApplied)}, late, notApplied},
		"it counts before the horizon too":      {receipt.Configure, []receipt.Evidence{reply(early, 0, receipt.ReplyApplied)}, early, notApplied},
		"a late refusal":                        {receipt.Configure, []receipt.Evidence{reply(late, 1, receipt.ReplyRefused)}, late, applied},
		"a late failure":                        {receipt.Configure, []receipt.Evidence{reply(late, 1, receipt.ReplyFailed)}, late, applied},
		"an upgrade that broke the server":      {receipt.ReleaseUpdate, []receipt.Evidence{broken(late)}, late, both},
		"an upgrade that was rolled back":       {receipt.ReleaseUpdate, []receipt.Evidence{reply(late, 1, receipt.ReplyFailed)}, late, applied},
		"a reply that says nothing":             {receipt.Configure, []receipt.Evidence{reply(late, 0, receipt.Lost)}, late, none},
		"two replies that differ":               {receipt.Configure, []receipt.Evidence{reply(late, 0, receipt.ReplyApplied), reply(late, 1, receipt.ReplyRefused)}, late, both},
		"keys may be made again":                {receipt.Gen25519, []receipt.Evidence{reply(late, 0, receipt.ReplyApplied), reply(late, 0, receipt.ReplyApplied)}, late, none},
		"but not against a conclusion":          {receipt.Gen25519, []receipt.Evidence{reply(late, 0, receipt.ReplyApplied)}, late, notApplied},
		"an expired key request":                {receipt.GenCSR, nil, late, none},
		"a provisioned event":                   {receipt.Configure, []receipt.Evidence{event(late, "provisioned")}, late, notApplied},
		"a provisioned event is no restart":     {receipt.Restart, []receipt.Evidence{event(late, "provisioned")}, late, none},
		"a startup event":                       {receipt.Restart, []receipt.Evidence{event(late, "startup")}, late, none},
		"an upgraded event":                     {receipt.ReleaseUpdate, []receipt.Evidence{upgradedTo(late, "1.2.3")}, late, notApplied},
		"an upgraded event to another version":  {receipt.ReleaseUpdate, []receipt.Evidence{upgradedTo(late, "1.2.4")}, late, notApplied},
		"a restarted node":                      {receipt.Restart, []receipt.Evidence{stats(late, second, 3, 1)}, late, notApplied},
		"a restarted node with a twin":          {receipt.Restart, []receipt.Evidence{stats(late, second, 3, 1), connections(late, 2, time.Time{})}, late, notApplied},
		"a node that did not restart":           {receipt.Restart, []receipt.Evidence{stats(beyond, first, 42, 1)}, late, applied},
		"it says so in another way":             {receipt.Restart, []receipt.Evidence{idleAt(beyond)}, late, applied},
		"an idle node, configured or not":       {receipt.Configure, []receipt.Evidence{idleAt(beyond)}, late, none},
		"a node that may yet restart":           {receipt.Restart, []receipt.Evidence{stats(early, first, 42, 1)}, late, none},
		"only the last answer counts":           {receipt.Restart, []receipt.Evidence{stats(early, second, 3, 1), stats(beyond, first, 42, 1)}, late, applied},
		"a node that did not shut down":         {receipt.Shutdown, []receipt.Evidence{stats(beyond, first, 42, 1)}, late, applied},
		"a node that came back":                 {receipt.Shutdown, []receipt.Evidence{stats(late, second, 3, 1)}, late, none},
		"a node that is gone":                   {receipt.Shutdown, []receipt.Evidence{connections(late, 0, early)}, late, none},
		"a configured node that came back":      {receipt.Configure, []receipt.Evidence{stats(late, second, 3, 1)}, late, none},
		"the wanted version runs":               {receipt.ReleaseUpdate, []receipt.Evidence{runs(late, second, "1.2.3")}, late, notApplied},
		"another version runs":                  {receipt.ReleaseUpdate, []receipt.Evidence{runs(late, second, "1.2.2")}, late, applied},
		"another version runs, but it may come": {receipt.ReleaseUpdate, []receipt.Evidence{runs(early, second, "1.2.2")}, early, none},
		"the counter":                           {receipt.Configure, []receipt.Evidence{stats(late, first, 41, 1), connections(late, 1, time.Time{})}, late, applied},
		"the counter before the horizon":        {receipt.Configure, []receipt.Evidence{stats(early, first, 41, 1), connections(early, 1, time.Time{})}, early, none},
		"the counter with a twin":               {receipt.Configure, []receipt.Evidence{stats(late, first, 41, 1), connections(late, 2, time.Time{})}, late, none},
		"a request more than ours":              {receipt.Configure, []receipt.Evidence{stats(late, first, 42, 1), connections(late, 1, time.Time{})}, late, none},
		"unusable content":                      {receipt.Restart, []receipt.Evidence{{Kind: receipt.SawStats}, {Kind: receipt.SawReply}, {Kind: 99}}, late, none},
	} {
		t.Run(name, func(t *testing.T) {
			for _, status := range receipt.Statuses() { // a verdict may be taken back when the receipt has ended
				r := with(sample(c.action, status), c.seen...)
				r.Baseline = &sampleBase
				var against []string
				for _, v := range receipt.Verdicts() {
					if why := receipt.Contradiction(r, v, c.now); why != "" {
						against = append(against, v.String())
					}
				}
				if got := strings.Join(against, " "); got != c.want {
					t.Errorf("%s: evidence speaks against %q, want %q", status, got, c.want)
				}
			}
		})
	}
}

func TestContradictionNamesItsSource(t *testing.T) {
	r := with(sample(receipt.Configure, receipt.Unknown), event(late, "provisioned"))
	if why := receipt.Contradiction(r, receipt.VerdictNotApplied, late); why != "rule provisioned-event: the node published its provisioned event after the request" {
		t.Errorf("got %q", why)
	}
	r = with(sample(receipt.Restart, receipt.Unknown), stats(early, second, 3, 1))
	if why := receipt.Contradiction(r, receipt.VerdictNotApplied, early); !strings.HasPrefix(why, "node: the node answers as another process, pid 100 since ") {
		t.Errorf("got %q", why)
	}
	if why := receipt.Contradiction(r, 9, late); !strings.Contains(why, "verdict(9)") {
		t.Errorf("no verdict: got %q", why)
	}
}

// anyReceipt draws a receipt with evidence of every kind, usable or not.
func anyReceipt(t *rapid.T) (receipt.Receipt, time.Time) {
	at := rapid.SampledFrom([]time.Time{early, horizon.Time, beyond, late})
	life := rapid.SampledFrom([]receipt.Incarnation{first, second, {}})
	means := rapid.SampledFrom(append(receipt.Events(), 0, 77))
	kind := rapid.SampledFrom([]string{"provisioned", "upgraded", "startup", "shutdown", "\x1b[2J"})
	one := rapid.Custom(func(t *rapid.T) receipt.Evidence {
		switch rapid.IntRange(0, 6).Draw(t, "kind") {
		case 0:
			return reply(at.Draw(t, "at"), 1, means.Draw(t, "means"))
		case 1:
			return event(at.Draw(t, "at"), kind.Draw(t, "type"))
		case 2:
			return stats(at.Draw(t, "at"), life.Draw(t, "life"), rapid.Int64Range(39, 43).Draw(t, "validated"), rapid.Int64Range(0, 2).Draw(t, "known"))
		case 3:
			return connections(at.Draw(t, "at"), rapid.IntRange(0, 2).Draw(t, "live"), rapid.SampledFrom([]time.Time{{}, early}).Draw(t, "closed"))
		case 4:
			return receipt.Evidence{Kind: receipt.SawIdle, Source: "node", At: at.Draw(t, "at"), Idle: &receipt.IdleSeen{Incarnation: life.Draw(t, "life")}}
		case 5:
			return runs(at.Draw(t, "at"), life.Draw(t, "life"), rapid.SampledFrom([]string{"1.2.3", "0.1", "", "?"}).Draw(t, "version"))
		default:
			return receipt.Evidence{Kind: receipt.EvidenceKind(rapid.IntRange(0, 9).Draw(t, "bare"))}
		}
	})
	r := with(sample(rapid.SampledFrom(receipt.Actions()).Draw(t, "action"), rapid.SampledFrom(receipt.Statuses()).Draw(t, "status")), rapid.SliceOfN(one, 0, 5).Draw(t, "seen")...)
	if rapid.Bool().Draw(t, "baseline") {
		r.Baseline = &sampleBase
	}
	return r, at.Draw(t, "now")
}

// TestWeighingIsTotal: any receipt is weighed, nothing contradicts abandon, every contradiction is among the weights, and what a rule
// concludes is contradicted only if other evidence speaks against it.
func TestWeighingIsTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, now := anyReceipt(t)
		before := len(r.Evidence)
		weights := receipt.Weigh(r, now)
		for _, w := range weights {
			if w.Source == "" || w.Says == "" || !slices.Contains(receipt.Verdicts(), w.Verdict) {
				t.Fatalf("%+v", w)
			}
		}
		if receipt.Contradiction(r, receipt.VerdictAbandon, now)+receipt.Contradiction(r, receipt.VerdictFinish, now) != "" {
			t.Fatal("a verdict that claims nothing is contradicted")
		}
		for _, v := range receipt.Verdicts() {
			why := receipt.Contradiction(r, v, now)
			if why != "" && !slices.ContainsFunc(weights, func(w receipt.Weight) bool { return w.Firm && why == w.Source+": "+w.Says }) {
				t.Fatalf("%s: %q is in no weight of %+v", v, why, weights)
			}
		}
		if len(r.Evidence) != before {
			t.Fatal("weighing changed the receipt")
		}
	})
}

func TestConclusionsAreNotContradictedByThemselves(t *testing.T) {
	for _, a := range receipt.Actions() {
		for name, seen := range map[string][]receipt.Evidence{
			"applied": {reply(late, 0, receipt.ReplyApplied)}, "refused": {reply(late, 1, receipt.ReplyRefused)}, "failed": {reply(late, 1, receipt.ReplyFailed)},
			"counter":  {stats(late, first, 41, 1), connections(late, 1, time.Time{})},
			"new life": {runs(late, second, "1.2.3")}, "old version": {runs(late, second, "1.2.2")}, "gone": {connections(late, 0, early)},
			"provisioned": {event(late, "provisioned")}, "upgraded": {upgradedTo(late, "1.2.3")}, "nothing": nil,
		} {
			r := with(sample(a, receipt.Unknown), seen...)
			r.Baseline = &sampleBase
			p, ok := receipt.Prove(r, receipt.History{Receipts: []receipt.Receipt{r}}, late)
			if !ok {
				continue
			}
			if why := receipt.Contradiction(r, p.Suggests(a), late); why != "" {
				t.Errorf("%s, %s: rule %s suggests %s, but %s", a, name, p.Rule, p.Suggests(a), why)
			}
		}
	}
}

func TestWeigh(t *testing.T) {
	var b strings.Builder
	show := func(title string, r receipt.Receipt, now time.Time) {
		r.Baseline = &sampleBase
		b.WriteString(title + "\n")
		for _, w := range receipt.Weigh(r, now) {
			word, mark := "against", " "
			if w.For {
				word = "for"
			}
			if w.Firm {
				mark = "!"
			}
			b.WriteString("  " + mark + " " + word + " " + w.Verdict.String() + ", " + w.Source + ": " + w.Says + "\n")
		}
	}
	unknown := func(a receipt.Action, seen ...receipt.Evidence) receipt.Receipt {
		return with(sample(a, receipt.Unknown), seen...)
	}
	show("a configure within its horizon", unknown(receipt.Configure), early)
	show("a configure past its horizon", unknown(receipt.Configure), late)
	show("a configure that lacks the broker's list", unknown(receipt.Configure, stats(late, first, 41, 1)), late)
	show("a configure with a twin", unknown(receipt.Configure, stats(late, first, 41, 1), connections(late, 2, time.Time{})), late)
	show("a configure never dispatched", unknown(receipt.Configure, stats(late, first, 41, 1), connections(late, 1, time.Time{})), late)
	show("a configure with one request too many", unknown(receipt.Configure, stats(late, first, 42, 1), connections(late, 1, time.Time{})), late)
	show("a configure that failed", unknown(receipt.Configure, reply(late, 1, receipt.ReplyFailed)), late)
	show("a restart that was seen early", unknown(receipt.Restart, stats(early, second, 3, 1)), early)
	show("a restart whose node left", unknown(receipt.Restart, connections(early, 0, early)), early)
	show("a shutdown whose node stays", unknown(receipt.Shutdown, stats(beyond, first, 42, 1), connections(beyond, 1, time.Time{})), late)
	show("an upgrade to another version", unknown(receipt.ReleaseUpdate, runs(late, second, "1.2.2")), late)
	show("a key", unknown(receipt.Gen25519), early)
	show("one that has ended", with(sample(receipt.Configure, receipt.Applied), event(late, "provisioned")), late)
	golden(t, "weights.txt", b.String())
}
