package service

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Install writes a unit file, or a drop-in if name holds a directory ("provctl.service.d/test.conf"). A machine that runs reads it at the
// next Reload.
func (m *Machine) Install(name, text string) error {
	file := m.Path(filepath.Join("etc/systemd/system", name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("install %s: %w", name, err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return fmt.Errorf("install %s: %w", name, err)
	}
	return nil
}

// Enable has a unit start at boot, as `systemctl enable` does.
func (m *Machine) Enable(unit string) error {
	wants := m.Path("etc/systemd/system/multi-user.target.wants")
	if err := os.MkdirAll(wants, 0o755); err != nil {
		return fmt.Errorf("enable %s: %w", unit, err)
	}
	if err := os.Symlink("../"+unit, filepath.Join(wants, unit)); err != nil {
		return fmt.Errorf("enable %s: %w", unit, err)
	}
	return nil
}

// Show returns properties of a unit as systemd has them now.
func (m *Machine) Show(ctx context.Context, unit string, properties ...string) (map[string]string, error) {
	out, code, err := m.Run(ctx, "systemctl", "show", "-p", strings.Join(properties, ","), unit)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d: %s", code, out)
	}
	if err != nil {
		return nil, fmt.Errorf("show %s: %w", unit, err)
	}
	values := map[string]string{}
	for line := range strings.Lines(out) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			values[name] = value
		}
	}
	return values, nil
}

// Journal returns what a unit wrote and what systemd said about it since the boot, messages alone.
func (m *Machine) Journal(ctx context.Context, unit string) (string, error) {
	out, code, err := m.Run(ctx, "journalctl", "--no-pager", "-q", "-o", "cat", "-u", unit)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d: %s", code, out)
	}
	if err != nil {
		return "", fmt.Errorf("journal of %s: %w", unit, err)
	}
	return out, nil
}
