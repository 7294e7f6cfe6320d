package packaging_test

import (
	"compress/gzip"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// shipped are the files of deb and rpm with their modes, besides the documents. In the tarball they have the name behind the mode.
var shipped = map[string]string{
	"/usr/bin/provctl":                                  "-rwxr-xr-x provctl",
	"/usr/lib/systemd/system/provctl.service":           "-rw-r--r-- provctl.service",
	"/usr/lib/sysusers.d/provctl.conf":                  "-rw-r--r-- provctl.sysusers",
	"/etc/provctl/":                                     "drwxr-x--- config",
	"/etc/provctl/provctl.yaml":                         "-rw-r----- config/provctl.yaml",
	"/etc/provctl/choria.conf":                          "-rw-r----- config/choria.conf",
	"/usr/share/bash-completion/completions/provctl":    "-rw-r--r-- completion/provctl.bash",
	"/usr/share/fish/vendor_completions.d/provctl.fish": "-rw-r--r-- completion/provctl.fish",
	"/usr/share/zsh/vendor-completions/_provctl":        "-rw-r--r-- completion/_provctl",
	"/usr/share/man/man8/provctl.8.gz":                  "-rw-r--r-- man/provctl.8.gz",
	"/usr/share/provctl/grafana-dashboard.json":         "-rw-r--r-- monitoring/grafana-dashboard.json",
	"/usr/share/provctl/prometheus-alerts.yaml":         "-rw-r--r-- monitoring/prometheus-alerts.yaml",
	"/usr/share/doc/provctl/README.md":                  "-rw-r--r-- doc/README.md",
	"/usr/share/doc/provctl/runbook.md":                 "-rw-r--r-- doc/runbook.md",
	"/usr/share/doc/provctl/inspect-schema.json":        "-rw-r--r-- doc/inspect-schema.json",
	"/usr/share/doc/provctl/copyright":                  "-rw-r--r-- LICENSE",
	"/usr/share/doc/provctl/sbom.cdx.json":              "-rw-r--r-- sbom.cdx.json",
	"/usr/share/doc/provctl/third-party-licenses.gz":    "-rw-r--r-- third-party-licenses.gz",
}

func TestEveryPackageHoldsTheSame(t *testing.T) {
	m := packages(t)
	deb, rpm := map[string]string{}, map[string]string{}
	for line := range strings.Lines(output(t, "dpkg-deb", "-c", m.deb)) {
		f := strings.Fields(line) // mode owner size date time ./path
		if f[1] != "root/root" {
			t.Errorf("deb: %s belongs to %s, which the machine may not know yet", f[5], f[1])
		}
		deb[strings.TrimPrefix(f[5], ".")] = f[0]
	}
	for line := range strings.Lines(output(t, "rpm", "-qp", "--qf", "[%{FILENAMES} %{FILEMODES:perms} %{FILEUSERNAME}/%{FILEGROUPNAME}\n]", m.rpm)) {
		f := strings.Fields(line)
		if f[2] != "root/root" {
			t.Errorf("rpm: %s belongs to %s, which the machine may not know yet", f[0], f[2])
		}
		if f[1][0] == 'd' {
			f[0] += "/"
		}
		rpm[f[0]] = f[1]
	}
	for path, want := range shipped {
		mode, loose, _ := strings.Cut(want, " ")
		if deb[path] != mode {
			t.Errorf("deb: %s has mode %q, want %s", path, deb[path], mode)
		}
		inRPM := strings.Replace(path, "vendor-completions", "site-functions", 1) // of zsh alone
		if rpm[inRPM] != mode {
			t.Errorf("rpm: %s has mode %q, want %s", inRPM, rpm[inRPM], mode)
		}
		if info, err := os.Stat(filepath.Join(m.unpacked, loose)); err != nil || (!info.IsDir() && info.Size() == 0) {
			t.Errorf("tarball: %s: %v", loose, err)
		}
	}
	for path := range maps.Keys(deb) {
		if strings.HasPrefix(path, "/var") || strings.HasPrefix(path, "/run") {
			t.Errorf("deb: %s is in it, and so would be removed with it", path)
		}
	}
	control := output(t, "dpkg-deb", "-I", m.deb, "conffiles")
	rpmConf := output(t, "rpm", "-qp", "--configfiles", m.rpm)
	for name, list := range map[string]string{"deb": control, "rpm": rpmConf} {
		got := strings.Fields(list)
		slices.Sort(got)
		if want := []string{"/etc/provctl/choria.conf", "/etc/provctl/provctl.yaml"}; !slices.Equal(got, want) {
			t.Errorf("%s: a site's changes are kept in %q, want %q", name, got, want)
		}
	}
}

func TestVersionIsStampedEverywhere(t *testing.T) {
	m := packages(t)
	var bom struct {
		Metadata struct{ Component struct{ Version string } }
	}
	readJSON(t, m.bom, &bom)
	program, _, _ := strings.Cut(strings.TrimPrefix(output(t, m.program, "version"), "provctl "), " ")
	page := gunzip(t, filepath.Join(m.unpacked, "man", "provctl.8.gz"))
	for where, got := range map[string]string{
		"provctl version": program,
		"deb":             strings.TrimSpace(output(t, "dpkg-deb", "-f", m.deb, "Version")),
		"rpm":             output(t, "rpm", "-qp", "--qf", "%{VERSION}", m.rpm),
		"SBOM":            strings.TrimPrefix(bom.Metadata.Component.Version, "v"),
	} {
		if got != builtVersion {
			t.Errorf("%s: version %q, want %s", where, got, builtVersion)
		}
	}
	if !strings.Contains(page, "provctl "+builtVersion) {
		t.Error("the manual page does not name the version")
	}
	output(t, "dpkg", "--validate-version", builtVersion)
}

func TestBillOfMaterialsAndLicencesNameEveryModule(t *testing.T) {
	m := packages(t)
	info, err := buildinfo.ReadFile(m.program)
	if err != nil || len(info.Deps) < 20 {
		t.Fatalf("the program names %d modules, %v", len(info.Deps), err)
	}
	type component struct{ Name, Version, PURL string }
	var bom struct {
		BOMFormat  string
		Components []component
	}
	readJSON(t, m.bom, &bom)
	if bom.BOMFormat != "CycloneDX" {
		t.Errorf("format %q", bom.BOMFormat)
	}
	licences := licenceTexts(gunzip(t, filepath.Join(m.unpacked, "third-party-licenses.gz")))
	for _, d := range info.Deps {
		if !slices.ContainsFunc(bom.Components, func(c component) bool {
			return c.Name == d.Path && c.Version == d.Version && strings.HasPrefix(c.PURL, "pkg:golang/")
		}) {
			t.Errorf("%s %s is in the program and not in the bill of materials", d.Path, d.Version)
		}
		if len(licences[d.Path+"@"+d.Version]) < 400 {
			t.Errorf("%s %s is in the program without its licence", d.Path, d.Version)
		}
	}
	same(t, m.bom, filepath.Join(m.unpacked, "sbom.cdx.json"))
}

// licenceTexts splits the file at its headings.
func licenceTexts(all string) map[string]string {
	texts, name := map[string]string{}, ""
	for line := range strings.Lines(all) {
		if rest, ok := strings.CutPrefix(line, "==== "); ok && strings.HasSuffix(rest, " ====\n") {
			name = strings.TrimSuffix(rest, " ====\n")
			continue
		}
		texts[name] += line
	}
	return texts
}

func TestProgramNeedsNothingBesideItself(t *testing.T) {
	m := packages(t)
	f, err := elf.Open(m.program)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if libs, err := f.ImportedLibraries(); err != nil || len(libs) > 0 {
		t.Errorf("the program needs %q, %v", libs, err)
	}
	root := t.TempDir()
	output(t, "cp", m.program, root)
	got := output(t, "chroot", root, "/provctl", "version")
	if !strings.HasPrefix(got, "provctl "+builtVersion) {
		t.Errorf("alone in its root it says %q", got)
	}
	if b, err := os.ReadFile(m.program); err != nil || strings.Contains(string(b), m.source) {
		t.Errorf("the program holds the path that it was built in, %v", err)
	}
}

// A second build, elsewhere and as somebody else would make it, must not differ in a byte.
func TestBuildIsReproducible(t *testing.T) {
	first := packages(t)
	elsewhere := filepath.Join(scratch, "another", "place")
	if err := copyTree(first.source, elsewhere); err != nil {
		t.Fatal(err)
	}
	second, err := build(elsewhere, t.TempDir(), "TZ=Asia/Kathmandu", "LC_ALL=C.UTF-8", "HOSTNAME=elsewhere", "GOFLAGS=-buildvcs=false", "TMPDIR="+t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	same(t, first.sumFile, second.sumFile)
	for _, m := range []made{first, second} {
		cmd := exec.Command("sha256sum", "--check", "--quiet", "SHA256SUMS")
		cmd.Dir = m.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("SHA256SUMS: %v\n%s", err, out)
		}
	}
}

func same(t *testing.T, one, other string) {
	t.Helper()
	a, err := os.ReadFile(one)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	if string(a) != string(b) {
		t.Errorf("%s and %s differ:\n%.600s\n%.600s", one, other, a, b)
	}
}

func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func gunzip(t *testing.T, file string) string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
