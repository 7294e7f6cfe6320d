package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

const (
	// maxFile bounds the configuration; a real one has a few kilobytes.
	maxFile = 1 << 20
	// maxNesting bounds opening brackets and list dashes: the YAML parser recurses
	// on them, and a Go stack that overflows cannot be recovered.
	maxNesting = 200
)

var byteOrderMark = []byte("\xef\xbb\xbf")

// entry is one key of the file with its value.
type entry struct {
	key  string // dotted
	at   Position
	node ast.Node // aliases and anchors resolved; nil for an explicit null
}

// decoder collects what is read and everything wrong with it.
type decoder struct {
	file     string
	dir      string
	entries  map[string]entry
	order    []string
	known    map[string]bool
	anchors  map[string]ast.Node
	problems []Problem
	warnings []Warning
}

// read parses the file into entries. Its error is for what makes the file as a
// whole unreadable; duplicate keys are collected as problems.
func read(path string) (*decoder, error) {
	file, err := filepath.Abs(path)
	if err != nil {
		return nil, invalid(path, Position{}, "cannot make the path absolute: "+err.Error(), "name the file by its full path")
	}
	text, err := readFile(file)
	if err != nil {
		return nil, err
	}
	return parse(file, text)
}

func parse(file string, text []byte) (*decoder, error) {
	d := &decoder{
		file: file, dir: filepath.Dir(file),
		entries: map[string]entry{}, known: map[string]bool{}, anchors: map[string]ast.Node{},
	}
	text = bytes.TrimPrefix(text, byteOrderMark)
	if err := checkText(file, text); err != nil {
		return nil, err
	}
	root, err := parseYAML(file, text)
	if err != nil {
		return nil, err
	}
	d.collect("", root)
	return d, nil
}

// readFile reads a regular file of at most maxFile bytes. The kind is checked
// before opening, because opening a pipe would hang.
func readFile(file string) ([]byte, error) {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, invalid(file, Position{}, "the file does not exist", "name an existing file")
	case err != nil:
		return nil, invalid(file, Position{}, "cannot look at the file: "+err.Error(), "make it readable for this user")
	case info.IsDir():
		return nil, invalid(file, Position{}, "this is a directory", "name the YAML file inside it")
	case !info.Mode().IsRegular():
		return nil, invalid(file, Position{}, "this is not a regular file", "name a plain YAML file")
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, invalid(file, Position{}, "cannot open the file: "+err.Error(), "make it readable for this user")
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, invalid(file, Position{}, "cannot read the file: "+err.Error(), "check the file and its disk")
	}
	if len(text) > maxFile {
		return nil, invalid(file, Position{}, "the file is larger than 1 MiB", "name the configuration file, not another one")
	}
	return text, nil
}

// checkText refuses what the YAML parser must not see.
func checkText(file string, text []byte) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return invalid(file, Position{}, "the file is empty", "set at least state_dir and helper")
	}
	line, column, depth := 1, 1, 0
	for rest := text; len(rest) > 0; column++ {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			return invalid(file, Position{line, column}, fmt.Sprintf("byte 0x%02x is not UTF-8", rest[0]), "save the file as UTF-8")
		case r < ' ' && r != '\n' && r != '\t' && r != '\r':
			return invalid(file, Position{line, column}, fmt.Sprintf("control character %U", r), "remove it")
		case r == '[' || r == '{':
			depth++
		case r == ']' || r == '}':
			depth = max(0, depth-1)
		case r == '\n':
			line, column = line+1, 0
		}
		if depth > maxNesting || leadingMarks(rest, column) > maxNesting {
			return invalid(file, Position{line, max(column, 1)}, "nested too deeply", "the configuration needs two levels only")
		}
		rest = rest[size:]
	}
	return nil
}

// leadingMarks counts the block indicators with which a line begins: each nests
// one level further.
func leadingMarks(rest []byte, column int) int {
	if column != 1 {
		return 0
	}
	n := 0
	for _, c := range rest {
		switch c {
		case ' ', '\t':
		case '-', '?', ':':
			n++
		default:
			return n
		}
	}
	return n
}

// parseYAML returns the one document's root. The parser is a foreign library
// and has panicked on odd input before: that too is a broken file, nothing more.
func parseYAML(file string, text []byte) (root ast.Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			root, err = nil, invalid(file, Position{}, "this is not YAML", "check the syntax")
		}
	}()
	parsed, perr := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if perr != nil {
		return nil, syntaxProblem(file, perr)
	}
	var bodies []ast.Node
	for _, doc := range parsed.Docs {
		if doc != nil && doc.Body != nil {
			bodies = append(bodies, doc.Body)
		}
	}
	switch {
	case len(bodies) == 0:
		return nil, invalid(file, Position{}, "the file holds no settings", "set at least state_dir and helper")
	case len(bodies) > 1:
		return nil, invalid(file, position(bodies[1]), "the file holds more than one YAML document", "keep one, without a further --- line")
	}
	if !isMapping(bodies[0]) {
		return nil, invalid(file, position(bodies[0]), "the file does not hold key: value lines", "write one setting per line, as in state_dir: /var/lib/provctl")
	}
	return bodies[0], nil
}

// syntaxProblem keeps message and place of a parser error. Its own rendering
// repeats source lines, and with them a password.
func syntaxProblem(file string, err error) error {
	var serr *yaml.SyntaxError
	if !errors.As(err, &serr) {
		return invalid(file, Position{}, "this is not YAML", "check the syntax")
	}
	at := Position{}
	if serr.Token != nil && serr.Token.Position != nil {
		at = Position{serr.Token.Position.Line, serr.Token.Position.Column}
	}
	message, _, _ := strings.Cut(serr.Message, "\n")
	return invalid(file, at, "this is not YAML: "+message, "check the syntax of this line and the one before it")
}
