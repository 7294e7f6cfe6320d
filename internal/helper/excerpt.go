package helper

import (
	"regexp"
	"strconv"
	"strings"
)

const (
	// maxExcerpt bounds what an error repeats of a foreign text, in bytes.
	maxExcerpt = 200
	// maxScanned bounds what is searched for secrets before it is cut.
	maxScanned = 64 << 10
)

// secretForms are shapes of keys and tokens. They are replaced before a text is
// cut, so that no half of a key survives.
var secretForms = []struct {
	form *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`(?s)-----BEGIN .*?(-----END [A-Z0-9 ]*-----|$)`), "[PEM]"},
	{regexp.MustCompile(`eyJ[A-Za-z0-9_=-]{5,}(\.[A-Za-z0-9_=-]*){0,2}`), "[JWT]"},
	{regexp.MustCompile(`[0-9a-fA-F]{64,}`), "[hex]"},
	{regexp.MustCompile(`[A-Za-z0-9+/_-]{80,}={0,2}`), "[base64]"},
	{regexp.MustCompile(`(?i)((?:password|passwd|passphrase|secret|token|seed|private|api_?key)[a-z0-9_.-]*\\?["']?\s*(?:[:=]|=>)\s*)(\\?"[^"]*"|'[^']*'|[^\s,;}]+)`), "${1}[redacted]"},
}

func redact(text string) string {
	if len(text) > maxScanned {
		text = text[:maxScanned]
	}
	for _, s := range secretForms {
		text = s.form.ReplaceAllString(text, s.with)
	}
	return text
}

// quote escapes text for a log line or a terminal and cuts it to limit bytes of
// the original.
func quote(text string, limit int) string {
	cut := ""
	if len(text) > limit {
		text, cut = text[:limit], "…"
	}
	return strconv.QuoteToASCII(text) + cut
}

// excerpt is what may be shown of the helper's output.
func excerpt(output []byte) string {
	if len(output) == 0 {
		return ""
	}
	return quote(redact(string(output[:min(len(output), maxScanned)])), maxExcerpt)
}

// plain makes the text of a foreign error fit for one line of ours.
func plain(err error) string {
	text := redact(err.Error())
	if len(text) > maxExcerpt {
		text = text[:maxExcerpt] + "…"
	}
	return strings.Trim(strconv.QuoteToGraphic(text), `"`)
}
