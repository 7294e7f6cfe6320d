package config

import (
	"testing"
	"time"
)

// FuzzDuration reads durations as operators write them: none is negative or runs over, and what is shown is read as the same again.
func FuzzDuration(f *testing.F) {
	for _, s := range []string{"1m", "1d12h", "0", "290y", "300y", "1.5M", "1e9s", "99999999999999999999y", "µs"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := parseDuration(s)
		if err != nil {
			if d != 0 {
				t.Fatalf("%q: %s with %v", s, d, err)
			}
			return
		}
		if d < 0 {
			t.Fatalf("%q is %s", s, d)
		}
		again, err := parseDuration(formatDuration(d))
		if off := again - d; err != nil || off.Abs() > time.Microsecond+d/1e12 {
			t.Fatalf("%q is shown as %s, which is %s: %v", s, formatDuration(d), again, err)
		}
	})
}
