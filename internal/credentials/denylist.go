package credentials

import (
	"fmt"
	"regexp"
	"strings"
)

// DenyList are the compiled patterns of cert_deny_list: no node gets a certificate with a name that one of them matches.
// Make it with [CompileDenyList]; nil and the zero DenyList refuse every request and certificate.
type DenyList struct {
	patterns []*regexp.Regexp
	compiled bool
}

// slashed is the form that the existing provisioner unwraps.
var slashed = regexp.MustCompile(`^/.+/$`)

// CompileDenyList compiles Go regular expressions, which match anywhere in a name. One written as /…/ loses its slashes, as
// in the existing provisioner. The error is an [*Error] that names the first bad pattern by its index, counted from 0. No
// patterns at all deny nothing.
func CompileDenyList(patterns []string) (*DenyList, error) {
	d := &DenyList{compiled: true}
	for i, text := range patterns {
		refuse := func(detail, remedy string, cause error) (*DenyList, error) {
			return nil, &Error{Kind: ErrDenyList, Where: fmt.Sprintf("cert_deny_list[%d] %s", i, short(text)), Detail: detail, Remedy: remedy, Cause: cause}
		}
		bare := text
		if slashed.MatchString(text) {
			bare = strings.Trim(text, "/")
		}
		if bare == "" {
			return refuse("it is empty and would deny every name", "remove it, or write a pattern", nil)
		}
		pattern, err := regexp.Compile(bare)
		if err != nil {
			return refuse(plain(err), "correct the regular expression", err)
		}
		d.patterns = append(d.patterns, pattern)
	}
	return d, nil
}

// check refuses names that a pattern matches. Host names say the same in capitals and with a dot at their
// end, so those forms are tried as well.
func (d *DenyList) check(names []name, identity string) error {
	if d == nil || !d.compiled {
		return &Error{Kind: ErrDenyList, Detail: "it was not compiled, so nothing is allowed", Remedy: "this is a defect, report it"}
	}
	for _, n := range names {
		for _, form := range n.forms {
			for _, p := range d.patterns {
				if p.MatchString(form) || p.MatchString(strings.TrimRight(strings.ToLower(form), ".")) {
					return &Error{
						Kind: ErrDenied, Where: "node " + short(identity) + ": " + n.kind + " " + short(n.text), Detail: "it matches cert_deny_list " + short(p.String()),
						Remedy: "find out why this node wants that name; only then change the name or cert_deny_list",
					}
				}
			}
		}
	}
	return nil
}
