package helper

import (
	"fmt"
	"path"
	"strings"
	"unicode"
)

const (
	// maxPEM bounds each of certificate, ca and key in bytes.
	maxPEM = 100 << 10
	// maxDir bounds ssldir in bytes.
	maxDir = 4096
	// maxVersion bounds upgrade in bytes.
	maxVersion = 128

	// ddlVersionLimit is, like ddlConfigLimit, declared and not enforced.
	ddlVersionLimit = 32

	// sslDirKey tells the configured node where its TLS files are.
	sslDirKey = "plugin.choria.ssldir"
)

// checkTLS refuses what a node would leave unwritten without a word: it writes TLS files only if certificate, ca and ssldir
// all have a text (providers/agent/mcorpc/golang/provision/configure_action.go:204). What the texts hold is checked where
// there are keys to compare them with.
func (r *Reply) checkTLS() *Error {
	for _, m := range []struct {
		name, value string
		declared    int // ddl.json, not enforced
	}{{"certificate", r.Certificate, 10 << 10}, {"ca", r.CA, 20 << 10}, {"key", r.Key, 10 << 10}} {
		switch n := len(m.value); {
		case n > maxPEM:
			return failure(ErrInvalid, fmt.Sprintf("%s has %d bytes, %d are accepted", m.name, n, maxPEM), "deliver what this node needs and no more")
		case n > m.declared:
			r.warn(fmt.Sprintf("%s has %d characters, nodes declare %d and do not enforce it today", m.name, n, m.declared))
		}
	}
	if r.Certificate == "" {
		for _, m := range []struct{ name, value string }{{"ca", r.CA}, {"key", r.Key}, {"ssldir", r.SSLDir}} {
			if m.value != "" {
				return failure(ErrInvalid, m.name+" is set and certificate is not, so the node would write none of them", "deliver certificate and ca together, or leave "+m.name+" out")
			}
		}
		return nil
	}
	if r.CA == "" {
		return failure(ErrInvalid, "certificate is set and ca is not, so the node would write neither", "deliver the CA bundle in ca")
	}
	return checkDir(r.SSLDir)
}

// checkDir accepts an empty ssldir, which may mean the node's own, or an absolute clean path, POSIX or with a Windows drive.
func checkDir(dir string) *Error {
	const remedy = "write the full path of a directory on the node, without . and .. and a slash at its end, as in /etc/choria/ssl"
	where := "ssldir " + quote(redact(dir), 80)
	switch {
	case dir == "":
		return nil
	case len(dir) > maxDir:
		return failure(ErrInvalid, fmt.Sprintf("ssldir has %d bytes, %d are accepted", len(dir), maxDir), remedy)
	case strings.ContainsFunc(dir, unicode.IsControl) || strings.ContainsRune(dir, unicode.ReplacementChar):
		return failure(ErrInvalid, where+" holds a control character", remedy)
	case !path.IsAbs(dir) && !drive(dir):
		return failure(ErrInvalid, where+" is not absolute", remedy)
	case clean(dir) != slashed(dir):
		return failure(ErrInvalid, where+" is not clean", remedy)
	}
	return nil
}

// drive tells whether a path begins with a drive: the node runs Windows.
func drive(dir string) bool {
	return len(dir) > 2 && dir[1] == ':' && (dir[2] == '\\' || dir[2] == '/') && (dir[0]|0x20) >= 'a' && (dir[0]|0x20) <= 'z'
}

// slashed writes a Windows path with slashes, which such a node takes as well.
func slashed(dir string) string {
	if drive(dir) {
		return strings.ReplaceAll(dir, `\`, "/")
	}
	return dir
}

// clean is the shortest form of a path, for comparing.
func clean(dir string) string { return path.Clean(slashed(dir)) }

// settleTLS finds the directory of the node's TLS files: the helper's if it delivers the key too, else where the node made
// its key. A certificate elsewhere would lie apart from its key.
func (r *Reply) settleTLS(in Input, opts Options) *Error {
	switch {
	case r.Certificate == "":
		if opts.PKI {
			r.warn("features.pki is on and the reply has no certificate: the node made a key and stays without one for it")
		}
		return nil
	case in.CSR != nil && r.SSLDir == "":
		r.SSLDir = in.CSR.SSLDir
	case in.CSR != nil && r.Key == "" && clean(r.SSLDir) != clean(in.CSR.SSLDir):
		return failure(ErrInvalid, "ssldir is "+quote(redact(r.SSLDir), 80)+", the node made its key in "+quote(in.CSR.SSLDir, 80),
			"leave ssldir out, or deliver the key as well")
	case in.CSR == nil && r.Key == "":
		r.warn("certificate comes without key, and the node made none: it is of use only if the node holds its key in ssldir already")
	}
	if r.SSLDir == "" {
		return failure(ErrInvalid, "certificate is set and ssldir is not, so the node would not write it", "set ssldir to the node's directory for TLS files")
	}
	if dir := strings.TrimSpace(r.Configuration[sslDirKey]); dir != "" && clean(dir) != clean(r.SSLDir) {
		r.warn(sslDirKey + " is " + quote(redact(dir), 80) + ", the certificate goes to " + quote(r.SSLDir, 80))
	}
	return nil
}

// settleUpgrade checks the version, which becomes a part of a URL, or drops it as the existing provisioner does where
// upgrades are off.
func (r *Reply) settleUpgrade(opts Options) *Error {
	if r.Upgrade == "" {
		return nil
	}
	if !opts.Upgrades {
		r.warn("upgrade is set and features.upgrades is off: ignored")
		r.Upgrade = ""
		return nil
	}
	const remedy = "write the version alone, as in 0.29.4"
	odd := func(c rune) bool { return c <= ' ' || c > '~' }
	switch {
	case len(r.Upgrade) > maxVersion:
		return failure(ErrInvalid, fmt.Sprintf("upgrade has %d bytes, %d are accepted", len(r.Upgrade), maxVersion), remedy)
	case strings.ContainsFunc(r.Upgrade, odd):
		return failure(ErrInvalid, "upgrade "+quote(redact(r.Upgrade), 80)+" holds a space, a control character or one beyond ASCII", remedy)
	case len(r.Upgrade) > ddlVersionLimit:
		r.warn(fmt.Sprintf("upgrade has %d characters, nodes declare %d and do not enforce it today", len(r.Upgrade), ddlVersionLimit))
	}
	return nil
}
