package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/kballard/go-shellquote"
)

// IsHexKey reports whether s is an ed25519 public key in hex: 64 hex digits.
func IsHexKey(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdefABCDEF") == ""
}

// checkFlow checks what depends on more than one key, and refuses what this
// version cannot do: to ignore it silently would provision nodes differently
// than their file says.
func (d *decoder) checkFlow(c *Config) {
	if c.Features.PKI && c.Features.Ed25519 {
		d.problemAt("features.pki", "true", "excludes features.ed25519", "keep one of the two")
	}
	const remedy = "set it to false, or keep this site on choria-provisioner for now"
	for key, on := range map[string]bool{
		"features.pki": c.Features.PKI, "features.upgrades": c.Features.Upgrades, "leader_election": c.LeaderElection,
	} {
		if on {
			d.problemAt(key, "true", "this version cannot do it yet", remedy)
		}
	}
	if !c.Features.Ed25519 && !c.Features.PKI && !d.failed("features") && !d.failed("features.ed25519") {
		d.problemAt("features.ed25519", "", "is not true, and this version enrols nodes in no other way", "set it to true, or keep this site on choria-provisioner for now")
	}
	// The ed25519 flow starts from the node's verified token
	// (existing provisioner, configuration of features).
	c.Features.JWT = c.Features.JWT || c.Features.Ed25519
	d.required("state_dir", c.StateDir, "name the directory that provctl init made")
	d.required("helper", c.Helper, "name the program that makes the nodes' configurations")
	if c.Features.JWT {
		d.required("jwt_verify_cert", c.JWTVerifyCert, "name the certificate or key that provisioning.jwt is verified with, or switch features.jwt off")
	}
	if c.Features.Ed25519 {
		d.required("jwt_signing_key", c.JWTSigningKey, "name the seed file that signs server tokens, or switch features.ed25519 off")
	}
	d.warnRisks(c)
}

func (d *decoder) required(key, value, remedy string) {
	if value == "" && !d.failed(key) {
		d.problemAt(key, "", "is missing", remedy)
	}
}

func (d *decoder) warnRisks(c *Config) {
	if c.Interval < time.Minute {
		d.warn("interval", fmt.Sprintf("%s is under one minute, which choria-provisioner refuses: meant for tests, it loads the broker", c.Interval))
	}
	if horizon := c.EffectTTL + c.ClockSkew; c.StopTimeout < horizon {
		d.warn("stop_timeout", fmt.Sprintf("%s is shorter than effect_ttl + clock_skew (%s): a stop may leave effects unknown", c.StopTimeout, horizon))
	}
	if c.ServerJWTValidity < time.Hour {
		d.warn("server_jwt_validity", fmt.Sprintf("%s is under one hour: nodes whose token expires come back to be provisioned", c.ServerJWTValidity))
	}
	if len(c.Token) > tokenDDLLimit {
		d.warn("token", fmt.Sprintf("longer than the %d characters that nodes declare for it", tokenDDLLimit))
	}
}

// warnUnused names every key that is set and changes nothing.
func (d *decoder) warnUnused(c *Config) {
	unused := func(why string, keys ...string) {
		for _, key := range keys {
			if e, ok := d.entries[key]; ok && e.node != nil && !d.failed(key) {
				d.warn(key, "unused: "+why)
			}
		}
	}
	unused("this key has no effect, as in choria-provisioner", "broker_port", "rego_policy")
	if !c.Features.Upgrades {
		unused("features.upgrades is off", "upgrades_repository", "upgrades_optional")
	}
	if !c.Features.PKI {
		unused("features.pki is off", "cert_deny_list")
	}
	if !c.Features.JWT {
		unused("features.jwt is off", "jwt_verify_cert")
	}
	if !c.Features.Ed25519 {
		unused("features.ed25519 is off", "jwt_signing_key", "jwt_signing_token", "server_jwt_validity")
	}
}

// checkFiles checks that what the configuration names is there and usable by
// this user. It reads no content.
func (d *decoder) checkFiles(c *Config) {
	d.checkHelper(c)
	if info, err := os.Stat(c.StateDir); c.StateDir != "" && err == nil && !info.IsDir() {
		d.problemAt("state_dir", strconv.Quote(c.StateDir), "is not a directory", "name a directory")
	}
	if c.JWTVerifyCert != "" && !IsHexKey(c.JWTVerifyCert) {
		written := c.JWTVerifyCert
		c.JWTVerifyCert = d.absolute(written)
		if err := readable(c.JWTVerifyCert); err != nil {
			d.problemAt("jwt_verify_cert", strconv.Quote(written), "is neither 64 hex digits nor a readable file ("+err.Error()+")", "write the issuer's public key in hex, or the path of a certificate or key file")
		}
	}
	for key, path := range map[string]string{"jwt_signing_key": c.JWTSigningKey, "jwt_signing_token": c.JWTSigningToken} {
		if path == "" {
			continue
		}
		if err := readable(path); err != nil {
			d.problemAt(key, strconv.Quote(path), "is not a readable file ("+err.Error()+")", "name a file that this user can read; relative paths start at "+d.dir)
		}
	}
	if info, err := os.Stat(c.JWTSigningKey); c.JWTSigningKey != "" && err == nil && info.Mode().Perm()&0o077 != 0 {
		d.warn("jwt_signing_key", fmt.Sprintf("mode %#o lets others than its owner use the key: chmod 600 %s", info.Mode().Perm(), c.JWTSigningKey))
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
