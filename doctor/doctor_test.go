package doctor

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"provctl/fence"
	"provctl/inspect/inspecttest"
	"provctl/internal/choria"
	"provctl/internal/config"
	"provctl/journal"
	"provctl/receipt"
)

// seen is a visit of a site with a configuration that names a state directory alone.
func seen(t *testing.T, o Options, do func(*visit)) *Report {
	t.Helper()
	dir := t.TempDir()
	if _, err := journal.Init(filepath.Join(dir, "state")); err != nil {
		t.Fatal(err)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Clock == nil {
		o.Clock = func() (ClockState, error) { return ClockState{Synchronised: true, MaxError: time.Millisecond}, nil }
	}
	if o.Look == nil {
		o.Look = fence.Look
	}
	if o.Verify == nil {
		o.Verify = func(_ context.Context, path string) error { return journal.Verify(path) }
	}
	cfg := &config.Config{StateDir: filepath.Join(dir, "state"), ClockSkew: 10 * time.Second}
	v := &visit{o: o, r: &Report{}, cfg: cfg, config: &config.Report{Config: cfg}, user: expected(cfg), usable: true, free: 1 << 40}
	do(v)
	return v.r
}

func only(t *testing.T, r *Report, check string, s Status) Finding {
	t.Helper()
	for _, f := range r.Checks {
		if f.Check == check && f.Status == s && (s == OK || s == Skip || f.Remedy != "") {
			return f
		}
	}
	t.Errorf("%s is not %s with a remedy: %+v", check, s, r.Checks)
	return Finding{}
}

func says(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q does not say %q", text, w)
		}
	}
}

func TestClock(t *testing.T) {
	for name, c := range map[string]struct {
		ahead  time.Duration // of this host's clock, against the journal's last commit
		kernel ClockState
		err    error
		want   Status
		says   []string
	}{
		"right":               {time.Second, ClockState{true, 20 * time.Millisecond}, nil, OK, []string{"synchronised to within 20ms"}},
		"set back":            {-time.Hour, ClockState{true, 0}, nil, Fail, []string{"the last commit was at", "the clock was set back", "timedatectl set-ntp true"}},
		"not kept in time":    {0, ClockState{}, nil, Warn, []string{"nothing keeps the clock in time", "timedatectl"}},
		"nobody can tell":     {0, ClockState{}, unix.ENOSYS, Skip, []string{"cannot be told"}},
		"back by very little": {-30 * time.Second, ClockState{true, 0}, nil, OK, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := seen(t, Options{
				Now:   func() time.Time { return time.Now().Add(c.ahead) },
				Clock: func() (ClockState, error) { return c.kernel, c.err },
			}, (*visit).clock)
			f := only(t, r, checkClock, c.want)
			says(t, f.Found+"; "+f.Remedy, c.says...)
			if (r.failed != nil) != (c.want == Fail) {
				t.Errorf("failed: %v", r.failed)
			}
		})
	}
}

func TestClockAgainstTheBroker(t *testing.T) {
	for ahead, want := range map[time.Duration]Status{
		0: OK, 4 * time.Second: OK, -4 * time.Second: OK, 8 * time.Second: Warn, -8 * time.Second: Warn,
		time.Hour: Fail, -48 * time.Hour: Fail,
		10*time.Second + 500*time.Millisecond: Warn, // the answer took longer than what is too much
	} {
		r := seen(t, Options{}, func(v *visit) {
			v.compareClock("nats://broker:4222", choria.ServerSeen{Time: time.Now(), Ahead: ahead, Off: time.Second})
		})
		f := only(t, r, checkClock, want)
		if want != OK {
			says(t, f.Found, map[bool]string{true: "behind", false: "ahead of"}[ahead > 0])
		}
	}
	if r := seen(t, Options{}, func(v *visit) { v.compareClock("", choria.ServerSeen{}) }); len(r.Checks) != 0 {
		t.Errorf("of a broker that does not tell its time: %+v", r.Checks)
	}
}

func TestKernelClock(t *testing.T) {
	if _, err := KernelClock(); err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSYS) {
		t.Error(err)
	}
}

func TestExpiry(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	day := 24 * time.Hour
	for name, c := range map[string]struct {
		id   choria.Identity
		want Status // empty: nothing is said
		says string
	}{
		"long":           {choria.Identity{Caller: "choria=p", Token: true, From: now.Add(-day), Ends: now.Add(90 * day)}, "", ""},
		"soon":           {choria.Identity{Caller: "choria=p", Token: true, From: now.Add(-day), Ends: now.Add(29 * day)}, Warn, "the token of choria=p expires at 2026-01-30T00:00:00Z (in 29 days)"},
		"expired":        {choria.Identity{Caller: "p", Ends: now}, Fail, "the certificate of p expired at 2026-01-01"},
		"clock too slow": {choria.Identity{Caller: "p", From: now.Add(day), Ends: now.Add(90 * day)}, Fail, "counts from 2026-01-02"},
		"not known":      {choria.Identity{}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := seen(t, Options{Now: func() time.Time { return now }}, func(v *visit) { v.valid(c.id) })
			if c.want == "" {
				if len(r.Checks) > 0 {
					t.Errorf("%+v", r.Checks)
				}
				return
			}
			says(t, only(t, r, checkClient, c.want).Found, c.says)
		})
	}
}

func TestJournalOfAnOlderFormat(t *testing.T) {
	for free, want := range map[int64]Status{1 << 30: Warn, 1 << 10: Fail} {
		r := seen(t, Options{}, func(v *visit) {
			v.free = free
			v.sound(journal.Snapshot{Info: journal.Info{Format: journal.Format - 1, Path: filepath.Join(v.cfg.StateDir, journalFile)}}, "sound")
		})
		says(t, only(t, r, checkJournal, want).Found, "the next start brings it to format")
	}
}

func TestBlockedNodesAndAPause(t *testing.T) {
	dir := t.TempDir()
	b := inspecttest.New(t, dir, time.Now())
	b.Unknown("n1.example.net", receipt.Configure, time.Hour)
	if _, err := b.SetPause(t.Context(), "alice", "maintenance"); err != nil {
		t.Fatal(err)
	}
	s, err := b.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	r := seen(t, Options{}, func(v *visit) { v.sound(s, "sound") })
	says(t, only(t, r, checkBlocked, Warn).Found, "1 nodes")
	f := only(t, r, checkWorker, Warn)
	says(t, f.Found+f.Remedy, "by alice: maintenance", "provctl resume")
	if r.failed != nil {
		t.Error(r.failed)
	}
}

// TestCheckOfTheJournalEndsWhenAWorkerComes: the file is shared while it is checked, and a start waits for it only for seconds.
func TestCheckOfTheJournalEndsWhenAWorkerComes(t *testing.T) {
	came := make(chan struct{})
	r := seen(t, Options{
		Look: func(string) (fence.Holder, error) {
			select {
			case <-came:
				return fence.Holder{PID: 7, Since: time.Now()}, nil
			default:
				return fence.Holder{}, nil
			}
		},
		Verify: func(ctx context.Context, _ string) error {
			close(came)
			<-ctx.Done()
			return ctx.Err()
		},
	}, func(v *visit) { v.journal(t.Context()) })
	says(t, only(t, r, checkJournal, Skip).Found, "a worker took the lock meanwhile")
}

func TestAMuteHolderOfTheLock(t *testing.T) {
	for name, c := range map[string]struct {
		since time.Duration
		want  Status
	}{"a provctl that begins": {time.Second, Warn}, "one that never ends": {time.Hour, Fail}} {
		r := seen(t, Options{Look: func(string) (fence.Holder, error) {
			return fence.Holder{PID: os.Getpid(), Since: time.Now().Add(-c.since)}, nil
		}}, func(v *visit) {
			v.holder, _ = v.o.Look("")
			v.mute()
		})
		if !strings.HasPrefix(commandOf(os.Getpid()), "provctl") {
			c.want = Fail // this test is no provctl
		}
		f := only(t, r, checkLock, c.want)
		says(t, f.Found, "is held by process", "since 20")
		if c.want == Fail && !errors.Is(r.failed, fence.ErrHeld) {
			t.Errorf("%s: %v", name, r.failed)
		}
	}
}

func TestListening(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0
   1: 0A00007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 0 100 0 0 10 0
   2: 00000000:1F92 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 13 1 0 100 0 0 10 0
   3: 0100007F:1F93 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 14 1 0 100 0 0 10 0
   4: garbage
`
	for _, c := range []struct {
		port     int
		loopback bool
		want     string
	}{{0x1f90, true, "11"}, {0x1f90, false, "11"}, {0x1f91, true, ""}, {0x1f91, false, "12"}, {0x1f92, true, "13"}, {0x1f93, false, ""}, {1, false, ""}} {
		if got := listening(strings.NewReader(table), c.port, c.loopback); got != c.want {
			t.Errorf("port %#x (loopback %v): %q, want %q", c.port, c.loopback, got, c.want)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	inode, err := listener(l.Addr().(*net.TCPAddr).Port, true)
	if err != nil || socketOwner(inode) != os.Getpid() {
		t.Errorf("our own port: inode %q (%v) of process %d", inode, err, socketOwner(inode))
	}
}

func TestTooOpen(t *testing.T) {
	for mode, want := range map[os.FileMode]string{0o600: "", 0o640: "", 0o644: "every user can read it", 0o602: "every user can change it"} {
		path := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		r := seen(t, Options{}, func(v *visit) { v.tooOpen(checkFiles, path, true) })
		if want == "" {
			if len(r.Checks) > 0 {
				t.Errorf("mode %#o: %+v", mode, r.Checks)
			}
			continue
		}
		f := only(t, r, checkFiles, Warn)
		says(t, f.Found+f.Remedy, want, "chmod o")
	}
}

func TestTextIsSafeAndColouredOnlyIfAsked(t *testing.T) {
	r := &Report{Checks: []Finding{
		{Check: checkHelper, Status: OK, Found: "a\x1b[31mb"}, {Check: checkBroker, Status: Fail, Found: "two\nlines", Remedy: "do\u202ethis"},
	}, Exit: 1}
	var plain, coloured strings.Builder
	if err := errors.Join(WriteText(&plain, r, false), WriteText(&coloured, r, true)); err != nil {
		t.Fatal(err)
	}
	const want = "OK    helper              a\\x1b[31mb\nFAIL  broker              two\\x0alines; do\\u202ethis\n" +
		"1 ok, 0 warnings, 1 failures, 0 skipped: exit code 1\n"
	if plain.String() != want {
		t.Errorf("got %q, want %q", plain.String(), want)
	}
	if got := coloured.String(); strings.Count(got, "\x1b") != 4 || !strings.HasPrefix(got, "\x1b[32mOK  \x1b[0m") {
		t.Errorf("coloured: %q", got)
	}
}
