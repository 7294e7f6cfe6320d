package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var today = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func TestJudge(t *testing.T) {
	found := []finding{{id: "GO-1", module: "example.org/x@v1.0.0", symbol: "x.F", fixed: "v1.0.1"}}
	waits := func(id string, days int) []allowance {
		return []allowance{{id, "not reached by nodes", today.AddDate(0, 0, days)}}
	}
	for _, c := range []struct {
		name    string
		found   []finding
		allowed []allowance
		bad     bool
		says    string
	}{
		{"nothing", nil, nil, false, "nothing that is called"},
		{"found", found, nil, true, "take v1.0.1"},
		{"without a fix", []finding{{id: "GO-1"}}, nil, true, "no release mends it"},
		{"waits", found, waits("GO-1", 1), false, "waits until 2026-03-02"},
		{"has waited", found, waits("GO-1", 0), true, "no longer waits"},
		{"another waits", found, waits("GO-2", 1), true, "vulnerable: GO-1"},
		{"waits for nothing", nil, waits("GO-1", 1), true, "remove its line"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			if bad := judge(&out, c.found, c.allowed, today); bad != c.bad || !strings.Contains(out.String(), c.says) {
				t.Errorf("bad: %t, says %s", bad, out.String())
			}
		})
	}
}

func TestReadAllowed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "allow.txt")
	for text, n := range map[string]int{
		"# a comment\n\nGO-2026-0001 2026-03-01 no fixed release\n": 1,
		"GO-2026-0001 2026-03-01\n":                                 -1,
		"GO-2026-0001 soon no fixed release\n":                      -1,
		"CVE-2026-1 2026-03-01 no fixed release\n":                  -1,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readAllowed(file)
		if (err != nil) != (n < 0) || err == nil && len(got) != n {
			t.Errorf("%q gives %v, %v", text, got, err)
		}
	}
}

func TestIndex(t *testing.T) {
	module, dir := t.TempDir(), t.TempDir()
	for i := range fewest {
		text := fmt.Sprintf(`{"id":"GO-2026-%04d","modified":"2026-01-01T00:00:00Z","aliases":["CVE-%d"],"affected":[{"package":{"name":"example.org/m%d"}},{"package":{"name":"stdlib"}},{"package":{"name":"stdlib"}}]}`, i, i, i%7)
		if err := write(filepath.Join(module, "data", "osv", fmt.Sprintf("GO-2026-%04d.json", i)), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := index(module, dir, today); err != nil {
		t.Fatal(err)
	}
	var modules []moduleEntry
	b, err := os.ReadFile(filepath.Join(dir, "index", "modules.json"))
	if err == nil {
		err = json.Unmarshal(b, &modules)
	}
	if err != nil || len(modules) != 8 || modules[7].Path != "stdlib" || len(modules[7].Vulns) != fewest {
		t.Errorf("%d modules, %v", len(modules), err)
	}
	if _, err := os.Stat(filepath.Join(dir, "ID", "GO-2026-0999.json")); err != nil {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(module, "data", "osv", "GO-2026-0000.json")); err != nil {
		t.Fatal(err)
	}
	if err := index(module, t.TempDir(), today); err == nil {
		t.Error("a database that lacks its reports is taken for one without vulnerabilities")
	}
}
