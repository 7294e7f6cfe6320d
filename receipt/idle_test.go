package receipt_test

import (
	"errors"
	"testing"
	"time"

	"provctl/receipt"
)

func idle(at time.Time, i receipt.Incarnation) receipt.Evidence {
	return receipt.Evidence{Kind: receipt.SawIdle, Source: "node", At: at, Idle: &receipt.IdleSeen{Incarnation: i}}
}

// TestMayStillRun: a node that was not seen in another life may still have the effect to do, until it shows past the horizon that it has not.
func TestMayStillRun(t *testing.T) {
	r := sample(receipt.Configure, receipt.Unknown)
	alive, back := stats(late, first, 1, 1), stats(late, second, 1, 1)
	for _, c := range []struct {
		name string
		r    receipt.Receipt
		want bool
	}{
		{"nothing is known", r, true},
		{"the node answers", with(r, alive), true},
		{"it came back", with(r, alive, back), false},
		{"idle before the horizon", with(r, idle(early, first), alive), true},
		{"idle at the horizon", with(r, idle(horizon.Time, first), alive), true},
		{"idle past the horizon", with(r, idle(late, first), alive), false},
		{"another life is idle", with(r, idle(late, second), alive), true},
		{"keys may be made again", with(sample(receipt.Gen25519, receipt.Unknown), alive), false},
		{"not unknown", with(sample(receipt.Configure, receipt.Pending), alive), false},
	} {
		if got := c.r.MayStillRun(); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}

// TestIdleIsKeptOnce: the first answer past the horizon is as good as any later one.
func TestIdleIsKeptOnce(t *testing.T) {
	r := sample(receipt.Configure, receipt.Unknown)
	for i, c := range []struct {
		at   time.Time
		kept bool
	}{{early, true}, {early.Add(time.Second), false}, {late, true}, {late.Add(time.Second), false}} {
		if got := r.Note(idle(c.at, first)); got != c.kept {
			t.Errorf("number %d: kept %t, want %t", i, got, c.kept)
		}
	}
	if !r.Note(idle(late, second)) || len(r.Evidence) != 2 || !r.ShownIdle() {
		t.Errorf("evidence %v", r.Evidence)
	}
}

// TestContradictedVerdict: what was decided not to have begun is not sent again once the node says that it did.
func TestContradictedVerdict(t *testing.T) {
	for _, c := range []struct {
		name   string
		action receipt.Action
		e      receipt.Evidence
		want   bool // it may begin
	}{
		{"provisioned", receipt.Configure, event(late, "provisioned"), false},
		{"upgraded", receipt.ReleaseUpdate, event(late, "upgraded"), false},
		{"another effect's event", receipt.Configure, event(late, "upgraded"), true},
		{"an applied reply", receipt.Restart, reply(late, 0, receipt.ReplyApplied), false},
		{"a failed reply", receipt.Configure, reply(late, 1, receipt.ReplyFailed), false},
		{"a refusal", receipt.Configure, reply(late, 1, receipt.ReplyRefused), true},
		{"an unusable reply", receipt.Configure, reply(late, 0, receipt.Lost), true},
		{"keys", receipt.Gen25519, reply(late, 0, receipt.ReplyApplied), true},
	} {
		h := receipt.History{Receipts: []receipt.Receipt{with(sample(c.action, receipt.NotApplied), c.e)}}
		err := h.MayBegin(c.action)
		if (err == nil) != c.want || err != nil && !errors.Is(err, receipt.ErrRepeat) {
			t.Errorf("%s: %v", c.name, err)
		}
		if other := receipt.Shutdown; c.action != receipt.Gen25519 && h.MayBegin(other) != nil {
			t.Errorf("%s: %s: %v", c.name, other, h.MayBegin(other))
		}
	}
}

// TestKnownContradiction: what the operator could see before the verdict is no contradiction of it.
func TestKnownContradiction(t *testing.T) {
	said := reply(late, 0, receipt.ReplyApplied)
	for seq, want := range map[receipt.Seq]bool{11: true, 13: false} {
		said.Seq = seq
		r := with(sample(receipt.Configure, receipt.NotApplied), said)
		r.Decisions = []receipt.Decision{{Verdict: receipt.VerdictNotApplied, Seq: 12}}
		if err := (receipt.History{Receipts: []receipt.Receipt{r}}).MayBegin(receipt.Configure); (err == nil) != want {
			t.Errorf("a reply with sequence %d, verdict with 12: %v", seq, err)
		}
	}
}
