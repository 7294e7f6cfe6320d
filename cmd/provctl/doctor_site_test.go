package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"provctl/doctor"
	"provctl/internal/control"
	"provctl/internal/fleet"
	"provctl/internal/loopback/loopbacktest"
)

// clinic is a real broker, with a worker's files for it.
type clinic struct {
	site
	fleet *fleet.Fleet
	fleet.WorkerFiles
}

func newClinic(t *testing.T, options fleet.Options, values map[string]any) *clinic {
	t.Helper()
	c := &clinic{site: site{t, t.TempDir()}}
	options.Dir, options.Log, options.BrokerLog = c.path("fleet"), io.Discard, io.Discard
	var err error
	c.fleet, err = fleet.Start(t.Context(), options)
	c.check(err)
	t.Cleanup(c.fleet.Close)
	c.worker("worker", values)
	return c
}

// worker writes the files of a worker, and makes its journal.
func (c *clinic) worker(name string, values map[string]any) {
	c.t.Helper()
	var err error
	c.WorkerFiles, err = c.fleet.WriteWorkerFiles(c.path(name), fleet.WorkerOptions{Values: values})
	c.check(err)
	if _, errs, code := c.provctl("init", "--state-dir", c.StateDir); code != 0 {
		c.t.Fatal(errs)
	}
}

func (c *clinic) doctor(args ...string) (doctor.Report, int) {
	c.t.Helper()
	out, errs, code := c.provctl(append([]string{"doctor", "--json", "--config", c.Config, "--choria-config", c.ChoriaConfig}, args...)...)
	if errs != "" {
		c.t.Errorf("on stderr: %s", errs)
	}
	for _, secret := range []string{c.Password, c.Token} {
		if strings.Contains(out, secret) {
			c.t.Errorf("a secret is shown: %s", out)
		}
	}
	return readReport(c.t, []byte(out)), code
}

// start starts a worker and waits until it is at work.
func (c *clinic) start() *exec.Cmd {
	c.t.Helper()
	cmd := exec.Command("provctl", "run", "--config", c.Config, "--choria-config", c.ChoriaConfig)
	log, err := os.Create(filepath.Join(filepath.Dir(c.Config), "log"))
	c.check(err)
	defer func() { _ = log.Close() }()
	cmd.Stderr = log
	c.check(cmd.Start())
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		if client, err := control.Dial(c.StateDir); err == nil {
			if live, err := client.Live(ctx); err == nil && live.State == control.Running && live.Connected {
				return cmd
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			said, _ := os.ReadFile(log.Name())
			c.t.Fatalf("the worker does not come up: %s", said)
		}
	}
}

// sound fails for anything but what this host and the fleet are like: nothing keeps a clock in time in a test's machine, and the fleet's broker
// has a certificate of nobody's.
func (c *clinic) sound(r doctor.Report, code int) {
	c.t.Helper()
	if code != exitFine || !r.Usable || r.Exit != exitFine {
		c.t.Errorf("exit code %d: %+v", code, r)
	}
	for _, f := range r.Checks {
		known := f.Check == "clock" && strings.Contains(f.Found, "by the kernel") || f.Check == "client identity" && strings.Contains(f.Found, "certificate is not verified")
		if f.Status != doctor.OK && !(known && f.Status == doctor.Warn) {
			c.t.Errorf("not ok: %+v", f)
		}
	}
}

// TestDoctorOfASoundSite: all is well before the worker starts and while it runs, and looking disturbs neither.
func TestDoctorOfASoundSite(t *testing.T) {
	c := newClinic(t, fleet.Options{}, map[string]any{"monitor_port": loopbacktest.Port(t), "status_port": loopbacktest.Port(t)})
	c.check(os.WriteFile(c.Helper, []byte("#!/bin/sh\ntouch "+c.path("helper-ran")+"\n"), 0o700))
	before := c.files()
	r, code := c.doctor()
	c.sound(r, code)
	matches(t, "the free lock", found(t, r, "lock", doctor.OK).Found, "is free: no worker runs")
	matches(t, "the port", found(t, r, "monitor_port", doctor.OK).Found, "is free")
	matches(t, "the journal", found(t, r, "journal", doctor.OK).Found, `format \d+, epoch 0, sequence 0, sound`)
	matches(t, "the broker", found(t, r, "broker", doctor.OK).Found, `lets us in, after .*NATS .*TLS 1\.3`)
	matches(t, "the account", found(t, r, "broker account", doctor.OK).Found, "^provisioning,")
	if after := c.files(); after != before {
		t.Errorf("it changed something: before\n%s\nafter\n%s", before, after)
	}

	worker := c.start()
	pid := worker.Process.Pid
	for range 3 {
		r, code = c.doctor()
		c.sound(r, code)
	}
	matches(t, "the lock", found(t, r, "lock", doctor.OK).Found, fmt.Sprintf(`worker\.lock is held by process %d since TIME`, pid))
	matches(t, "the worker", found(t, r, "worker", doctor.OK).Found, `running since TIME, epoch 1, .*connected to the broker`)
	matches(t, "the port", found(t, r, "monitor_port", doctor.OK).Found, "is served by the worker")
	matches(t, "the port", found(t, r, "status_port", doctor.OK).Found, "is served by the worker")
	matches(t, "the journal", found(t, r, "journal", doctor.OK).Found, "epoch 1, .*in use by the worker")
	if _, err := os.Stat(c.path("helper-ran")); err == nil {
		t.Error("the helper was run")
	}

	// The socket is there, and nobody answers.
	c.check(worker.Process.Signal(syscall.SIGSTOP))
	r, code = c.doctor("--no-network")
	f := found(t, r, "lock", doctor.Fail)
	matches(t, "the hung worker", f.Found, fmt.Sprintf(`does not answer \(pid %d\).*kill -CONT`, pid))
	found(t, r, "journal", doctor.Skip)
	if code != exitHeld || r.Exit != exitHeld {
		t.Errorf("exit code %d for a worker that hangs, want %d", code, exitHeld)
	}
	c.check(worker.Process.Signal(syscall.SIGCONT))
	r, code = c.doctor()
	c.sound(r, code)
	c.check(worker.Process.Signal(syscall.SIGTERM))
	if err := worker.Wait(); err != nil {
		t.Errorf("the worker that was looked at ended with %v", err)
	}
}

// TestDoctorAsksTheBroker: who is refused, where we are, who else is there, and whether an election can be held.
func TestDoctorAsksTheBroker(t *testing.T) {
	c := newClinic(t, fleet.Options{}, nil)
	c.start()
	c.worker("second", nil)
	r, code := c.doctor()
	f := found(t, r, "other provisioners", doctor.Warn)
	matches(t, "the other one", f.Found+f.Remedy, `^1: each holds the provisioning lock .*connected are: provctl provisioner.*leader_election`)
	if code != exitFine {
		t.Errorf("exit code %d for a warning", code)
	}

	conf, err := os.ReadFile(c.ChoriaConfig)
	c.check(err)
	c.check(os.WriteFile(c.ChoriaConfig, []byte(strings.Replace(string(conf), c.fleet.BrokerURL(), c.fleet.BrokerURL()+",nats://127.0.0.1:1", 1)), 0o600))
	r, code = c.doctor()
	matches(t, "the broken server", found(t, r, "broker", doctor.Warn).Found, `^nats://127\.0\.0\.1:1: the broker cannot be reached: .*refused; another server works`)
	found(t, r, "broker", doctor.OK)
	if code != exitFine {
		t.Errorf("exit code %d with a server that works", code)
	}

	c.worker("refused", map[string]any{"broker_provisioning_password": "wrong"})
	r, code = c.doctor()
	f = found(t, r, "broker", doctor.Fail)
	matches(t, "the refusal", f.Found+"; "+f.Remedy, `the broker refuses us: .*Authorization.*compare broker_provisioning_password`)
	found(t, r, "broker account", doctor.Skip)
	if code != exitError {
		t.Errorf("exit code %d for a refusal, want %d", code, exitError)
	}

	c.worker("elsewhere", map[string]any{"broker_provisioning_password": nil})
	r, code = c.doctor()
	matches(t, "the missing password", found(t, r, "client identity", doctor.Warn).Found, "not verified|broker_provisioning_password is not set")
	f = found(t, r, "broker account", doctor.Fail)
	matches(t, "the account", f.Found+"; "+f.Remedy, `puts us into account choria, and nodes wait in provisioning.*set broker_provisioning_password`)
	if code != exitError {
		t.Errorf("exit code %d in the wrong account, want %d", code, exitError)
	}

	c.worker("elects", map[string]any{"leader_election": true})
	r, code = c.doctor()
	f = found(t, r, "leader election", doctor.Fail)
	matches(t, "the impossible election", f.Found, "enable Choria Streams")
	if code != exitError {
		t.Errorf("exit code %d without an election, want %d", code, exitError)
	}
}

func TestDoctorAsksForAnElection(t *testing.T) {
	c := newClinic(t, fleet.Options{Streams: true}, map[string]any{"leader_election": true})
	r, _ := c.doctor()
	matches(t, "the election", found(t, r, "leader election", doctor.OK).Found, "a leader's key lives for ")
}

// TestDoctorLooksForAnotherUser: root sees what the state directory's owner cannot do.
func TestDoctorLooksForAnotherUser(t *testing.T) {
	p := newPatient(t)
	p.give(nobody)
	for _, name := range []string{"state", "state/journal.db", "state/journal.marker"} {
		p.check(os.Chown(p.path(name), nobody, nobody))
	}
	r, code := p.doctor("--no-network")
	matches(t, "for whom", r.User, `\(65534\)`)
	if code != exitFine {
		t.Errorf("exit code %d: %+v", code, r)
	}
	p.check(os.Chown(p.path("signer.seed"), 0, 0))
	p.check(os.Chmod(p.path("helper.sh"), 0o722))
	r, code = p.doctor("--no-network")
	f := found(t, r, "file rights", doctor.Fail)
	matches(t, "the key", f.Found+"; "+f.Remedy, `jwt_signing_key: \S*signer\.seed cannot be read by user nobody.*permission denied; .*chown nobody`)
	matches(t, "the open helper", found(t, r, "helper", doctor.Warn).Found, "mode 0722: every user can change it")
	helpers := 0
	for _, f := range r.Checks {
		if f.Check == "helper" {
			helpers++
		}
	}
	if helpers != 1 {
		t.Errorf("the helper is told of %d times: %+v", helpers, r.Checks)
	}
	if code != exitConfig {
		t.Errorf("exit code %d, want %d", code, exitConfig)
	}
}

// TestDoctorsDocument: every check is in it, and its commands can be typed.
func TestDoctorsDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	p := newPatient(t)
	r, _ := p.doctor()
	for _, f := range r.Checks {
		if !strings.Contains(string(text), "`"+f.Check+"`") {
			t.Errorf("docs/doctor.md does not tell of %q", f.Check)
		}
	}
	_, block, _ := strings.Cut(string(text), "```sh\n")
	block, _, _ = strings.Cut(block, "```")
	typed := 0
	for line := range strings.Lines(block) {
		line = strings.NewReplacer("/etc/provctl/provctl.yaml", p.path("provctl.yaml"), "/etc/provctl/choria.conf", p.path("tokens.conf")).Replace(line)
		args := strings.Fields(line)[1:]
		if out, errs, code := p.provctl(args...); code > exitError || errs != "" || out == "" {
			t.Errorf("%s: exit code %d: %s", line, code, errs)
		}
		typed++
	}
	if typed == 0 {
		t.Error("docs/doctor.md shows no command")
	}
}
