package config

import (
	"fmt"
	"io"
	"log/slog"
)

// redacted is what every rendering of a Secret shows.
const redacted = "[redacted]"

// Secret is a value that no log line, error or output may show. Every way of
// printing it, any fmt verb included, gives "[redacted]"; [Secret.Reveal] is the
// only way to the text. Two uses defeat it and must not occur: an unexported
// struct field (fmt calls no method there) and a map key in JSON.
type Secret string

// Reveal returns the text, for the one place that sends it.
func (s Secret) Reveal() string { return string(s) }

// String returns "[redacted]".
func (s Secret) String() string { return redacted }

// GoString returns "[redacted]".
func (s Secret) GoString() string { return redacted }

// Format writes "[redacted]" whatever the verb: %d would show the text otherwise.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalJSON returns the JSON string "[redacted]".
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalText returns "[redacted]", for encoders other than JSON.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue returns "[redacted]".
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }
