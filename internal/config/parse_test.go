package config

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	good := map[string]time.Duration{
		"0": 0, "0s": 0, "1s": time.Second, "1.5m": 90 * time.Second, "2h": 2 * time.Hour,
		"1d": day, "1D": day, "1w": 7 * day, "1M": 30 * day, "1y": year, "1Y": year,
		"1y1d1s": year + day + time.Second, "10ms": 10 * time.Millisecond, "0.1d": 144 * time.Minute, " 5m ": 5 * time.Minute,
	}
	for text, want := range good {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "s", "5", "-5m", "+5m", "5 m", "5m x", "x5m", "1e3s", "5q", "..5s", "1.2.3s", "5m-3s",
		"300y", "99999999999999999999y", strings.Repeat("9", 400) + "s", "١s",
	} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%q: accepted as %v", text, got)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", 90 * time.Second: "90s", time.Hour: "1h", day: "1d", 100 * year: "100y", 100 * time.Millisecond: "100ms",
	} {
		if got := formatDuration(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}

func TestShownCutsAtARune(t *testing.T) {
	got := shown(strings.Repeat("a", maxShown-1) + "éé")
	if want := `"` + strings.Repeat("a", maxShown-1) + `"…`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// FuzzParse: whatever the file holds, decoding ends in a result or in problems
// that are complete and on one line each.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"state_dir: a\nhelper: b\n", "features: {jwt: true}", "a: &x [1, *x]", "? a\n: b", "<<: {a: b}", "a: !!int b", "workers: -1\nworkers: 2",
		"cert_deny_list: ['(']", "token: |\n  a\n", "a: b: c", "features: &f\n  jwt: *f", "\t", "--- >\n", "{", "*a", "&a", "interval: 5",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > maxFile {
			return
		}
		d, err := parse("/f.yaml", text)
		var problems []Problem
		if err != nil {
			problems = err.(*Invalid).Problems
		} else {
			d.decode(defaults())
			d.reportUnknown()
			problems = d.problems
		}
		if err != nil && len(problems) == 0 {
			t.Fatal("an error without a problem")
		}
		for _, p := range problems {
			if p.Text == "" || p.Remedy == "" || strings.ContainsAny(p.String(), "\n\r") {
				t.Fatalf("problem %q", p.String())
			}
		}
	})
}

// TestEveryKeyIsDocumented: docs/configuration.md has a row for each key that the decoder knows, and for no other.
func TestEveryKeyIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	d, err := parse("/f.yaml", []byte("site: x\n"))
	if err != nil {
		t.Fatal(err)
	}
	d.decode(defaults())
	_, tables, _ := strings.Cut(string(text), "\n## Keys of ")
	documented := map[string]int{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9_.]+)` \\|.*\\|$").FindAllStringSubmatch(tables, -1) {
		documented[row[1]]++
	}
	for key := range d.known {
		if !sections[key] && documented[key] != 1 {
			t.Errorf("docs/configuration.md has %d rows for %s, want one", documented[key], key)
		}
	}
	for key := range documented {
		if !d.known[key] || sections[key] {
			t.Errorf("docs/configuration.md tells of %s, which is no key", key)
		}
	}
}
