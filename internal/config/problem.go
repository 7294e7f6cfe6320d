package config

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxShown bounds how much of a value an error repeats, in bytes.
const maxShown = 60

// Position is a place in the file, counted from 1. The zero Position stands for
// the file as a whole.
type Position struct {
	Line   int
	Column int
}

func (p Position) compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Line, q.Line), cmp.Compare(p.Column, q.Column))
}

// prefix renders "file:line:column", or the file alone.
func (p Position) prefix(file string) string {
	if p == (Position{}) {
		return file
	}
	return fmt.Sprintf("%s:%d:%d", file, p.Line, p.Column)
}

// Problem is one thing that is wrong. Value is already quoted and shortened,
// "[redacted]" for a secret, and empty where there is none.
type Problem struct {
	File   string
	At     Position
	Key    string // dotted; empty when the file as a whole is meant
	Value  string
	Text   string
	Remedy string // empty: the text says it
}

// String renders the problem on one line.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.At.prefix(p.File) + ": ")
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	b.WriteString(p.Text)
	if p.Value != "" {
		b.WriteString(", found " + p.Value)
	}
	if p.Remedy != "" {
		b.WriteString("; " + p.Remedy)
	}
	return b.String()
}

// Invalid is the error of [Load]: everything that is wrong, in file order, what
// is missing first.
type Invalid struct {
	Problems []Problem
}

// Error renders one problem per line.
func (e *Invalid) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Warning is something accepted that an operator should know of: a key without
// effect, or a risky value.
type Warning struct {
	File string
	At   Position
	Key  string
	Text string
}

// String renders the warning on one line.
func (w Warning) String() string {
	return fmt.Sprintf("%s: %s: %s", w.At.prefix(w.File), w.Key, w.Text)
}

func invalid(file string, at Position, text, remedy string) *Invalid {
	return &Invalid{Problems: []Problem{{File: file, At: at, Text: text, Remedy: remedy}}}
}

// shown quotes a value for an error, escaped and shortened.
func shown(value string) string {
	if len(value) <= maxShown {
		return strconv.Quote(value)
	}
	cut := maxShown
	for cut > 0 && !utf8.RuneStart(value[cut]) {
		cut--
	}
	return strconv.Quote(value[:cut]) + "…"
}
