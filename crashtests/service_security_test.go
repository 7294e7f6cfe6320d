package crashtests

import (
	"regexp"
	"strconv"
	"testing"
)

// TestSweep9Unit has systemd judge the unit: no complaint, and an exposure of 2.0 at most of 10.
func TestSweep9Unit(t *testing.T) {
	t.Parallel()
	s := newService(t, options{}, "")
	if s == nil {
		return
	}
	if out, code := s.in("systemd-analyze", "verify", "--man=no", "/etc/systemd/system/"+unit); code != 0 || out != "" {
		t.Errorf("systemd-analyze verify exits with %d: %s", code, out)
	}
	out, code := s.in("systemd-analyze", "security", "--no-pager", unit)
	figure := regexp.MustCompile(`Overall exposure level for provctl.service: ([0-9.]+)`).FindStringSubmatch(out)
	if code != 0 || figure == nil {
		t.Fatalf("systemd-analyze security exits with %d: %s", code, out)
	}
	exposure, err := strconv.ParseFloat(figure[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	if exposure > 2.0 {
		t.Errorf("the unit's exposure is %.1f, more than 2.0: %s", exposure, out)
	}
	t.Logf("systemd-analyze security: %s", figure[0])
	add("tenths of exposure by systemd-analyze security", int(exposure*10+0.5))
	s.madeByRoot()
	s.systemctl("stop")
	s.awaitUnit("it has stopped", func(v unitView) bool { return v.Active == "inactive" && v.Result == "success" })
	s.secretless()
}

// madeByRoot makes the state directory anew as the package does and the journal as an operator does, who is the superuser; later that operator
// pauses a worker that does not run. Neither keeps the service, which is somebody else, from its files.
func (s *serviceSite) madeByRoot() {
	s.t.Helper()
	for _, command := range []string{
		"rm -r " + unitState,
		"install -d -o provctl -g provctl -m 0700 " + unitState,
		"provctl init --state-dir " + unitState,
		"systemctl start " + unit,
		"systemctl stop " + unit,
		"provctl pause --reason maintenance --state-dir " + unitState,
		"provctl resume --state-dir " + unitState,
		"systemctl start " + unit,
	} {
		if out, code := s.in("sh", "-c", command); code != 0 {
			s.t.Fatalf("%s: exit code %d: %s%s", command, code, out, s.journal())
		}
	}
	s.awaitUnit("it is ready", active)
}
