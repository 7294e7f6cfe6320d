package config

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/goccy/go-yaml/ast"
)

// valueText renders a node's value for an error.
func valueText(n ast.Node) string {
	switch v := n.(type) {
	case *ast.StringNode:
		return shown(v.Value)
	case *ast.LiteralNode:
		return shown(v.Value.Value)
	case *ast.SequenceNode:
		return "a list"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "further keys"
	case nil:
		return "nothing"
	}
	if t := n.GetToken(); t != nil {
		return shown(t.Value)
	}
	return ""
}

// text returns the entry's string. A number or boolean is refused rather than
// guessed at: 0123 and 1e3 have no one spelling.
func (d *decoder) text(e entry) (string, bool) {
	switch v := e.node.(type) {
	case *ast.StringNode:
		return v.Value, d.clean(e, v.Value)
	case *ast.LiteralNode:
		value := strings.TrimSuffix(v.Value.Value, "\n")
		return value, d.clean(e, value)
	}
	d.problem(e, valueText(e.node), "must be text", "put the value in quotes")
	return "", false
}

// clean refuses control characters: no key has a use for them, and they end in
// logs and paths.
func (d *decoder) clean(e entry, value string) bool {
	if strings.ContainsFunc(value, unicode.IsControl) {
		d.problem(e, shown(value), "must not hold control characters or line breaks", "write the value on one line")
		return false
	}
	return true
}

func (d *decoder) str(key string, dst *string) {
	if e, ok := d.lookup(key); ok {
		if value, ok := d.text(e); ok {
			*dst = value
		}
	}
}

// toFillIn stands in the sample configuration for a secret that only the site knows.
const toFillIn = "FILL IN"

// secret reads text and never repeats it in an error.
func (d *decoder) secret(key string, dst *Secret) {
	e, ok := d.lookup(key)
	if !ok {
		return
	}
	s, isString := e.node.(*ast.StringNode)
	switch {
	case !isString:
		d.problem(e, redacted, "must be text on one line", "put the value in quotes")
	case strings.ContainsFunc(s.Value, unicode.IsControl):
		d.problem(e, redacted, "must not hold control characters or line breaks", "write the value on one line")
	case s.Value == toFillIn:
		d.problem(e, strconv.Quote(s.Value), "is still as the sample has it", "write the value of this site, or remove the line")
	default:
		*dst = Secret(s.Value)
	}
}

// path reads a path and makes it absolute.
func (d *decoder) path(key string, dst *string) {
	d.str(key, dst)
	if *dst != "" {
		*dst = d.absolute(*dst)
	}
}

func (d *decoder) absolute(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(d.dir, path)
}

// boolean accepts true and false, and the words that YAML 1.1 reads as such: the
// existing provisioner does, and a file must not change its meaning.
func (d *decoder) boolean(key string, dst *bool) {
	e, ok := d.lookup(key)
	if !ok {
		return
	}
	if b, ok := e.node.(*ast.BoolNode); ok {
		*dst = b.Value
		return
	}
	if s, ok := e.node.(*ast.StringNode); ok && s.Token != nil && s.Token.Value == s.Value {
		switch strings.ToLower(s.Value) {
		case "yes", "y", "on":
			*dst = true
			return
		case "no", "n", "off":
			*dst = false
			return
		}
	}
	d.problem(e, valueText(e.node), "must be true or false", "write true or false, without quotes")
}

func (d *decoder) integer(key string, dst *int, low, high int) {
	e, ok := d.lookup(key)
	if !ok {
		return
	}
	limits := fmt.Sprintf("write a whole number from %d to %d", low, high)
	n, ok := e.node.(*ast.IntegerNode)
	if !ok {
		d.problem(e, valueText(e.node), "must be a whole number", limits)
		return
	}
	value, inRange := 0, false
	switch v := n.Value.(type) {
	case int64:
		value, inRange = int(v), v >= int64(low) && v <= int64(high)
	case uint64:
		if v <= uint64(high) {
			value, inRange = int(v), int(v) >= low
		}
	}
	if !inRange {
		d.problem(e, n.Token.Value, "is out of range", limits)
		return
	}
	*dst = value
}

// workers reads the number of lanes; 0 keeps the default, one per CPU.
func (d *decoder) workers(dst *int) {
	n := 0
	d.integer("workers", &n, 0, 1024)
	if n > 0 {
		*dst = n
	}
}

func (d *decoder) duration(key string, dst *time.Duration, low, high time.Duration) {
	e, ok := d.lookup(key)
	if !ok {
		return
	}
	limits := fmt.Sprintf("write %s to %s", formatDuration(low), formatDuration(high))
	s, ok := e.node.(*ast.StringNode)
	if !ok {
		d.problem(e, valueText(e.node), "must be a duration with its unit", limits+", as in 90s, 5m, 12h, 30d, 2w, 6M, 1y")
		return
	}
	value, err := parseDuration(s.Value)
	if err != nil {
		d.problem(e, shown(s.Value), "is not a duration: "+err.Error(), limits+", as in 90s, 5m, 12h, 30d, 2w, 6M, 1y")
		return
	}
	if value < low || value > high {
		d.problem(e, shown(s.Value), "is out of range", limits)
		return
	}
	*dst = value
}

// seconds is duration in whole seconds, the unit that travels with a request.
func (d *decoder) seconds(key string, dst *time.Duration, low, high time.Duration) {
	value := *dst
	d.duration(key, &value, low, high)
	if value%time.Second != 0 {
		d.problemAt(key, shown(value.String()), "must be whole seconds", "round it up to "+(value.Truncate(time.Second)+time.Second).String())
		return
	}
	*dst = value
}

func (d *decoder) level(key string, dst *slog.Level) {
	e, ok := d.lookup(key)
	if !ok {
		return
	}
	value, ok := d.text(e)
	if !ok {
		return
	}
	switch strings.ToLower(value) {
	case "debug":
		*dst = slog.LevelDebug
	case "info", "":
		*dst = slog.LevelInfo
	case "warn", "warning":
		*dst = slog.LevelWarn
	case "error", "fatal":
		*dst = slog.LevelError
	default:
		d.problem(e, shown(value), "is not a log level", "write debug, info, warn or error")
	}
}

// component reads one token of a subject: wildcards would listen to more events
// than meant.
func (d *decoder) component(key string, dst *string) {
	value := ""
	d.str(key, &value)
	if value == "" {
		return
	}
	if strings.ContainsAny(value, ".>*") || strings.ContainsFunc(value, unicode.IsSpace) {
		d.problemAt(key, shown(value), "must be one word without . > * or spaces", "write the component's name, as in "+defaultComponent)
		return
	}
	*dst = value
}

// choice reads one of a few words.
func choice[T ~string](d *decoder, key string, dst *T, allowed ...T) {
	e, ok := d.lookup(key)
	if !ok {
		return
	}
	value, ok := d.text(e)
	if !ok {
		return
	}
	words := make([]string, len(allowed))
	for i, a := range allowed {
		if value == string(a) {
			*dst = a
			return
		}
		words[i] = string(a)
	}
	d.problem(e, shown(value), "is not one of its values", "write "+strings.Join(words, " or "))
}
