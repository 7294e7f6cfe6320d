package receipt

import (
	"fmt"
	"strings"
	"unicode"

	rpm "github.com/knqyf263/go-rpm-version"
)

// maxVersion is the length that the agent declares for a version (go-choria v0.30.2 client/choria_provisionclient/ddl.json).
const maxVersion = 32

// CheckVersion refuses what cannot be the version of an upgrade; the error is ErrInvalid.
func CheckVersion(v string) error {
	switch {
	case v == "":
		return fmt.Errorf("%w: the version is empty", ErrInvalid)
	case len(v) > maxVersion:
		return fmt.Errorf("%w: version %.80q is longer than %d characters", ErrInvalid, v, maxVersion)
	case strings.ContainsFunc(v, func(r rune) bool { return !strings.ContainsRune(".-+~^_:", r) && !isAlphanumeric(r) }):
		return fmt.Errorf("%w: version %.80q holds something else than letters, digits and the signs :.-+~^_ of versions", ErrInvalid, v)
	case !strings.ContainsFunc(v, isAlphanumeric):
		return fmt.Errorf("%w: version %.80q holds no letter and no digit", ErrInvalid, v)
	}
	return nil
}

func isAlphanumeric(r rune) bool {
	return r < unicode.MaxASCII && (unicode.IsDigit(r) || unicode.IsLetter(r))
}

// SameVersion reports whether two versions are equal as RPM compares them: 1.02 is 1.2, and 0:1.2 is 1.2. A release that only one
// of them names does not count, since a server knows its version and a site may write that of the package: 1.2.3 is 1.2.3-1. What
// is no version is like nothing.
func SameVersion(a, b string) bool {
	if CheckVersion(a) != nil || CheckVersion(b) != nil {
		return false
	}
	x, y := rpm.NewVersion(a), rpm.NewVersion(b)
	if x.Release() == "" || y.Release() == "" {
		x, y = withoutRelease(x), withoutRelease(y)
	}
	return x.Equal(y)
}

func withoutRelease(v rpm.Version) rpm.Version {
	return rpm.NewVersion(strings.TrimSuffix(v.String(), "-"+v.Release()))
}
