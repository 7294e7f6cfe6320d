package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"provctl/internal/localfs"
)

// ErrNoRoom is returned by Room when the next commits would fail.
var ErrNoRoom = errors.New("no space left for the journal")

// smallStep is what a journal that is still small grows by.
const smallStep = 32 << 10

// Room returns nil if the journal of a state directory can grow once more, or is not there. A worker asks before it opens it: each start that
// fails half-way counts as an interruption of the jobs that were at work, and their nodes would be held out for what a full disk did. It
// writes nothing. Errors: ErrNoRoom.
func Room(dir string) error {
	info, err := os.Stat(filepath.Join(dir, fileName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // Open says so better
	}
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	need := int64(smallStep)
	if info.Size() >= growSize {
		need = growSize
	}
	free, err := localfs.Free(dir)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if free < need {
		return fmt.Errorf("%w: %d bytes are free on the file system of %s, and the journal grows by %d: free some space, then start again; nothing was changed",
			ErrNoRoom, free, dir, need)
	}
	return nil
}
