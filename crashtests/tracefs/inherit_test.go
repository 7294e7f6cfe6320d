package tracefs_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestNoChildInheritsTheConnection: one that did would keep the mount's users waiting for ever once the process that serves it is gone.
func TestNoChildInheritsTheConnection(t *testing.T) {
	t.Parallel()
	mount(t)
	out, err := exec.CommandContext(t.Context(), "ls", "-l", "/proc/self/fd").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if strings.Contains(string(out), "/dev/fuse") {
		t.Errorf("a child has it:\n%s", out)
	}
}
