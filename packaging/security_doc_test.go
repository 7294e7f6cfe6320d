package packaging_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryThreatHasItsTests: docs/security.md promises what its tests show. A row that names a test which is gone promises what nobody
// checks, and a test of security that no row names shows what nobody is told.
func TestEveryThreatHasItsTests(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	text, rows := string(b), 0
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if !strings.HasPrefix(line, "| ") || len(cells) != 5 || strings.HasPrefix(line, "| Threat ") {
			continue // of a table that is not about threats
		}
		rows++
		tests := named.FindAllStringSubmatch(cells[3], -1)
		if len(tests) == 0 || len(tests) != strings.Count(cells[3], "`")/2 {
			t.Errorf("a row does not name its tests: %s", line)
		}
		for _, n := range tests {
			if problem := testExists(t, n[1], n[2], n[3]); problem != "" {
				t.Errorf("docs/security.md names %s: %s", n[0], problem)
			}
		}
	}
	if rows < 34 { // the threats that are known
		t.Errorf("only %d threats are listed", rows)
	}
	for _, name := range securityTests(t) {
		if !strings.Contains(text, "."+name+"`") {
			t.Errorf("docs/security.md does not say what %s shows", name)
		}
	}
}

// securityTests are the tests whose name says that they are about security.
func securityTests(t *testing.T) (names []string) {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func (TestSecurity\w+)\(`)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range function.FindAllStringSubmatch(string(b), -1) {
			names = append(names, m[1])
		}
		return err
	})
	if err != nil || len(names) == 0 {
		t.Fatal("no tests of security", err)
	}
	return names
}
