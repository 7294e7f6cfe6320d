package localfs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Free is how many bytes this user can still write to the file system of a path.
func Free(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", path, err)
	}
	return int64(min(st.Bavail, 1<<40)) * st.Frsize, nil //nolint:gosec // bounded
}
