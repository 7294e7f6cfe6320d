package packaging_test

import (
	"os"
	"strings"
	"testing"
)

const state = "/var/lib/provctl"

func TestFreshInstallWaitsToBeConfigured(t *testing.T) {
	for name, prepare := range map[string]func(*root){
		"with systemd": func(r *root) { r.standIn() },
		"without":      func(r *root) { r.do("rm", "-f", "/usr/bin/systemd-sysusers") },
		"a group of the site": func(r *root) {
			r.do("rm", "-f", "/usr/bin/systemd-sysusers")
			r.do("groupadd", "--system", "provctl")
		},
		"a user of the site": func(r *root) { r.do("useradd", "--system", "--gid", "nogroup", "provctl") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoot(t)
			prepare(r)
			out := r.install(r.put(packages(t).deb, "/tmp/provctl.deb"))
			for _, says := range []string{"does not run yet", "provctl init --state-dir /var/lib/provctl", "systemctl enable --now provctl"} {
				if !strings.Contains(out, says) {
					t.Errorf("the installation does not say %q:\n%s", says, out)
				}
			}
			if name == "with systemd" {
				if got := r.told(); got != "daemon-reload" {
					t.Errorf("systemctl was asked %q, want only daemon-reload: nothing is enabled or started", got)
				}
			}
			r.looks("/etc/provctl", "root provctl 750")
			r.looks("/etc/provctl/provctl.yaml", "root provctl 640")
			r.looks("/etc/provctl/choria.conf", "root provctl 640")
			r.looks(state, "provctl provctl 700")
			refusesAsItIs(r)
			if out, code := r.asWorker("provctl", "run", "--config", "/etc/provctl/provctl.yaml", "--choria-config", "/etc/provctl/choria.conf"); code != 78 {
				t.Errorf("a worker with the sample configuration ends with %d, want 78:\n%s", code, out)
			}
			r.do("provctl", "init", "--state-dir", state)
			r.looks(state+"/journal.db", "provctl provctl 600")
		})
	}
}

// asWorker runs a command as the unit's user.
func (r *root) asWorker(argv ...string) (string, int) {
	r.t.Helper()
	return r.run(append([]string{"setpriv", "--reuid", "provctl", "--regid", "provctl", "--clear-groups", "--", "env", "USER=provctl"}, argv...)...)
}

// refusesAsItIs checks that the sample configuration lists all that a site has to fill in.
func refusesAsItIs(r *root) {
	r.t.Helper()
	out, code := r.asWorker("provctl", "config", "check", "/etc/provctl/provctl.yaml", "--choria-config", "/etc/provctl/choria.conf")
	if code != 78 {
		r.t.Errorf("config check ends with %d, want 78", code)
	}
	var keys []string
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(line, "problem: /etc/provctl/"); ok {
			f := strings.SplitN(rest, ": ", 3)
			keys = append(keys, f[min(1, len(f)-1)])
		}
	}
	want := "helper jwt_verify_cert jwt_signing_key jwt_signing_token broker_provisioning_password"
	if got := strings.Join(keys, " "); !strings.HasPrefix(got, want) || len(keys) != 6 || !strings.Contains(out, "problem: /etc/provctl/choria.conf: ") {
		r.t.Errorf("config check finds %q, want %s and choria.conf:\n%s", got, want, out)
	}
}

// TestWithoutAnyoneToMakeUsers: then it says what is to be done, and can be gone on with.
func TestWithoutAnyoneToMakeUsers(t *testing.T) {
	r := newRoot(t)
	r.do("mkdir", "/away")
	r.do("mv", "/usr/bin/systemd-sysusers", "/usr/sbin/useradd", "/usr/sbin/groupadd", "/away/")
	if out, code := r.run("dpkg", "-i", r.put(packages(t).deb, "/tmp/provctl.deb")); code == 0 || !strings.Contains(out, "make a user and a group provctl") {
		t.Errorf("without a user dpkg ends with %d:\n%s", code, out)
	}
	r.do("/away/groupadd", "--system", "provctl")
	r.do("/away/useradd", "--system", "--gid", "provctl", "provctl")
	r.do("dpkg", "--configure", "provctl")
	r.looks(state, "provctl provctl 700")
}

// TestRemoveFromAnImage: where no systemd runs, a unit that was enabled is disabled all the same.
func TestRemoveFromAnImage(t *testing.T) {
	const link = "/etc/systemd/system/multi-user.target.wants/provctl.service"
	r := newRoot(t)
	r.install(r.put(packages(t).deb, "/tmp/provctl.deb"))
	r.do("systemctl", "enable", "provctl.service")
	if out, code := r.run("readlink", link); code != 0 {
		t.Fatalf("the unit was not enabled: %s", out)
	}
	r.do("dpkg", "-r", "provctl")
	if out, code := r.run("readlink", link); code == 0 {
		t.Errorf("after the removal the unit is enabled: %s", out)
	}
}

func TestUpgradeKeepsJournalAndConfiguration(t *testing.T) {
	r := newRoot(t)
	r.standIn()
	deb := packages(t).deb
	r.install(r.put(deb, "/tmp/old.deb"))
	r.do("provctl", "init", "--state-dir", state)
	r.do("sed", "-i", "s/^#site:.*/site: north/", "/etc/provctl/provctl.yaml")
	r.do("chmod", "600", "/etc/provctl/choria.conf")
	r.do("chown", "provctl:provctl", "/etc/provctl/choria.conf")
	before := r.do("sh", "-c", "cd "+state+" && sha256sum *")
	r.told()

	later := r.put(newer(t, deb, "0.2.0"), "/tmp/new.deb")
	out := r.install(later)
	if got := r.told(); got != "daemon-reload; try-restart provctl.service" {
		t.Errorf("systemctl was asked %q, want daemon-reload, then a restart of what runs, and never a kill", got)
	}
	if strings.Contains(out, "does not run yet") {
		t.Errorf("an upgrade talks of a first start:\n%s", out)
	}
	if got := r.do("sh", "-c", "cd "+state+" && sha256sum *"); got != before {
		t.Errorf("the journal is\n%swant\n%s", got, before)
	}
	if !strings.Contains(r.read("/etc/provctl/provctl.yaml"), "\nsite: north\n") {
		t.Error("the site's change of its configuration is gone")
	}
	if got := r.read("/etc/provctl/provctl.yaml.dpkg-dist"); !strings.Contains(got, "interval: 2m") {
		t.Error("the new sample configuration is not beside the site's")
	}
	r.looks("/etc/provctl/choria.conf", "provctl provctl 600")

	// A lost state directory is not to look like a new one.
	r.do("rm", "-r", state)
	r.write("/run/refuse", "try-restart")
	out = r.do("sh", "-c", "dpkg -i --force-confold /tmp/new.deb 2>&1")
	if !strings.Contains(out, "the new version does not run; nothing is lost") {
		t.Errorf("an upgrade whose worker does not come back is silent:\n%s", out)
	}
	if r.exists(state) {
		t.Error("an upgrade made the state directory anew")
	}
}

func TestRemoveAndPurgeKeepTheJournal(t *testing.T) {
	r := newRoot(t)
	r.standIn()
	r.install(r.put(packages(t).deb, "/tmp/provctl.deb"))
	r.do("provctl", "init", "--state-dir", state)
	r.write("/etc/provctl/signer.seed", "a secret\n")
	r.told()

	r.write("/run/refuse", "disable")
	if out, code := r.run("dpkg", "-r", "provctl"); code == 0 || !strings.Contains(out, "could not be stopped, so its program stays") {
		t.Errorf("with a worker that cannot be stopped dpkg ends with %d:\n%s", code, out)
	}
	if !r.exists("/usr/bin/provctl") {
		t.Error("the program was removed under a worker that could not be stopped")
	}
	r.write("/run/refuse", "")
	r.told()

	r.do("dpkg", "-r", "provctl")
	if got := r.told(); got != "disable --now provctl.service; daemon-reload" {
		t.Errorf("systemctl was asked %q, want a stop in order, then daemon-reload", got)
	}
	for name, want := range map[string]bool{
		"/usr/bin/provctl": false, "/usr/lib/systemd/system/provctl.service": false,
		"/etc/provctl/provctl.yaml": true, state + "/journal.db": true, state + "/journal.marker": true,
	} {
		if r.exists(name) != want {
			t.Errorf("after the removal %s exists: %v, want %v", name, !want, want)
		}
	}
	out := r.do("dpkg", "-P", "provctl")
	if !strings.Contains(out, "the journal in /var/lib/provctl stays") {
		t.Errorf("the purge does not say what it leaves:\n%s", out)
	}
	for name, want := range map[string]bool{
		"/etc/provctl/provctl.yaml": false, "/etc/provctl/signer.seed": true, state + "/journal.db": true, state + "/journal.marker": true,
	} {
		if r.exists(name) != want {
			t.Errorf("after the purge %s exists: %v, want %v", name, !want, want)
		}
	}
	r.looks(state+"/journal.db", "provctl provctl 600")

	// Whoever installs it again goes on with the journal, and is not told to make one.
	if out := r.install("/tmp/provctl.deb"); strings.Contains(out, "provctl init") {
		t.Errorf("beside a journal the installation tells to make one:\n%s", out)
	}
}

func TestUpgradedProgramMigratesTheJournal(t *testing.T) {
	r := newRoot(t)
	r.install(r.put(packages(t).deb, "/tmp/old.deb"))
	r.write(state+"/journal.db", gunzip(t, "../journal/testdata/format-1/journal.db.gz"))
	r.put("../journal/testdata/format-1/journal.marker", state+"/journal.marker")
	r.do("sh", "-c", "chmod 600 "+state+"/* && chown provctl:provctl "+state+"/*")
	old := r.do("sha256sum", state+"/journal.db")
	r.install(r.put(newer(t, packages(t).deb, "0.2.0"), "/tmp/new.deb"))
	if got := r.do("sha256sum", state+"/journal.db"); got != old {
		t.Error("the package itself changed the journal")
	}
	fillIn(r)
	runUntil(r, "journal migrated")
	if got := r.do("provctl", "journal", "verify", "--state-dir", state); !strings.Contains(got, "is sound") || strings.Contains(got, "of format 1 ") {
		t.Errorf("after the start: %s", got)
	}
	r.looks(state+"/journal.db", "provctl provctl 600")
}

func TestRPMScriptsDoTheSame(t *testing.T) {
	r := newRoot(t)
	r.standIn()
	rpm := func(args ...string) string {
		t.Helper()
		return r.do(append([]string{"rpm", "--dbpath", "/tmp/rpmdb", "--nodeps"}, args...)...)
	}
	file := r.put(packages(t).rpm, "/tmp/provctl.rpm")
	if out := rpm("-i", file); !strings.Contains(out, "does not run yet") {
		t.Errorf("the installation says\n%s", out)
	}
	if got := r.told(); got != "daemon-reload" {
		t.Errorf("on installation systemctl was asked %q", got)
	}
	r.looks("/etc/provctl/provctl.yaml", "root provctl 640")
	r.looks(state, "provctl provctl 700")
	r.do("provctl", "init", "--state-dir", state)
	r.do("sed", "-i", "s/^#site:.*/site: north/", "/etc/provctl/provctl.yaml")
	rpm("-U", "--force", file)
	if got := r.told(); !strings.HasPrefix(got, "daemon-reload; try-restart provctl.service") || strings.Contains(got, "disable") {
		t.Errorf("on upgrade systemctl was asked %q", got)
	}
	if !strings.Contains(r.read("/etc/provctl/provctl.yaml"), "\nsite: north\n") {
		t.Error("the site's change of its configuration is gone")
	}
	r.looks("/etc/provctl/provctl.yaml", "root provctl 640")
	if out := rpm("-e", "provctl"); !strings.Contains(out, "the journal in /var/lib/provctl stays") {
		t.Errorf("the removal says\n%s", out)
	}
	if got := r.told(); got != "disable --now provctl.service; daemon-reload" {
		t.Errorf("on removal systemctl was asked %q", got)
	}
	r.looks(state+"/journal.db", "provctl provctl 600")
	if r.exists("/usr/bin/provctl") || !strings.Contains(r.read("/etc/provctl/provctl.yaml.rpmsave"), "\nsite: north\n") {
		t.Error("the program is still there, or the site's configuration is not kept")
	}
}

func TestScriptsAreForAnyShell(t *testing.T) {
	for _, file := range []string{"scripts/postinstall.sh", "scripts/preremove.sh", "scripts/postremove.sh", "build.sh", "version.sh"} {
		output(t, "dash", "-n", file)
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm()&0o111 == 0 {
			t.Errorf("%s cannot be executed, %v", file, err)
		}
	}
}
