package receipt_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"provctl/receipt"
)

// TestEvidenceCheck: exactly the field of the kind.
func TestEvidenceCheck(t *testing.T) {
	all := []receipt.Evidence{
		reply(early, 0, receipt.Lost), event(early, "startup"), stats(early, first, 1, 1), connections(early, 1, time.Time{}),
	}
	for i, e := range all {
		if err := e.Check(); err != nil {
			t.Errorf("%s: %v", e.Kind, err)
		}
		for j, other := range all {
			if i == j {
				continue
			}
			wrong := e
			wrong.Kind = other.Kind
			if err := wrong.Check(); !errors.Is(err, receipt.ErrInvalid) {
				t.Errorf("content of %s as %s: %v", e.Kind, other.Kind, err)
			}
		}
		empty := receipt.Evidence{Kind: e.Kind, At: early}
		if err := empty.Check(); !errors.Is(err, receipt.ErrInvalid) {
			t.Errorf("%s without content: %v", e.Kind, err)
		}
		both := all[0]
		both.Event, both.Stats = all[1].Event, all[2].Stats
		if err := both.Check(); !errors.Is(err, receipt.ErrInvalid) {
			t.Errorf("content of three kinds: %v", err)
		}
	}
	for _, e := range []receipt.Evidence{{}, {Kind: 9}, reply(early, 0, 0), reply(early, 0, 99)} {
		if err := e.Check(); !errors.Is(err, receipt.ErrInvalid) {
			t.Errorf("%+v: %v", e, err)
		}
		r := sample(receipt.Configure, receipt.Unknown)
		if r.Note(e) || len(r.Evidence) != 0 {
			t.Errorf("%+v is kept", e)
		}
		if e.String() == "" {
			t.Errorf("%+v has no words", e)
		}
	}
}

// TestEvidenceString names what was seen.
func TestEvidenceString(t *testing.T) {
	for want, e := range map[string]receipt.Evidence{
		`reply code 1 "some text" (reply-failed)`:                        reply(early, 1, receipt.ReplyFailed),
		`lifecycle event provisioned of provision_mode_server`:           event(early, "provisioned"),
		`41 requests validated (2 known since the baseline)`:             stats(early, first, 41, 2),
		`2 live connections, no closed one known`:                        connections(early, 2, time.Time{}),
		`0 live connections, last closed 2025-03-01T12:00:30Z (Client C`: connections(early, 0, early),
		`evidence(0)`:                  {},
		`evidence(9)`:                  {Kind: 9},
		`event without usable content`: {Kind: receipt.SawEvent},
	} {
		if got := e.String(); !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}

// TestNoteKeeps: what is new is added, what says nothing new is not, and what is kept of a subject is the latest.
func TestNoteKeeps(t *testing.T) {
	r := sample(receipt.Restart, receipt.Unknown)
	after := horizon.Add(receipt.LeaveSplay + time.Second)
	for _, step := range []struct {
		name    string
		e       receipt.Evidence
		changed bool
		kept    int
	}{
		{"event", event(early, "startup"), true, 1},
		{"the same event", event(early, "startup"), false, 1},
		{"the same kind of event later", event(early.Add(time.Second), "startup"), true, 2},
		{"stats", stats(early, first, 41, 1), true, 3},
		{"later stats of the same incarnation", stats(early.Add(time.Second), first, 42, 1), true, 3},
		{"stats of another incarnation", stats(early, second, 1, 1), true, 4},
		{"connections", connections(early, 0, early), true, 5},
		{"the same connections later, still before the horizon", connections(early.Add(time.Second), 0, early), true, 5},
		{"the same connections past the horizon", connections(after, 0, early), true, 5},
		{"the same connections once more", connections(after.Add(time.Second), 0, early), false, 5},
		{"the same moment in another zone", connections(after.Add(time.Second), 0, early.In(time.FixedZone("x", 3600))), false, 5},
		{"other connections", connections(after.Add(time.Second), 1, early), true, 5},
		{"a reply", reply(late, 0, receipt.ReplyApplied), true, 6},
		{"the same reply again is a second reply", reply(late, 0, receipt.ReplyApplied), true, 7},
	} {
		if got := r.Note(step.e); got != step.changed || len(r.Evidence) != step.kept {
			t.Errorf("%s: changed %t and %d kept, want %t and %d", step.name, got, len(r.Evidence), step.changed, step.kept)
		}
	}
	var validated []int64
	for _, e := range r.Evidence {
		if e.Kind == receipt.SawStats && e.Stats.Incarnation == first {
			validated = append(validated, e.Stats.Validated)
		}
	}
	if !reflect.DeepEqual(validated, []int64{42}) {
		t.Errorf("of the first incarnation %v is kept, want the latest", validated)
	}
}

// TestNoteSeesTheHorizonPass: a node that stays gone, or stays connected, looks the same before and after the horizon, and the
// rules must get to know the later look.
func TestNoteSeesTheHorizonPass(t *testing.T) {
	after := horizon.Add(receipt.LeaveSplay + time.Second)
	gone := sample(receipt.Shutdown, receipt.Unknown)
	gone.Note(connections(early, 0, early))
	gone.Note(connections(after, 0, early))
	if _, ok := receipt.Prove(gone, receipt.History{}, late); !ok {
		t.Error("a node that stays away is not seen to have left")
	}
	there := counted()
	there.Note(connections(early, 1, time.Time{}))
	there.Note(stats(after, first, 41, 1))
	there.Note(connections(after, 1, time.Time{}))
	if _, ok := receipt.Prove(there, receipt.History{}, late); !ok {
		t.Error("a node that stays connected is not seen to be alone")
	}
}

// TestNoteIsBounded: no flood grows the receipt, and none crowds out what a rule needs.
func TestNoteIsBounded(t *testing.T) {
	r := sample(receipt.Configure, receipt.Unknown)
	for i := range 1000 {
		at := early.Add(time.Duration(i) * time.Second)
		r.Note(event(at, "startup"))
		r.Note(reply(at, 0, receipt.Lost))
		r.Note(stats(at, receipt.Incarnation{PID: int64(i + 1), Start: 1}, 1, 1))
	}
	if len(r.Evidence) > 40 {
		t.Fatalf("%d observations are kept", len(r.Evidence))
	}
	if !r.Evidence[0].At.Equal(early) {
		t.Error("the first observation is gone")
	}
	full := len(r.Evidence)
	if r.Note(event(late, "startup")) || r.Note(reply(late, 0, receipt.Lost)) || len(r.Evidence) != full {
		t.Error("more is kept than the bound allows")
	}
	if !r.Note(event(late, "provisioned")) || !r.Note(connections(late, 1, time.Time{})) {
		t.Error("the event that proves, or the connections, found no room")
	}
	for i := range 1000 {
		r.Note(event(late.Add(time.Duration(i)*time.Second), "provisioned"))
	}
	if len(r.Evidence) > 50 {
		t.Errorf("%d observations are kept", len(r.Evidence))
	}
}

// TestNoteCutsTexts: a node's texts are bounded on a whole character, and the caller's observation stays as it was.
func TestNoteCutsTexts(t *testing.T) {
	long := "x" + strings.Repeat("é", 100_000)
	es := []receipt.Evidence{reply(early, 1, receipt.ReplyFailed), event(early, "startup"), stats(early, first, 1, 1), connections(early, 1, early)}
	r := sample(receipt.Configure, receipt.Unknown)
	for i := range es {
		es[i].Source = long
	}
	es[0].Reply.Text, es[1].Event.Version, es[1].Event.Component, es[1].Event.Type = long, long, long, long
	es[2].Stats.Version, es[3].Connections.Reason = long, long
	for _, e := range es {
		if !r.Note(e) {
			t.Fatalf("%s is not kept", e.Kind)
		}
	}
	if es[0].Reply.Text != long || es[1].Event.Type != long || es[2].Stats.Version != long || es[3].Connections.Reason != long {
		t.Error("the caller's observation was changed")
	}
	b, err := receipt.Encode("receipts/R1", r)
	if err != nil || len(b) > 20_000 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if got := r.Evidence[0].Reply.Text; len(got) < 1000 || !utf8.ValidString(got) {
		t.Errorf("cut to %d bytes, valid %t", len(got), utf8.ValidString(got))
	}
	if r.Note(es[1]) {
		t.Error("the same long event is kept twice")
	}
}

// TestNoteLeavesCopiesAlone: a copy of the receipt, as a reader has it, never changes under its owner.
func TestNoteLeavesCopiesAlone(t *testing.T) {
	r := sample(receipt.Restart, receipt.Unknown)
	for _, e := range []receipt.Evidence{stats(early, first, 1, 1), event(early, "startup"), connections(early, 1, early)} {
		r.Note(e)
	}
	before := r
	want := append([]receipt.Evidence(nil), r.Evidence...)
	r.Note(reply(late, 0, receipt.ReplyApplied))
	other := before
	other.Note(event(late, "shutdown"))
	if !reflect.DeepEqual(before.Evidence, want) {
		t.Error("noting on one copy changed another")
	}
	if got := r.Evidence[len(r.Evidence)-1].Kind; got != receipt.SawReply {
		t.Errorf("another copy's observation took the place of ours: %s", got)
	}
	before, want = r, append([]receipt.Evidence(nil), r.Evidence...)
	r.Note(stats(late, first, 2, 1))
	if !reflect.DeepEqual(before.Evidence, want) {
		t.Error("replacing an observation on one copy changed another")
	}
}
