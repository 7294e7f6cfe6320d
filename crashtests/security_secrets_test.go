package crashtests

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"provctl/internal/fleet"
	"provctl/internal/loopback/loopbacktest"
)

// The texts that a helper gives for its nodes, and a node gets: the worker forgets them.
const (
	canaryConfiguration = "canary-of-the-configuration"
	canaryPolicy        = "canary-of-a-policy"
	canaryPassword      = "canary-of-the-repository"
)

// leaks is what must not be found.
func (s *site) leaks(t testing.TB) map[string]string {
	t.Helper()
	all := s.secrets(t)
	all["the helper's configuration"], all["the helper's policy"], all["the repository's password"] = canaryConfiguration, canaryPolicy, canaryPassword
	for _, node := range s.fleet.Nodes() { // keys that nodes made, or that the helper made for them
		dir, err := s.fleet.NodeDir(node)
		if err != nil {
			t.Fatal(err)
		}
		err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".pem") {
				return err
			}
			if text := read(t, path); strings.Contains(text, "PRIVATE KEY") {
				all["the key "+filepath.Base(path)+" of "+node] = strings.Split(text, "\n")[1]
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return forms(all)
}

// tight fails the test if a text holds a leak. It never prints the text.
func tight(t testing.TB, leaks map[string]string, what, text string) {
	t.Helper()
	if text == "" {
		t.Errorf("%s is empty: nothing was looked through", what)
	}
	for _, secret := range leaked(leaks, text) {
		t.Errorf("%s holds %s", what, secret)
	}
}

func leaked(leaks map[string]string, text string) (names []string) {
	for secret, value := range leaks {
		if strings.Contains(text, value) {
			names = append(names, secret)
		}
	}
	return names
}

// forms adds the forms in which a log or a record could have a secret.
func forms(secrets map[string]string) map[string]string {
	all := map[string]string{}
	for what, value := range secrets {
		if value == "" { // an empty signature is a finding of its own: see silent
			continue
		}
		all[what] = value
		all[what+", in base64"] = base64.StdEncoding.EncodeToString([]byte(value[:len(value)/3*3])) // what follows it does not matter
		all[what+", in hex"] = hex.EncodeToString([]byte(value))
	}
	return all
}

// TestSecurityLeaksAreFound proves that what the test below looks for would be found.
func TestSecurityLeaksAreFound(t *testing.T) {
	leaks := forms(map[string]string{"a": "sEcr3t-of-a", "none": ""})
	for text, want := range map[string]int{
		`{"msg":"token sEcr3t-of-a"}`:                                     1,
		base64.StdEncoding.EncodeToString([]byte("sEcr3t-of-a and more")): 1,
		"x" + hex.EncodeToString([]byte("sEcr3t-of-a")) + "x":             1,
		"sEcr3t-of-b": 0,
	} {
		if got := leaked(leaks, text); len(got) != want {
			t.Errorf("%s: found %v, want %d", text, got, want)
		}
	}
}

// asked returns an answer of the worker's control socket.
func (s *site) asked(path string) string {
	s.t.Helper()
	socket := filepath.Join(s.files.StateDir, "worker.sock")
	return s.get(&http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}, "http://worker/v1/"+path)
}

func (s *site) get(h *http.Client, url string) string {
	s.t.Helper()
	defer h.CloseIdleConnections()
	req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, url, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	res, err := h.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s, %v: %.300s", url, res.Status, err, b)
	}
	return string(b)
}

// searched looks through everything that a running worker shows and has written.
func (s *site) searched(p *process, ports [2]int, node, when string) {
	s.t.Helper()
	leaks := s.leaks(s.t)
	look := func(what, text string) { tight(s.t, leaks, what+" "+when, text) }
	for _, name := range []string{"cmdline", "environ"} { // whoever may read the latter
		look("/proc/PID/"+name, read(s.t, fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, name)))
	}
	for _, path := range []string{"live", "snapshot", "standings?after=&most=100", "audit?from=0", "story?node=" + node} {
		look("the socket's "+path, s.asked(path))
	}
	look("the metrics", s.get(http.DefaultClient, fmt.Sprintf("http://127.0.0.1:%d/metrics", ports[0])))
	for _, path := range []string{"report.json", "samples.json", "timeline.json?node=" + node} {
		look("the status page's "+path, s.get(http.DefaultClient, fmt.Sprintf("http://127.0.0.1:%d/status/%s", ports[1], path)))
	}
	for _, command := range [][]string{{"inspect"}, {"inspect", "--json"}, {"history", node, "--json"}, {"nodes", "--json"}} {
		out, _ := s.provctl(append(command, "--state-dir", s.files.StateDir)...)
		look(strings.Join(command, " "), out)
	}
	out, _ := s.provctl("config", "check", s.files.Config, "--choria-config", s.files.ChoriaConfig, "--json")
	look("config check", out)
	s.searchedFiles(when)
}

// searchedFiles looks through the log and every file of the state directory.
func (s *site) searchedFiles(when string) {
	s.t.Helper()
	leaks := s.leaks(s.t)
	logged := read(s.t, s.log)
	tight(s.t, leaks, "the log "+when, logged)
	if !strings.Contains(logged, `"level":"DEBUG"`) {
		s.t.Errorf("the log %s says nothing in detail", when)
	}
	for name, text := range contents(s.t, s.files.StateDir) {
		tight(s.t, leaks, name+" "+when, text)
		st, err := os.Stat(filepath.Join(s.files.StateDir, name))
		if err != nil || st.Mode().Perm() != 0o600 {
			s.t.Errorf("%s has mode %v, %v: want 0600", name, st.Mode(), err)
		}
	}
}

// TestSecuritySecretsStayInMemory has workers at debug level configure nodes with secrets, lose a reply, crash, settle what was lost, and
// be aborted. Nothing that they write, show or leave behind holds a secret: of what is sent the journal has a digest alone.
func TestSecuritySecretsStayInMemory(t *testing.T) {
	t.Parallel()
	for name, x509 := range map[string]bool{"tokens": false, "certificates": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ports := [2]int{loopbacktest.Port(t), loopbacktest.Port(t)}
			s := newSite(t, options{
				nodes: 3,
				fleet: func(o *fleet.Options) { o.X509 = x509 },
				worker: fleet.WorkerOptions{
					OwnKey: x509, Configuration: map[string]string{"plugin.payload": canaryConfiguration},
					Values: secretive(ports),
				},
			})
			s.policies()
			node := s.fleet.Nodes()[1]
			s.fleet.SetFault(node, "configure", fleet.Fault{Kind: fleet.Drop})
			p := s.start()
			// A crash amid another node's configure may cost its reply and its event; then nothing settles it.
			s.awaitFleet("the configure whose reply is lost has run, and the others are done", func(st fleet.State) bool {
				return st.Nodes[node].Ends["configure"] == 1 && st.Count(joined) == 2
			})
			if _, ok := s.view().of(node); !ok {
				t.Error("no effect is in flight")
			}
			s.await("the worker serves all", func() bool { return s.scrape(ports[0], "test") != nil })
			s.searched(p, ports, node, "with an effect in flight")
			s.kill()
			s.searchedFiles("after a crash")
			p = s.start()
			s.awaitFleet("all are provisioned", func(st fleet.State) bool { return st.Count(joined) == 3 })
			s.await("nothing is open", func() bool { return len(s.view().Items) == 0 })
			s.arrived(canaryConfiguration, canaryPolicy)
			if keys := strings.Join(slices.Collect(maps.Keys(s.leaks(t))), ";"); x509 != strings.Contains(keys, "the key private.pem of "+node) {
				t.Errorf("what is looked for: %s", keys)
			}
			s.awaitView("the worker answers", func(v view) bool { return v.Worker != nil })
			s.searched(p, ports, node, "in the end")
			s.aborted(p)
			s.searchedFiles("after an abort")
			s.noneTwice()
		})
	}
}

// secretive are the settings with every secret that there is.
func secretive(ports [2]int) map[string]any {
	return short(map[string]any{
		"workers": 2, "effect_ttl": "30s", // protocol 1 takes no less
		"site": "test", "monitor_port": ports[0], "status_port": ports[1],
		"upgrades_repository": "https://mirror:" + canaryPassword + "@127.0.0.1:1/", // unused, and not shown as such either
	})
}

// policies has the helper add an action policy.
func (s *site) policies() {
	s.t.Helper()
	good := s.files.Helper + ".good"
	if err := os.Rename(s.files.Helper, good); err != nil {
		s.t.Fatal(err)
	}
	write(s.t, s.files.Helper, fmt.Sprintf("#!/bin/sh\n'%s' | sed '1s/^{/{\"action_policies\":{\"x.policy\":\"# %s\"},/'\n", good, canaryPolicy))
	if err := os.Chmod(s.files.Helper, 0o700); err != nil {
		s.t.Fatal(err)
	}
}

// arrived fails the test unless each node has the texts: else they were not there to be leaked.
func (s *site) arrived(texts ...string) {
	s.t.Helper()
	for _, node := range s.fleet.Nodes() {
		dir, err := s.fleet.NodeDir(node)
		if err != nil {
			s.t.Fatal(err)
		}
		has := ""
		err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && (strings.HasSuffix(path, "server.conf") || strings.HasSuffix(path, ".policy")) {
				has += read(s.t, path)
			}
			return err
		})
		if err != nil {
			s.t.Fatal(err)
		}
		for _, text := range texts {
			if !strings.Contains(has, text) {
				s.t.Errorf("%s did not get %q", node, text)
			}
		}
	}
}

// aborted has the kernel end the worker as it ends one that fails badly, and looks at what is left: no core, and on standard error, which is
// the log's file here, where each goroutine was.
func (s *site) aborted(p *process) {
	s.t.Helper()
	var limit unix.Rlimit
	if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_CORE, nil, &limit); err != nil || limit.Cur != 0 || limit.Max != 0 {
		s.t.Errorf("the worker may write a core of %d bytes, at most %d (%v)", limit.Cur, limit.Max, err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGABRT); err != nil {
		s.t.Fatal(err)
	}
	s.exit(p)
	if p.cmd.ProcessState.Sys().(syscall.WaitStatus).CoreDump() {
		s.t.Error("the worker was dumped")
	}
	if text := read(s.t, s.log); !strings.Contains(text, "SIGABRT: abort") {
		s.t.Error("the abort was not told: what it tells was not looked through")
	}
}
