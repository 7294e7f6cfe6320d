package packaging_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// The version and time that the tests build with: the tree that they stand in may have no history, and may change meanwhile.
const (
	builtVersion = "0.1.0~7.g0123456789ab"
	builtAt      = "1700000000"
)

// scratch is where packages are built; TestMain removes it.
var scratch string

func TestMain(m *testing.M) {
	code := 1
	defer func() { os.Exit(code) }()
	var err error
	if scratch, err = os.MkdirTemp("", "provctl-packages-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	code = m.Run()
}

// made are the files that one build gives.
type made struct {
	source, dir                string // the tree it was built from, and where everything is
	deb, rpm, tarball, bom     string
	unpacked, program, sumFile string // unpacked is the tarball's one directory, program the one in it
}

// built gives the packages of this tree, built once.
var built = sync.OnceValues(func() (made, error) {
	source := filepath.Join(scratch, "source")
	if err := copyTree("..", source); err != nil {
		return made{}, err
	}
	return build(source, filepath.Join(scratch, "dist"))
})

// packages are what a test looks at.
func packages(t *testing.T) made {
	t.Helper()
	m, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// build makes packages as "make packages" does.
func build(source, dir string, env ...string) (made, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(source, "packaging", "build.sh"), dir)
	cmd.Env = append(os.Environ(), append([]string{"VERSION=" + builtVersion, "SOURCE_DATE_EPOCH=" + builtAt}, env...)...)
	// Of what lies there already only an earlier build of the same packages may go.
	others, stale := filepath.Join(dir, "others.tar.gz"), filepath.Join(dir, "provctl-0.0.1-linux-"+architecture()+".tar.gz")
	err := os.MkdirAll(dir, 0o755)
	for _, name := range []string{others, stale} {
		err = errors.Join(err, os.WriteFile(name, []byte("x"), 0o600))
	}
	if err != nil {
		return made{}, err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return made{}, fmt.Errorf("build.sh: %w\n%s", err, out)
	}
	if err := os.Remove(others); err != nil {
		return made{}, fmt.Errorf("build.sh removed a file of somebody else's: %w", err)
	}
	m := made{source: source, dir: dir, sumFile: filepath.Join(dir, "SHA256SUMS")}
	for pattern, file := range map[string]*string{"*.deb": &m.deb, "*.rpm": &m.rpm, "*.tar.gz": &m.tarball, "*.cdx.json": &m.bom} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern))
		if len(found) != 1 {
			return made{}, fmt.Errorf("%d files %s in %s, want one", len(found), pattern, dir)
		}
		*file = found[0]
	}
	if out, err := exec.Command("tar", "-C", dir, "-xzf", m.tarball).CombinedOutput(); err != nil {
		return made{}, fmt.Errorf("unpack the tarball: %w\n%s", err, out)
	}
	m.unpacked = filepath.Join(dir, "provctl-"+builtVersion+"-linux-"+architecture())
	m.program = filepath.Join(m.unpacked, "provctl")
	return m, nil
}

func architecture() string {
	out, _ := exec.Command("go", "env", "GOARCH").Output()
	return strings.TrimSpace(string(out))
}

// copyTree copies the source. It reads in this process, so that the test's cached result ends when a file changes.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(from, path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // somebody's temporary file
		case err != nil:
			return err
		case rel == ".git" || rel == "bin" || rel == "dist":
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		info, serr := d.Info()
		if err := errors.Join(err, serr); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, info.Mode().Perm())
	})
}

// output runs a program that must succeed and returns what it printed.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}
