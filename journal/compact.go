package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Compacted says what a compaction brought, in bytes of the file.
type Compacted struct {
	Before int64 `json:"before_bytes"`
	After  int64 `json:"after_bytes"`
}

// Compact rewrites a journal without its free pages, however few there are: Open does it by itself only when it pays. The caller holds the
// worker lock. At any moment the old file or the new one is whole and in place. Errors as for Open.
func Compact(dir string) (Compacted, error) {
	var out Compacted
	path := filepath.Join(dir, fileName)
	info, err := statJournal(path)
	if err != nil {
		return out, fmt.Errorf("compact journal: %w", err)
	}
	out.Before = info.Size()
	j, err := Open(dir, Options{})
	if err != nil {
		return out, err
	}
	if err := j.rewrite(); err != nil {
		return out, errors.Join(fmt.Errorf("compact journal: %w", err), j.Close())
	}
	if err := j.Close(); err != nil {
		return out, err
	}
	if info, err = os.Stat(path); err != nil {
		return out, fmt.Errorf("compact journal: %w", err)
	}
	out.After = info.Size()
	return out, nil
}
