// Package powerloss makes, from a recorded trace of disk operations, the states in which a disk may be found after the power
// failed. It assumes of a file system only what POSIX grants: what a file's sync has covered is there; a name is there once its
// directory was synced; of all that is pending, any part may be.
package powerloss

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// File is a file, directory or symbolic link in an image, by its mode.
type File struct {
	Mode fs.FileMode
	Data []byte // shared between images: must not be changed
	Link string // what a symbolic link says
}

// Image is what a directory holds, by path below it. Sockets, pipes and devices hold nothing and are left out.
type Image map[string]File

const kept = fs.ModeDir | fs.ModeSymlink

// Load reads a directory.
func Load(dir string) (Image, error) {
	m := Image{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir || d.Type()&^kept != 0 {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		f := File{Mode: info.Mode()}
		switch {
		case d.IsDir():
		case d.Type()&fs.ModeSymlink != 0:
			f.Link, err = os.Readlink(path)
		default:
			f.Data, err = os.ReadFile(path)
		}
		m[name] = f
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("load image of %s: %w", dir, err)
	}
	return m, nil
}

// Write lays the image out in an empty directory.
func (m Image) Write(dir string) error {
	for _, name := range slices.Sorted(maps.Keys(m)) { // a directory comes before what is in it
		f, path := m[name], filepath.Join(dir, name)
		var err error
		switch {
		case f.Mode.IsDir():
			err = os.Mkdir(path, f.Mode.Perm())
		case f.Mode&fs.ModeSymlink != 0:
			err = os.Symlink(f.Link, path)
		default:
			err = errors.Join(os.WriteFile(path, f.Data, 0o600), os.Chmod(path, f.Mode.Perm()))
		}
		if err != nil {
			return fmt.Errorf("write image to %s: %w", dir, err)
		}
	}
	return nil
}

// Sum is equal for images of the same content and, within one process, as good as never for others. Modes do not count.
func (m Image) Sum(seed maphash.Seed) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, name := range slices.Sorted(maps.Keys(m)) {
		f := m[name]
		maphash.WriteComparable(&h, name)
		maphash.WriteComparable(&h, f.Link)
		maphash.WriteComparable(&h, f.Mode&kept)
		maphash.WriteComparable(&h, len(f.Data))
		_, _ = h.Write(f.Data)
	}
	return h.Sum64()
}
