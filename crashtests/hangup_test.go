package crashtests

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"provctl/internal/fleet"
)

// TestHangUp: SIGHUP ends nothing. A worker with a logfile that was renamed goes on in one of its own name, and with its work.
func TestHangUp(t *testing.T) {
	t.Parallel()
	var hold firstNode
	file := filepath.Join(t.TempDir(), "provctl.log")
	s := newSite(t, options{
		nodes: 1, hook: holdFirst(&hold, "configure"),
		worker: fleet.WorkerOptions{Values: short(map[string]any{"effect_ttl": "30s", "logfile": file})},
	})
	s.start()
	s.awaitFleet("the configure runs", func(st fleet.State) bool { return stillIn(st, hold.name(), "configure") })
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	s.signal(syscall.SIGHUP)
	s.await("it goes on in a new file", func() bool {
		b, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(b), "the log goes on")
	})
	s.fleet.Release(hold.name(), "configure")
	s.awaitFleet("the node is provisioned", func(st fleet.State) bool { return st.Count(joined) == 1 })
	s.await("the job has ended", func() bool { return s.inspect().Counts.Results["provisioned"] == 1 })
	// A directory where the file should be: it says so, and keeps what it has.
	if err := os.Rename(file, file+".2"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(file, 0o700); err != nil {
		t.Fatal(err)
	}
	s.signal(syscall.SIGHUP)
	s.await("it goes on in the one it has", func() bool {
		return strings.Contains(read(t, file+".2"), "going on with the log as it was")
	})
	s.endsFine(s.signal(syscall.SIGTERM), 20*time.Second)
	for name, words := range map[string]string{file + ".1": `"msg":"effect begins"`, file + ".2": `"msg":"stopping"`} {
		if !strings.Contains(read(t, name), words) {
			t.Errorf("%s lacks %s", name, words)
		}
	}
	s.ran(hold.name(), map[string]int{"configure": 1, "restart": 1})
	s.noneTwice()
}
