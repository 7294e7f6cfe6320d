package crashtests

import (
	"os"
	"slices"
	"strings"
	"testing"

	"provctl/crashtests/service"
	"provctl/internal/fleet"
)

// TestSweep9FirstTenMinutes installs the package on a machine that never had it and types what README.md, docs/packages.md and docs/security.md
// say to type, as root, then as a member of the group that may command.
func TestSweep9FirstTenMinutes(t *testing.T) {
	t.Parallel()
	if !wide() || !wanted(t.Name()) {
		return
	}
	if missing(t, service.Available()) {
		return
	}
	deb := buildDeb(t)
	const group, gid = "provctl-operators", "54321"
	s := newService(t, options{nodes: 2, worker: fleet.WorkerOptions{Values: map[string]any{"control_group": group}}}, "")
	if s == nil {
		return
	}
	groups := s.m.Path("/etc/group")
	write(t, groups, read(t, groups)+group+":x:"+gid+":\n")
	s.takesPackages()
	if err := os.RemoveAll(s.m.Path(unitState)); err != nil {
		t.Fatal(err)
	}
	s.dpkg("-i", s.give(deb)) // a site's configuration is there and stays

	readme, packages, security := readManual(t, "README.md"), readManual(t, "docs/packages.md"), readManual(t, "docs/security.md")
	if err := s.m.Install(unit+".d/group.conf", block(t, "docs/security.md", "ini")); err != nil {
		t.Fatal(err)
	}
	s.reads("systemctl daemon-reload", "")
	install := readme.blocks["Install"]
	if build := install[0]; len(build) != 2 || !strings.HasPrefix(build[0], "make packages ") || !strings.HasPrefix(build[1], "apt-get install ") {
		t.Errorf("README.md tells to type %q; this test made and installed the package in another way", build)
	}
	for _, line := range packages.blocks["First start"][0] {
		s.reads(line, "")
	}
	for _, line := range install[1] {
		out := s.reads(line, "")
		if strings.HasPrefix(line, "systemctl status") && !strings.Contains(out, "Status: ") {
			t.Errorf("%s shows %s", line, out)
		}
	}
	if want := packages.blocks["First start"][1]; !slices.Equal(want, plain(install[1], want)) {
		t.Errorf("docs/packages.md says to type %q, README.md %q", want, install[1])
	}
	s.finished()
	for _, lines := range security.blocks {
		for _, block := range lines {
			out := s.reads("export HOME=/; "+strings.Join(block, "; "), gid)
			if !strings.Contains(out, "running, pid") {
				t.Errorf("docs/security.md: a member of the group reads %s", out)
			}
		}
	}
	if out, code := s.in("setpriv", "--reuid", "1234", "--regid", "1234", "--clear-groups", "--", "provctl", "inspect", "--socket", "/run/provctl/control.sock"); code == 0 {
		t.Errorf("somebody who is not in the group reads %s", out)
	}
}

// reads types a line on the machine, as root or as a member of a group alone, and returns what it prints; it must succeed.
func (s *serviceSite) reads(line, group string) string {
	s.t.Helper()
	argv := []string{"sh", "-u", "-c", line}
	if group != "" {
		argv = append([]string{"setpriv", "--reuid", "1234", "--regid", group, "--clear-groups", "--"}, argv...)
	}
	out, code := s.in(argv...)
	if code != 0 {
		s.t.Fatalf("%s: exit code %d: %s", line, code, out)
	}
	return out
}

// block is the first block of a language in a document.
func block(t *testing.T, path, language string) string {
	t.Helper()
	_, rest, ok := strings.Cut(read(t, "../"+path), "```"+language+"\n")
	text, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatalf("%s has no block of %s", path, language)
	}
	return text
}

// plain are those of lines that are wanted, without their comments.
func plain(lines, want []string) []string {
	var out []string
	for _, l := range lines {
		l, _, _ = strings.Cut(l, "  #")
		if l = strings.TrimRight(l, " "); slices.Contains(want, l) {
			out = append(out, l)
		}
	}
	return out
}
