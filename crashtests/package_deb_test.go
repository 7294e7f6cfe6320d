package crashtests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"provctl/crashtests/service"
	"provctl/internal/fleet"
)

// packageEnv names a deb that was built before, in place of one that is built for the test.
const packageEnv = "PROVCTL_CRASH_DEB"

// TestSweep9Package installs the deb on a machine with a systemd of its own, upgrades it while one effect runs, and removes and installs it
// again while another does. dpkg's scripts stop the worker in order each time, so that nothing is sent twice and nothing is lost.
func TestSweep9Package(t *testing.T) {
	t.Parallel()
	if !wide() || !wanted(t.Name()) {
		return
	}
	if missing(t, service.Available()) {
		return
	}
	old := buildDeb(t) // before the site is made, whose time is limited
	// One node's configure and then its restart are held: a lane goes on with other nodes meanwhile, so that theirs may be over by then.
	var first firstNode
	hook := func(_ *site, c fleet.Call) fleet.Fault {
		if c.Phase == fleet.PhaseBegin && (c.Action == "configure" && first.take(c.Node) || c.Action == "restart" && c.Node == first.name()) {
			return fleet.Fault{Kind: fleet.Hold}
		}
		return fleet.Fault{}
	}
	worker := fleet.WorkerOptions{Values: map[string]any{"effect_ttl": "60s", "stop_timeout": "45s"}}
	s := newService(t, options{nodes: 4, worker: worker, hook: hook}, "")
	if s == nil {
		return
	}
	s.takesPackages()
	now, later := s.give(old), s.give(laterDeb(t, old)) // before an effect is held: a node that is held for 20 s never replies
	s.dpkg("-i", now)
	p, err := s.m.Show(s.ctx, unit, "FragmentPath", "ActiveState", "UnitFileState")
	if err != nil || !strings.HasSuffix(p["FragmentPath"], "/lib/systemd/system/"+unit) || p["ActiveState"] != "inactive" || p["UnitFileState"] != "disabled" {
		t.Fatalf("after the installation the unit is %v, %v; want the package's, neither started nor enabled", p, err)
	}
	s.systemctl("enable", "--now")

	s.awaitFleet("a configure runs", func(st fleet.State) bool { return stillIn(st, first.name(), "configure") })
	before := s.show()
	s.during(first.name(), func() { s.dpkg("-i", later) })
	after := s.awaitUnit("the new version runs", active)
	if after.MainPID == before.MainPID || after.Restarts != 0 {
		t.Errorf("the upgrade made of %+v %+v: want another process, and no failure in between", before, after)
	}

	s.awaitFleet("its restart runs", func(st fleet.State) bool { return stillIn(st, first.name(), "restart") })
	s.during(first.name(), func() { s.dpkg("-r", "provctl") })
	if v := s.show(); v.Active != "inactive" || v.Result != "success" {
		t.Errorf("after the removal the unit is %+v", v)
	}
	if out, code := s.provctl("journal", "verify", "--state-dir", s.m.Path(unitState)); code != 0 {
		t.Errorf("after the removal the journal is not sound: %d: %s", code, out)
	}
	s.dpkg("-i", now)
	s.systemctl("enable", "--now")
	s.finished()
	for _, node := range s.fleet.Nodes() {
		s.ran(node, map[string]int{"configure": 1, "restart": 1})
	}
	count(t, "package changes in mid-effect", 2)
}

// takesPackages has the machine's own directories take a package: its /usr is this host's and read-only, so changes go to memory.
func (s *serviceSite) takesPackages() {
	s.t.Helper()
	const script = `set -eu
for dir in lib share; do
	mkdir -p /run/package/$dir /run/package/.$dir
	mount -t overlay -o lowerdir=/usr/$dir,upperdir=/run/package/$dir,workdir=/run/package/.$dir overlay /usr/$dir
done
mount -t tmpfs -o mode=755 tmpfs /usr/lib/systemd/system-generators
mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates /var/lib/dpkg/triggers /etc/dpkg
: >/var/lib/dpkg/status
rm /etc/systemd/system/provctl.service /usr/bin/provctl
`
	if out, code := s.in("sh", "-c", script); code != 0 {
		s.t.Fatalf("prepare the machine for packages: %d: %s", code, out)
	}
}

// give copies a package to the machine.
func (s *serviceSite) give(deb string) string {
	s.t.Helper()
	name := "/root/" + filepath.Base(deb)
	write(s.t, s.m.Path(name), read(s.t, deb))
	return name
}

// dpkg runs it as an unattended upgrade does: a site's configuration stays.
func (s *serviceSite) dpkg(args ...string) {
	s.t.Helper()
	out, code, err := s.m.Run(s.ctx, append([]string{"dpkg", "--force-confdef", "--force-confold"}, args...)...)
	if err != nil || code != 0 {
		s.t.Errorf("dpkg %v: exit code %d, %v\n%s", args, code, err, out)
	}
}

// during does something that stops the worker, and lets the node that holds its effect go on once the worker waits for that alone.
func (s *serviceSite) during(node string, do func()) {
	s.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	s.awaitUnit("the worker is stopping", func(v unitView) bool { return v.Active == "deactivating" })
	s.fleet.Release(node, fleet.Any)
	select {
	case <-done:
	case <-s.ctx.Done():
		s.t.Fatalf("dpkg does not end: %v", s.ctx.Err())
	}
}

// buildDeb makes the package as "make packages" does.
func buildDeb(t *testing.T) string {
	t.Helper()
	if deb := os.Getenv(packageEnv); deb != "" {
		return deb
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "../packaging/build.sh", dir)
	cmd.Env = append(os.Environ(), "VERSION=0.1.0", "SOURCE_DATE_EPOCH=1700000000")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the packages: %v\n%s", err, out)
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) != 1 {
		t.Fatalf("the build made %q, %v", debs, err)
	}
	return debs[0]
}

// laterDeb is the same package with a later version.
func laterDeb(t *testing.T, deb string) string {
	t.Helper()
	dir := t.TempDir()
	later := filepath.Join(dir, "later.deb")
	script := `set -eu
dpkg-deb -R "$1" "$2/tree"
sed -i 's/^Version: .*/&+later/' "$2/tree/DEBIAN/control"
dpkg-deb -Znone --root-owner-group -b "$2/tree" "$3"
`
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", script, "later", deb, dir, later).CombinedOutput(); err != nil {
		t.Fatalf("make a later package: %v\n%s", err, out)
	}
	return later
}
