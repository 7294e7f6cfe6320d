package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

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

// TestRestoreKeepsANewerFormat with the real command, whose check in a child tells damage only by its exit code.
func TestRestoreKeepsANewerFormat(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), time.Now())
	b.Unknown("n1.example.net", receipt.Configure, time.Hour)
	path, backup := b.Info().Path, filepath.Join(t.TempDir(), "b.db")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, int) {
		t.Helper()
		var said bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "provctl", append([]string{"journal"}, append(args, "--state-dir", b.Dir)...)...)
		cmd.Stderr = &said
		if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return said.String(), cmd.ProcessState.ExitCode()
	}
	if said, code := run("backup", backup); code != exitFine {
		t.Fatalf("exit %d: %s", code, said)
	}
	makeNewer(t, path)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	said, code := run("restore", backup, "--reason", "x")
	if code != exitError || !strings.Contains(said, "of a newer format") || !strings.Contains(said, "--replace") {
		t.Errorf("exit %d: %s", code, said)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("it was replaced or changed: %v", err)
	}
	if said, code := run("restore", backup, "--reason", "x", "--replace"); code != exitFine {
		t.Errorf("exit %d: %s", code, said)
	}
}

// makeNewer has a journal say that a newer program wrote it.
func makeNewer(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		meta := tx.Bucket([]byte("meta"))
		old := meta.Get([]byte("journal"))
		content := bytes.Replace(old[5:], []byte(`"format":2`), []byte(`"format":9`), 1)
		if bytes.Equal(content, old[5:]) {
			t.Fatalf("no format in %s", content)
		}
		sum := crc32.Checksum(append([]byte("meta/journal\x00"), content...), crc32.MakeTable(crc32.Castagnoli))
		return meta.Put([]byte("journal"), append(binary.BigEndian.AppendUint32([]byte{old[0]}, sum), content...))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}
