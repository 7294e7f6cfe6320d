package crashtests

import (
	"fmt"
	"strings"
	"testing"

	"provctl/internal/crashpoint"
)

// regressions are the bugs that these tests found in the program: the case that shows each, and what it was. Every tier replays
// them. A case is named by what it does wherever that can be: the numbers of events change with the program.
var regressions = []struct{ name, was string }{
	{
		"TestSweep6Stale/fence-passed#2/directory-copied/late",
		"a worker that had lost its lock, with no effect to be fenced from, went on to discover nodes and to ask them for tokens, which replaces their keys",
	},
	{
		"TestSweep8Wire/broker-stops-past-the-horizon/configure",
		"what came up while its node was being looked at waited for the timer, up to 15 s, since the end of the look overwrote the wish for another",
	},
	{
		"TestSweep8Wire/held-in-the-node-for-long/configure",
		"a verdict not-applied past the horizon was taken while the node still had the request to do, and so it was done twice",
	},
	{
		"TestSweep7Corruption/bucket active without its last element",
		"a page that said that it had fewer elements took jobs out of what inspect shows: no checksum covers how many there are",
	},
	{
		"TestSweep7Corruption/bucket audit under another name",
		"a bucket whose name was changed passed for one that an older journal does not have, and export and audit went on without it",
	},
}

// TestRegressions replays every bug that was found.
func TestRegressions(t *testing.T) {
	t.Parallel()
	if !mine(t) {
		return
	}
	l := newLab(t, 4)
	for _, r := range regressions {
		do, err := replay(r.name)
		if err != nil {
			t.Errorf("%s: %v", r.name, err)
			continue
		}
		if full := t.Name() + "/" + r.name; wanted(full) {
			t.Run(r.name, func(t *testing.T) {
				do(t, l)
				add("regressions replayed", 1)
			})
		}
	}
}

// replay finds the case of a name.
func replay(name string) (func(*testing.T, *lab), error) {
	test, rest, _ := strings.Cut(name, "/")
	switch test {
	case "TestSweep1Disk":
		var n int
		if _, err := fmt.Sscanf(rest, "event-%d", &n); err == nil {
			return func(t *testing.T, l *lab) { killAtEvent(t, l, n, &rising{}) }, nil
		}
	case "TestSweep1Points":
		for _, s := range []*scene{alone, doubt} {
			for _, p := range crashpoint.All() {
				var n int
				if _, err := fmt.Sscanf(rest, s.name+"/"+string(p)+"#%d", &n); err == nil {
					return func(t *testing.T, l *lab) {
						killAtPoint(t, l, pointPass{s, p, n}, &passes{over: map[crashpoint.Point]bool{}})
					}, nil
				}
			}
		}
	case "TestSweep6Stale":
		for _, c := range staleCases(false) {
			if c.id() == rest {
				return c.run, nil
			}
		}
	case "TestSweep7Corruption":
		return func(t *testing.T, _ *lab) { replayDamage(t, rest) }, nil
	case "TestSweep8Wire":
		for _, c := range wireCases(false) {
			if c.id() == rest {
				return c.run, nil
			}
		}
	}
	return nil, fmt.Errorf("no test has this case")
}
