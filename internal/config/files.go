package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kballard/go-shellquote"
	"golang.org/x/sys/unix"
)

// checkControl finds the group and keeps its socket out of the state directory. What the socket's directory is like is looked at when
// the worker makes the socket: a service manager may make the directory only then.
func (d *decoder) checkControl(c *Config) {
	if c.ControlGroup == "" {
		c.ControlSocket = ""
		return
	}
	refuse := func(key, value, text, remedy string) { d.problemAt(key, strconv.Quote(value), text, remedy) }
	g, err := user.LookupGroup(c.ControlGroup)
	if _, number := strconv.ParseUint(c.ControlGroup, 10, 31); err != nil && number == nil {
		g, err = &user.Group{Gid: c.ControlGroup}, nil
	}
	if err == nil {
		c.ControlGID, err = strconv.Atoi(g.Gid)
	}
	var unknown user.UnknownGroupError
	switch {
	case errors.As(err, &unknown):
		refuse("control_group", c.ControlGroup, "there is no such group", "make it (groupadd --system), name another, or write its number in quotes")
	case err != nil:
		refuse("control_group", c.ControlGroup, "the group cannot be looked up ("+err.Error()+")", "write its number in quotes")
	}
	if c.ControlSocket == "" {
		c.ControlSocket = defaultSocket
	}
	if in, err := filepath.Rel(c.StateDir, c.ControlSocket); c.StateDir != "" && err == nil && filepath.IsLocal(in) {
		refuse("control_socket", c.ControlSocket, "is in the state directory, which the group cannot enter", "name a path in a directory of its own, as in "+defaultSocket)
	}
}

// IsHexKey reports whether s is an ed25519 public key in hex: 64 hex digits.
func IsHexKey(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdefABCDEF") == ""
}

// checkFiles checks that what the configuration names is there and usable by
// this user. It reads no content. What the flow does not use is not looked at.
func (d *decoder) checkFiles(c *Config) {
	d.checkHelper(c)
	d.checkLogfile(c.Logfile)
	d.warnReadable(c)
	d.checkControl(c)
	if info, err := os.Stat(c.StateDir); c.StateDir != "" && err == nil && !info.IsDir() {
		d.problemAt("state_dir", strconv.Quote(c.StateDir), "is not a directory", "name a directory")
	}
	if c.JWTVerifyCert != "" && !IsHexKey(c.JWTVerifyCert) {
		written := c.JWTVerifyCert
		c.JWTVerifyCert = d.absolute(written)
		if err := readable(c.JWTVerifyCert); err != nil && c.Features.JWT {
			d.problemAt("jwt_verify_cert", strconv.Quote(written), "is neither 64 hex digits nor a readable file ("+err.Error()+")",
				"write the issuer's public key in hex, or the path of a certificate or key file")
		}
	}
	if c.Features.Ed25519 {
		d.checkKeyFile("jwt_signing_key", c.JWTSigningKey)
		d.checkKeyFile("jwt_signing_token", c.JWTSigningToken)
		if info, err := os.Stat(c.JWTSigningKey); c.JWTSigningKey != "" && err == nil && info.Mode().Perm()&0o077 != 0 {
			d.warn("jwt_signing_key", fmt.Sprintf("mode %#o lets others than its owner use the key: chmod 600 %s", info.Mode().Perm(), shellquote.Join(c.JWTSigningKey)))
		}
	}
}

func (d *decoder) checkKeyFile(key, path string) {
	if path == "" {
		return
	}
	if err := readable(path); err != nil {
		d.problemAt(key, strconv.Quote(path), "is not a readable file ("+err.Error()+")", "name a file that this user can read; relative paths start at "+d.dir)
	}
}

// warnReadable warns of secrets in a file that every user can read.
func (d *decoder) warnReadable(c *Config) {
	info, err := os.Stat(d.file)
	if err != nil || info.Mode().Perm()&0o004 == 0 {
		return
	}
	for key, secret := range map[string]Secret{"token": c.Token, "broker_provisioning_password": c.BrokerProvisioningPassword} {
		if secret != "" {
			d.warn(key, fmt.Sprintf("mode %#o of the file lets every user read it: chmod o= %s", info.Mode().Perm(), shellquote.Join(d.file)))
		}
	}
}

// checkLogfile checks that the file can be appended to, or made, without doing
// either.
func (d *decoder) checkLogfile(path string) {
	if path == "" {
		return
	}
	refuse := func(text, remedy string) { d.problemAt("logfile", strconv.Quote(path), text, remedy) }
	denied := func(what string, err error) {
		if errors.Is(err, unix.EROFS) {
			refuse(what+" is read-only here", "name another one, or leave the key out for standard error; a unit that protects the system needs LogsDirectory=provctl, and then /var/log/provctl is for the log")
			return
		}
		refuse(what+" cannot be written by this user", "make it writable for this user, or leave the key out for standard error")
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		refuse("is a directory", "name a file in it")
	case err == nil:
		if err := unix.Access(path, unix.W_OK); err != nil {
			denied("it", err)
		}
	case errors.Is(err, fs.ErrNotExist):
		if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
			refuse("its directory does not exist", "make the directory, or leave the key out for standard error")
		} else if err := unix.Access(filepath.Dir(path), unix.W_OK|unix.X_OK); err != nil {
			denied("its directory", err)
		}
	case err != nil:
		refuse("cannot be looked at ("+errors.Unwrap(err).Error()+")", "name a file in a directory of this user")
	}
}

// checkHelper splits the command line as the helper package will and makes its
// program absolute.
func (d *decoder) checkHelper(c *Config) {
	if c.Helper == "" {
		return
	}
	argv, err := shellquote.Split(c.Helper)
	if err != nil || len(argv) == 0 || argv[0] == "" {
		d.problemAt("helper", shown(c.Helper), "is not a command line", "quote it as for a shell, as in /opt/provision/helper --site 'north 1'")
		return
	}
	if strings.Contains(argv[0], "/") {
		argv[0] = d.absolute(argv[0])
	}
	program, err := exec.LookPath(argv[0])
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound):
		d.problemAt("helper", strconv.Quote(argv[0]), "the program does not exist", "name an executable file; relative paths start at "+d.dir)
	case err != nil:
		d.problemAt("helper", strconv.Quote(argv[0]), "the program cannot be executed", "make it executable for this user: chmod +x "+shellquote.Join(argv[0]))
	default:
		argv[0] = program
		c.Helper = shellquote.Join(argv...)
		if info, err := os.Stat(program); err == nil && info.Mode().Perm()&0o002 != 0 {
			d.warn("helper", fmt.Sprintf("mode %#o lets every user change the program: chmod o-w %s", info.Mode().Perm(), shellquote.Join(program)))
		}
	}
}

// readable opens a regular file, without reading it.
func readable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("it does not exist")
	case err != nil:
		return errors.Unwrap(err)
	case !info.Mode().IsRegular():
		return errors.New("it is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return errors.Unwrap(err)
	}
	return f.Close()
}
