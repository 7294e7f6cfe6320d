package receipt_test

import (
	"encoding"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"provctl/receipt"
)

// TestStatusMatrix holds every status against every event, including numbers that no release has used.
func TestStatusMatrix(t *testing.T) {
	var b strings.Builder
	for _, s := range append(receipt.Statuses(), 0, 11) {
		for _, e := range append(receipt.Events(), 0, 16) {
			to, err := s.Apply(e)
			line := to.String()
			if err != nil {
				if !errors.Is(err, receipt.ErrIllegalTransition) || to != s {
					t.Errorf("%s on %s: %v, %v; want the same status and ErrIllegalTransition", s, e, to, err)
				}
				line = "illegal"
			}
			fmt.Fprintf(&b, "%s + %s = %s\n", s, e, line)
		}
	}
	golden(t, "status-matrix.txt", b.String())
}

// TestJobMatrix is the same for jobs.
func TestJobMatrix(t *testing.T) {
	var b strings.Builder
	for _, s := range append(receipt.JobStatuses(), 0, 5) {
		for _, e := range append(receipt.JobEvents(), 0, 6) {
			to, err := s.Apply(e)
			line := to.String()
			if err != nil {
				if !errors.Is(err, receipt.ErrIllegalTransition) || to != s {
					t.Errorf("%s on %s: %v, %v; want the same status and ErrIllegalTransition", s, e, to, err)
				}
				line = "illegal"
			}
			fmt.Fprintf(&b, "%s + %s = %s\n", s, e, line)
		}
	}
	golden(t, "job-matrix.txt", b.String())
}

// TestTablesKeepTheirPromises states what must hold of the tables however they grow.
func TestTablesKeepTheirPromises(t *testing.T) {
	for _, s := range receipt.Statuses() {
		moves := 0
		for _, e := range receipt.Events() {
			to, err := s.Apply(e)
			if err != nil {
				continue
			}
			if e != receipt.Withdrawn {
				moves++
			} else if to != receipt.Unknown {
				t.Errorf("%s withdrawn is %s: whatever follows, nobody knows", s, to)
			}
			if to.Open() && to == s {
				t.Errorf("%s on %s stays open and where it is", s, e)
			}
			if to.Harmless() && e != receipt.ReplyRefused && e != receipt.NeverSent && e != receipt.ProvedRefused &&
				e != receipt.ProvedNotDone && e != receipt.SaidNotDone {
				t.Errorf("%s on %s claims that nothing changed", s, e)
			}
		}
		if waits := s.Open() || s == receipt.Finishing; waits != (moves > 0) {
			t.Errorf("%s waits for its outcome: %t, but %d ways out", s, waits, moves)
		}
	}
	for _, v := range receipt.Verdicts() {
		if _, err := receipt.Unknown.Apply(v.Event()); err != nil {
			t.Errorf("verdict %s does not settle an unknown receipt: %v", v, err)
		}
		if _, err := receipt.Pending.Apply(v.Event()); err == nil {
			t.Errorf("verdict %s settles a receipt in flight", v)
		}
	}
	if e := receipt.Verdict(0).Event(); e != 0 {
		t.Errorf("no verdict is event %s", e)
	}
	for _, s := range []receipt.Status{receipt.Pending, receipt.Unknown, receipt.Refused, receipt.Failed, receipt.NotSent, receipt.Moot} {
		if _, err := s.Apply(receipt.Withdrawn); err == nil {
			t.Errorf("%s is withdrawn, though no operator said so", s)
		}
	}
	for _, e := range receipt.JobEvents() {
		if _, err := receipt.Ended.Apply(e); err == nil {
			t.Errorf("an ended job moves on %s", e)
		}
	}
}

func listed[T interface {
	~uint8
	fmt.Stringer
}](b *strings.Builder, kind string, all []T,
) {
	for _, v := range all {
		fmt.Fprintf(b, "%s %d %s\n", kind, v, v)
	}
}

// kept reports every line of testdata/name that got no longer has. Not even -update may drop one.
func kept(t *testing.T, name, got string) {
	t.Helper()
	old, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(old)) {
		if !strings.Contains("\n"+got, "\n"+line) {
			t.Errorf("%s has %q, which is gone: journals of earlier releases hold it", name, line)
		}
	}
	if !t.Failed() {
		golden(t, name, got)
	}
}

// TestStoredNamesNeverChange guards journals of every earlier release: a changed line in the golden file is a broken journal.
// New lines may be added.
func TestStoredNamesNeverChange(t *testing.T) {
	var b strings.Builder
	listed(&b, "action", receipt.Actions())
	listed(&b, "status", receipt.Statuses())
	listed(&b, "event", receipt.Events())
	listed(&b, "verdict", receipt.Verdicts())
	listed(&b, "job-status", receipt.JobStatuses())
	listed(&b, "job-event", receipt.JobEvents())
	listed(&b, "result", receipt.Results())
	listed(&b, "evidence", []receipt.EvidenceKind{receipt.SawReply, receipt.SawEvent, receipt.SawStats, receipt.SawConnections, receipt.SawIdle})
	fmt.Fprintf(&b, "format %d\n", receipt.FormatVersion)
	kept(t, "stored-names.txt", b.String())
}

// TestRuleNamesNeverChange: receipts keep the name of the rule that settled them.
func TestRuleNamesNeverChange(t *testing.T) {
	var b strings.Builder
	for _, r := range receipt.Rules() {
		fmt.Fprintf(&b, "%s\n", r.Name)
		if r.Says == "" || r.Try == nil {
			t.Errorf("rule %s has no words or no function", r.Name)
		}
	}
	kept(t, "rules.txt", b.String())
}

func textForm[T ~uint8, P interface {
	*T
	encoding.TextUnmarshaler
}](t *testing.T, kind string, all []T,
) {
	t.Helper()
	for _, v := range all {
		text, err := any(v).(encoding.TextMarshaler).MarshalText()
		if err != nil {
			t.Errorf("%s %d: %v", kind, v, err)
		}
		var back T
		if err := P(&back).UnmarshalText(text); err != nil || back != v {
			t.Errorf("%s %d: read back as %d, %v", kind, v, back, err)
		}
		if err := P(&back).UnmarshalText([]byte(strings.ToUpper(string(text)))); err == nil {
			t.Errorf("%s %d: upper case is accepted", kind, v)
		}
	}
	for _, v := range []T{0, 200} {
		if _, err := any(v).(encoding.TextMarshaler).MarshalText(); !errors.Is(err, receipt.ErrInvalid) {
			t.Errorf("%s %d is stored: %v", kind, v, err)
		}
		if s := any(v).(fmt.Stringer).String(); !strings.Contains(s, fmt.Sprintf("(%d)", v)) {
			t.Errorf("%s %d prints as %q, which does not show the number", kind, v, s)
		}
	}
	kept := all[0]
	for _, s := range []string{"", " ", "1", "nonsense", "applied\n", strings.Repeat("x", 1000)} {
		if err := P(&kept).UnmarshalText([]byte(s)); !errors.Is(err, receipt.ErrInvalid) || kept != all[0] {
			t.Errorf("%s from %.20q: %v, value now %d", kind, s, err, kept)
		}
	}
}

// TestTextForms reads every name back and refuses all others.
func TestTextForms(t *testing.T) {
	textForm(t, "action", receipt.Actions())
	textForm(t, "status", receipt.Statuses())
	textForm(t, "event", receipt.Events())
	textForm(t, "verdict", receipt.Verdicts())
	textForm(t, "job status", receipt.JobStatuses())
	textForm(t, "result", receipt.Results())
	textForm(t, "evidence", []receipt.EvidenceKind{receipt.SawReply, receipt.SawEvent, receipt.SawStats, receipt.SawConnections, receipt.SawIdle})
}

// TestStaysOut lists the results that keep a node out.
func TestStaysOut(t *testing.T) {
	for _, r := range receipt.Results() {
		if want := r == receipt.Exhausted || r == receipt.GivenUp; r.StaysOut() != want {
			t.Errorf("%s stays out: %t, want %t", r, r.StaysOut(), want)
		}
	}
}
