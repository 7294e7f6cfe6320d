package inspect

import (
	"bufio"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Printable makes any text safe for a terminal and for one line: whatever is not a printable character becomes \x1b or \u202e
// in ASCII. Letters of any script stay.
func Printable(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1, r < ' ', r == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b.WriteString(s[i : i+n])
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += n
	}
	return b.String()
}

// escaper replaces what a terminal could take for a command, and JSON allows as it is, by its \u form: the values stay exactly the
// same. Outside of strings JSON has none of these characters. It takes JSON in pieces, which may end within a character.
type escaper struct {
	w      *bufio.Writer
	rest   []byte // of a character whose end has not come
	failed error  // of w
}

func (e *escaper) Write(p []byte) (int, error) {
	b := p
	if len(e.rest) > 0 {
		b = append(e.rest, p...)
		e.rest = nil
	}
	for len(b) > 0 && e.failed == nil {
		n := 0
		for n < len(b) && (b[n] >= ' ' && b[n] < 0x7f || b[n] == '\n') {
			n++
		}
		_, e.failed = e.w.Write(b[:n])
		if b = b[n:]; len(b) == 0 {
			break
		}
		if !utf8.FullRune(b) {
			e.rest = slices.Clone(b)
			break
		}
		r, size := utf8.DecodeRune(b)
		if e.failed == nil {
			_, e.failed = e.w.Write(escaped(r, b[:size]))
		}
		b = b[size:]
	}
	if e.failed != nil {
		return 0, e.failed
	}
	return len(p), nil
}

func escaped(r rune, as []byte) []byte {
	switch {
	case unicode.IsPrint(r):
		return as
	case r > 0xffff:
		hi, lo := utf16.EncodeRune(r)
		return fmt.Appendf(nil, `\u%04x\u%04x`, hi, lo)
	default:
		return fmt.Appendf(nil, `\u%04x`, r)
	}
}
