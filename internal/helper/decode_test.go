package helper_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"provctl/internal/helper"
)

const off = `"plugin.choria.server.provision":"false"`

// tls are the members that go together.
const tls = `"certificate":"x","ca":"y"`

// conf is a reply with the given further members of its configuration.
func conf(members string) string {
	return `{"configuration":{` + off + `,` + members + `}}`
}

// with is a reply that configures the node and has a further member.
func with(member string) string {
	return `{"configuration":{` + off + `},` + member + `}`
}

func TestDecodeErrors(t *testing.T) {
	long := strings.Repeat("x", 70_000)
	tests := []struct {
		name, output string
		kind         error
		text         string
	}{
		{"nothing", "", helper.ErrNoOutput, ""},
		{"blank", " \n\t", helper.ErrNoOutput, ""},
		{"stray print", "hello\n{\"defer\":true}", helper.ErrGarbage, `"hello\n{`},
		{"trailing data", `{"defer":true} {}`, helper.ErrGarbage, "after top-level value"},
		{"trailing text", "{\"defer\":true}\ndone", helper.ErrGarbage, "done"},
		{"cut", `{"defer":tr`, helper.ErrGarbage, "unexpected EOF"},
		{"null", `null`, helper.ErrGarbage, "not a JSON object"},
		{"array", `[{}]`, helper.ErrGarbage, "not a JSON object"},
		{"empty object", `{}`, helper.ErrInvalid, "the object is empty"},
		{"duplicate member", `{"defer":true,"defer":false}`, helper.ErrGarbage, "duplicate object member"},
		{"duplicate key inside", `{"configuration":{"a":"1","a":"2"}}`, helper.ErrGarbage, "duplicate object member"},
		{"invalid UTF-8", "{\"defer\":true,\"msg\":\"caf\xe9\"}", helper.ErrGarbage, "invalid UTF-8"},
		{"lone surrogate", `{"defer":true,"msg":"\ud800"}`, helper.ErrGarbage, "invalid"},
		{"case of a name", `{"Defer":true}`, helper.ErrGarbage, "write it as defer"},
		{"type of defer", `{"defer":"yes"}`, helper.ErrGarbage, "member defer"},
		{"type of a value", `{"configuration":{"a":1}}`, helper.ErrGarbage, "member configuration"},
		{"type of claims", `{"defer":true,"server_claims":[]}`, helper.ErrGarbage, "server_claims is not an object"},
		{"no verdict", `{"msg":"hello"}`, helper.ErrInvalid, "no verdict"},
		{"no verdict, explicit", `{"defer":false,"shutdown":false,"configuration":{}}`, helper.ErrInvalid, "no verdict"},
		{"only unknown members", `{"verdict":"defer"}`, helper.ErrInvalid, "no verdict"},
		{"newline in a value", conf(`"loglevel":"info\nrpcauthorization=0"`), helper.ErrInvalid, "control character or line break"},
		{"carriage return in a value", conf(`"a":"b\rc"`), helper.ErrInvalid, "line break"},
		{"newline in a key", conf(`"a\nb":"c"`), helper.ErrInvalid, "line break"},
		{"escape code in a value", conf(`"a":"\u001b[2J"`), helper.ErrInvalid, "control character"},
		{"empty key", conf(`"":"c"`), helper.ErrInvalid, "is empty"},
		{"blank key", conf(`" ":"c"`), helper.ErrInvalid, "is empty"},
		{"space before a key", conf(`" a":"c"`), helper.ErrInvalid, "begins or ends with a space"},
		{"no-break space after a key", conf(`"a\u00a0":"c"`), helper.ErrInvalid, "begins or ends with a space"},
		{"= in a key", conf(`"plugin.choria.server.provision=true\u0020x":"c"`), helper.ErrInvalid, "holds a ="},
		{"comment key", conf(`"#a":"c"`), helper.ErrInvalid, "comment"},
		{"line too long", conf(`"a":"` + long + `"`), helper.ErrInvalid, "the node reads lines of"},
		{"all too large", conf(`"a":"` + long[:60_000] + `"},"opa_policies":{"a.rego":"` + strings.Repeat(long, 5) + `"`), helper.ErrInvalid, "a request carries"},
		{"policy suffix", conf(`"a":"b"},"action_policies":{"rpcutil":"x"`), helper.ErrInvalid, "ending in .policy"},
		{"policy is a suffix", conf(`"a":"b"},"action_policies":{".policy":"x"`), helper.ErrInvalid, "ending in .policy"},
		{"policy outside", conf(`"a":"b"},"opa_policies":{"../../etc/x.rego":"x"`), helper.ErrInvalid, "is a path"},
		{"policy of the other kind", conf(`"a":"b"},"opa_policies":{"a.policy":"x"`), helper.ErrInvalid, "ending in .rego"},
		{"policy name with NUL", conf(`"a":"b"},"opa_policies":{"a\u0000.rego":"x"`), helper.ErrInvalid, "control character"},
		{"ca alone", with(`"ca":"x"`), helper.ErrInvalid, "ca is set and certificate is not"},
		{"key alone", with(`"key":"x"`), helper.ErrInvalid, "key is set and certificate is not"},
		{"ssldir alone", with(`"ssldir":"/etc/choria/ssl"`), helper.ErrInvalid, "ssldir is set and certificate is not"},
		{"key, ca and ssldir alone", with(`"key":"x","ca":"x","ssldir":"/etc/choria/ssl"`), helper.ErrInvalid, "certificate is not"},
		{"certificate without ca", with(`"certificate":"x","ssldir":"/etc/choria/ssl"`), helper.ErrInvalid, "ca is not"},
		{"relative ssldir", with(tls + `,"ssldir":"choria/ssl"`), helper.ErrInvalid, "is not absolute"},
		{"relative to a drive", with(tls + `,"ssldir":"c:ssl"`), helper.ErrInvalid, "is not absolute"},
		{"ssldir with ..", with(tls + `,"ssldir":"/etc/choria/../x"`), helper.ErrInvalid, "is not clean"},
		{"ssldir with .. on Windows", with(tls + `,"ssldir":"C:\\choria\\..\\x"`), helper.ErrInvalid, "is not clean"},
		{"ssldir with a slash at its end", with(tls + `,"ssldir":"/etc/choria/"`), helper.ErrInvalid, "is not clean"},
		{"ssldir with a line break", with(tls + `,"ssldir":"/etc/choria\n"`), helper.ErrInvalid, "control character"},
		{"ssldir with NUL", with(tls + `,"ssldir":"/etc/\u0000"`), helper.ErrInvalid, "control character"},
		{"long ssldir", with(tls + `,"ssldir":"/` + long[:4096] + `"`), helper.ErrInvalid, "ssldir has 4097 bytes"},
		{"large certificate", with(`"ca":"x","certificate":"` + long + long + `"`), helper.ErrInvalid, "certificate has 140000 bytes"},
		{"large ca", with(`"ca":"` + long + long + `","certificate":"x"`), helper.ErrInvalid, "ca has 140000 bytes"},
		{"large key", with(tls + `,"key":"` + long + long + `"`), helper.ErrInvalid, "key has 140000 bytes"},
		{"all too large together", with(`"ca":"` + long + `","certificate":"` + long + `","key":"` + long + `","opa_policies":{"a.rego":"` + strings.Repeat(long, 3) + `"}`), helper.ErrInvalid, "a request carries"},
		{"provision unset", `{"configuration":{"a":"b"}}`, helper.ErrKeepsProvisioning, "is not set"},
		{"provision empty", `{"configuration":{"plugin.choria.server.provision":" "}}`, helper.ErrKeepsProvisioning, "is not set"},
		{"provision null", `{"configuration":{"plugin.choria.server.provision":null}}`, helper.ErrKeepsProvisioning, "is not set"},
		{"provision in another case", `{"configuration":{"Plugin.choria.server.provision":"false"}}`, helper.ErrKeepsProvisioning, "is not set"},
	}
	for _, on := range []string{"true", "TRUE", "True", "1", "yes", "Yes", "y", "Y", "on", "ON", "t", "T", " true "} {
		tests = append(tests, struct {
			name, output string
			kind         error
			text         string
		}{"provision " + on, `{"configuration":{"plugin.choria.server.provision":"` + on + `"}}`, helper.ErrKeepsProvisioning, on})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			reply, err := helper.Decode([]byte(tt.output))
			if reply != nil || !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.text) {
				t.Fatalf("got %v, want %v with %q", err, tt.kind, tt.text)
			}
			var e *helper.Error
			if !errors.As(err, &e) || e.Remedy == "" || strings.ContainsAny(err.Error(), "\n\x1b") || len(err.Error()) > 1500 {
				t.Errorf("not fit for an operator: %q", err)
			}
		})
	}
}

func TestDecodeDecisions(t *testing.T) {
	tests := []struct {
		name, output string
		want         helper.Decision
	}{
		{"defer", `{"defer":true,"msg":"not yet"}`, helper.Defer},
		{"shutdown", `{"shutdown":true}`, helper.Shutdown},
		{"configure", conf(`"a":"b"`), helper.Configure},
		{"defer wins over shutdown", `{"shutdown":true,"defer":true}`, helper.Defer},
		{"defer wins over configuration", `{"defer":true,"configuration":{"a":"b"},"upgrade":"1.0"}`, helper.Defer},
		{"shutdown wins over configuration", `{"shutdown":true,"configuration":{"a":"b"}}`, helper.Shutdown},
		{"explicit false and null", `{"defer":false,"shutdown":null,"msg":null,"certificate":"","ca":null,"server_claims":null,"configuration":{` + off + `}}`, helper.Configure},
		{"white space around", "\n " + conf(`"a":"b"`) + "\n\n", helper.Configure},
		{"= in a value, empty value", conf(`"a":"b=c","d":""`), helper.Configure},
	}
	for _, no := range []string{"false", "False", "0", "no", "n", "f", "off"} {
		tests = append(tests, struct {
			name, output string
			want         helper.Decision
		}{"provision " + no, `{"configuration":{"plugin.choria.server.provision":"` + no + `"}}`, helper.Configure})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			reply, err := helper.Decode([]byte(tt.output))
			if err != nil {
				t.Fatal(err)
			}
			if reply.Decision() != tt.want || len(reply.Warnings) != 0 {
				t.Errorf("got %v, warnings %q", reply.Decision(), reply.Warnings)
			}
		})
	}
}

// TestDecodeDocumentedReply decodes a reply as the existing provisioner's
// manual shows it.
func TestDecodeDocumentedReply(t *testing.T) {
	output, err := os.ReadFile("testdata/reply.json")
	if err != nil {
		t.Fatal(err)
	}
	reply, err := helper.Decode(output)
	if err != nil {
		t.Fatal(err)
	}
	if reply.Decision() != helper.Configure || reply.Msg != "Done" || len(reply.Configuration) != 5 ||
		string(reply.ServerClaims) != `{"exp":157680000,"permissions":{"streams":true,"submission":true}}` ||
		reply.ActionPolicies["rpcutil.policy"] == "" || reply.OPAPolicies["default.rego"] == "" {
		t.Errorf("reply: %#v claims %s", reply.Configuration, reply.ServerClaims)
	}
}

func TestDecodeWarnings(t *testing.T) {
	tests := []struct{ name, output, want string }{
		{"unknown members, sorted", `{"zeta":1,"alpha":{"a":[]},"defer":true}`, `ignored: "alpha", "zeta"`},
		{"odd provision value", `{"configuration":{"plugin.choria.server.provision":"flase"}}`, "reads as false"},
		{"long configuration", conf(`"a":"` + strings.Repeat("x", 3000) + `"`), "nodes declare 2048"},
		{"long certificate", with(`"ca":"x","certificate":"` + strings.Repeat("x", 11_000) + `"`), "certificate has 11000 characters, nodes declare 10240"},
		{"empty policy", conf(`"a":"b"},"action_policies":{"a.policy":""`), "does not write it"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			reply, err := helper.Decode([]byte(tt.output))
			if err != nil {
				t.Fatal(err)
			}
			if len(reply.Warnings) != 1 || !strings.Contains(reply.Warnings[0], tt.want) {
				t.Errorf("warnings %q", reply.Warnings)
			}
		})
	}
}

func TestDigestNamesTheContent(t *testing.T) {
	digest := func(output string) string {
		t.Helper()
		reply, err := helper.Decode([]byte(output))
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(reply.Digest()) {
			t.Errorf("digest %q", reply.Digest())
		}
		return reply.Digest()
	}
	base := digest(`{"configuration":{` + off + `,"a":"1","b":"2"},"server_claims":{"exp":1,"ou":"x"}}`)
	if same := digest("{ \"server_claims\":{\"ou\":\"x\", \"exp\":1.0},\n\"configuration\":{\"b\":\"2\",\"a\":\"1\"," + off + "}}"); same != base {
		t.Error("order or white space changes the digest")
	}
	seen := map[string]bool{base: true}
	for _, other := range []string{
		`{"configuration":{` + off + `,"a":"1","b":"3"},"server_claims":{"exp":1,"ou":"x"}}`,
		`{"configuration":{` + off + `,"a":"1","b":"2"},"server_claims":{"exp":2,"ou":"x"}}`,
		`{"configuration":{` + off + `,"a":"1","b":"2"}}`,
		`{"configuration":{` + off + `,"a":"1","b":"2"},"server_claims":{"exp":1,"ou":"x"},"action_policies":{"a.policy":"x"}}`,
		with(tls), with(`"certificate":"x2","ca":"y"`), with(`"certificate":"x","ca":"y2"`), with(tls + `,"key":"z"`), with(tls + `,"ssldir":"/x"`),
		with(`"upgrade":"1"`),
		`{"defer":true}`, `{"shutdown":true}`,
	} {
		if d := digest(other); seen[d] {
			t.Errorf("same digest for %s", other)
		} else {
			seen[d] = true
		}
	}
}

func TestReplyIsNotPrinted(t *testing.T) {
	reply, err := helper.Decode([]byte(conf(`"plugin.x.password":"hunter2"`)))
	if err != nil {
		t.Fatal(err)
	}
	out := fmt.Sprint(reply, reply.LogValue())
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		out += fmt.Sprintf(verb, reply)
	}
	if strings.Contains(out, "hunter2") || !strings.Contains(out, reply.Digest()) {
		t.Errorf("printed: %s", out)
	}
}

func TestExcerptsHideSecrets(t *testing.T) {
	pem := "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIHunter2\n-----END PRIVATE KEY-----"
	tests := []struct{ name, output, hidden string }{
		{"PEM", pem + " oops", "unter2"},
		{"PEM in JSON", `oops {"key":"` + strings.ReplaceAll(pem, "\n", `\n`) + `"}`, "unter2"},
		{"PEM cut", strings.TrimSuffix("x "+pem, "-----END PRIVATE KEY-----"), "unter2"},
		{"JWT", "oops eyJhbGciOiJFZERTQSJ9.eyJodW50ZXIyIjoxfQ.c2lnbmF0dXJl", "eyJ"},
		{"seed in hex", "oops " + strings.Repeat("0badcafe", 8), "0badcafe"},
		{"password", `oops password: hunter2`, "hunter2"},
		{"password in JSON", `oops {"plugin.x.password":"hunter2 hunter2"}`, "hunter2"},
		{"ruby hash", `oops {"token"=>"hunter2"}`, "hunter2"},
		{"cut within a key", strings.Repeat(".", 190) + strings.Repeat("0badcafe", 8), "0badcafe"},
		{"wrong type with a value", `{"defer":"eyJhbGciOiJFZERTQSJ9.eyJodW50ZXIyIjoxfQ.c2ln"}`, "eyJ"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := helper.Decode([]byte(tt.output))
			if err == nil || strings.Contains(err.Error(), tt.hidden) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// FuzzReply: whatever a helper prints is a typed error of one line, or a reply
// whose configuration the node reads back as it was meant.
func FuzzReply(f *testing.F) {
	for _, seed := range []string{
		"", "null", "{}", `{"defer":true}`, `{"shutdown":true,"defer":null}`, conf(`"a":"b"`), conf(`"a=b":"c"`), conf(`"a":"b\nc"`),
		conf(`"a":"b"},"server_claims":{"exp":1e400`), conf(`"a":"b"},"action_policies":{"a.policy":"x"`), `{"DEFER":true}`, "{\"a\":\"\xff\"}", `{"defer":true}{}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, output []byte) {
		reply, err := helper.Decode(output)
		if err != nil {
			var e *helper.Error
			if reply != nil || !errors.As(err, &e) || e.Kind == nil || e.Remedy == "" || strings.ContainsAny(err.Error(), "\n\r\x1b") {
				t.Fatalf("error %q", err)
			}
			return
		}
		if reply.Digest() == "" {
			t.Fatal("no digest")
		}
		if reply.Decision() != helper.Configure {
			return
		}
		if (reply.Certificate == "") != (reply.CA == "") || reply.Certificate == "" && reply.Key+reply.SSLDir != "" {
			t.Fatal("the node would ignore a part of it")
		}
		read := map[string]string{}
		line := regexp.MustCompile(`(.+?)\s*=\s*(.+)`) // as the node reads its file
		for k, v := range reply.Configuration {
			for _, l := range strings.Split(k+"="+v, "\n") {
				if m := line.FindStringSubmatch(strings.TrimSpace(l)); m != nil && !strings.HasPrefix(strings.TrimSpace(l), "#") {
					read[m[1]] = m[2]
				}
			}
		}
		for k, v := range reply.Configuration {
			if want := strings.TrimSpace(v); want != read[k] {
				t.Fatalf("node reads %q=%q, meant %q", k, read[k], want)
			}
			delete(read, k)
		}
		if len(read) > 0 {
			t.Fatalf("node reads more: %q", read)
		}
	})
}
