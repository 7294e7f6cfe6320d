package helper_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kballard/go-shellquote"

	"provctl/internal/helper"
)

var update = flag.Bool("update", false, "write the golden files anew")

// languages are the interpreters that sites write helpers for, and the packages that have them.
var languages = []struct{ name, program, ext, pkg string }{
	{"python", "python3", ".py", "python3"}, {"ruby", "ruby", ".rb", "ruby"}, {"shell", "sh", ".sh", "dash"},
}

// eachLanguage runs a test once per language, with the command line that runs the named script of testdata.
func eachLanguage(t *testing.T, script string, test func(t *testing.T, language string, command func(args ...string) string)) {
	t.Helper()
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			if _, err := exec.LookPath(l.program); err != nil {
				t.Fatalf("%v: install the package %s, this test does without no language", err, l.pkg)
			}
			test(t, l.name, func(args ...string) string {
				return shellquote.Join(append([]string{l.program, filepath.Join("testdata", script+l.ext)}, args...)...)
			})
		})
	}
}

// flows are inputs of each way to enrol a node.
func flows() map[string]helper.Input {
	inventory := `{"agents":["choria_provision"],"facts":{"note":"<a> & b` + "\u2028" + `é\n"}}`
	return map[string]helper.Input{
		"ed25519": {
			Identity: "n1.example.net", Inventory: inventory,
			Ed25519: &helper.Ed25519{PublicKey: strings.Repeat("0a", 32), Directory: "/etc/choria", Signature: strings.Repeat("0b", 64)},
			JWT:     json.RawMessage(`{"cht":"s3cret","chs":true,"purpose":"choria_provisioning"}`),
		},
		"pki": {
			Identity: "n1.example.net", Inventory: inventory,
			CSR: &helper.CSR{
				CSR:       "-----BEGIN CERTIFICATE REQUEST-----\nMIIB\n-----END CERTIFICATE REQUEST-----\n",
				PublicKey: "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----\n", SSLDir: "/etc/choria/ssl",
			},
		},
		"jwt":  {Identity: "n1.example.net", Inventory: inventory, JWT: json.RawMessage(`{"cht":"s3cret","chs":true,"purpose":"choria_provisioning"}`)},
		"none": {Identity: "n1.example.net", Inventory: inventory},
	}
}

// TestInputOfEachFlow pins what a helper reads, byte for byte.
func TestInputOfEachFlow(t *testing.T) {
	for name, in := range flows() {
		t.Run(name, func(t *testing.T) {
			seen, golden := filepath.Join(t.TempDir(), "seen"), filepath.Join("testdata", "input", name+".json")
			command := shellquote.Join("/bin/sh", "-c", `cat >"$1"; `+deferReply, "sh", seen)
			if _, err := helper.Run(bounded(t), helper.Options{Command: command}, in); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(seen)
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func TestHelpersDecide(t *testing.T) {
	digests := map[string]string{} // of the first language; the others must say the same
	tests := map[string]helper.Input{
		"defer":    {Identity: "n1.example.org"},
		"shutdown": {Identity: "retired7.example.net"},
	}
	for name, in := range flows() {
		tests["configure "+name] = in
	}
	eachLanguage(t, "helper", func(t *testing.T, language string, command func(...string) string) {
		for name, in := range tests {
			var log bytes.Buffer
			opts := helper.Options{Command: command(), Env: []string{"PROVCTL_JOB=7"}, PKI: in.CSR != nil, Log: slog.New(slog.NewJSONHandler(&log, nil))}
			reply, err := helper.Run(bounded(t), opts, in)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			want, _, _ := strings.Cut(name, " ")
			if reply.Decision().String() != want || (len(reply.Warnings) != 0) != (in.CSR != nil) {
				t.Errorf("%s: got %v, warnings %q", name, reply, reply.Warnings)
			}
			if first, known := digests[name]; known && first != reply.Digest() {
				t.Errorf("%s: says something else than the first language: %q %v %s", name, reply.Msg, reply.Configuration, reply.ServerClaims)
			}
			digests[name] = reply.Digest()
			if want == "configure" && !maps.Equal(reply.Configuration, map[string]string{
				"identity": "n1.example.net", "loglevel": "info", "plugin.choria.middleware_hosts": "nats://broker.example.net:4222",
				"plugin.choria.server.provision": "false", "plugin.security.provider": "choria",
			}) {
				t.Errorf("%s: configuration %v", name, reply.Configuration)
			}
			if said := "job 7: deciding about " + in.Identity; !strings.Contains(log.String(), said) {
				t.Errorf("%s: %q is not in the log: %s", name, said, log.String())
			}
		}
	})
}

// TestHelpersGetAnyIdentity: what a node calls itself is data to the helper, and comes back as such or not at all.
func TestHelpersGetAnyIdentity(t *testing.T) {
	identity := `n"1\$(touch${IFS}ran)'é` + "`id`"
	eachLanguage(t, "helper", func(t *testing.T, language string, command func(...string) string) {
		reply, err := helper.Run(bounded(t), helper.Options{Command: command(), Env: []string{"LC_ALL=C", "LANG=C"}}, helper.Input{Identity: identity}) // as services run
		if language == "shell" {                                                                                                                        // it takes plain names only
			if !errors.Is(err, helper.ErrExit) || !strings.Contains(err.Error(), "cannot read the identity") {
				t.Errorf("got %v, %v", reply, err)
			}
			return
		}
		if err != nil || reply.Msg != identity+" is not one of ours" {
			t.Errorf("got %v, %v", reply, err)
		}
	})
}

func TestBrokenHelpers(t *testing.T) {
	tests := []struct {
		fault string
		kind  error
		text  string
	}{
		{"crash", helper.ErrExit, "exit code 1, output"},
		{"chatty", helper.ErrGarbage, `output "looking at`},
		{"silent", helper.ErrNoOutput, "helper wrote nothing"},
	}
	eachLanguage(t, "broken", func(t *testing.T, language string, command func(...string) string) {
		for _, tt := range tests {
			reply, err := helper.Run(bounded(t), helper.Options{Command: command(tt.fault)}, flows()["ed25519"])
			if reply != nil || !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.text) {
				t.Fatalf("%s: got %v, %v, want %v with %q", tt.fault, reply, err, tt.kind, tt.text)
			}
			text := err.Error()
			if len(text) > 600 || strings.ContainsAny(text, "\n\x1b") || strings.Contains(text, "hunter2") || strings.Contains(text, "s3cret") {
				t.Errorf("%s: not fit for an operator: %q", tt.fault, text)
			}
			if tt.fault == "crash" && language == "python" && !strings.Contains(text, "Traceback") || tt.fault == "crash" && language != "python" && !strings.Contains(text, "no answer") {
				t.Errorf("%s: says nothing of the cause: %q", tt.fault, text)
			}
		}
	})
}
