package fleet

import (
	"os"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

func TestWorkerFiles(t *testing.T) {
	f := startFleet(t, testOptions(t, 0))
	files, err := f.WriteWorkerFiles(t.TempDir(), WorkerOptions{
		Defer: []string{"d.example.net"}, Shutdown: []string{"s.example.net", "s2.example.net"},
		Upgrade: `1.2"$x`, Configuration: map[string]string{"classesfile": "/$identity/`date`/\\x", "loglevel": "info"},
		Values: map[string]any{"workers": 7, "stop_timeout": nil, "site": "test"},
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(files.Config)
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err = yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	if values["workers"] != uint64(7) || values["site"] != "test" || values["token"] != files.Token || values["jwt_verify_cert"] != files.IssuerPublic {
		t.Errorf("values %v", values)
	}
	if _, ok := values["stop_timeout"]; ok {
		t.Error("stop_timeout was to be removed")
	}
	c := &testClient{t: t, files: files}
	input := func(node string) map[string]any {
		return map[string]any{
			"identity": node, "inventory": `{"identity":"wrong","directory":"/wrong"}`,
			"ed25519_pubkey": map[string]any{"directory": "/etc/choria dir"},
		}
	}
	if a := helperAnswer(t, c, input("d.example.net")); a["defer"] != true {
		t.Errorf("defer: %v", a)
	}
	if a := helperAnswer(t, c, input("s2.example.net")); a["shutdown"] != true {
		t.Errorf("shutdown: %v", a)
	}
	answer := helperAnswer(t, c, input("n.example.net"))
	if answer["upgrade"] != `1.2"$x` {
		t.Errorf("upgrade %q", answer["upgrade"])
	}
	settings, ok := answer["configuration"].(map[string]any)
	if !ok {
		t.Fatal("no configuration")
	}
	for key, want := range map[string]string{
		"identity": "n.example.net", "plugin.security.choria.seed_file": "/etc/choria dir/server.seed",
		"classesfile": "/$identity/`date`/\\x", "loglevel": "info", "plugin.choria.server.provision": "false",
	} {
		if settings[key] != want {
			t.Errorf("%s is %q, want %q", key, settings[key], want)
		}
	}
	if !strings.Contains(string(text), "ed25519: true") {
		t.Errorf("the YAML lacks its features:\n%s", text)
	}
}
