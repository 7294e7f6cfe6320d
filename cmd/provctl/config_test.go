package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/choria-io/tokens"
	"github.com/santhosh-tekuri/jsonschema/v5"

	"provctl/fence"
	"provctl/inspect/inspecttest"
	"provctl/journal"
)

var update = flag.Bool("update", false, "write the golden files anew")

// site is a directory with all that the configurations of testdata/config name.
type site struct {
	t   *testing.T
	dir string
}

func newSite(t *testing.T) site {
	t.Helper()
	s := site{t, t.TempDir()}
	issuerPublic, issuer := s.pair("issuer")
	signerPublic, _ := s.pair("signer")
	for name, days := range map[string]time.Duration{"signer.jwt": 365, "ends.jwt": 10, "expired.jwt": -1} {
		claims, err := tokens.NewClientIDClaims("choria=provisioner", nil, "choria", nil, "", "", days*24*time.Hour, nil, signerPublic)
		if err == nil {
			err = claims.AddOrgIssuerData(issuer)
		}
		s.check(err)
		token, err := tokens.SignToken(claims, issuer)
		s.check(err)
		s.write(name, token)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "provisioner"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, issuerPublic, issuer)
	s.check(err)
	s.write("certificate.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	der, err = x509.MarshalPKCS8PrivateKey(issuer)
	s.check(err)
	s.write("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	s.write("helper.sh", "#!/bin/sh\n")
	s.check(os.Chmod(s.path("helper.sh"), 0o700))
	broker := "identity=provisioner\nloglevel=error\nplugin.choria.use_srv=false\nplugin.choria.middleware_hosts=nats://127.0.0.1:1\n"
	s.write("tokens.conf", broker+"plugin.security.provider=choria\nplugin.security.choria.token_file="+s.path("signer.jwt")+
		"\nplugin.security.choria.seed_file="+s.path("signer.seed")+"\n")
	s.write("x509.conf", broker+"plugin.security.provider=file\nplugin.security.file.certificate="+s.path("certificate.pem")+
		"\nplugin.security.file.key="+s.path("key.pem")+"\nplugin.security.file.ca="+s.path("certificate.pem")+"\n")
	s.write("wrong.conf", broker+"plugin.security.provider=magic\n")
	_, err = journal.Init(s.path("state"))
	s.check(err)
	return s
}

func (s site) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s site) path(name string) string { return filepath.Join(s.dir, name) }

func (s site) write(name, text string) {
	s.t.Helper()
	s.check(os.WriteFile(s.path(name), []byte(text), 0o600))
}

func (s site) pair(name string) (ed25519.PublicKey, ed25519.PrivateKey) {
	s.t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	s.check(err)
	s.write(name+".seed", hex.EncodeToString(key.Seed()))
	s.write(name+".public", hex.EncodeToString(public))
	return public, key
}

var moments = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// provctl runs the program in an empty directory, and gives its output with stable paths and times.
func (s site) provctl(args ...string) (stdout, stderr string, code int) {
	s.t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(s.t.Context(), "provctl", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.t.TempDir(), &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		s.t.Fatal(err)
	}
	stable := func(b *bytes.Buffer) string {
		return moments.ReplaceAllString(strings.ReplaceAll(b.String(), s.dir, "DIR"), "TIME")
	}
	left, err := os.ReadDir(cmd.Dir)
	s.check(err)
	if len(left) > 0 {
		s.t.Errorf("%v left %v in its directory", args, left)
	}
	return stable(&out), stable(&errs), code
}

// files tells names, sizes, modes and times of change of everything below the site.
func (s site) files() string {
	s.t.Helper()
	var all strings.Builder
	s.check(filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		fmt.Fprintln(&all, path, info.Size(), info.Mode(), info.ModTime())
		return err
	}))
	return all.String()
}

// configurations are the files of testdata/config and the Choria configuration that goes with each.
var configurations = []struct {
	name, choria string
	usable       bool
}{
	{"ed25519", "tokens.conf", true},
	{"ed25519-chain", "tokens.conf", true},
	{"pki", "x509.conf", true},
	{"jwt", "tokens.conf", true},
	{"plain", "x509.conf", true},
	{"upgrades-ed25519", "tokens.conf", true},
	{"upgrades-pki", "x509.conf", true},
	{"leader-election", "tokens.conf", true},
	{"insecure", "x509.conf", true},
	{"token-ends", "tokens.conf", true},
	{"keys-wrong", "tokens.conf", false},
	{"token-wrong", "tokens.conf", false},
	{"token-expired", "tokens.conf", false},
	{"ttl-wrong", "x509.conf", false},
	{"both-files-wrong", "wrong.conf", false},
	{"no-yaml", "wrong.conf", false},
}

// TestConfigCheck compares what `provctl config check` says of each flow, and of what is wrong, to a golden file; its JSON to the
// text and the schema; and what the worker itself says of a wrong configuration to the report.
func TestConfigCheck(t *testing.T) {
	s := newSite(t)
	schema, err := jsonschema.Compile(filepath.Join("..", "..", "docs", "config-check-schema.json"))
	s.check(err)
	for _, c := range configurations {
		t.Run(c.name, func(t *testing.T) {
			s := site{t, s.dir}
			source := filepath.Join("testdata", "config", c.name)
			text, err := os.ReadFile(source + ".yaml")
			s.check(err)
			s.write("provctl.yaml", string(text))
			before := s.files()
			said, errs, code := s.provctl("config", "check", s.path("provctl.yaml"), "--choria-config", s.path(c.choria))
			if want := map[bool]int{true: exitFine, false: exitConfig}[c.usable]; code != want || errs != "" {
				t.Errorf("exit code %d, want %d, and on stderr %q", code, want, errs)
			}
			golden(t, source+".golden", said)
			if strings.Contains(said, "hunter2") || strings.Contains(said, "s3cret") {
				t.Errorf("a secret is shown: %s", said)
			}
			checkJSON(s, schema, c.choria, said, c.usable)
			if s.files() != before {
				t.Errorf("it changed something: before\n%s\nafter\n%s", before, s.files())
			}
			if !c.usable {
				workerSaysTheSame(s, c.choria, said)
			}
		})
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// checkJSON holds the JSON form against the schema and the text.
func checkJSON(s site, schema *jsonschema.Schema, choriaConfig, said string, usable bool) {
	s.t.Helper()
	out, _, _ := s.provctl("config", "check", "--json", "--choria-config", s.path(choriaConfig), s.path("provctl.yaml"))
	var value any
	s.check(json.Unmarshal([]byte(out), &value))
	if err := schema.Validate(value); err != nil {
		s.t.Errorf("%#v", err)
	}
	var report configCheck
	s.check(json.Unmarshal([]byte(out), &report))
	lines := strings.Split(strings.TrimSuffix(said, "\n"), "\n")
	if report.Usable != usable || report.Summary != lines[len(lines)-1] || len(report.Problems)+len(report.Warnings) != len(lines)-1 {
		s.t.Errorf("the JSON differs from the text: %s", out)
	}
	for _, f := range append(report.Problems, report.Warnings...) {
		if !strings.Contains(said, f.Text) || !strings.Contains(said, f.Remedy) || !strings.Contains(said, f.Value) {
			s.t.Errorf("only the JSON has %+v", f)
		}
	}
}

// workerSaysTheSame runs the worker, which says the first kind of problem that it meets.
func workerSaysTheSame(s site, choriaConfig, said string) {
	s.t.Helper()
	_, errs, code := s.provctl("run", "--config", s.path("provctl.yaml"), "--choria-config", s.path(choriaConfig))
	found := false
	for line := range strings.Lines(errs) {
		problem := strings.TrimPrefix(line, "provctl: ")
		found = found || strings.Contains(said, "problem: "+problem)
		if strings.HasPrefix(problem, "DIR/") && !strings.Contains(said, problem) {
			s.t.Errorf("the worker says %q and the check does not", problem)
		}
	}
	if code != exitConfig || !found {
		s.t.Errorf("the worker exits %d: %s", code, errs)
	}
}

// TestConfigCheckOfStateDirectories: what is odd about one is a warning, since it may well be made after the check.
func TestConfigCheckOfStateDirectories(t *testing.T) {
	s := newSite(t)
	s.check(os.Mkdir(s.path("working"), 0o700))
	inspecttest.New(t, s.path("working"), time.Now()) // has its journal open
	lock, err := fence.Acquire(s.path("working"))
	s.check(err)
	defer func() { s.check(lock.Release()) }()
	for _, c := range []struct{ dir, says string }{
		{"state", "no warnings"},
		{"working", "no warnings"},
		{"missing dir", "does not exist yet: run once, before the first start: provctl init --state-dir 'DIR/missing dir'; if there was one, restore it"},
		{"empty", "holds no journal: run once"},
		{"foreign", "belongs to user id 65534 and this check runs as"},
	} {
		switch c.dir {
		case "empty":
			s.check(os.Mkdir(s.path(c.dir), 0o700))
		case "foreign":
			if os.Geteuid() != 0 { // only root can give a directory away
				c.dir, c.says = "/", "belongs to user id 0 and this check runs as"
				break
			}
			s.check(os.Mkdir(s.path(c.dir), 0o700))
			s.check(os.Chown(s.path(c.dir), 65534, 65534))
		}
		text, err := os.ReadFile("testdata/config/ed25519.yaml")
		s.check(err)
		s.write("provctl.yaml", strings.Replace(string(text), "state_dir: state", "state_dir: "+c.dir, 1))
		said, errs, code := s.provctl("config", "check", s.path("provctl.yaml"), "--choria-config", s.path("tokens.conf"))
		if code != exitFine || !strings.Contains(said, c.says) {
			t.Errorf("%s: exit code %d, want 0 and %q: %s%s", c.dir, code, c.says, said, errs)
		}
	}
}

// TestConfigCheckPrintsNothingATerminalObeys, whatever the file is called.
func TestConfigCheckPrintsNothingATerminalObeys(t *testing.T) {
	s := newSite(t)
	s.write("odd\x1b[31m.yaml", "\"odd\\x1b[31m\": 1\n")
	said, errs, code := s.provctl("config", "check", s.path("odd\x1b[31m.yaml"), "--choria-config", s.path("odd\x1b[32m.conf"))
	if code != exitConfig || strings.Contains(said+errs, "\x1b") || !strings.Contains(said, `DIR/odd\x1b[31m.yaml`) {
		t.Errorf("exit code %d: %q %q", code, said, errs)
	}
}
