// Package provctl_test checks the shape of the module: imports run downwards only, and what needs no go-choria stays free of it.
package provctl_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// layers says which of our packages each one may import; docs/design.md "Layout". A package that is not named here fails.
var layers = map[string][]string{
	"receipt":                        {},
	"internal/agent":                 {},
	"internal/crashpoint":            {},
	"internal/config":                {},
	"internal/credentials":           {},
	"internal/helper":                {},
	"internal/localfs":               {},
	"internal/roottest":              {},
	"internal/service":               {},
	"internal/metrics":               {"receipt", "journal"},
	"internal/loopback":              {},
	"internal/loopback/loopbacktest": {"internal/loopback"},
	"internal/fleet":                 {"internal/loopback"},
	"internal/statuspage":            {"receipt", "journal", "inspect", "internal/control"},
	"fence":                          {"receipt", "internal/localfs"},
	"journal":                        {"receipt", "internal/localfs", "internal/crashpoint"},
	"journal/journaltest":            {"receipt", "journal"},
	"internal/choria":                {"receipt", "internal/agent", "internal/crashpoint"},
	"internal/control":               {"receipt", "journal"},
	"sequence":                       {"receipt", "journal", "internal/agent", "internal/helper", "internal/crashpoint"},
	"inspect":                        {"receipt", "journal", "internal/control"},
	"inspect/inspecttest":            {"receipt", "journal", "inspect", "internal/control"},
	"reconcile":                      {"receipt", "journal", "fence", "internal/control", "internal/crashpoint", "inspect"},
	"doctor": {
		"receipt", "journal", "fence", "inspect", "internal/choria", "internal/config", "internal/control", "internal/credentials", "internal/localfs",
	},
	"worker": {"receipt", "journal", "sequence", "internal/control", "internal/crashpoint"},
	"internal/wiring": {
		"receipt", "journal", "sequence", "internal/choria", "internal/config", "internal/credentials", "internal/helper",
	},
	"crashtests":           {"internal/fleet"},
	"crashtests/model":     {"receipt"},
	"crashtests/service":   {},
	"crashtests/trace":     {},
	"crashtests/tracefs":   {"crashtests/trace"},
	"crashtests/powerloss": {"crashtests/trace"},
	"crashtests/oracle":    {"crashtests/trace", "internal/fleet"},
	"crashtests/lightnode": {"internal/fleet"},
	"packaging":            {},
	"cmd/provctl": {
		"receipt", "journal", "fence", "sequence", "worker", "inspect", "reconcile", "internal/choria", "internal/config",
		"internal/agent", "internal/control", "internal/crashpoint", "internal/credentials", "internal/fleet", "internal/helper", "internal/localfs", "internal/metrics", "internal/service", "internal/statuspage", "internal/wiring",
		"doctor", "packaging",
	},
}

// withChoria are the packages that may need go-choria to build.
var withChoria = []string{"doctor", "internal/choria", "internal/fleet", "internal/wiring", "cmd/provctl", "crashtests", "crashtests/lightnode", "crashtests/oracle"}

type listed struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestImportsRunDownwards(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range packages(t) {
		name, ours := strings.CutPrefix(p.ImportPath, "provctl/")
		if !ours {
			continue // this package
		}
		seen[name] = true
		allowed, known := layers[name]
		if !known {
			t.Errorf("package %s has no place in the layers: decide what it may import and add it to this test", name)
		}
		for _, i := range p.Imports {
			if i, ours := strings.CutPrefix(i, "provctl/"); ours && !slices.Contains(allowed, i) {
				t.Errorf("%s imports %s, which is not below it", name, i)
			}
		}
		for _, d := range p.Deps {
			if strings.HasPrefix(d, "github.com/choria-io/go-choria/") && !slices.Contains(withChoria, name) {
				t.Errorf("%s needs go-choria (%s): its tests would no longer run in seconds", name, d)
				break
			}
		}
	}
	for name := range layers {
		if !seen[name] {
			t.Errorf("the layers name %s, which does not exist", name)
		}
	}
}
