// Package localfs tells local file systems from network ones, on which locks and syncs may not hold what they promise.
package localfs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrNetwork is returned for a directory on a network file system.
var ErrNetwork = errors.New("on a network file system, where locks may not exclude and syncs may not last")

// networks are the types by statfs(2); the ones without a name in x/sys are from their own sources.
var networks = map[int64]string{
	unix.NFS_SUPER_MAGIC: "nfs", unix.SMB_SUPER_MAGIC: "smb", unix.SMB2_SUPER_MAGIC: "smb2", unix.CIFS_SUPER_MAGIC: "cifs",
	unix.AFS_SUPER_MAGIC: "afs", unix.AFS_FS_MAGIC: "afs", unix.CEPH_SUPER_MAGIC: "ceph", unix.CODA_SUPER_MAGIC: "coda",
	unix.NCP_SUPER_MAGIC: "ncp", unix.V9FS_MAGIC: "9p", unix.OCFS2_SUPER_MAGIC: "ocfs2",
	0x01161970: "gfs2", 0x0bd00bd0: "lustre", 0x47504653: "gpfs", 0x19830326: "beegfs", 0xaad7aaea: "panfs", 0x786f4256: "vboxsf",
}

// fuseNetworks are network file systems that come through FUSE, by their type in mountinfo.
var fuseNetworks = []string{
	"sshfs", "glusterfs", "ceph", "s3fs", "gcsfuse", "rclone", "juicefs", "davfs", "mfs", "moosefs", "goofys", "cvmfs2", "seaweedfs", "curlftpfs", "smbnetfs", "blobfuse", "blobfuse2",
}

// Check returns ErrNetwork if the directory is on a network file system, naming its type and the remedy. A directory that
// does not exist yet is judged by the nearest parent that does. Other FUSE file systems count as local.
func Check(dir string) error {
	at, err := existing(dir)
	if err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Statfs(at, &st) }); err != nil {
		return fmt.Errorf("file system of %s: %w", dir, err)
	}
	// The field is signed and its size differs between platforms; the magic numbers have 32 bits.
	magic := int64(uint32(st.Type)) //nolint:gosec // see above
	if name, ok := networks[magic]; ok {
		return refuse(dir, name)
	}
	if magic != unix.FUSE_SUPER_MAGIC {
		return nil
	}
	var info unix.Stat_t
	if err := retry(func() error { return unix.Stat(at, &info) }); err != nil {
		return fmt.Errorf("file system of %s: %w", dir, err)
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil //nolint:nilerr // without /proc a FUSE file system's name cannot be known; it counts as local
	}
	defer f.Close()
	if name := fuseType(f, info.Dev); networkFUSE(name) {
		return refuse(dir, name)
	}
	return nil
}

func refuse(dir, name string) error {
	return fmt.Errorf("%s is %w (%s): use a directory on a local disk", dir, ErrNetwork, name)
}

func networkFUSE(name string) bool {
	return slices.Contains(fuseNetworks, strings.TrimPrefix(strings.TrimPrefix(name, "fuse."), "fuseblk."))
}

// existing is the directory itself or its nearest parent that exists.
func existing(dir string) (string, error) {
	at, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("file system of %s: %w", dir, err)
	}
	for {
		_, err := os.Stat(at)
		switch {
		case err == nil:
			return at, nil
		case !errors.Is(err, os.ErrNotExist) || at == filepath.Dir(at):
			return "", fmt.Errorf("file system of %s: %w", dir, err)
		}
		at = filepath.Dir(at)
	}
}

// fuseType finds the type of the mount with a device number; see proc_pid_mountinfo(5).
func fuseType(mountinfo io.Reader, dev uint64) string {
	want := strconv.FormatUint(uint64(unix.Major(dev)), 10) + ":" + strconv.FormatUint(uint64(unix.Minor(dev)), 10)
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		left, right, ok := strings.Cut(lines.Text(), " - ")
		if f := strings.Fields(left); ok && len(f) > 2 && f[2] == want {
			name, _, _ := strings.Cut(right, " ")
			return name
		}
	}
	return ""
}

func retry(f func() error) error {
	for {
		if err := f(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
