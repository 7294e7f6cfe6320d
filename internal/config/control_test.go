package config_test

import (
	"os/user"
	"strconv"
	"testing"

	"provctl/internal/config"
)

func TestControlGroupByNameAndByNumber(t *testing.T) {
	g, err := user.LookupGroupId("0") // the one group that every system has
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text   string
		gid    int
		socket string
	}{
		{"", 0, ""},
		{"control_group: " + g.Name + "\n", 0, "/run/provctl/control.sock"},
		{"control_group: '54321'\ncontrol_socket: /run/north/control.sock\n", 54321, "/run/north/control.sock"},
	} {
		_, file := site(t, minimal+"broker_provisioning_password: x\n"+c.text)
		got, warnings, err := config.Load(file)
		if err != nil || len(warnings) != 0 {
			t.Fatal(c.text, err, warnings)
		}
		if got.ControlGID != c.gid || got.ControlSocket != c.socket || (got.ControlGroup != "") != (c.text != "") {
			t.Errorf("%q gives group %s %s, socket %q", c.text, got.ControlGroup, strconv.Itoa(got.ControlGID), got.ControlSocket)
		}
	}
}
