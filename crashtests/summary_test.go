package crashtests

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// The environment of the crash tests.
const (
	tierEnv    = "CRASH"                 // "full" runs every case of every sweep
	caseEnv    = "CASE"                  // replays the case of that name alone
	summaryEnv = "CRASH_SUMMARY"         // the summary is appended to this file
	programEnv = "PROVCTL_CRASH_PROGRAM" // the program to test, in place of one that is built
	pointedEnv = "PROVCTL_CRASH_POINTED" // the same with crash points
)

// full tells whether every case is to run.
func full() bool { return os.Getenv(tierEnv) == "full" }

// quick tells whether a few cases of each sweep will do.
func quick() bool { return !full() && os.Getenv(caseEnv) == "" }

// wanted tells whether a case is to run: all are, unless one is named.
func wanted(name string) bool {
	only := os.Getenv(caseEnv)
	return only == "" || only == name
}

var tally = struct {
	sync.Mutex
	counts map[string]int
	sets   map[string]map[string]bool
}{counts: map[string]int{}, sets: map[string]map[string]bool{}}

// add counts something for the summary.
func add(what string, n int) {
	tally.Lock()
	defer tally.Unlock()
	tally.counts[what] += n
}

// count is add for a sweep's end: it also logs it.
func count(t testing.TB, what string, n int) {
	t.Helper()
	t.Logf("%d %s", n, what)
	add(what, n)
}

// mark adds a member to a set, whose size is counted.
func mark(set, member string) {
	tally.Lock()
	defer tally.Unlock()
	if tally.sets[set] == nil {
		tally.sets[set] = map[string]bool{}
	}
	tally.sets[set][member] = true
}

// marked lists the members of a set.
func marked(set string) []string {
	tally.Lock()
	defer tally.Unlock()
	return slices.Sorted(maps.Keys(tally.sets[set]))
}

// summarize writes the counts of all tests that ran, in one line.
func summarize() error {
	tally.Lock()
	defer tally.Unlock()
	counts := maps.Clone(tally.counts)
	for set, members := range tally.sets {
		counts[set] = len(members)
	}
	if len(counts) == 0 {
		return nil
	}
	counts["violations"] += 0 // none is worth saying
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[what], what))
	}
	tier := "quick"
	if full() {
		tier = "full"
	}
	line := fmt.Sprintf("crash tests (%s): %s\n", tier, strings.Join(parts, " · "))
	fmt.Print(line)
	path := os.Getenv(summaryEnv)
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	defer f.Close()
	_, err = f.WriteString(line)
	return err
}
