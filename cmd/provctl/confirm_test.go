package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"provctl/inspect/inspecttest"
	"provctl/journal"
	"provctl/receipt"
)

// terminal is a pseudo-terminal: what the program has, and what a person sees and types.
type terminal struct {
	t      *testing.T
	tty    *os.File
	master *os.File
	seen   chan string // what is on the screen, each time more
}

func openTerminal(t *testing.T) *terminal {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	must(err)
	must(unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must(err)
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	must(err)
	term := &terminal{t: t, tty: tty, master: os.NewFile(uintptr(fd), "ptmx"), seen: make(chan string, 1000)}
	t.Cleanup(func() { _ = tty.Close(); _ = term.master.Close() })
	go func() {
		defer close(term.seen)
		var all bytes.Buffer
		buf := make([]byte, 4096)
		for {
			n, err := term.master.Read(buf)
			all.Write(buf[:n])
			term.seen <- all.String()
			if err != nil {
				return
			}
		}
	}()
	return term
}

// await waits until the screen shows a text, and returns the screen.
func (m *terminal) await(ctx context.Context, text string) string {
	m.t.Helper()
	last := ""
	for {
		select {
		case s, ok := <-m.seen:
			if last = s; strings.Contains(s, text) {
				return s
			}
			if !ok {
				m.t.Fatalf("the screen ends without %q: %s", text, last)
			}
		case <-ctx.Done():
			m.t.Fatalf("the screen never shows %q: %q", text, last)
		}
	}
}

// ask runs a command line on a terminal and types an answer once it asks.
func ask(t *testing.T, answer string, args ...string) (code int, stdout, screen string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	m := openTerminal(t)
	var out bytes.Buffer
	app := newApp(&out, m.tty)
	app.Reader = m.tty
	run, interrupt := context.WithCancelCause(ctx)
	defer interrupt(nil)
	done := make(chan error, 1)
	go func() { done <- app.RunContext(run, append([]string{"provctl"}, interleave(app, args)...)) }()
	screen = m.await(ctx, "as it is: ")
	if answer == "" {
		interrupt(errors.New("interrupted"))
	} else if _, err := m.master.WriteString(answer); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		return exitCode(err), out.String(), screen
	case <-ctx.Done():
		t.Fatal("it does not end")
		return 0, "", ""
	}
}

func TestConfirmation(t *testing.T) {
	for name, c := range map[string]struct {
		receipts     int
		args         []string
		answer       string
		code, become int
		shows        string
	}{
		"the count":                   {3, []string{"--all", "--verdict", "abandon"}, "3\n", 0, 3, "abandon, then the job ends and the node stays out"},
		"another count":               {3, []string{"--all", "--verdict", "abandon"}, "2\n", 1, 0, "Type 3 to record them"},
		"yes, of many":                {3, []string{"--all", "--verdict", "abandon"}, "yes\n", 1, 0, "n000002.example.net"},
		"nothing but return":          {3, []string{"--all", "--verdict", "abandon"}, "\n", 1, 0, ""},
		"end of input":                {3, []string{"--all", "--verdict", "abandon"}, "\x04", 1, 0, ""},
		"interrupted":                 {3, []string{"--all", "--verdict", "abandon"}, "", 1, 0, ""},
		"one, without --seen":         {1, []string{"01KTEST", "--verdict", "abandon"}, "yes\n", 0, 1, "horizon"},
		"one, no":                     {1, []string{"01KTEST", "--verdict", "abandon"}, "no\n", 1, 0, ""},
		"finish":                      {1, []string{"01KTEST", "--finish"}, "restart\n", 0, 1, "before the policies were, and a restart would then put the node to work without them"},
		"finish is not just yes":      {1, []string{"01KTEST", "--finish"}, "yes\n", 1, 0, "Type restart"},
		"many to finish":              {2, []string{"--all", "--finish"}, "restart 2\n", 0, 2, "Type restart 2"},
		"many to finish, by count":    {2, []string{"--all", "--finish"}, "2\n", 1, 0, "put the node to work without them"},
		"more than fit on the screen": {25, []string{"--all", "--verdict", "abandon"}, "25\n", 0, 25, "and 5 more: --dry-run lists them all"},
	} {
		t.Run(name, func(t *testing.T) {
			b := inspecttest.New(t, t.TempDir(), time.Now())
			b.Many(0, c.receipts)
			b.Serve()
			code, stdout, screen := ask(t, c.answer, append([]string{"reconcile", "--reason", "x", "--state-dir", b.Dir}, c.args...)...)
			if code != c.code || strings.Count(stdout, "\n") != c.become {
				t.Errorf("it exits %d and says %q, want %d and %d lines", code, stdout, c.code, c.become)
			}
			if !strings.Contains(strings.ReplaceAll(screen, "\r\n", " "), c.shows) {
				t.Errorf("the screen lacks %q: %s", c.shows, screen)
			}
			open, err := b.OpenReceipts()
			if err != nil || len(open) != c.receipts-c.become {
				t.Errorf("%d are open, %v; want %d", len(open), err, c.receipts-c.become)
			}
		})
	}
}

// TestConfirmedIsWhatWasShown: what changes while the question stands is left alone.
func TestConfirmedIsWhatWasShown(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), time.Now())
	r := b.Unknown("n1.example.net", receipt.Configure, time.Hour)
	b.Unknown("n2.example.net", receipt.Configure, time.Hour)
	b.Serve()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	m := openTerminal(t)
	var out bytes.Buffer
	app := newApp(&out, m.tty)
	app.Reader = m.tty
	done := make(chan error, 1)
	go func() {
		done <- app.RunContext(ctx, []string{"provctl", "reconcile", "--all", "--verdict", "not-applied", "--reason", "x", "--state-dir", b.Dir})
	}()
	m.await(ctx, "as it is: ")
	if _, err := b.Decide(ctx, journal.Decision{Receipt: r.ID, Seen: r.Version, Verdict: receipt.VerdictApplied, By: "another", Reason: "x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.master.WriteString("2\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; exitCode(err) != exitChanged || !strings.Contains(out.String(), "n2.example.net was unknown and is not-applied now") {
		t.Errorf("%v: %s", err, out.String())
	}
	m.await(ctx, "1 recorded, 1 changed, 0 refused")
}

// TestNamesReachNoTerminal: whatever a node is called, and whatever evidence quotes, no control character is written.
func TestNamesReachNoTerminal(t *testing.T) {
	const evil = "it said \x1b]0;owned\x07\x1b[2J\u202e\u009b31m"
	b := inspecttest.New(t, t.TempDir(), time.Now())
	for _, n := range []receipt.NodeID{"a$(reboot).example.net", "b'\"`;.example.net"} {
		r := b.Unknown(n, receipt.Configure, time.Hour)
		b.See(r.ID, receipt.Evidence{Kind: receipt.SawReply, Source: "node", Reply: &receipt.ReplySeen{Means: receipt.ReplyApplied, Text: evil}})
	}
	b.Serve()
	for _, args := range [][]string{
		{"--verdict", "not-applied", "--dry-run"},
		{"--verdict", "not-applied", "--dry-run", "--json"},
		{"--verdict", "not-applied", "--dry-run", "--contradict-evidence", "--json"},
		{"--verdict", "not-applied", "--yes=2"},
		{"--verdict", "not-applied", "--yes=2", "--contradict-evidence", "--json"},
	} {
		var stdout, stderr bytes.Buffer
		Main(append([]string{"reconcile", "--all", "--reason", "x", "--state-dir", b.Dir}, args...), &stdout, &stderr)
		if stdout.Len()+stderr.Len() == 0 {
			t.Errorf("%v says nothing", args)
		}
		for _, s := range []string{stdout.String(), stderr.String()} {
			if strings.ContainsAny(s, "\x1b\x07\u202e\u009b") {
				t.Errorf("%v writes %q", args, s)
			}
		}
	}
}

func TestTheQuestionIsPrintable(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), time.Now())
	r := b.Unknown("n1.example.net", receipt.Configure, time.Hour)
	b.See(r.ID, receipt.Evidence{Kind: receipt.SawReply, Source: "node", Reply: &receipt.ReplySeen{Means: receipt.ReplyApplied, Text: "\x1b]0;owned\x07"}})
	b.Serve()
	t.Setenv("NO_COLOR", "1")
	_, _, screen := ask(t, "no\n", "reconcile", string(r.ID), "--verdict", "not-applied", "--contradict-evidence", "--reason", "x", "--state-dir", b.Dir)
	if strings.ContainsAny(screen, "\x1b\x07") || !strings.Contains(screen, "EVIDENCE SAYS OTHERWISE") {
		t.Errorf("the screen is %q", screen)
	}
}
