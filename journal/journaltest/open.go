package journaltest

import (
	"testing"

	"provctl/journal"
)

// Open makes a journal in a directory of its own and begins a term on it. It is closed when the test ends.
func Open(t testing.TB) *journal.Journal {
	t.Helper()
	dir := t.TempDir()
	if _, err := journal.Init(dir); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(dir, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	if _, err := j.RaiseEpoch(); err != nil {
		t.Fatal(err)
	}
	return j
}
