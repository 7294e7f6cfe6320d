package config

import (
	"fmt"
	"slices"
)

// Report is everything that [Examine] found, and what a closer look added.
type Report struct {
	File string // absolute path of the file read
	// Config is what could be read: a key with a problem has its default. It is nil if the file as a whole cannot be read.
	Config   *Config
	Problems []Problem // in file order, those of the file as a whole first
	Warnings []Warning // likewise
}

// Examine reads and checks the file at path as [Load] does, and returns what could be read of a file with problems too.
func Examine(path string) *Report {
	d, err := read(path)
	if err != nil {
		bad := err.(*Invalid) //nolint:errorlint // read returns nothing else
		return &Report{File: bad.Problems[0].File, Problems: bad.Problems}
	}
	c := defaults()
	c.File = d.file
	d.decode(c)
	d.reportUnknown()
	d.checkFlow(c)
	d.checkFiles(c)
	d.warnUnused(c)
	c.Places = make(map[string]Position, len(d.entries))
	for key, e := range d.entries {
		c.Places[key] = e.at
	}
	r := &Report{File: d.file, Config: c, Problems: d.problems, Warnings: d.warnings}
	r.sort()
	return r
}

// Failed reports whether one of the keys has a problem, so that checks of its consequences can be left out.
func (r *Report) Failed(keys ...string) bool {
	return slices.ContainsFunc(r.Problems, func(p Problem) bool { return slices.Contains(keys, p.Key) })
}

// Refuse adds problems.
func (r *Report) Refuse(problems ...Problem) {
	r.Problems = append(r.Problems, problems...)
	r.sort()
}

// Warn adds a warning about a key of the file; the report must have a Config.
func (r *Report) Warn(key, text string) {
	r.Warnings = append(r.Warnings, Warning{File: r.File, At: r.Config.Places[key], Key: key, Text: text})
	r.sort()
}

// sort puts everything in file order, and other files' problems last.
func (r *Report) sort() {
	slices.SortStableFunc(r.Problems, func(a, b Problem) int {
		if foreign := a.File != r.File; foreign != (b.File != r.File) {
			return map[bool]int{true: 1, false: -1}[foreign]
		}
		return a.At.compare(b.At)
	})
	slices.SortStableFunc(r.Warnings, func(a, b Warning) int { return a.At.compare(b.At) })
}

// Lines renders the problems and warnings in file order, one on each line, a problem before a warning of the same place.
func (r *Report) Lines() []string {
	lines, rest := []string{}, r.Warnings
	for _, p := range r.Problems {
		for len(rest) > 0 && (p.File != r.File || rest[0].At.compare(p.At) < 0) {
			lines, rest = append(lines, "warning: "+rest[0].String()), rest[1:]
		}
		lines = append(lines, "problem: "+p.String())
	}
	for _, w := range rest {
		lines = append(lines, "warning: "+w.String())
	}
	return lines
}

// Summary says on one line how many problems there are, or what a worker with this configuration will do.
func (r *Report) Summary() string {
	warnings := count(len(r.Warnings), "warning")
	if len(r.Problems) > 0 {
		text := r.File + ": " + count(len(r.Problems), "problem") + ", " + warnings
		if r.Config == nil {
			text += "; nothing else could be checked"
		}
		return text
	}
	if len(r.Warnings) == 0 {
		warnings = "no warnings"
	}
	return r.File + " is usable, " + warnings + ": " + r.Config.Plan()
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
