package receipt_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"provctl/receipt"
)

// story is what is to be said of an effect, in plain words and without the table.
type story struct {
	flying  bool   // its request may be under way, and somebody waits for the reply
	open    bool   // nobody knows what became of it
	asking  bool   // an operator has the node restarted to find out
	outcome string // what is said to have become of it
	gone    int    // how often it was left without anybody knowing
}

// words are what each event says became of the effect.
var words = map[string]string{
	"applied": "applied", "refused": "refused", "failed": "failed", "never-sent": "not-sent", "not-done": "not-applied", "moot": "moot",
	"abandon": "abandoned", "finish": "finishing",
}

// hears tells whether an event makes sense now, and goes on with the story if it does.
func (s *story) hears(e receipt.Event) bool {
	kind, what, _ := strings.Cut(e.String(), "-")
	sense := false
	switch kind {
	case "reply":
		sense = s.flying
	case "never":
		sense, what = s.flying, "never-sent"
	case "lost":
		if s.flying {
			s.flying, s.open, s.gone = false, true, s.gone+1
			return true
		}
	case "said":
		sense = s.open
	case "proved":
		// the restart was accepted for its own sake: it tells nothing of a refusal
		sense = s.open || s.asking && what != "refused"
	case "withdrawn":
		sense = s.asking || s.outcome == "applied" || s.outcome == "not-applied" || s.outcome == "abandoned"
		if sense {
			s.open, s.asking, s.outcome = true, false, ""
		}
		return sense
	}
	if sense {
		s.flying, s.open, s.outcome = false, false, words[what]
		s.asking = s.outcome == "finishing"
	}
	return sense
}

// is what the receipt's status must be called.
func (s *story) is() string {
	switch {
	case s.flying:
		return "pending"
	case s.open:
		return "unknown"
	default:
		return s.outcome
	}
}

// TestReceiptStatusMachine walks a receipt through random events: it moves exactly when the story does, to where the story goes; what is
// refused leaves it as it was; and at each step it can be stored and read again.
func TestReceiptStatusMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := story{flying: true}
		r := sample(rapid.SampledFrom(receipt.Actions()).Draw(t, "action"), receipt.Pending)
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			e := receipt.Event(rapid.Uint8Range(0, uint8(len(receipt.Events())+1)).Draw(t, "event"))
			before := r.Status
			to, err := before.Apply(e)
			moved := s.hears(e)
			switch {
			case moved != (err == nil):
				t.Fatalf("%s on %s: %v, but the story goes on: %t", before, e, err, moved)
			case err != nil && (to != before || !errors.Is(err, receipt.ErrIllegalTransition)):
				t.Fatalf("%s on %s is refused with %v and becomes %s", before, e, err, to)
			case to.String() != s.is():
				t.Fatalf("%s on %s is %s, the story says %s", before, e, to, s.is())
			case to.Open() != (s.flying || s.open):
				t.Fatalf("%s is open: %t", to, to.Open())
			case to == receipt.Pending && before != receipt.Pending, s.gone > 1:
				t.Fatalf("%s on %s: its request is under way a second time", before, e)
			}
			r.Status = to
			again(t, r)
		}
	})
}

// TestJobStatusMachine is the same for a job: it is worked at by one claim at a time, blocked leads out by a settlement alone, and an end
// is the end.
func TestJobStatusMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		claimed, blocked, ended := false, false, false
		j := sampleJob()
		j.Status = receipt.Queued
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			e := receipt.JobEvent(rapid.Uint8Range(0, uint8(len(receipt.JobEvents())+1)).Draw(t, "event"))
			may := map[receipt.JobEvent]bool{
				receipt.Claim: !claimed && !blocked && !ended, receipt.Requeue: claimed, receipt.Block: claimed, receipt.Resume: blocked, receipt.End: !ended,
			}[e]
			to, err := j.Status.Apply(e)
			if may != (err == nil) || err != nil && (to != j.Status || !errors.Is(err, receipt.ErrIllegalTransition)) {
				t.Fatalf("%s on %s: %s, %v; it may: %t", j.Status, e, to, err, may)
			}
			if may {
				claimed, blocked, ended = e == receipt.Claim, e == receipt.Block, e == receipt.End
			}
			want := receipt.Queued
			switch {
			case ended:
				want, j.Result = receipt.Ended, receipt.Deferred
			case blocked:
				want = receipt.Blocked
			case claimed:
				want = receipt.Claimed
			}
			if to != want {
				t.Fatalf("%s on %s is %s, want %s", j.Status, e, to, want)
			}
			j.Status = to
			again(t, j)
		}
	})
}

// again stores a record and reads it.
func again[T receipt.Record](t *rapid.T, v T) {
	b, err := receipt.Encode("place/key", v)
	if err != nil {
		t.Fatal(err)
	}
	got, err := receipt.Decode[T]("place/key", b)
	if err != nil || !reflect.DeepEqual(got, v) {
		t.Fatalf("%v\n got %+v\nwant %+v", err, got, v)
	}
}

// TestEvidenceIsBoundedAndKept notes whatever comes, as any holder of a provisioning token can send it: what is kept stays bounded and
// can be stored, the second reply that voids a first one is never crowded out, and a copy made before does not change.
func TestEvidenceIsBoundedAndKept(t *testing.T) {
	const most = 8 * (5 + 1) // of each kind, and of events that prove something besides
	rapid.Check(t, func(t *rapid.T) {
		r := sample(receipt.Configure, receipt.Unknown)
		replies := 0
		for range rapid.IntRange(1, 80).Draw(t, "observations") {
			at := asked.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "seconds")) * time.Second)
			text := strings.Repeat("é\xff", rapid.IntRange(0, 700).Draw(t, "length"))
			life := receipt.Incarnation{PID: rapid.Int64Range(1, 20).Draw(t, "pid"), Start: 1740000000}
			e := rapid.SampledFrom([]receipt.Evidence{
				reply(at, 1, receipt.ReplyFailed), event(at, "provisioned"), event(at, text), stats(at, life, 41, 1), connections(at, int(life.PID), at),
				{Kind: receipt.SawIdle, Source: "node", At: at, Idle: &receipt.IdleSeen{Incarnation: life}},
				{Kind: receipt.SawStats, At: at},
				{},
			}).Draw(t, "observation")
			e.Source = text
			former := append([]receipt.Evidence(nil), r.Evidence...)
			shared, wrong := r, e.Check() != nil
			kept := r.Note(e)
			if e.Kind == receipt.SawReply {
				if replies++; replies <= 2 && !kept {
					t.Fatalf("reply %d is not kept", replies)
				}
			}
			switch {
			case wrong && kept:
				t.Fatalf("%+v is kept", e)
			case !kept && !reflect.DeepEqual(r.Evidence, shared.Evidence):
				t.Fatal("nothing is kept, but the evidence changed")
			case !reflect.DeepEqual(former, shared.Evidence):
				t.Fatal("a copy of the receipt changed")
			case len(r.Evidence) > most:
				t.Fatalf("%d observations are kept", len(r.Evidence))
			}
			for _, e := range r.Evidence {
				if len(e.Source) > 1024 || e.Event != nil && len(e.Event.Type) > 1024 {
					t.Fatalf("a text of %d bytes is kept", max(len(e.Source), 1025))
				}
			}
		}
		if _, err := receipt.Encode("place/key", r); err != nil {
			t.Fatal(err)
		}
	})
}
