package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"provctl/inspect/inspecttest"
	"provctl/receipt"
)

// TestVerdictOfACheck: what the child says or crashes of is damage, which is permanent; a check that was ended or failed is none.
func TestVerdictOfACheck(t *testing.T) {
	for _, c := range []struct {
		script string
		want   int
		says   string
	}{
		{"exit 6", exitDamaged, "page 7 is odd"},
		{"exit 2", exitDamaged, "crashed on it (exit status 2)"},
		{"kill -BUS $$", exitDamaged, "bus error"},
		{"kill -SEGV $$", exitDamaged, "segmentation fault"},
		{"kill -ABRT $$", exitDamaged, "aborted"},
		{"kill -KILL $$", exitError, "killed: journal damaged: page 7 is odd; nothing was changed, start again"},
		{"kill -TERM $$", exitError, "terminated"},
		{"kill -INT $$", exitError, "interrupt"},
		{"kill -HUP $$", exitError, "hangup"},
		{"exit 1", exitError, "exit status 1"},
		{"exit 5", exitError, "exit status 5"},
		{"exit 127", exitError, "exit status 127"},
	} {
		err := verdictOf("/some/journal.db", exec.Command("sh", "-c", "ulimit -c 0; "+c.script).Run(), receipt.ErrDamaged.Error()+": page 7 is odd")
		if err == nil {
			t.Errorf("%s: the journal passes", c.script)
			continue
		}
		if got := exitCode(err); got != c.want || errors.Is(err, receipt.ErrDamaged) != (c.want == exitDamaged) {
			t.Errorf("%s: exit code %d, want %d: %v", c.script, got, c.want, err)
		}
		text := err.Error()
		if !strings.Contains(text, c.says) || !strings.Contains(text, "/some/journal.db") || strings.Count(text, receipt.ErrDamaged.Error()) != 1 && c.want == exitDamaged {
			t.Errorf("%s: %q, want %q and the path, and the verdict once", c.script, text, c.says)
		}
	}
	if err := verdictOf("x", exec.Command("sh", "-c", "exit 0").Run(), "some words"); err != nil {
		t.Errorf("a good journal: %v", err)
	}
	if err := verdictOf("x", exec.Command(t.TempDir()+"/missing").Run(), ""); exitCode(err) != exitError || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a check that cannot be started: %v", err)
	}
}

// TestVerdictOfARealCheck runs the hidden command on a real journal: good, killed in the midst, and cut.
func TestVerdictOfARealCheck(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), time.Now())
	b.Unknown("n1.example.net", receipt.Configure, time.Hour)
	path := b.Info().Path
	check := func(meanwhile func(*os.Process) error) error {
		t.Helper()
		var said strings.Builder
		cmd := exec.CommandContext(t.Context(), "provctl", verifyCommandName, path)
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := meanwhile(cmd.Process); err != nil {
			t.Fatal(err)
		}
		return verdictOf(path, cmd.Wait(), strings.TrimPrefix(strings.TrimSpace(said.String()), "provctl: "))
	}
	undisturbed := func(*os.Process) error { return nil }
	// While the journal is open here the check waits for it, so that it cannot be over before it is killed.
	if err := check((*os.Process).Kill); err == nil || errors.Is(err, receipt.ErrDamaged) || exitCode(err) != exitError {
		t.Errorf("a killed check: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := check(undisturbed); err != nil {
		t.Errorf("the journal afterwards: %v", err)
	}
	if err := os.Truncate(path, 5000); err != nil {
		t.Fatal(err)
	}
	if err := check(undisturbed); exitCode(err) != exitDamaged || !strings.Contains(err.Error(), path) {
		t.Errorf("a cut journal: %v", err)
	}
}
