package receipt_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"provctl/receipt"
)

// TestParseNodeID lists what may and what may not be part of a subject.
func TestParseNodeID(t *testing.T) {
	for _, s := range []string{
		"n", "node-001.example.net", "UPPER_case", "10.0.0.1", "a/b", "a:b", `quote"d`, "-", "$SYS", strings.Repeat("x", 255), "fe80::1%eth0",
	} {
		if id, err := receipt.ParseNodeID(s); err != nil || string(id) != s {
			t.Errorf("%q: %q, %v", s, id, err)
		}
	}
	for _, s := range []string{
		"", ".", "..", ".a", "a.", "a..b", "*", "a.*", ">", "a.>", "a*b", "a>b", " ", "a b", " a", "a ", "a\tb", "a\nb", "a\r", "a\x00b", "\x7f",
		"\x1b[2J", "\xff", "a\xc3", "é", "a\u200bb", "a\u202eb", "\ufeffa", strings.Repeat("x", 256), strings.Repeat("é", 1<<16),
	} {
		id, err := receipt.ParseNodeID(s)
		if !errors.Is(err, receipt.ErrInvalid) || id != "" {
			t.Errorf("%.40q: %.40q, %v", s, id, err)
		}
		if err != nil && (len(err.Error()) > 700 || strings.ContainsAny(err.Error(), "\n\x1b\x00")) {
			t.Errorf("%.40q: message of %d bytes: %.80q", s, len(err.Error()), err)
		}
	}
}

// TestIncarnation: both halves are needed, and both count.
func TestIncarnation(t *testing.T) {
	for i, want := range map[receipt.Incarnation]bool{
		first: true, {}: false, {PID: 1}: false, {Start: 1}: false, {PID: -1, Start: 1}: false, {PID: 1, Start: -1}: false,
	} {
		if i.Known() != want {
			t.Errorf("%+v known: %t", i, i.Known())
		}
	}
	if got := first.String(); got != "pid 100 since 2025-02-19T21:20:00Z" {
		t.Error(got)
	}
	if got := (receipt.Incarnation{}).String(); got != "unknown incarnation" {
		t.Error(got)
	}
}

// TestHorizon: request time + TTL + skew, and passed only after that moment.
func TestHorizon(t *testing.T) {
	h := receipt.HorizonOf(time.Now().In(time.FixedZone("x", 3600)), time.Minute, 10*time.Second)
	if h.Location() != time.UTC || strings.Contains(h.Time.String(), "m=") {
		t.Errorf("%s keeps a zone or a monotonic reading", h.Time)
	}
	if want := asked.Add(70 * time.Second); !horizon.Equal(want) {
		t.Errorf("%s, want %s", horizon, want)
	}
	for _, c := range []struct {
		now    time.Time
		passed bool
		left   time.Duration
	}{
		{asked, false, 70 * time.Second},
		{horizon.Add(-time.Nanosecond), false, time.Nanosecond},
		{horizon.Time, false, 0},
		{horizon.Add(time.Nanosecond), true, 0},
		{late, true, 0},
	} {
		if horizon.Passed(c.now) != c.passed || horizon.Left(c.now) != c.left {
			t.Errorf("%s: passed %t, left %s", c.now, horizon.Passed(c.now), horizon.Left(c.now))
		}
	}
}
