package journal_test

import (
	"path/filepath"
	"testing"

	"provctl/journal"
	"provctl/journal/journaltest"
)

func factory() journaltest.Factory {
	return journaltest.Factory{
		Create: func(dir string) error { _, err := journal.Init(dir); return err },
		Open: func(dir string, o journal.Options) (journaltest.Store, error) {
			j, err := journal.Open(dir, o)
			if err != nil {
				return nil, err
			}
			return j, nil
		},
		Verify: func(dir string) error { return journal.Verify(filepath.Join(dir, "journal.db")) },
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	journaltest.Run(t, factory())
}
