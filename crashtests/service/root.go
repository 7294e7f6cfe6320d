package service

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The account that every machine has for the service under test. No process of the host has this number.
const (
	Account = "provctl"
	UID     = 977
)

// New makes the root directory of a machine in an empty directory. program becomes its /usr/bin/provctl; all else of its /usr is the host's.
func New(dir, program string) (*Machine, error) {
	token := make([]byte, 8)
	if _, err := rand.Read(token); err != nil {
		return nil, fmt.Errorf("make a machine: %w", err)
	}
	id := hex.EncodeToString(token)
	m := &Machine{root: filepath.Join(dir, "root"), console: filepath.Join(dir, "console"), cgroup: "provctl-machine-" + id}
	err := m.directories()
	if err == nil {
		err = m.accounts(id + id)
	}
	if err == nil {
		err = m.programs(program)
	}
	if err == nil {
		err = m.quiet()
	}
	if err != nil {
		return nil, fmt.Errorf("make a machine: %w", err)
	}
	return m, nil
}

// directories makes all that is mounted on, and what a service may write to.
func (m *Machine) directories() error {
	for _, d := range []string{
		".host", ".cgroup", "dev", "proc", "sys", "run", "root", "etc/ssl", "etc/alternatives", "etc/systemd/system",
		"usr/bin", "usr/.bin", "var/lib", "var/log", "var/cache", "var/tmp", "tmp",
	} {
		if err := os.MkdirAll(m.Path(d), 0o755); err != nil {
			return err
		}
	}
	for _, d := range []string{"tmp", "var/tmp"} {
		if err := os.Chmod(m.Path(d), 0o777|os.ModeSticky); err != nil {
			return err
		}
	}
	if err := os.Symlink("../run", m.Path("var/run")); err != nil {
		return err
	}
	entries, err := os.ReadDir("/usr")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.MkdirAll(m.Path(filepath.Join("usr", e.Name())), 0o755); err != nil {
			return err
		}
	}
	// /bin, /lib and the like are links on a system of today.
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		to, err := os.Readlink("/" + name)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("/%s must be a link into /usr: %w", name, err)
		}
		if err := os.Symlink(to, m.Path(name)); err != nil {
			return err
		}
	}
	return nil
}

func (m *Machine) accounts(id string) error {
	cache, err := os.ReadFile("/etc/ld.so.cache")
	if err != nil {
		return err
	}
	account := fmt.Sprintf("%s:x:%d:%d::/var/lib/provctl:/usr/sbin/nologin\n", Account, UID, UID)
	for file, text := range map[string]string{
		"etc/passwd":        "root:x:0:0:root:/root:/bin/sh\n" + account + "nobody:x:65534:65534::/:/usr/sbin/nologin\n",
		"etc/group":         "root:x:0:\n" + fmt.Sprintf("%s:x:%d:\n", Account, UID) + "nogroup:x:65534:\n",
		"etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
		"etc/hosts":         "127.0.0.1 localhost\n",
		"etc/hostname":      "machine\n",
		"etc/machine-id":    id + "\n",
		"etc/os-release":    "ID=machine\nNAME=machine\n",
		"etc/fstab":         "",
		"etc/ld.so.cache":   string(cache),
	} {
		if err := os.WriteFile(m.Path(file), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// programs gives the machine the host's programs, and its own in a directory that the host can write to.
func (m *Machine) programs(program string) error {
	entries, err := os.ReadDir("/usr/bin")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == Account {
			continue
		}
		if err := os.Symlink("../.bin/"+e.Name(), m.Path("usr/bin/"+e.Name())); err != nil {
			return err
		}
	}
	return m.InstallProgram(program)
}

// InstallProgram replaces /usr/bin/provctl at once, as a package manager does: who runs the former one is not disturbed.
func (m *Machine) InstallProgram(program string) error {
	b, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("install the program: %w", err)
	}
	at := m.Path("usr/bin/" + Account)
	if err := os.WriteFile(at+".new", b, 0o755); err != nil {
		return fmt.Errorf("install the program: %w", err)
	}
	if err := os.Rename(at+".new", at); err != nil {
		return fmt.Errorf("install the program: %w", err)
	}
	return nil
}

// quiet masks all that systemd and the host's packages would start, but for the journal.
func (m *Machine) quiet() error {
	wanted, err := filepath.Glob("/usr/lib/systemd/system/*.target.wants/*")
	if err != nil {
		return err
	}
	const audit, terminals = "systemd-journald-audit.socket", "getty.target"
	more := []string{"systemd-logind.service", "dbus.service", "dbus.socket", "systemd-journal-flush.service", audit, terminals}
	for _, path := range append(wanted, more...) {
		unit := filepath.Base(path)
		keep := strings.HasSuffix(unit, ".target") && unit != terminals || strings.HasPrefix(unit, "systemd-journald") && unit != audit
		if keep {
			continue
		}
		if err := os.Symlink("/dev/null", m.Path("etc/systemd/system/"+unit)); err != nil && !os.IsExist(err) {
			return err
		}
	}
	return nil
}
