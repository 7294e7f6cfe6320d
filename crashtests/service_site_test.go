package crashtests

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"provctl/crashtests/service"
	"provctl/internal/fleet"
)

// The unit under test, and where it has its files.
const (
	unit       = "provctl.service"
	unitConfig = "/etc/provctl/provctl.yaml"
	unitState  = "/var/lib/provctl"
)

// hasty is a drop-in for a unit that is killed again and again: what a person waits for is shorter, what is right is the same.
const hasty = "[Unit]\nStartLimitBurst=100\n[Service]\nRestartSec=100ms\n"

// serviceSite is a site whose worker is the package's unit on a machine with a systemd of its own.
type serviceSite struct {
	*site
	m *service.Machine
}

// newService makes a site and boots its machine; the unit is there and not started. It returns nil where no machine can be booted.
func newService(t *testing.T, o options, dropIn string) *serviceSite {
	t.Helper()
	if missing(t, service.Available()) {
		return nil
	}
	dir, err := os.MkdirTemp("", "provctl-9-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	m, err := service.New(dir, program)
	if err != nil {
		t.Fatal(err)
	}
	o.worker = onMachine(m, o.worker)
	s := &serviceSite{site: newSite(t, o), m: m}
	s.log = filepath.Join(dir, "log") // of the unit, as of the last look
	s.install(dropIn)
	s.deploy()
	s.boot()
	t.Cleanup(func() {
		if t.Failed() {
			s.explain()
		}
		if err := m.Cut(); err != nil {
			t.Error(err)
		}
	})
	add("service cases", 1)
	return s
}

// explain logs how the machine and its unit are, whatever became of the test's own time.
func (s *serviceSite) explain() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	status, _, _ := s.m.Run(ctx, "systemctl", "status", "--no-pager", "-n", "0", unit)
	text, err := s.m.Journal(ctx, unit)
	if err == nil {
		err = os.WriteFile(s.log, []byte(text), 0o600) // its end is shown with the fleet
	}
	s.t.Logf("the machine printed: %s\nthe unit: %s(log: %v)", s.m.Console(), status, err)
}

// onMachine has the worker's files where the package has them.
func onMachine(m *service.Machine, o fleet.WorkerOptions) fleet.WorkerOptions {
	values := short(o.Values)
	values["state_dir"] = unitState
	values["jwt_signing_key"], values["jwt_signing_token"] = "/etc/provctl/signer.seed", "/etc/provctl/signer.jwt"
	o.Values, o.Helper, o.StateDir = values, "/etc/provctl/helper.sh", m.Path(unitState)
	return o
}

// install gives the machine the package's unit, and a site's drop-in.
func (s *serviceSite) install(dropIn string) {
	s.t.Helper()
	err := s.m.Install(unit, read(s.t, "../packaging/"+unit))
	if err == nil && dropIn != "" {
		err = s.m.Install(unit+".d/site.conf", dropIn)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// deploy copies the worker's files to the machine and gives the state directory to the service's account, as an operator does.
func (s *serviceSite) deploy() {
	s.t.Helper()
	etc := s.m.Path(filepath.Dir(unitConfig))
	choria := strings.NewReplacer(s.files.SignerSeed, "/etc/provctl/signer.seed", s.files.SignerToken, "/etc/provctl/signer.jwt")
	for name, text := range map[string]string{
		"provctl.yaml": read(s.t, s.files.Config),
		"choria.conf":  choria.Replace(read(s.t, s.files.ChoriaConfig)),
		"helper.sh":    read(s.t, s.files.Helper),
		"signer.seed":  read(s.t, s.files.SignerSeed),
		"signer.jwt":   read(s.t, s.files.SignerToken),
	} {
		s.put(filepath.Join(etc, name), text)
	}
	s.own(filepath.Join(etc, "signer.seed"), service.UID, 0o600)
	s.own(etc, 0, 0o750)
	s.own(s.m.Path(unitState), service.UID, 0o700)
	for name := range contents(s.t, s.m.Path(unitState)) {
		s.own(s.m.Path(filepath.Join(unitState, name)), service.UID, 0o600)
	}
}

// put writes a file that the service may read; helpers may be run.
func (s *serviceSite) put(file, text string) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		s.t.Fatal(err)
	}
	write(s.t, file, text)
	mode := os.FileMode(0o640)
	if strings.HasSuffix(file, ".sh") {
		mode = 0o750
	}
	s.own(file, 0, mode)
}

// own sets owner and mode of a file, whose group is the service's.
func (s *serviceSite) own(file string, uid int, mode os.FileMode) {
	s.t.Helper()
	err := os.Chown(file, uid, service.UID)
	if err == nil {
		err = os.Chmod(file, mode)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *serviceSite) boot() {
	s.t.Helper()
	if err := s.m.Boot(s.ctx); err != nil {
		s.t.Fatal(err)
	}
}

// in runs a command on the machine and returns all that it printed and its exit code.
func (s *serviceSite) in(argv ...string) (string, int) {
	s.t.Helper()
	out, code, err := s.m.Run(s.ctx, argv...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out, code
}

// asService runs a command on the machine as the service's account.
func (s *serviceSite) asService(argv ...string) (string, int) {
	s.t.Helper()
	id := strconv.Itoa(service.UID)
	return s.in(append([]string{"setpriv", "--reuid", id, "--regid", id, "--clear-groups", "--"}, argv...)...)
}

// systemctl runs a command of systemctl on the unit, which must succeed.
func (s *serviceSite) systemctl(args ...string) {
	s.t.Helper()
	if out, code := s.in(append(append([]string{"systemctl"}, args...), unit)...); code != 0 {
		s.t.Fatalf("systemctl %v: exit code %d: %s", args, code, out)
	}
}

// shoot sends a signal to the worker's process.
func (s *serviceSite) shoot(signal string) {
	s.t.Helper()
	s.systemctl("kill", "--kill-whom=main", "--signal", signal)
}

// unitView is what systemd says of the unit.
type unitView struct {
	Active, Sub, Result, Status string
	MainPID, Restarts, Exit     int
}

func (s *serviceSite) show() unitView {
	s.t.Helper()
	p, err := s.m.Show(s.ctx, unit, "ActiveState", "SubState", "Result", "StatusText", "MainPID", "NRestarts", "ExecMainStatus")
	if err != nil {
		s.t.Fatal(err)
	}
	number := func(name string) int {
		n, err := strconv.Atoi(p[name])
		if err != nil {
			s.t.Fatalf("%s of the unit is %q", name, p[name])
		}
		return n
	}
	return unitView{
		Active: p["ActiveState"], Sub: p["SubState"], Result: p["Result"], Status: p["StatusText"],
		MainPID: number("MainPID"), Restarts: number("NRestarts"), Exit: number("ExecMainStatus"),
	}
}

// awaitUnit waits until systemd says so of the unit.
func (s *serviceSite) awaitUnit(what string, is func(unitView) bool) (v unitView) {
	s.t.Helper()
	s.await(what, func() bool {
		v = s.show()
		return is(v)
	})
	return v
}

// active tells whether the unit has said that it is ready.
func active(v unitView) bool { return v.Active == "active" }

// journal is what the unit has logged since the boot, and systemd about it; it is kept for a failing test.
func (s *serviceSite) journal() string {
	s.t.Helper()
	text, err := s.m.Journal(s.ctx, unit)
	if err != nil {
		s.t.Fatal(err)
	}
	write(s.t, s.log, text)
	return text
}

func (s *serviceSite) logged(text string) bool {
	s.t.Helper()
	return strings.Contains(s.journal(), text)
}

// finished wants every node provisioned once, nothing open, nothing twice, and no secret told. What is truly ambiguous past its horizon is
// decided on from the node's own files, as an operator does who looks now and then.
func (s *serviceSite) finished() {
	s.t.Helper()
	nodes := s.fleet.Nodes()
	s.await("every node is provisioned and nothing is open", func() bool {
		v, err := s.tryView()
		if err != nil || v.Worker == nil { // it is being replaced
			return false
		}
		for _, i := range v.Items {
			if i.Status == "unknown" && i.HorizonLeft == 0 {
				verdict := "not-applied"
				if s.wroteConfig(i.Node, i.Request) {
					verdict = "applied"
				}
				s.tries(i.item, verdict)
			}
		}
		return len(v.Items) == 0 && s.fleet.State().Count(joined) == len(nodes)
	})
	s.noneTwice()
	s.secretless()
}

// tries gives a verdict on what was shown to a worker that may be killed meanwhile, which the command then says.
func (s *serviceSite) tries(i item, verdict string) {
	s.t.Helper()
	switch out, code := s.verdict(i, verdict); {
	case code == 0:
		add("service verdicts", 1)
	case code != 4 && !strings.Contains(out, "the node may still have it to do") && !strings.Contains(out, "run this again"):
		s.t.Fatalf("reconcile %s: exit %d: %s", i.Receipt, code, out)
	}
}

// secretless checks what the unit has logged.
func (s *serviceSite) secretless() {
	s.t.Helper()
	s.silent(s.t, "the unit's log", s.journal())
}

// seedOf is the seed of a random case: its name is what replays it.
func seedOf(n int) (name string) { return fmt.Sprintf("seed-%d", n) }
