package service

import (
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// manager is a socket as systemd has it; what it is told comes line by line.
func manager(t *testing.T) <-chan string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	lines := make(chan string, 1000)
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			for line := range strings.SplitSeq(string(buf[:n]), "\n") {
				lines <- line
			}
		}
	}()
	return lines
}

// until reads lines up to one that begins so, and returns all of them.
func until(t *testing.T, lines <-chan string, prefix string) []string {
	t.Helper()
	var all []string
	for {
		select {
		case l := <-lines:
			if all = append(all, l); strings.HasPrefix(l, prefix) {
				return all
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("no %s came: %q", prefix, all)
		}
	}
}

func has(all []string, prefix string) bool {
	for _, l := range all {
		if strings.HasPrefix(l, prefix) {
			return true
		}
	}
	return false
}

// TestManagerIsTold goes through a life: starting, ready, stopping.
func TestManagerIsTold(t *testing.T) {
	lines := manager(t)
	t.Setenv("WATCHDOG_USEC", "800000")
	var now atomic.Pointer[Report]
	now.Store(&Report{Status: "checking the journal"})
	m, err := Connect(90*time.Second, func() Report { return *now.Load() }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	soon := make(chan struct{})
	stop := m.Attend(soon)
	defer stop()
	if got := until(t, lines, "EXTEND_TIMEOUT_USEC=30000000"); !has(got, "STATUS=checking the journal") || has(got, "READY=1") {
		t.Errorf("first it is told %q", got)
	}
	now.Store(&Report{Ready: true, Status: "paused: a\nREADY=0\x1b[31m"})
	if got := until(t, lines, "READY=1"); !has(got, "STATUS=paused: a READY=0 [31m") {
		t.Errorf("then it is told %q", got)
	}
	until(t, lines, "WATCHDOG=1")
	close(soon) // it was told to stop, and does not say so yet
	if got := until(t, lines, "EXTEND_TIMEOUT_USEC=120000000"); !has(got, "STOPPING=1") || has(got, "READY=1") {
		t.Errorf("at the end it is told %q", got)
	}
}

// TestEndIsTold: a program that ends before anybody looks again says all the same that it stops.
func TestEndIsTold(t *testing.T) {
	lines := manager(t)
	m, err := Connect(time.Second, func() Report { return Report{Ready: true, Status: "idle"} }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	stop := m.Attend(nil)
	until(t, lines, "READY=1")
	stop()
	until(t, lines, "STOPPING=1")
}

// TestStalledGetsNoSignOfLife: neither more time nor a watchdog's food.
func TestStalledGetsNoSignOfLife(t *testing.T) {
	var sent []string
	var log strings.Builder
	m := &Manager{log: slog.New(slog.NewTextHandler(&log, nil)), watchdog: time.Second, send: func(s string) error { sent = append(sent, s); return nil }}
	now := time.Now()
	for range 10 {
		now = now.Add(time.Minute)
		m.tell(Report{Status: "x", Stalled: errors.New("the disk sleeps")}, now)
	}
	if got := strings.Join(sent, "\n"); got != "STATUS=x" {
		t.Errorf("it was told %q", got)
	}
	if strings.Count(log.String(), "the disk sleeps") != 1 {
		t.Errorf("the log says %s", &log)
	}
	m.tell(Report{Status: "x"}, now)
	if got := strings.Join(sent, "\n"); !strings.Contains(got, "WATCHDOG=1") || !strings.Contains(got, "EXTEND") || !strings.Contains(log.String(), "progress again") {
		t.Errorf("after it moved again it was told %q", got)
	}
}

// TestLostWordIsSaidAgain: a manager that was not reached for READY must not wait for it for ever.
func TestLostWordIsSaidAgain(t *testing.T) {
	var sent []string
	fails := errors.New("no buffer space")
	var err error
	m := &Manager{log: slog.New(slog.DiscardHandler), send: func(s string) error { sent = append(sent, s); return err }}
	now := time.Now()
	for _, err = range []error{fails, fails, nil, nil} {
		m.tell(Report{Status: "idle", Ready: true}, now)
	}
	if len(sent) != 3 || sent[2] != "STATUS=idle\nREADY=1" {
		t.Errorf("it was told %q", sent)
	}
}

// TestBlockedReportIsStalled: a report that never comes must not be mistaken for a healthy one.
func TestBlockedReportIsStalled(t *testing.T) {
	never := make(chan struct{})
	defer close(never)
	var asked atomic.Int32
	m := &Manager{patience: time.Millisecond, report: func() Report { asked.Add(1); <-never; return Report{} }}
	for range 3 {
		if r := m.ask(t.Context()); r.Stalled == nil {
			t.Errorf("it reports %+v", r)
		}
	}
	if asked := asked.Load(); asked > 1 {
		t.Errorf("it was asked %d times while it hung", asked)
	}
}

// TestWithoutManager does nothing, and a socket that is gone is an error at the start.
func TestWithoutManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	m, err := Connect(0, nil, nil)
	if m != nil || err != nil {
		t.Errorf("got %v, %v", m, err)
	}
	m.Attend(nil)()
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nobody"))
	if _, err := Connect(0, nil, nil); err == nil {
		t.Error("a socket that is not there was taken")
	}
	t.Setenv("WATCHDOG_USEC", "soon")
	if _, err := Connect(0, nil, nil); err == nil {
		t.Error("a time that is none was taken")
	}
}

func TestStatusIsBounded(t *testing.T) {
	if got := line(strings.Repeat("ö", 5000)); len([]rune(got)) != maxStatus {
		t.Errorf("%d characters", len([]rune(got)))
	}
	if got := line("a\xffb"); got != "a?b" {
		t.Errorf("got %q", got)
	}
}
