package doctor

import (
	"fmt"
	"io"
	"strings"

	"provctl/inspect"
)

var colours = map[Status]string{OK: "32", Warn: "33", Fail: "1;31", Skip: "2"}

// WriteText writes the report for people, one line for each check and a last one that sums up. Nothing in it is obeyed by a terminal but, if
// asked for, its colours.
func WriteText(w io.Writer, r *Report, colour bool) error {
	var b strings.Builder
	for _, f := range r.Checks {
		status := fmt.Sprintf("%-4s", strings.ToUpper(string(f.Status)))
		if colour {
			status = "\x1b[" + colours[f.Status] + "m" + status + "\x1b[0m"
		}
		text := f.Found
		if f.Remedy != "" {
			text += "; " + f.Remedy
		}
		fmt.Fprintf(&b, "%s  %-19s %s\n", status, f.Check, inspect.Printable(text))
	}
	b.WriteString(r.Summary() + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// Summary is the last line.
func (r *Report) Summary() string {
	text := fmt.Sprintf("%d ok, %d warnings, %d failures, %d skipped", r.Count(OK), r.Count(Warn), r.Count(Fail), r.Count(Skip))
	if r.Usable {
		return text + ": a worker can run"
	}
	return fmt.Sprintf("%s: exit code %d", text, r.Exit)
}
