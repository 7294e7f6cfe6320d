package doctor

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kballard/go-shellquote"
	"golang.org/x/sys/unix"

	"provctl/internal/config"
	"provctl/internal/credentials"
)

// The names of the checks.
const (
	checkConfig  = "configuration"
	checkFiles   = "file rights"
	checkHelper  = "helper"
	checkKeys    = "keys and tokens"
	checkState   = "state directory"
	checkSpace   = "disk space"
	checkLock    = "lock"
	checkWorker  = "worker"
	checkGroup   = "control socket"
	checkJournal = "journal"
	checkBlocked = "blocked nodes"
	checkClock   = "clock"
	checkClient  = "client identity"
	checkBroker  = "broker"
	checkAccount = "broker account"
	checkOthers  = "other provisioners"
	checkLeader  = "leader election"
)

// checkOf says which check a key of the configuration belongs to.
func (v *visit) checkOf(file, key string) string {
	switch {
	case file != v.config.File:
		return checkClient
	case key == "helper":
		return checkHelper
	case strings.HasPrefix(key, "jwt_"), key == "cert_deny_list":
		return checkKeys
	case key == "state_dir":
		return checkState
	}
	return checkConfig
}

// settings tells the problems and warnings of the worker's file. Those of the Choria configuration come later, as at a start.
func (v *visit) settings() {
	if failed, _ := v.problems(checkConfig); !failed && v.cfg != nil {
		v.ok(checkConfig, "%s: %s", v.config.File, v.cfg.Plan())
	}
}

// problems tells what the configuration's own check found for one of ours, and whether that was anything.
func (v *visit) problems(check string) (failed, warned bool) {
	for _, p := range v.config.Problems {
		if v.checkOf(p.File, p.Key) != check {
			continue
		}
		failed = true
		remedy := p.Remedy
		p.Remedy = ""
		v.fail(check, &config.Invalid{Problems: []config.Problem{p}}, remedy, "%s", p)
	}
	for _, w := range v.config.Warnings {
		// Modes are looked at more closely here.
		if v.checkOf(w.File, w.Key) == check && !strings.HasPrefix(w.Text, "mode ") {
			v.warn(check, "", "%s", w)
			warned = true
		}
	}
	return failed, warned
}

// helper looks at the program without running it.
func (v *visit) helper() {
	if failed, _ := v.problems(checkHelper); failed {
		return
	}
	argv, err := shellquote.Split(v.cfg.Helper)
	if err != nil || len(argv) == 0 {
		v.fail(checkHelper, &config.Invalid{}, "name an executable program with the key helper", "the command line cannot be read: %s", v.cfg.Helper)
		return
	}
	program := argv[0]
	if err := v.user.access(program, unix.X_OK); err != nil {
		v.fail(checkHelper, &config.Invalid{}, fmt.Sprintf("let %s execute it, its directories included: chmod a+x %s", v.user, shellquote.Join(program)),
			"%s cannot be executed by %s: %v", program, v.user, err)
		return
	}
	interpreter, err := interpreterOf(program)
	if err == nil && interpreter != "" {
		if err := v.user.access(interpreter, unix.X_OK); err != nil {
			v.fail(checkHelper, nil, "install it, or correct the program's first line", "%s is run by %s, which cannot be executed: %v", program, interpreter, err)
			return
		}
	}
	if v.tooOpen(checkHelper, program, false) || v.tooOpen(checkHelper, filepath.Dir(program), false) {
		return
	}
	v.ok(checkHelper, "%s can be executed by %s; it was not run", program, v.user)
}

// interpreterOf reads the program that runs a script, empty for what is none.
func interpreterOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	line, err := bufio.NewReader(io.LimitReader(f, 256)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	rest, script := strings.CutPrefix(line, "#!")
	if words := strings.Fields(rest); script && len(words) > 0 {
		return words[0], nil
	}
	return "", nil
}

// signing looks at what nodes' tokens are verified with, and their server tokens signed.
func (v *visit) signing() {
	failed, warned := v.problems(checkKeys)
	f := v.cfg.Features
	switch {
	case failed:
	case !f.JWT:
		v.skip(checkKeys, "features.jwt is off: nothing is verified or signed")
	case !f.Ed25519:
		v.ok(checkKeys, "node tokens are verified with %s; none is signed", v.cfg.JWTVerifyCert)
	default:
		v.signer(warned)
	}
}

func (v *visit) signer(warned bool) {
	signer, err := credentials.LoadSigner(v.cfg.JWTSigningKey, v.cfg.JWTSigningToken, rand.Reader)
	if err != nil {
		v.fail(checkKeys, &config.Invalid{}, "", "%v", err)
		return
	}
	token := v.cfg.JWTSigningToken
	switch end := signer.ExpiresAt(); {
	case token == "":
		v.ok(checkKeys, "%s signs server tokens in its own name; node tokens are verified with %s", v.cfg.JWTSigningKey, v.cfg.JWTVerifyCert)
	case !v.o.Now().Before(end): // the configuration's check has said so already, unless its clock differs
		v.fail(checkKeys, &config.Invalid{}, "issue a new one for the same key, and restart", "%s expired at %s", token, stamp(end))
	case !warned:
		v.ok(checkKeys, "%s belongs to %s and expires at %s (in %s)", token, v.cfg.JWTSigningKey, stamp(end), days(end.Sub(v.o.Now())))
	}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func days(d time.Duration) string {
	if d < 48*time.Hour {
		return d.Round(time.Minute).String()
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// files looks at who may read and change the configuration and what it names.
func (v *visit) files() {
	before := len(v.r.Checks)
	v.readable("--config", v.config.File, v.cfg.Token != "" || v.cfg.BrokerProvisioningPassword != "")
	v.readable("--choria-config", v.o.ChoriaConfig, false)
	if f := v.cfg.Features; f.Ed25519 {
		v.readable("jwt_signing_key", v.cfg.JWTSigningKey, true)
		v.readable("jwt_signing_token", v.cfg.JWTSigningToken, false)
	}
	if v.cfg.Features.JWT && !config.IsHexKey(v.cfg.JWTVerifyCert) {
		v.readable("jwt_verify_cert", v.cfg.JWTVerifyCert, false)
	}
	v.logfile()
	if len(v.r.Checks) == before {
		v.ok(checkFiles, "%s can read what it must, and no other user can read secrets or change the configuration", v.user)
	}
}

// readable looks at a file of the configuration; one that is not there is told elsewhere.
func (v *visit) readable(key, path string, secret bool) {
	if path == "" {
		return
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err := v.user.access(path, unix.R_OK); err != nil {
		if v.config.Failed(key) || path == v.config.File && v.cfg == nil {
			return
		}
		v.fail(checkFiles, &config.Invalid{}, fmt.Sprintf("let %s read it and enter its directories: chown %s %s", v.user, v.user.owner(), shellquote.Join(path)),
			"%s: %s cannot be read by %s: %v", key, path, v.user, err)
		return
	}
	v.tooOpen(checkFiles, path, secret)
}

// tooOpen warns if others than the worker's user and root may change a file or directory or, if it holds a secret, read it.
func (v *visit) tooOpen(check, path string, secret bool) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	mode, owner := info.Mode(), ownerOf(info)
	name := shellquote.Join(path)
	switch {
	case owner.uid != 0 && owner.uid != v.user.uid:
		v.warn(check, fmt.Sprintf("give it to root or to the worker's user: chown root %s", name), "%s belongs to %s, who can change it", path, owner)
	case mode&0o002 != 0 && mode&fs.ModeSticky == 0:
		v.warn(check, "chmod o-w "+name, "%s has mode %#o: every user can change it", path, mode.Perm())
	case mode&0o020 != 0 && mode&fs.ModeSticky == 0 && owner.gid != 0 && owner.gid != v.user.gid:
		v.warn(check, "chmod g-w "+name, "%s has mode %#o: group %d can change it", path, mode.Perm(), owner.gid)
	case secret && mode&0o007 != 0:
		v.warn(check, "chmod o= "+name, "%s has mode %#o and holds a secret: every user can read it", path, mode.Perm())
	case secret && mode&0o040 != 0 && owner.gid != 0 && owner.gid != v.user.gid:
		v.warn(check, "chmod 600 "+name, "%s has mode %#o and holds a secret: group %d can read it", path, mode.Perm(), owner.gid)
	default:
		return false
	}
	return true
}

// logfile looks at the right to append; the configuration's check did for this process's user.
func (v *visit) logfile() {
	path := v.cfg.Logfile
	if path == "" || v.config.Failed("logfile") || v.user.mine() {
		return
	}
	at, want := path, uint32(unix.W_OK)
	remedy := fmt.Sprintf("chown -h %s %s", v.user.owner(), shellquote.Join(path))
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		at, want = filepath.Dir(path), unix.W_OK|unix.X_OK
		// The directory may be shared: whoever owns it can replace every file in it.
		remedy = fmt.Sprintf("name a file in a directory of its own, or make this one: install -o %s -m 600 /dev/null %s", v.user.owner(), shellquote.Join(path))
	}
	if err := v.user.access(at, want); err != nil {
		v.fail(checkFiles, &config.Invalid{}, remedy+"; or leave the key out for standard error",
			"logfile: %s cannot be written by %s: %v", at, v.user, err)
	}
}
