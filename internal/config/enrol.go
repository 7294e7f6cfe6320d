package config

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// oddName is a name that no pattern means which does not match every name.
const oddName = "7q-3f9c0e51-unlikely.a1b2c3d4.invalid"

// slashed is how the existing provisioner recognises a pattern written between slashes; it then strips every slash at its ends.
var slashed = regexp.MustCompile(`^/.+/$`)

// denyPattern compiles an entry of cert_deny_list: a Go regular expression that may match anywhere in a name, optionally
// written between slashes.
func denyPattern(text string) (*regexp.Regexp, error) {
	if slashed.MatchString(text) {
		text = strings.Trim(text, "/")
	}
	return regexp.Compile(text)
}

// patterns reads a list of regular expressions. One that does not compile is
// refused here: skipped at run time it would allow what it should deny.
func (d *decoder) patterns(key string, dst *[]string) {
	e, ok := d.lookup(key)
	if !ok {
		return
	}
	list, ok := e.node.(*ast.SequenceNode)
	if !ok {
		d.problem(e, valueText(e.node), "must be a list", `write one pattern per line, as in - '\.choria$'`)
		return
	}
	if len(list.Values) == 0 {
		d.warn(key, "an empty list keeps the default patterns, as in choria-provisioner; to deny no name at all write one that matches none, as in - '^$'")
	}
	var out []string
	for _, n := range list.Values {
		item := entry{key: key, at: position(n), node: d.resolve(n, 0)}
		value, ok := d.text(item)
		if !ok {
			continue
		}
		pattern, err := denyPattern(value)
		switch {
		case err != nil:
			d.problem(item, shown(value), "is not a regular expression", "correct it: "+err.Error())
			continue
		case pattern.String() == "":
			d.problem(item, shown(value), "an empty pattern denies every name", "remove it, or write the names that no node may have")
			continue
		case pattern.MatchString("") && pattern.MatchString(oddName):
			d.warnings = append(d.warnings, Warning{File: d.file, At: item.at, Key: key, Text: shown(value) + " matches every name: no node would get a certificate"})
		}
		out = append(out, value)
	}
	if len(out) > 0 {
		*dst = out
	}
}

// repository reads the address that nodes download from. It may hold a
// password or a token, so that no error repeats one with an @ or a query.
func (d *decoder) repository(key string, dst *Secret) {
	var text Secret
	d.secret(key, &text)
	if text == "" {
		return
	}
	value := shown(text.Reveal())
	if strings.ContainsAny(text.Reveal(), "@?") {
		value = redacted
	}
	refuse := func(text string) {
		d.problemAt(key, value, text, "write the repository's address, as in https://repo.example.net/choria")
	}
	u, err := url.Parse(text.Reveal())
	switch {
	case err != nil: // its text repeats the value
		refuse("is not a URL")
		return
	case u.Scheme != "http" && u.Scheme != "https":
		refuse("must begin with https:// or http://")
		return
	case u.Hostname() == "":
		refuse("names no host")
		return
	case strings.ContainsAny(text.Reveal(), "?# "):
		// The node appends version and platform as text (go-updater http_downloader.go:36).
		refuse("must not hold a query, a fragment or spaces, because nodes append to it")
		return
	}
	if u.Scheme == "http" {
		d.warn(key, "http is not encrypted: whoever is on the way can give nodes another program; use https")
	}
	if u.User != nil {
		d.warn(key, "holds credentials: nodes get them with the request and write them to their logs (go-updater updater.go:68)")
	}
	*dst = Secret(strings.TrimRight(text.Reveal(), "/"))
}
