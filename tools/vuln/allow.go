package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// allowance lets one vulnerability wait until a day.
type allowance struct {
	id, why string
	until   time.Time
}

func readAllowed(file string) ([]allowance, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var list []allowance
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, rest, _ := strings.Cut(line, " ")
		day, why, _ := strings.Cut(rest, " ")
		until, err := time.Parse(time.DateOnly, day)
		if err != nil || !strings.HasPrefix(id, "GO-") || strings.TrimSpace(why) == "" {
			return nil, fmt.Errorf("%s:%d: %q: write an id, a day and a reason, as in GO-2026-0000 2027-01-31 no fixed release yet", file, n, line)
		}
		list = append(list, allowance{id, strings.TrimSpace(why), until})
	}
	return list, nil
}

// judge prints every finding with what is to be done; bad: at least one may not wait, or an allowance is no longer of use.
func judge(out io.Writer, found []finding, allowed []allowance, now time.Time) (bad bool) {
	byID := map[string]allowance{}
	for _, a := range allowed {
		byID[a.id] = a
	}
	for _, f := range found {
		what := fmt.Sprintf("%s %s: %s calls %s", f.id, f.summary, f.module, f.symbol)
		fix := "no release mends it yet: avoid the call, or let it wait in allow.txt with a day and a reason"
		if f.fixed != "" {
			fix = "take " + f.fixed + " or newer"
		}
		a, waits := byID[f.id]
		delete(byID, f.id)
		switch {
		case waits && now.Before(a.until):
			fmt.Fprintf(out, "waits until %s: %s (%s)\n", a.until.Format(time.DateOnly), what, a.why)
		case waits:
			fmt.Fprintf(out, "no longer waits (%s): %s; %s\n", a.until.Format(time.DateOnly), what, fix)
			bad = true
		default:
			fmt.Fprintf(out, "vulnerable: %s; %s\n", what, fix)
			bad = true
		}
	}
	for _, a := range allowed {
		if _, unused := byID[a.id]; unused {
			fmt.Fprintf(out, "allow.txt: %s is not found any more: remove its line\n", a.id)
			bad = true
		}
	}
	if len(found) == 0 {
		fmt.Fprintln(out, "nothing that is called is known to be vulnerable")
	}
	return bad
}
