package packaging_test

import (
	"bufio"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/choria-io/tokens"
)

// fillIn writes what the sample configuration asks a site for, and the broker's address: one that nobody answers at.
func fillIn(r *root) {
	r.t.Helper()
	check := func(err error) {
		r.t.Helper()
		if err != nil {
			r.t.Fatal(err)
		}
	}
	issuerPublic, issuer, err := ed25519.GenerateKey(rand.Reader)
	check(err)
	signerPublic, signer, err := ed25519.GenerateKey(rand.Reader)
	check(err)
	claims, err := tokens.NewClientIDClaims("choria=provctl", nil, "choria", nil, "", "", time.Hour, &tokens.ClientPermissions{ServerProvisioner: true}, signerPublic)
	check(err)
	check(claims.AddOrgIssuerData(issuer))
	token, err := tokens.SignToken(claims, issuer)
	check(err)
	const etc = "/etc/provctl/"
	seed := hex.EncodeToString(signer.Seed())
	for name, text := range map[string]string{
		"helper": "#!/bin/sh\nexit 1\n", "issuer.public": hex.EncodeToString(issuerPublic),
		"signer.seed": seed, "signer.jwt": token, "client.seed": seed, "client.jwt": token,
	} {
		r.write(etc+name, text)
		r.do("chown", "provctl:provctl", etc+name)
		r.do("chmod", "600", etc+name)
	}
	r.do("chmod", "755", etc+"helper")
	r.do("sed", "-i", "s/^broker_provisioning_password: FILL IN$/broker_provisioning_password: s3cret/", etc+"provctl.yaml")
	r.do("sed", "-i", "s/broker.FILL-IN.invalid:4222/127.0.0.1:1/", etc+"choria.conf")
}

// Filled in where it says so, the sample is a configuration that a worker runs with, and nothing else needs to be known.
func TestSampleConfigurationIsUsableOnceFilledIn(t *testing.T) {
	r := newRoot(t)
	r.install(r.put(packages(t).deb, "/tmp/provctl.deb"))
	fillIn(r)
	r.do("provctl", "init", "--state-dir", state)
	out, code := r.asWorker("provctl", "config", "check", "/etc/provctl/provctl.yaml", "--choria-config", "/etc/provctl/choria.conf")
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "problem:") || strings.HasPrefix(line, "warning:") && !strings.Contains(line, "expires at") {
			t.Errorf("the sample is found wanting: %s", line)
		}
	}
	if code != 0 {
		t.Errorf("config check ends with %d:\n%s", code, out)
	}
	for _, file := range []string{"/etc/provctl/provctl.yaml", "/etc/provctl/choria.conf"} {
		if strings.Contains(r.read(file), "FILL-IN") || strings.Contains(r.read(file), ": FILL IN\n") {
			t.Errorf("%s has a placeholder that the sample does not tell of", file)
		}
		if !strings.Contains(r.read(file), "# FILL IN: ") {
			t.Errorf("%s does not mark what a site has to fill in", file)
		}
	}
	runUntil(r, "starting")
}

// runUntil runs the worker as the unit does until it has logged something, and ends it in order.
func runUntil(r *root, says string) {
	r.t.Helper()
	cmd := r.command("setpriv", "--reuid", "provctl", "--regid", "provctl", "--clear-groups", "--", "env", "USER=provctl",
		"provctl", "run", "--config", "/etc/provctl/provctl.yaml", "--choria-config", "/etc/provctl/choria.conf")
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	watch := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer watch.Stop()
	var log strings.Builder
	found := false
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		log.WriteString(lines.Text() + "\n")
		if !found && strings.Contains(lines.Text(), says) {
			found = true
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	if err := cmd.Wait(); err != nil || !found {
		r.t.Errorf("the worker logged %q: %v; it ended with %v\n%s", says, found, err, log.String())
	}
}
