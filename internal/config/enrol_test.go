package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"provctl/internal/config"
)

// finds is findsAll without the warning of a broker password that is missing, which is not what most tests are about.
func finds(t *testing.T, text string, prepare func(dir string)) []string {
	t.Helper()
	return slices.DeleteFunc(findsAll(t, text, prepare), func(l string) bool { return strings.Contains(l, noPassword) })
}

// noPassword is the warning of a configuration with which the broker shows no node.
const noPassword = "broker_provisioning_password: is not set: "

// findsAll loads a text and gives all that is said of it, a problem or warning on each line.
func findsAll(t *testing.T, text string, prepare func(dir string)) []string {
	t.Helper()
	dir, file := site(t, text)
	if prepare != nil {
		prepare(dir)
	}
	lines := config.Examine(file).Lines()
	for i, l := range lines {
		lines[i] = strings.ReplaceAll(l, dir, "DIR")
	}
	return lines
}

func TestUpgradesRepository(t *testing.T) {
	const refused, redacted = "problem: DIR/provctl.yaml:6:1: upgrades_repository: ", "found [redacted]"
	text := strings.Replace(minimal, "{ed25519: true}", "{ed25519: true, upgrades: true}", 1)
	for _, c := range []struct {
		value string
		says  []string // each in a line of its own; none: nothing is said
	}{
		{"https://repo.example.net", nil},
		{"https://repo.example.net:8443/choria/", nil},
		{"https://[2001:db8::1]/choria", nil},
		{"http://repo.example.net", []string{"warning: DIR/provctl.yaml:6:1: upgrades_repository: http is not encrypted"}},
		{"https://user:hunter2@repo.example.net", []string{"upgrades_repository: holds credentials"}},
		{"ftp://repo.example.net", []string{refused + `must begin with https:// or http://, found "ftp://repo.example.net"`}},
		{"repo.example.net/choria", []string{"must begin with"}},
		{"https:///choria", []string{"names no host"}},
		{"https://:443", []string{"names no host"}},
		{"https://user:hunter2@repo.example.net/?token=hunter2", []string{redacted}},
		{"https://repo.example.net/?token=hunter2", []string{redacted}},
		{"https://user:hunter2%zz@repo.example.net", []string{"is not a URL, " + redacted}},
		{"https://repo.example.net/a#b", []string{"must not hold a query, a fragment"}},
		{"'https://repo.example.net/a b'", []string{"spaces"}},
		{"7", []string{"must be text"}},
		{"''", []string{"problem: DIR/provctl.yaml:6:1: upgrades_repository: is missing; name"}},
		{"", []string{"is missing"}},
	} {
		lines := finds(t, text+"upgrades_repository: "+c.value+"\n", nil)
		if len(lines) != len(c.says) {
			t.Errorf("%q: said %q, want %q", c.value, lines, c.says)
			continue
		}
		for i, l := range lines {
			if !strings.Contains(l, c.says[i]) || strings.Contains(l, "hunter2") {
				t.Errorf("%q: said %q, want %q and no secret", c.value, l, c.says[i])
			}
		}
	}
}

func TestUpgradesRepositoryIsASecretWithoutASlashAtItsEnd(t *testing.T) {
	_, file := site(t, minimal+"upgrades_repository: https://user:hunter2@repo.example.net/choria//\n")
	c, _, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.UpgradesRepository.Reveal(); got != "https://user:hunter2@repo.example.net/choria" {
		t.Errorf("repository %q", got)
	}
	if text := fmt.Sprintf("%+v %s", *c, c.Plan()); strings.Contains(text, "hunter2") {
		t.Errorf("shown: %s", text)
	}
}

func TestDenyList(t *testing.T) {
	for _, c := range []struct {
		list string
		want []string // nil: the defaults
		says string   // empty: nothing is said
	}{
		{`['\.admin$', '/\.root$/']`, []string{`\.admin$`, `/\.root$/`}, ""},
		{`['/']`, []string{"/"}, ""}, // a slash in a name; not wrapped, for the existing provisioner too
		{`['//']`, []string{"//"}, ""},
		{`['^$']`, []string{"^$"}, ""},
		{`[]`, nil, "warning: DIR/provctl.yaml:6:1: cert_deny_list: an empty list keeps the default patterns"},
		{`~`, nil, ""},
		{`['.']`, []string{"."}, ""}, // would deny every name, as would many patterns that cannot be known
		{`['.*']`, []string{".*"}, `":6:18: cert_deny_list: ".*" matches every name`},
		{`['/x?/']`, []string{"/x?/"}, `"/x?/" matches every name`},
		{`['///']`, nil, `problem: DIR/provctl.yaml:6:18: cert_deny_list: an empty pattern denies every name, found "///"`},
		{`['']`, nil, "an empty pattern denies every name"},
		{`['/[/']`, nil, "is not a regular expression"},
		{`['(?<!a)b']`, nil, "is not a regular expression"},
		{`'\.choria$'`, nil, "must be a list"},
		{`{a: b}`, nil, "must be a list"},
		{`[['a']]`, nil, "must be text"},
	} {
		text := minimal + "cert_deny_list: " + c.list + "\n"
		lines := finds(t, text, nil)
		said := strings.Join(lines, "\n")
		if (c.says == "") != (len(lines) == 0) || len(lines) > 1 || !strings.Contains(said, strings.TrimPrefix(c.says, `"`)) {
			t.Errorf("%s: said %q, want %q", c.list, lines, c.says)
		}
		_, file := site(t, text)
		got := config.Examine(file).Config.CertDenyList
		if c.want == nil && len(got) != 4 || c.want != nil && !slices.Equal(got, c.want) {
			t.Errorf("%s: the list is %q", c.list, got)
		}
	}
}

func TestFlowWarnings(t *testing.T) {
	const plain = "state_dir: state\nhelper: ./helper.sh\n"
	const tokens, flow, password = "features.jwt: is off: ", "features: neither ed25519 nor pki", noPassword
	const election, wait = "leader_election: each worker has a journal of its own", "effect_ttl: with leader_election a new leader waits effect_ttl + clock_skew (2m10s)"
	verify := "jwt_verify_cert: " + hexKey + "\n"
	for _, c := range []struct {
		text string
		says []string
	}{
		{minimal, []string{password}},
		{minimal + "broker_provisioning_password: x\n", nil},
		{plain, []string{tokens, flow, password}},
		{plain + "features:\n", []string{tokens, password, flow}},
		{plain + "features: {jwt: true}\n" + verify, []string{password, flow}},
		{plain + "features: {pki: true}\n", []string{tokens, password}},
		{plain + "features: {pki: true, jwt: true}\nbroker_provisioning_password: x\n" + verify, nil},
		{plain + "features: {pki: true, jwt: true}\nchoria_insecure: true\n" + verify, []string{"choria_insecure: neither TLS nor signatures"}},
		{minimal + "leader_election: true\n", []string{password, election}},
		{minimal + "leader_election: true\neffect_ttl: 2m\n", []string{password, election, wait}},
		{minimal + "effect_ttl: 2m\n", []string{password}},
		// What is meant is not known: its consequences are not warned of.
		{plain + "features: true\n", []string{"features: must hold further keys"}},
		{plain + "features: {jwt: 1}\n", []string{"features.jwt: must be true or false"}},
	} {
		lines := findsAll(t, c.text, nil)
		if len(lines) != len(c.says) {
			t.Errorf("%s\nsaid %q, want %q", c.text, lines, c.says)
			continue
		}
		for i, l := range lines {
			if !strings.Contains(l, c.says[i]) {
				t.Errorf("%s\nsaid %q, want %q", c.text, l, c.says[i])
			}
		}
	}
}

func TestFilesAsTheyLie(t *testing.T) {
	chmod := func(name string, mode os.FileMode) func(string) {
		return func(dir string) {
			if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name, line string
		prepare    func(dir string)
		says       string
	}{
		{"a secret and a closed file", "token: s3cret", nil, ""},
		{"a secret that the group can read", "token: s3cret", chmod("provctl.yaml", 0o640), ""},
		{"a secret that all can read", "token: s3cret", chmod("provctl.yaml", 0o644), "token: mode 0644 of the file lets every user read it: chmod o= DIR/provctl.yaml"},
		{"a password that all can read", "broker_provisioning_password: s3cret", chmod("provctl.yaml", 0o604), "broker_provisioning_password: mode 0604"},
		{"no secret in it", "site: north", chmod("provctl.yaml", 0o644), ""},
		{"a helper that all can change", "site: north", chmod("helper.sh", 0o707), "helper: mode 0707 lets every user change the program: chmod o-w DIR/helper.sh"},
		{"a seed that the group can read", "site: north", chmod("signer.seed", 0o640), "jwt_signing_key: mode 0640"},
		{"a new logfile", "logfile: provctl.log", nil, ""},
		{"a logfile that is there", "logfile: signer.jwt", nil, ""},
		{"a directory as logfile", "logfile: .", nil, `logfile: is a directory, found "DIR"`},
		{"a logfile below nothing", "logfile: no/where.log", nil, `logfile: its directory does not exist, found "DIR/no/where.log"; make the directory`},
		{"a logfile below a file", "logfile: signer.jwt/log", nil, "logfile: cannot be looked at (not a directory)"},
		{"a name that is too long", "logfile: " + strings.Repeat("x", 300), nil, "logfile: cannot be looked at (file name too long)"},
	} {
		lines := finds(t, minimal+c.line+"\n", c.prepare)
		if (c.says == "") != (len(lines) == 0) || len(lines) > 1 || !strings.Contains(strings.Join(lines, ""), c.says) {
			t.Errorf("%s: said %q, want %q", c.name, lines, c.says)
		}
	}
}

// TestUnusedFilesAreNotLookedAt: a site's file may name what its flow does not use, as it may for choria-provisioner.
func TestUnusedFilesAreNotLookedAt(t *testing.T) {
	lines := finds(t, "state_dir: state\nhelper: ./helper.sh\njwt_verify_cert: no.pem\njwt_signing_key: no.seed\njwt_signing_token: no.jwt\n"+
		"broker_provisioning_password: x\nfeatures: {pki: true}\n", nil)
	if len(lines) != 4 || slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "problem") }) {
		t.Errorf("said %q", lines)
	}
}
