package config

import (
	"fmt"
	"sort"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// sections are the keys that hold further keys.
var sections = map[string]bool{"features": true}

// collect walks a mapping and files its entries under dotted keys.
func (d *decoder) collect(prefix string, n ast.Node) {
	for _, pair := range pairs(n) {
		e := entry{key: prefix + keyText(pair.Key), at: position(pair.Key), node: d.resolve(pair.Value, 0)}
		if first, dup := d.entries[e.key]; dup {
			d.problem(e, "", "the key is set twice, first in line "+fmt.Sprint(first.at.Line), "keep one of the two")
			continue
		}
		d.entries[e.key] = e
		d.order = append(d.order, e.key)
		if prefix == "" && sections[e.key] && isMapping(e.node) {
			d.collect(e.key+".", e.node)
		}
	}
}

// resolve follows anchors and aliases to the value; nil is an explicit null.
func (d *decoder) resolve(n ast.Node, depth int) ast.Node {
	if depth > 10 {
		return nil
	}
	switch v := n.(type) {
	case *ast.AnchorNode:
		value := d.resolve(v.Value, depth+1)
		d.anchors[v.Name.GetToken().Value] = value
		return value
	case *ast.AliasNode:
		return d.anchors[v.Value.GetToken().Value]
	case *ast.NullNode:
		return nil
	}
	return n
}

// lookup marks key as known and returns its entry. An explicit null counts as
// not set, as it does in the existing provisioner.
func (d *decoder) lookup(key string) (entry, bool) {
	d.known[key] = true
	e, ok := d.entries[key]
	return e, ok && e.node != nil
}

// section checks that key, if set, holds a mapping.
func (d *decoder) section(key string) {
	if e, ok := d.lookup(key); ok && !isMapping(e.node) {
		d.problem(e, valueText(e.node), "must hold further keys", "write them indented under it, as in jwt: true")
	}
}

// reportUnknown reports every key that no accessor asked for.
func (d *decoder) reportUnknown() {
	for _, key := range d.order {
		if d.known[key] {
			continue
		}
		remedy := "remove it"
		if near := d.nearest(key); near != "" {
			remedy = "did you mean " + near + "?"
		}
		d.problem(d.entries[key], "", "unknown key", remedy)
	}
}

// nearest returns the known key that key was likely meant to be, or "".
func (d *decoder) nearest(key string) string {
	known := make([]string, 0, len(d.known))
	for k := range d.known {
		known = append(known, k)
	}
	sort.Strings(known)
	best, bestDistance := "", 3
	for _, k := range known {
		if strings.EqualFold(strings.ReplaceAll(key, "-", "_"), k) || strings.HasSuffix(k, "."+key) {
			return k
		}
		if n := distance(key, k, bestDistance); n < bestDistance {
			best, bestDistance = k, n
		}
	}
	return best
}

// distance is the edit distance of a and b, or at least limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func (d *decoder) problem(e entry, value, text, remedy string) {
	d.problems = append(d.problems, Problem{File: d.file, At: e.at, Key: printableKey(e.key), Value: value, Text: text, Remedy: remedy})
}

// problemAt reports key, at its line if it is set and for the whole file if not.
func (d *decoder) problemAt(key, value, text, remedy string) {
	e := d.entries[key]
	e.key = key
	d.problem(e, value, text, remedy)
}

func (d *decoder) warn(key, text string) {
	d.warnings = append(d.warnings, Warning{File: d.file, At: d.entries[key].at, Key: key, Text: text})
}

// failed reports whether key already has a problem, so that later checks do not
// report its consequences.
func (d *decoder) failed(key string) bool {
	for _, p := range d.problems {
		if p.Key == key {
			return true
		}
	}
	return false
}

// printableKey keeps a key that is a plain word and quotes any other.
func printableKey(key string) string {
	if strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == "" && len(key) <= maxShown {
		return key
	}
	return shown(key)
}

func isMapping(n ast.Node) bool {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return true
	}
	return false
}

// pairs returns the key-value pairs of a mapping; the parser gives a mapping of
// one pair as the pair itself.
func pairs(n ast.Node) []*ast.MappingValueNode {
	switch v := n.(type) {
	case *ast.MappingNode:
		return v.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{v}
	}
	return nil
}

func keyText(k ast.MapKeyNode) string {
	if s, ok := k.(*ast.StringNode); ok {
		return s.Value
	}
	if k == nil || k.GetToken() == nil {
		return ""
	}
	return k.GetToken().Value
}

func position(n ast.Node) Position {
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return Position{}
	}
	p := n.GetToken().Position
	return Position{p.Line, p.Column}
}
