package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v5"
	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"provctl/doctor"
)

// nobody is a user who is not the one of the tests.
const nobody = 65534

// patient is a site for the doctor, with a configuration that a worker can start with.
type patient struct {
	site
	program string // where any user can execute it
	as      uint32 // the user that runs it; 0: ours
}

func newPatient(t *testing.T) *patient {
	t.Helper()
	p := &patient{site: newSite(t), program: filepath.Join(t.TempDir(), "provctl")}
	p.configure("")
	built, err := exec.LookPath("provctl")
	p.check(err)
	p.check(os.Link(built, p.program))
	p.check(os.Chmod(filepath.Dir(p.dir), 0o711)) // for other users
	p.check(os.Chmod(p.dir, 0o711))
	return p
}

// configure writes the configuration with a few keys changed.
func (p *patient) configure(changes string) {
	p.t.Helper()
	keys := map[string]string{
		"helper": "./helper.sh", "state_dir": "state", "broker_provisioning_password": "t0psecret", "token": "s3cret",
		"jwt_verify_cert": "issuer.public", "jwt_signing_key": "signer.seed", "jwt_signing_token": "signer.jwt", "features": "{ed25519: true}",
	}
	for line := range strings.Lines(changes) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		keys[key] = value
	}
	text := ""
	for key, value := range keys {
		text += key + ": " + value + "\n"
	}
	p.write("provctl.yaml", text)
}

// broker names the broker's address in the Choria configuration.
func (p *patient) broker(addr string) {
	p.t.Helper()
	b, err := os.ReadFile(p.path("tokens.conf"))
	p.check(err)
	p.write("tokens.conf", strings.Replace(string(b), "nats://127.0.0.1:1\n", "nats://"+addr+"\n", 1))
}

func (p *patient) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.program, args...)
	cmd.Dir = "/"
	if p.as != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: p.as, Gid: p.as}}
	}
	return cmd
}

func (p *patient) files() []string {
	return []string{"--config", p.path("provctl.yaml"), "--choria-config", p.path("tokens.conf")}
}

// doctor has the site looked at, and holds what it says against the schema.
func (p *patient) doctor(args ...string) (doctor.Report, int) {
	p.t.Helper()
	cmd := p.command(p.t.Context(), append(append([]string{"doctor", "--json"}, p.files()...), args...)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if cmd.ProcessState == nil {
		p.t.Fatal(err)
	}
	r := readReport(p.t, out)
	if errs.Len() > 0 {
		p.t.Errorf("on stderr: %s", errs.String())
	}
	for _, secret := range []string{"s3cret", "t0psecret"} {
		if strings.Contains(string(out), secret) {
			p.t.Errorf("a secret is shown: %s", out)
		}
	}
	return r, cmd.ProcessState.ExitCode()
}

func readReport(t *testing.T, out []byte) doctor.Report {
	t.Helper()
	schema, err := jsonschema.Compile(filepath.Join("..", "..", "docs", "doctor-schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var value any
	var r doctor.Report
	if err := json.Unmarshal(out, &value); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%#v", err)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// run starts a worker, and gives what it said when it had ended, or said the words, and its exit code: -1 if it had to be ended.
func (p *patient) run(words string) (said string, code int) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 30*time.Second)
	defer cancel()
	cmd := p.command(ctx, append([]string{"run"}, p.files()...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	r, err := cmd.StderrPipe()
	p.check(err)
	p.check(cmd.Start())
	want := regexp.MustCompile(words)
	for lines := bufio.NewScanner(r); lines.Scan(); {
		said += lines.Text() + "\n"
		if strings.HasPrefix(lines.Text(), "{") && want.MatchString(lines.Text()) {
			code = -1
			break
		}
	}
	cancel()
	_, _ = io.Copy(io.Discard, r)
	_ = cmd.Wait()
	if code == 0 {
		code = cmd.ProcessState.ExitCode()
	}
	return said, code
}

// found is the finding of a check with a status.
func found(t *testing.T, r doctor.Report, check string, status doctor.Status) doctor.Finding {
	t.Helper()
	for _, f := range r.Checks {
		if f.Check == check && f.Status == status {
			return f
		}
	}
	t.Errorf("%s is not %s: %+v", check, status, r.Checks)
	return doctor.Finding{}
}

func matches(t *testing.T, what, text, pattern string) {
	t.Helper()
	if !regexp.MustCompile(pattern).MatchString(text) {
		t.Errorf("%s is %q, which does not match %q", what, text, pattern)
	}
}

// mounted puts the state directory on a small file system of its own.
func (p *patient) mounted(size string) {
	p.t.Helper()
	p.check(os.RemoveAll(p.path("state")))
	p.check(os.Mkdir(p.path("state"), 0o700))
	p.check(unix.Mount("tmpfs", p.path("state"), "tmpfs", 0, "mode=0700,size="+size))
	p.t.Cleanup(func() { p.check(unix.Unmount(p.path("state"), unix.MNT_DETACH)) })
	if out, code := p.init(); code != 0 {
		p.t.Fatal(out)
	}
}

func (p *patient) init() (string, int) {
	cmd := p.command(p.t.Context(), "init", "--state-dir", p.path("state"))
	out, _ := cmd.CombinedOutput()
	return string(out), cmd.ProcessState.ExitCode()
}

// fill leaves no space on the file system of the state directory.
func (p *patient) fill() {
	p.t.Helper()
	f, err := os.Create(p.path("state/filler"))
	p.check(err)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if p.check(f.Close()); !os.IsExist(err) && !strings.Contains(err.Error(), "no space") {
		p.t.Fatal(err)
	}
}

// give gives the site to a user, but for the state directory.
func (p *patient) give(uid int) {
	p.t.Helper()
	p.check(filepath.WalkDir(p.dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && path != p.path("state") && filepath.Dir(path) != p.path("state") {
			err = os.Lchown(path, uid, uid)
		}
		return err
	}))
}

// newerFormat changes the format that a journal says it has.
func newerFormat(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	err = db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte("meta"))
		old := b.Get([]byte("journal"))
		content := regexp.MustCompile(`"format":\d+`).ReplaceAllString(string(old[5:]), `"format":99`)
		sum := crc32.Checksum([]byte("meta/journal\x00"+content), crc32.MakeTable(crc32.Castagnoli))
		return b.Put([]byte("journal"), append(append([]byte{old[0]}, binary.BigEndian.AppendUint32(nil, sum)...), content...))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// silent is an address where connections are taken and nothing is said.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var taken []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			taken = append(taken, c)
		}
		for _, c := range taken {
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// ailments are what a service can suffer from: how it comes about, which check names it with which remedy, what the worker itself then says,
// and the exit code of both; with -1 the worker runs, and says so again and again.
var ailments = map[string]struct {
	cause         func(*patient)
	check         string
	found, remedy string
	code          int
	said          string
}{
	"state directory of another user": {
		func(p *patient) { p.give(nobody); p.as = nobody }, "state directory",
		`state belongs to user root \(0\), and this is user nobody`, `run this, and the worker, as that user`, 1, `worker\.lock: .*permission denied: the state directory belongs to user id 0 and this is user id \d+: run it as that user`,
	},
	"state directory's file of another user": {
		func(p *patient) {
			p.give(nobody)
			p.check(os.Chown(p.path("state"), nobody, nobody))
			p.as = 0
		}, "state directory", `journal\.db belongs to user root \(0\), with mode 0600, and cannot be written by user nobody`, `chown -h nobody \S*journal\.db && chmod 600`, 1, "",
	},
	"read-only file system": {
		func(p *patient) {
			p.mounted("4m")
			p.check(unix.Mount("", p.path("state"), "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		}, "state directory", `is on a file system that is mounted read-only`, `mount -o remount,rw`, 1, `read-only file system: mount it for writing`,
	},
	"full disk": {
		func(p *patient) { p.mounted("1m"); p.fill() }, "disk space", `^0 MiB free for a journal of 1 MiB`, `free or add space`, 1, `no space left on device: free some space there`,
	},
	"no state directory": {
		func(p *patient) { p.check(os.RemoveAll(p.path("state"))) }, "state directory", `state does not exist`, `mount or restore it; only if there never was one, run: provctl init`, 6, `does not exist: mount or restore it`,
	},
	"journal of a newer format": {
		func(p *patient) { newerFormat(p.t, p.path("state/journal.db")) }, "journal", `journal has format 99, this program knows \d`, `install the provctl that wrote it`, 6, `format 99, this program knows \d: use the newer provctl`,
	},
	"damaged journal": {
		func(p *patient) { p.write("state/journal.db", strings.Repeat("no journal", 5000)) }, "journal", `damaged.*journal\.db`, `restore the newest backup.*docs/runbook\.md`, 6, `damaged.*journal\.db`,
	},
	"missing journal": {
		func(p *patient) { p.check(os.Remove(p.path("state/journal.db"))) }, "journal", `journal missing`, `restore it with its marker.*provctl init`, 6, `journal missing`,
	},
	"expired signing token": {
		func(p *patient) { p.configure("jwt_signing_token: expired.jwt") }, "keys and tokens", `expired\.jwt.*has expired: at `, `issue a new one for the same key`, 78, `expired\.jwt.*has expired.*issue a new one`,
	},
	"helper that is not executable": {
		func(p *patient) { p.check(os.Chmod(p.path("helper.sh"), 0o600)) }, "helper", `the program cannot be executed, found .*helper\.sh`, `make it executable for this user: chmod \+x`, 78, `helper: the program cannot be executed.*chmod \+x`,
	},
	"helper without its interpreter": {
		func(p *patient) { p.write("helper.sh", "#!/nowhere/ruby\n") }, "helper", `helper\.sh is run by /nowhere/ruby, which cannot be executed`, `install it`, 1, "",
	},
	"configuration with several faults": {
		func(p *patient) { p.configure("workers: many\nnonsense: 1") }, "configuration", `provctl\.yaml:\d+:1: (workers: must be|nonsense: unknown)`, `write|remove it`, 78, `workers: must be a whole number`,
	},
	"broken Choria configuration": {
		func(p *patient) {
			p.write("tokens.conf", "plugin.security.provider=magic\n")
		}, "client identity", `tokens\.conf: this Choria configuration cannot be used`, `--choria-config`, 78, `tokens\.conf: this Choria configuration cannot be used`,
	},
	"lock of something else": {
		func(p *patient) {
			lock := exec.CommandContext(p.t.Context(), "flock", "-F", p.path("state/worker.lock"), "sh", "-c", "echo; exec sleep 600")
			out, err := lock.StdoutPipe()
			p.check(err)
			p.check(lock.Start())
			p.t.Cleanup(func() { _ = lock.Process.Kill(); _ = lock.Wait() })
			_, err = out.Read(make([]byte, 1))
			p.check(err)
		}, "lock", `worker\.lock is held by process \d+ since .*which is no worker that answers`, `stop it \(kill \d+\)`, 5, `another process holds the worker lock`,
	},
	"port in use": {
		func(p *patient) {
			_, port, err := net.SplitHostPort(silent(p.t))
			p.check(err)
			p.configure("monitor_port: " + port)
		}, "monitor_port", fmt.Sprintf(`port \d+ is in use by process %d`, os.Getpid()), `stop what uses the port`, 1, `monitor_port \d+: .*in use: stop what uses the port`,
	},
	"broker that never answers": {
		func(p *patient) { p.broker(silent(p.t)) }, "broker", `the broker does not answer`, `something takes connections there and says nothing`, -1, `could not connect to the broker, trying again.*timeout.*plugin.choria.middleware_hosts of .* says; provctl doctor tells more`,
	},
	"no broker": {
		func(*patient) {}, "broker", `nats://127\.0\.0\.1:1: the broker cannot be reached: .*refused`, `start the broker`, -1, `could not connect to the broker, trying again`,
	},
}

// TestDoctorNamesBadInput: what ails a service is named by the doctor and by the service's own log, each with the remedy; the exit code of the
// two is the same, and looking changes nothing.
func TestDoctorNamesBadInput(t *testing.T) {
	for name, c := range ailments {
		t.Run(name, func(t *testing.T) {
			p := newPatient(t)
			c.cause(p)
			args := []string{"--timeout", "5s"}
			if c.check != "broker" {
				args = append(args, "--no-network")
			}
			before := p.site.files()
			r, code := p.doctor(args...)
			if after := p.site.files(); after != before {
				t.Errorf("it changed something: before\n%s\nafter\n%s", before, after)
			}
			f := found(t, r, c.check, doctor.Fail)
			matches(t, "what was found", f.Found, c.found)
			matches(t, "the remedy", f.Found+"; "+f.Remedy, c.remedy)
			if want := max(c.code, 1); code != want || r.Exit != want || r.Usable {
				t.Errorf("exit code %d, in the report %d (usable: %v); want %d", code, r.Exit, r.Usable, want)
			}
			if c.said == "" {
				return // a worker of that user cannot be started here, or it finds out with the first node
			}
			said, code := p.run(c.said)
			matches(t, "what the worker says", said, c.said)
			if code != c.code {
				t.Errorf("the worker exits with %d, the doctor told %d", code, c.code)
			}
		})
	}
}
