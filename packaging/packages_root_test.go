package packaging_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// root is a Debian system to install into: this machine's own, in a mount namespace where every change goes to memory and is gone
// with the test. Only root can make one.
type root struct {
	t   *testing.T
	pid int
}

// rootScript keeps the namespace until its standard input ends.
const rootScript = `set -eu
base=$1
mount -t tmpfs -o mode=755 tmpfs "$base"
mkdir "$base/changes" "$base/work" "$base/root"
mount -t overlay -o "lowerdir=/,upperdir=$base/changes,workdir=$base/work" overlay "$base/root"
cd "$base/root"
mount --rbind /dev dev
mount --rbind /proc proc
for dir in run tmp; do
	mount -t tmpfs -o mode=1777 tmpfs "$dir"
done
rm -rf etc/provctl var/lib/provctl
touch "$2"
exec chroot . /bin/sh -c 'echo ready; exec cat'
`

// inRoot is a file that the private root alone has. A command that does not find it is not run: it would change this machine.
const inRoot = "/.provctl-packages-test"

// elsewhere is what such a command ends with.
const elsewhere = 199

func newRoot(t *testing.T) *root {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "unshare", "-m", "/bin/sh", "-c", rootScript, "root", t.TempDir(), strings.TrimPrefix(inRoot, "/"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("no root to install into: %v, %s: run as root where overlay file systems can be mounted", err, stderr.String())
	}
	return &root{t, cmd.Process.Pid}
}

// run runs a command in the root and returns what it printed, and its exit code.
func (r *root) run(argv ...string) (string, int) {
	r.t.Helper()
	cmd := r.command(argv...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.t.Fatalf("%q: %v", argv, err)
	}
	code := cmd.ProcessState.ExitCode()
	if code == elsewhere {
		r.t.Fatalf("%q was not run: this is not the private root", argv)
	}
	return string(out), code
}

func (r *root) command(argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(r.t.Context(), "nsenter", append([]string{
		"-t", strconv.Itoa(r.pid), "-m", "-r", "-w", "--",
		"/bin/sh", "-c", `[ -e "$0" ] || exit 199; exec "$@"`, inRoot,
	}, argv...)...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "USER=root", "HOME=/root", "LC_ALL=C.UTF-8"}
	return cmd
}

// do is run for what must succeed.
func (r *root) do(argv ...string) string {
	r.t.Helper()
	out, code := r.run(argv...)
	if code != 0 {
		r.t.Fatalf("%q: exit code %d\n%s", argv, code, out)
	}
	return out
}

// put copies a file of the host into the root and returns its name there.
func (r *root) put(file, name string) string {
	r.t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	r.write(name, string(b))
	return name
}

func (r *root) write(name, text string) {
	r.t.Helper()
	cmd := r.command("/bin/sh", "-c", `mkdir -p "$(dirname "$1")" && cat >"$1"`, "write", name)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("write %s: %v\n%s", name, err, out)
	}
}

func (r *root) read(name string) string {
	r.t.Helper()
	return r.do("cat", name)
}

func (r *root) exists(name string) bool {
	r.t.Helper()
	_, code := r.run("test", "-e", name)
	return code == 0
}

// looks fails the test unless a file has owner, group and mode, as in "root provctl 640".
func (r *root) looks(name, want string) {
	r.t.Helper()
	if got := strings.TrimSpace(r.do("stat", "-c", "%U %G %a", name)); got != want {
		r.t.Errorf("%s is %q, want %q", name, got, want)
	}
}

// install installs a deb as an unattended upgrade does, which keeps a site's configuration.
func (r *root) install(deb string) string {
	r.t.Helper()
	return r.do("dpkg", "-i", "--force-confdef", "--force-confold", deb)
}

// standIn puts a systemctl in place that keeps its command lines, and succeeds unless /run/refuse holds the first word of one.
func (r *root) standIn() {
	r.t.Helper()
	r.do("mkdir", "-p", "/run/systemd/system")
	r.do("rm", "-f", "/usr/bin/systemctl")
	r.write("/usr/bin/systemctl", "#!/bin/sh\necho \"$*\" >>/run/said\n[ \"$(cat /run/refuse 2>/dev/null)\" != \"$1\" ]\n")
	r.do("chmod", "755", "/usr/bin/systemctl")
	r.write("/run/said", "")
}

// told returns what systemctl was asked since the last call.
func (r *root) told() string {
	r.t.Helper()
	said := r.read("/run/said")
	r.write("/run/said", "")
	return strings.ReplaceAll(strings.TrimSpace(said), "\n", "; ")
}

// newer makes a later deb of one: the same but for its version, with another sample configuration.
func newer(t *testing.T, deb, version string) string {
	t.Helper()
	dir := t.TempDir()
	output(t, "dpkg-deb", "-R", deb, filepath.Join(dir, "tree"))
	replaceIn(t, filepath.Join(dir, "tree", "DEBIAN", "control"), "Version: "+builtVersion, "Version: "+version)
	replaceIn(t, filepath.Join(dir, "tree", "etc", "provctl", "provctl.yaml"), "interval: 1m", "interval: 2m")
	out := filepath.Join(dir, fmt.Sprintf("provctl_%s.deb", version))
	output(t, "dpkg-deb", "-Znone", "--root-owner-group", "-b", filepath.Join(dir, "tree"), out)
	return out
}

func replaceIn(t *testing.T, file, old, now string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), old) {
		t.Fatalf("%s does not hold %q", file, old)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(b), old, now, 1)), info.Mode()); err != nil {
		t.Fatal(err)
	}
}
