package service

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// TestBoot starts a unit on a machine, cuts the power, and boots it again.
func TestBoot(t *testing.T) {
	if err := Available(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Logf("NOT RUN: %v", err)
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m, err := New(t.TempDir(), "/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Cut(); err != nil {
			t.Error(err)
		}
	})
	unit := "[Service]\nType=oneshot\nRemainAfterExit=yes\nUser=provctl\nStateDirectory=provctl\n" +
		"PrivateTmp=yes\nProtectSystem=strict\nExecStart=/bin/sh -c 'echo again >>/var/lib/provctl/lives; id -un'\n"
	if err := m.Install("lives.service", unit); err != nil {
		t.Fatal(err)
	}
	if err := m.Enable("lives.service"); err != nil {
		t.Fatal(err)
	}
	for life := 1; life <= 2; life++ {
		begun := time.Now()
		if err := m.Boot(ctx); err != nil {
			t.Fatal(err)
		}
		t.Logf("booted in %s", time.Since(begun))
		out, code, err := m.Run(ctx, "systemctl", "is-system-running", "--wait")
		if err != nil || code != 0 || strings.TrimSpace(out) != "running" {
			failed, _, _ := m.Run(ctx, "systemctl", "--failed", "--no-legend")
			t.Errorf("the machine is %s (exit code %d, %v): %s", out, code, err, failed)
		}
		t.Logf("running after %s", time.Since(begun))
		b, err := os.ReadFile(m.Path("/var/lib/provctl/lives"))
		if err != nil || strings.Count(string(b), "again") != life {
			t.Errorf("in life %d the unit wrote %q (%v)", life, b, err)
		}
		log, err := m.Journal(ctx, "lives.service")
		if err != nil || !strings.Contains(log, Account) {
			t.Errorf("the unit's log is %q (%v)", log, err)
		}
		if err := m.Cut(); err != nil {
			t.Fatal(err)
		}
	}
}
