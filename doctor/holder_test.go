package doctor

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"provctl/internal/roottest"
)

// TestPortOfTheLocksHolder: a worker that starts or hangs has its port, and must not be told of as somebody to be stopped.
func TestPortOfTheLocksHolder(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatal(l.Addr())
	}
	look := func(pid int) *Report {
		return seen(t, Options{}, func(v *visit) {
			v.holder.PID = pid
			v.ports("monitor_port", at.Port)
		})
	}
	says(t, only(t, look(os.Getpid()), "monitor_port", OK).Found, "which holds the worker lock")
	says(t, only(t, look(0), "monitor_port", Fail).Found, "is in use by process")
	says(t, only(t, look(os.Getpid()+1), "monitor_port", Fail).Found, "is in use by process")
}

// TestLogfileInASharedDirectory: whoever is given a directory can replace every file in it.
func TestLogfileInASharedDirectory(t *testing.T) {
	if roottest.Missing(t, "what root is told on behalf of others") {
		return
	}
	dir := t.TempDir()
	for name, want := range map[string]string{"new.log": "install -o ", "there.log": "chown -h "} {
		path := filepath.Join(dir, name)
		if name == "there.log" {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		f := only(t, seen(t, Options{}, func(v *visit) {
			v.user = user{65534, 65534}
			v.cfg.Logfile = path
			v.logfile()
		}), checkFiles, Fail)
		says(t, f.Remedy, want, path)
		if strings.Contains(f.Remedy, dir+",") || strings.Contains(f.Remedy, dir+";") {
			t.Errorf("%s: %s", name, f.Remedy)
		}
	}
}
