package packaging_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// named is a test as docs/faults.md names it: package, function, and a subtest with _ for each space.
var named = regexp.MustCompile("`([a-z0-9/]+)\\.(Test\\w+)(?:/([^`]+))?`")

// TestEveryFaultHasItsTests: a row that names a test which is gone promises what nobody checks.
func TestEveryFaultHasItsTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "faults.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| Fault ") {
			continue
		}
		rows++
		cells := strings.Split(line, "|")
		tests := named.FindAllStringSubmatch(cells[len(cells)-2], -1)
		if len(cells) != 5 || len(tests) == 0 || len(tests) != strings.Count(cells[3], "`")/2 {
			t.Errorf("a row does not name its tests: %s", line)
		}
		for _, n := range tests {
			if problem := testExists(t, n[1], n[2], n[3]); problem != "" {
				t.Errorf("docs/faults.md names %s: %s", n[0], problem)
			}
		}
	}
	if rows < 23 { // the faults that are known
		t.Errorf("only %d faults are listed", rows)
	}
}

// TestAMissingTestIsFound proves the check above.
func TestAMissingTestIsFound(t *testing.T) {
	for _, c := range []struct{ pkg, name, sub, says string }{
		{"packaging", "TestAMissingTestIsFound", "", ""},
		{"packaging", "TestAMissingTestIsFound", "a_subtest_that_is_there", ""},
		{"packaging", "TestAMissingTestWasFound", "", "no such test"},
		{"packaging", "testExists", "", "no such test"},
		{"packages", "TestAMissingTestIsFound", "", "no such package"},
		{"packaging", "TestAMissingTestIsFound", "another" + "_one", "no such subtest"},
	} {
		if got := testExists(t, c.pkg, c.name, c.sub); got != c.says {
			t.Errorf("%s.%s/%s: %q, want %q", c.pkg, c.name, c.sub, got, c.says)
		}
	}
	_ = "a subtest that is there"
}

// testExists says why a test cannot be found in the source; "" if it is there. A subtest must be written out in its package, for
// example as the name of a table's row.
func testExists(t *testing.T, pkg, name, sub string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(pkg), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		return "no such package"
	}
	there, quoted := false, false
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err.Error()
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				there = there || n.Recv == nil && n.Name.Name == name && strings.HasPrefix(name, "Test")
			case *ast.BasicLit:
				quoted = quoted || n.Value == `"`+strings.ReplaceAll(sub, "_", " ")+`"`
			}
			return true
		})
	}
	switch {
	case !there:
		return "no such test"
	case sub != "" && !quoted:
		return "no such subtest"
	}
	return ""
}
