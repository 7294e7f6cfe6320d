package fleet

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// running tells whether a process that is not our child still runs; one that nobody reaped does not.
func running(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

func TestNodesDieWithTheirFleetsProcess(t *testing.T) {
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	host := exec.Command(executable, hostArgument, t.TempDir())
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = host.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Process.Kill(); _ = host.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var suspended, awake int
	if _, err = fmt.Sscan(line, &suspended, &awake); err != nil {
		t.Fatalf("the fleet's process said %q", line)
	}
	if !running(suspended) || !running(awake) {
		t.Fatal("the nodes do not run")
	}
	if err = host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ctx := deadline(t); running(suspended) || running(awake); {
		select {
		case <-ctx.Done():
			t.Fatalf("suspended node runs: %t, other node runs: %t", running(suspended), running(awake))
		case <-tick.C:
		}
	}
}
