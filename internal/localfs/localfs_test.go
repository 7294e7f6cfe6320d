package localfs

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLocalDirectoryIsAccepted(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Join(dir, "not", "yet", "there")} {
		if err := Check(d); err != nil {
			t.Errorf("Check(%s) = %v", d, err)
		}
	}
}

func TestRefusalNamesTypeAndRemedy(t *testing.T) {
	err := refuse("/state", networks[unix.NFS_SUPER_MAGIC])
	if !errors.Is(err, ErrNetwork) || !strings.Contains(err.Error(), "(nfs)") || !strings.Contains(err.Error(), "local disk") {
		t.Errorf("refuse = %v", err)
	}
}

func TestFUSETypes(t *testing.T) {
	const mounts = `22 27 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw
90 27 0:51 / /mnt/a rw,nosuid - fuse.sshfs host:/x rw,user_id=0
91 27 0:52 / /mnt/b rw,nosuid - fuse.provctlfs x rw
garbage
`
	for minor, want := range map[uint32]struct {
		name    string
		network bool
	}{51: {"fuse.sshfs", true}, 52: {"fuse.provctlfs", false}, 53: {"", false}} {
		got := fuseType(strings.NewReader(mounts), unix.Mkdev(0, minor))
		if got != want.name || networkFUSE(got) != want.network {
			t.Errorf("0:%d is %q (network %v), want %q (%v)", minor, got, networkFUSE(got), want.name, want.network)
		}
	}
}
