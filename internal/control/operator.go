package control

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"provctl/receipt"
)

// Limits of what an operator may write, in bytes.
const (
	MaxOperator = 64
	MaxReason   = 1000
)

// Me is the name under which this process's own decisions are recorded, claimed being what the operator says in addition
// (see NameOf).
func Me(claimed string) (string, error) { return NameOf(os.Geteuid(), claimed) }

// NameOf turns a user id, as the kernel gives it, into the name to record. A name that the operator claims in addition is kept
// beside it and marked as claimed, so that people who share an account can be told apart without being believed.
func NameOf(uid int, claimed string) (string, error) {
	name := "uid " + strconv.Itoa(uid)
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil && CheckText("user name", u.Username, MaxOperator) == nil {
		name = u.Username
	}
	if claimed == "" {
		return name, nil
	}
	if err := CheckText("operator", claimed, MaxOperator); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s (as %s)", name, claimed), nil
}

// CheckText refuses what an operator must not put on record: nothing, too much, or characters that a terminal could take for
// commands. The error is receipt.ErrInvalid.
func CheckText(what, s string, limit int) error {
	switch {
	case strings.TrimSpace(s) == "":
		return fmt.Errorf("%s: %w: it is empty; say it in a few words", what, receipt.ErrInvalid)
	case len(s) > limit:
		return fmt.Errorf("%s: %w: %d bytes are too long; use at most %d", what, receipt.ErrInvalid, len(s), limit)
	case !utf8.ValidString(s):
		return fmt.Errorf("%s: %w: it is not valid UTF-8; type it again", what, receipt.ErrInvalid)
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("%s: %w: character %q is not allowed; use one line of plain text", what, receipt.ErrInvalid, r)
		}
	}
	return nil
}
