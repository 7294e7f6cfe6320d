package config_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"provctl/internal/config"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const hexKey = "e72cba5268b34627b75c5ceae9449ad16d62f15f862c30d4e0e7d2588e2e6259"

// site makes a directory with a helper, a key and a token, and the configuration
// text in it.
func site(t *testing.T, text string) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	for name, f := range map[string]struct {
		content string
		mode    os.FileMode
	}{
		"helper.sh":     {"#!/bin/sh\n", 0o700},
		"not-a-program": {"text\n", 0o600},
		"signer.seed":   {strings.Repeat("ab", 32), 0o600},
		"open.seed":     {strings.Repeat("ab", 32), 0o644},
		"signer.jwt":    {"x.y.z", 0o600},
		"provctl.yaml":  {text, 0o600},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(f.content), f.mode); err != nil {
			t.Fatal(err)
		}
	}
	return dir, filepath.Join(dir, "provctl.yaml")
}

const minimal = "state_dir: state\nhelper: ./helper.sh\njwt_signing_key: signer.seed\njwt_verify_cert: " + hexKey + "\n" + ed25519

const ed25519 = "features: {ed25519: true}\n"

const complete = `# a site's file
workers: 4
interval: 5m
logfile: /dev/stdout
loglevel: warn
helper: ./helper.sh --site 'north 1'
token: s3cret
site: testing
monitor_port: 9000
broker_provisioning_password: t0psecret
jwt_verify_cert: ` + hexKey + `
jwt_signing_key: signer.seed
jwt_signing_token: signer.jwt
server_jwt_validity: 2y
features:
  ed25519: yes
  pki: no
state_dir: /var/lib/provctl
effect_ttl: 30s
clock_skew: 0s
on_unknown: fleet
max_unknown: 3
max_requeues: 0
evidence: manual
helper_timeout: 20s
history_retention: 2w
`

func TestLoadComplete(t *testing.T) {
	dir, file := site(t, complete)
	c, warnings, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) != 0 {
		t.Errorf("warnings: %v", warnings)
	}
	want := config.Config{
		File: file, Places: c.Places, Workers: 4, Interval: 5 * time.Minute, Logfile: "/dev/stdout", Loglevel: slog.LevelWarn,
		Helper: filepath.Join(dir, "helper.sh") + " --site 'north 1'", Token: "s3cret",
		LifecycleComponent: "provision_mode_server", Site: "testing", MonitorPort: 9000,
		BrokerProvisioningPassword: "t0psecret", JWTVerifyCert: hexKey,
		JWTSigningKey: filepath.Join(dir, "signer.seed"), JWTSigningToken: filepath.Join(dir, "signer.jwt"),
		ServerJWTValidity: 2 * 365 * 24 * time.Hour, CertDenyList: c.CertDenyList,
		Features: config.Features{JWT: true, Ed25519: true},
		StateDir: "/var/lib/provctl", EffectTTL: 30 * time.Second, StopTimeout: 50 * time.Second,
		OnUnknown: config.BlockFleet, MaxUnknown: 3, Evidence: config.EvidenceManual,
		HelperTimeout: 20 * time.Second, HistoryRetention: 14 * 24 * time.Hour,
	}
	// The verbs of a Secret hide its text, so compare it apart.
	if c.Token != want.Token || c.BrokerProvisioningPassword != want.BrokerProvisioningPassword {
		t.Error("secrets differ")
	}
	if got, want := fmt.Sprintf("%+v", *c), fmt.Sprintf("%+v", want); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := c.Refuse("helper", errors.New("broken; mend it")).Error(), file+":6:1: helper: broken; mend it"; got != want {
		t.Errorf("Refuse says %q, want %q", got, want)
	}
}

func TestLoadDefaults(t *testing.T) {
	dir, file := site(t, minimal)
	c, warnings, err := config.Load(file)
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0].String(), noPassword) {
		t.Fatal(err, warnings)
	}
	if c.Workers != runtime.NumCPU() || c.Interval != time.Minute || c.EffectTTL != time.Minute ||
		c.ClockSkew != 10*time.Second || c.StopTimeout != 90*time.Second || c.OnUnknown != config.BlockNode ||
		c.MaxUnknown != 10 || c.MaxRequeues != 2 || c.Evidence != config.EvidenceAuto ||
		c.HelperTimeout != 10*time.Second || c.HistoryRetention != 30*24*time.Hour ||
		c.ServerJWTValidity != 365*24*time.Hour || c.LifecycleComponent != "provision_mode_server" ||
		len(c.CertDenyList) != 4 || c.StateDir != filepath.Join(dir, "state") {
		t.Errorf("defaults: %+v", c)
	}
}

func TestLoadValues(t *testing.T) {
	tests := []struct {
		name, line string
		check      func(*config.Config) bool
	}{
		{"workers 0 is the number of CPUs", "workers: 0", func(c *config.Config) bool { return c.Workers == runtime.NumCPU() }},
		{"null is not set", "interval:\nworkers: null", func(c *config.Config) bool { return c.Interval == time.Minute }},
		{"joined duration", "history_retention: 1d12h", func(c *config.Config) bool { return c.HistoryRetention == 36*time.Hour }},
		{"fraction of a day", "history_retention: 1.5d", func(c *config.Config) bool { return c.HistoryRetention == 36*time.Hour }},
		{"month", "history_retention: 1M", func(c *config.Config) bool { return c.HistoryRetention == 720*time.Hour }},
		{"quoted duration", `interval: "1h"`, func(c *config.Config) bool { return c.Interval == time.Hour }},
		{"quoted number is text", `site: "12"`, func(c *config.Config) bool { return c.Site == "12" }},
		{"alias", "site: &s north\nlifecycle_component: *s", func(c *config.Config) bool { return c.LifecycleComponent == "north" }},
		{"flow mapping", "features: {ed25519: on, jwt: false, upgrades: off}", func(c *config.Config) bool { return c.Features == config.Features{JWT: true, Ed25519: true} }},
		{"stop_timeout follows", "effect_ttl: 2s\nclock_skew: 1s", func(c *config.Config) bool { return c.StopTimeout == 23*time.Second }},
		{"byte order mark", "site: bom", func(c *config.Config) bool { return c.Site == "bom" }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := minimal + tt.line + "\n"
			if tt.name == "flow mapping" {
				text = strings.Replace(text, ed25519, "", 1)
			}
			if tt.name == "byte order mark" {
				text = "\xef\xbb\xbf" + text
			}
			_, file := site(t, text)
			c, _, err := config.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			if !tt.check(c) {
				t.Errorf("%s: %+v", tt.line, c)
			}
		})
	}
}

// TestGolden compares everything that Load says about each testdata/*.yaml.
func TestGolden(t *testing.T) {
	cases, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(cases) == 0 {
		t.Fatal("no cases", err)
	}
	for _, name := range cases {
		t.Run(filepath.Base(name), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			dir, file := site(t, string(text))
			_, warnings, err := config.Load(file)
			var out strings.Builder
			for _, w := range warnings {
				fmt.Fprintf(&out, "warning: %s\n", w)
			}
			if err != nil {
				fmt.Fprintf(&out, "%s\n", err)
			}
			got := strings.ReplaceAll(out.String(), dir, "DIR")
			golden := strings.TrimSuffix(name, ".yaml") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

func TestLoadUnreadable(t *testing.T) {
	dir, file := site(t, minimal)
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tests := []struct{ name, path, want string }{
		{"missing", filepath.Join(dir, "nope.yaml"), "does not exist"},
		{"below a file", filepath.Join(file, "x"), "cannot look at the file"},
		{"directory", dir, "is a directory"},
		{"pipe", pipe, "not a regular file"},
		{"empty", write("empty", ""), "the file is empty"},
		{"blank", write("blank", " \n\n"), "the file is empty"},
		{"comment only", write("comment", "# nothing\n"), "no settings"},
		{"too large", write("large", minimal+strings.Repeat("#\n", 1<<19)), "larger than 1 MiB"},
		{"not UTF-8", write("latin1", "site: caf\xe9\n"), ":1:10: byte 0xe9 is not UTF-8"},
		{"UTF-16", write("utf16", "\xff\xfes\x00"), "is not UTF-8"},
		{"NUL", write("nul", "site: a\x00b\n"), "control character U+0000"},
		{"list", write("list", "- a\n- b\n"), "does not hold key: value lines"},
		{"scalar", write("scalar", "hello\n"), "does not hold key: value lines"},
		{"two documents", write("two", "site: a\n---\nsite: b\n"), "more than one YAML document"},
		{"open quote", write("quote", "site: \"a\nhelper: x\n"), "not YAML"},
		{"deep flow", write("deep", "site: "+strings.Repeat("[", 500_000)), "nested too deeply"},
		{"deep block", write("dashes", strings.Repeat("- ", 400_000)), "nested too deeply"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, _, err := config.Load(tt.path)
			var inv *config.Invalid
			if c != nil || !errors.As(err, &inv) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			for _, p := range inv.Problems {
				if p.File == "" || p.Text == "" || p.Remedy == "" {
					t.Errorf("incomplete problem %+v", p)
				}
			}
		})
	}
}

func TestSecretIsNeverShown(t *testing.T) {
	const text = "s3cret-value"
	s := config.Secret(text)
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "secret", s, "in", struct{ S config.Secret }{s})
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "secret", s, "in", struct{ S config.Secret }{s})
	js, err := json.Marshal(map[string]any{"a": s, "b": &s, "c": []config.Secret{s}})
	if err != nil {
		t.Fatal(err)
	}
	out := log.String() + string(js)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%10s"} {
		out += fmt.Sprintf(verb, s) + fmt.Sprintf(verb, struct{ S config.Secret }{s}) + fmt.Sprintf(verb, &s)
	}
	out += fmt.Sprint(s) + s.String() + s.GoString()
	hexed := fmt.Sprintf("%x", text)
	if strings.Contains(out, text) || strings.Contains(strings.ToLower(out), hexed) {
		t.Errorf("shown: %s", out)
	}
	if s.Reveal() != text {
		t.Error("Reveal")
	}
}

func TestSecretsStayOutOfErrors(t *testing.T) {
	for _, text := range []string{
		minimal + "token: [hunter2]\n",
		minimal + "token: |\n  hunter2\n  hunter2\n",
		minimal + "token: \"hunter2\\n\"\n",
		minimal + "token: \"hunter2\nsite: x\n",
		minimal + "token: hunter2\n\tsite: x\n",
		minimal + "token: 'hunter2' hunter2\n",
		minimal + "broker_provisioning_password: {hunter2: hunter2}\n",
		minimal + "token: !!str\nhunter2\n",
	} {
		_, file := site(t, text)
		_, _, err := config.Load(file)
		if err == nil {
			t.Errorf("accepted:\n%s", text)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("shown: %s", err)
		}
	}
}
