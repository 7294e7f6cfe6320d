package crashpoint_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"provctl/internal/crashpoint"
)

const module = "../.."

// TestEachPointHasOneCall reads the program's source: each constant is in All and has exactly one call of Here, and Here is
// called with nothing else.
func TestEachPointHasOneCall(t *testing.T) {
	declared := constants(t)
	listed := map[crashpoint.Point]bool{}
	for _, p := range crashpoint.All() {
		if listed[p] {
			t.Errorf("%s is listed twice", p)
		}
		listed[p] = true
	}
	calls := callSites(t)
	for name, p := range declared {
		if !listed[p] {
			t.Errorf("%s (%s) is not in All", name, p)
		}
		if n := len(calls[name]); n != 1 {
			t.Errorf("%s has %d calls, not one: %v", name, n, calls[name])
		}
		delete(calls, name)
	}
	for name, places := range calls {
		t.Errorf("Here is called with %s, which is no point: %v", name, places)
	}
	if len(declared) != len(listed) {
		t.Errorf("%d points are declared and %d listed", len(declared), len(listed))
	}
}

// TestReleasedProgramHasNone holds without the tag alone: this test is built as the program is released.
func TestReleasedProgramHasNone(t *testing.T) {
	t.Setenv("PROVCTL_CRASHPOINT", string(crashpoint.Begun))
	crashpoint.Here(crashpoint.Begun) // ends this process if it does anything
	if crashpoint.Built {
		t.Error("the tests are built with crash points: run them without the tag")
	}
}

// constants reads the names of the points.
func constants(t *testing.T) map[string]crashpoint.Point {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "points.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]crashpoint.Point{}
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 {
			return true
		}
		if lit, ok := v.Values[0].(*ast.BasicLit); ok {
			out[v.Names[0].Name] = crashpoint.Point(strings.Trim(lit.Value, `"`))
		}
		return true
	})
	if len(out) == 0 {
		t.Fatal("points.go declares no point")
	}
	return out
}

// callSites finds all calls of crashpoint.Here by the name of their argument.
func callSites(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	err := filepath.WalkDir(module, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || !isSelector(call.Fun, "crashpoint", "Here") {
				return true
			}
			name := "something else"
			if arg, ok := call.Args[0].(*ast.SelectorExpr); ok && len(call.Args) == 1 {
				name = arg.Sel.Name
			}
			out[name] = append(out[name], files.Position(call.Pos()).String())
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func isSelector(e ast.Expr, pkg, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg
}
