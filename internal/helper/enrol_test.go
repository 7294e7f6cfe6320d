package helper_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kballard/go-shellquote"

	"provctl/internal/helper"
)

// saying is the command line of a helper that prints a reply.
func saying(reply string) string {
	return shellquote.Join("/bin/sh", "-c", `printf %s "$1"`, "sh", reply)
}

const nodeDir = "/etc/choria/ssl"

func TestRunSettlesTheDirectory(t *testing.T) {
	csr := &helper.CSR{CSR: "c", PublicKey: "p", SSLDir: nodeDir}
	windows := &helper.CSR{CSR: "c", PublicKey: "p", SSLDir: `C:\choria\ssl`}
	slash := &helper.CSR{CSR: "c", PublicKey: "p", SSLDir: nodeDir + "/"}
	tests := []struct {
		name, members string
		csr           *helper.CSR
		pki           bool
		dir           string
		fails, warns  string
	}{
		{"the node's", tls, csr, true, nodeDir, "", ""},
		{"the node's, features.pki off", tls, csr, false, nodeDir, "", ""},
		{"the same", tls + `,"ssldir":"/etc/choria/ssl"`, csr, true, nodeDir, "", ""},
		{"the same as one with a slash", tls + `,"ssldir":"/etc/choria/ssl"`, slash, true, nodeDir, "", ""},
		{"the node's as it is", tls, slash, true, nodeDir + "/", "", ""},
		{"the same on Windows", tls + `,"ssldir":"C:/choria/ssl"`, windows, true, "C:/choria/ssl", "", ""},
		{"another", tls + `,"ssldir":"/etc/ssl"`, csr, true, "", `the node made its key in "/etc/choria/ssl"`, ""},
		{"another with a key", tls + `,"key":"k","ssldir":"/etc/ssl"`, csr, true, "/etc/ssl", "", ""},
		{"the node's with a key", tls + `,"key":"k"`, csr, true, nodeDir, "", ""},
		{"none, and no request", tls + `,"key":"k"`, nil, false, "", "certificate is set and ssldir is not", ""},
		{"none, and the node told none", tls, &helper.CSR{}, true, "", "certificate is set and ssldir is not", ""},
		{"a key without a request", tls + `,"key":"k","ssldir":"/etc/ssl"`, nil, false, "/etc/ssl", "", ""},
		{"no key, no request", tls + `,"ssldir":"/etc/ssl"`, nil, false, "/etc/ssl", "", "only if the node holds its key"},
		{"no certificate for a request", `"msg":"x"`, csr, true, "", "", "the reply has no certificate"},
		{"no certificate", `"msg":"x"`, nil, false, "", "", ""},
		{"configured elsewhere", `"configuration":{` + off + `,"plugin.choria.ssldir":"/etc/ssl"},` + tls, csr, true, nodeDir, "", `plugin.choria.ssldir is "/etc/ssl"`},
		{"configured there", `"configuration":{` + off + `,"plugin.choria.ssldir":" /etc/choria/ssl/ "},` + tls, csr, true, nodeDir, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out := with(tt.members)
			if strings.Contains(tt.members, `"configuration"`) {
				out = "{" + tt.members + "}"
			}
			reply, err := helper.Run(bounded(t), helper.Options{Command: saying(out), PKI: tt.pki}, helper.Input{Identity: "n1", CSR: tt.csr})
			if tt.fails != "" {
				if reply != nil || !errors.Is(err, helper.ErrInvalid) || !strings.Contains(err.Error(), tt.fails) {
					t.Fatalf("got %v, %v, want %q", reply, err, tt.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			checkWarning(t, reply, tt.warns)
			if reply.SSLDir != tt.dir || (reply.Certificate == "x") != (tt.dir != "") || (reply.CA == "y") != (tt.dir != "") ||
				(reply.Key == "k") != strings.Contains(tt.members, `"key"`) {
				t.Errorf("certificate %q, ca %q, key %q, ssldir %q", reply.Certificate, reply.CA, reply.Key, reply.SSLDir)
			}
		})
	}
}

// checkWarning wants exactly one warning with a text, or none.
func checkWarning(t *testing.T, reply *helper.Reply, text string) {
	t.Helper()
	if text == "" && len(reply.Warnings) > 0 || text != "" && (len(reply.Warnings) != 1 || !strings.Contains(reply.Warnings[0], text)) {
		t.Errorf("warnings %q, want %q", reply.Warnings, text)
	}
}

func TestRunSettlesTheUpgrade(t *testing.T) {
	tests := []struct {
		name, version string
		on            bool
		want          string
		fails, warns  string
	}{
		{"on", "0.29.4", true, "0.29.4", "", ""},
		{"on, as packages name it", "1:0.29.4~rc1-1.el9", true, "1:0.29.4~rc1-1.el9", "", ""},
		{"none", "", true, "", "", ""},
		{"off", "0.29.4", false, "", "", "features.upgrades is off: ignored"},
		{"off and odd", "no such version", false, "", "", "features.upgrades is off: ignored"},
		{"longer than declared", strings.Repeat("1", 33), true, strings.Repeat("1", 33), "", "nodes declare 32"},
		{"longest", strings.Repeat("1", 128), true, strings.Repeat("1", 128), "", "nodes declare 32"},
		{"too long", strings.Repeat("1", 129), true, "", "upgrade has 129 bytes", ""},
		{"space", "0.29.4 ", true, "", "holds a space", ""},
		{"line break", `0.29\n`, true, "", "holds a space", ""},
		{"no-break space", "0.29\u00a0", true, "", "beyond ASCII", ""},
		{"NUL", `0.29\u0000`, true, "", "control character", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			opts := helper.Options{Command: saying(with(fmt.Sprintf(`"upgrade":"%s"`, tt.version))), Upgrades: tt.on}
			reply, err := helper.Run(bounded(t), opts, helper.Input{Identity: "n1"})
			if tt.fails != "" {
				if reply != nil || !errors.Is(err, helper.ErrInvalid) || !strings.Contains(err.Error(), tt.fails) {
					t.Fatalf("got %v, %v, want %q", reply, err, tt.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			checkWarning(t, reply, tt.warns)
			if reply.Upgrade != tt.want {
				t.Errorf("upgrade %q", reply.Upgrade)
			}
		})
	}
}

// TestDigestIsOfTheSettledReply: the digest names what the node gets, so a directory written out is the one filled in, and
// an upgrade that was dropped is none.
func TestDigestIsOfTheSettledReply(t *testing.T) {
	var digests []string
	for _, out := range []string{with(tls), with(tls + `,"ssldir":"/etc/choria/ssl"`), with(tls + `,"upgrade":"1"`)} {
		reply, err := helper.Run(bounded(t), helper.Options{Command: saying(out)}, helper.Input{CSR: &helper.CSR{SSLDir: nodeDir}})
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, reply.Digest())
	}
	if len(slices.Compact(digests)) != 1 {
		t.Errorf("digests %q", digests)
	}
}

// TestRunLeavesOtherDecisionsAlone: what would be an error with a configuration is none beside defer and shutdown.
func TestRunLeavesOtherDecisionsAlone(t *testing.T) {
	for _, verdict := range []string{"defer", "shutdown"} {
		out := fmt.Sprintf(`{"%s":true,"ca":"x","ssldir":"../x","upgrade":"a b"}`, verdict)
		reply, err := helper.Run(bounded(t), helper.Options{Command: saying(out), PKI: true, Upgrades: true}, helper.Input{})
		if err != nil || reply.Decision().String() != verdict || len(reply.Warnings) != 0 {
			t.Errorf("%s: got %v, %v", verdict, reply, err)
		}
	}
}
