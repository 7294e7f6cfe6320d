package packaging_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// repository is a git repository with version.sh in it.
type repository struct {
	t   *testing.T
	dir string
}

func newRepository(t *testing.T) repository {
	t.Helper()
	r := repository{t, t.TempDir()}
	b, err := os.ReadFile("version.sh")
	if err != nil {
		t.Fatal(err)
	}
	r.write("packaging/version.sh", string(b))
	return r
}

func (r repository) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		r.t.Fatal(err)
	}
}

func (r repository) git(args ...string) {
	r.t.Helper()
	output(r.t, "git", append([]string{"-C", r.dir, "-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"}, args...)...)
}

func (r repository) commit() {
	r.t.Helper()
	r.git("add", "-A")
	r.git("commit", "-q", "--allow-empty", "-m", "change")
}

func (r repository) version() string {
	r.t.Helper()
	return strings.TrimSpace(output(r.t, filepath.Join(r.dir, "packaging", "version.sh")))
}

// The versions of a history must ascend, both in dpkg's order and in rpm's.
func TestVersionsAscendWithTheHistory(t *testing.T) {
	r := newRepository(t)
	r.git("init", "-q")
	var versions []string
	step := func(shape string) {
		t.Helper()
		v := r.version()
		if !regexp.MustCompile("^" + shape + "$").MatchString(v) {
			t.Errorf("version %q, want %s", v, shape)
		}
		output(t, "dpkg", "--validate-version", v)
		versions = append(versions, v)
	}
	r.commit()
	step(`0\.1\.0~1\.g[0-9a-f]{12}`)
	r.commit()
	step(`0\.1\.0~2\.g[0-9a-f]{12}`)
	r.git("tag", "v0.1.0")
	r.git("tag", "nightly")
	step(`0\.1\.0`)
	r.commit()
	r.commit()
	step(`0\.1\.0\+2\.g[0-9a-f]{12}`)
	r.commit()
	r.git("tag", "v0.2.0-rc.1")
	step(`0\.2\.0~rc\.1`)
	r.commit()
	step(`0\.2\.0~rc\.1\+1\.g[0-9a-f]{12}`)
	r.commit()
	r.git("tag", "-a", "-m", "release", "v0.2.0")
	step(`0\.2\.0`)
	r.write("new.go", "package new\n")
	step(`0\.2\.0\+dirty`)
	for n := range len(versions) - 1 {
		output(t, "dpkg", "--compare-versions", versions[n], "lt", versions[n+1])
		if got := strings.TrimSpace(output(t, "rpm", "--eval", `%{lua:print(rpm.vercmp("`+versions[n]+`", "`+versions[n+1]+`"))}`)); got != "-1" {
			t.Errorf("rpm finds %s against %s: %s, want -1", versions[n], versions[n+1], got)
		}
	}
}

// Without a history there is no version to guess, nor in a directory of somebody else's repository.
func TestVersionIsNotGuessed(t *testing.T) {
	outer := newRepository(t)
	outer.git("init", "-q")
	outer.commit()
	b, err := os.ReadFile("version.sh")
	if err != nil {
		t.Fatal(err)
	}
	outer.write("vendored/packaging/version.sh", string(b))
	for _, dir := range []string{newRepository(t).dir, filepath.Join(outer.dir, "vendored")} {
		out, err := exec.Command(filepath.Join(dir, "packaging", "version.sh")).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "set VERSION and SOURCE_DATE_EPOCH") {
			t.Errorf("in %s: %v, %s", dir, err, out)
		}
	}
}

func TestBuildRefusesWhatPackagersWould(t *testing.T) {
	for env, says := range map[string]string{
		"VERSION=v1.2.3":           "does not begin with a digit",
		"VERSION=1.2.3-4":          "dpkg or rpm would refuse",
		"VERSION=1.2.3/../..":      "dpkg or rpm would refuse",
		"SOURCE_DATE_EPOCH=monday": "is no number of seconds",
	} {
		cmd := exec.Command("./build.sh", t.TempDir())
		cmd.Env = append(os.Environ(), "VERSION=1.2.3", "SOURCE_DATE_EPOCH=1", env)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), says) {
			t.Errorf("%s: %v, %s", env, err, out)
		}
	}
}

// TestVersionOfAShallowClone comes before every other: how many commits there are is not known.
func TestVersionOfAShallowClone(t *testing.T) {
	r := newRepository(t)
	r.git("init", "-q")
	for range 3 {
		r.commit()
	}
	whole := r.version()
	shallow := repository{t, filepath.Join(t.TempDir(), "clone")}
	output(t, "git", "clone", "-q", "--depth", "1", "file://"+r.dir, shallow.dir)
	v := shallow.version()
	if !regexp.MustCompile(`^0\.0\.0~g[0-9a-f]{12}$`).MatchString(v) {
		t.Errorf("version %q", v)
	}
	output(t, "dpkg", "--compare-versions", v, "lt", whole)
}
