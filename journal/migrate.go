package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
)

// formerName is where the file of an older format is kept until the first commit in the new one.
func formerName(format int) string { return fmt.Sprintf("%s.format-%d", fileName, format) }

// formerFiles lists what is kept of older formats.
func formerFiles(dir string) ([]string, error) {
	return filepath.Glob(filepath.Join(dir, fileName+".format-*"))
}

// migrate brings a journal of an older format up to date. The old file is not written to: a copy is migrated in one transaction, checked,
// and takes its place at once, while the old one is kept under another name until the first commit. Up to that commit the older program can
// be had back, by giving that file its name again. Whoever is interrupted leaves the old file or the new one in place, whole.
func (j *Journal) migrate() error {
	from := j.meta.Format
	fail := func(err error) error {
		return fmt.Errorf("migrate journal %s from format %d to %d: %w: is there space, and may this user write?", j.path, from, formatVersion, err)
	}
	temp, err := j.copyOut()
	if err != nil {
		return fail(err)
	}
	m := j.meta
	m.Format = formatVersion
	err = guard(temp, func() error { return renew(temp, m) })
	if err == nil {
		err = errors.Join(j.likeOurs(temp), Verify(temp), j.injected("migrated"))
	}
	if err == nil {
		err = errors.Join(keepFormer(j.path, filepath.Join(j.dir, formerName(from))), j.injected("kept"))
	}
	if err != nil {
		return fail(errors.Join(err, os.Remove(temp)))
	}
	if err := j.replace(temp); err != nil {
		return fail(err)
	}
	j.meta = m
	j.o.Log.Info("journal migrated", "path", j.path, "from", from, "to", formatVersion)
	return nil
}

// renew is the one transaction of a migration.
func renew(path string, m meta) error {
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: openWait, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		s := &store{tx: tx}
		return errors.Join(createBuckets(tx), s.saveMeta(m), s.flush())
	})
	return errors.Join(err, db.Close())
}

// keepFormer gives the old file a second name. What has that name already is of a migration that was interrupted, or undone: it is no newer.
func keepFormer(path, as string) error {
	if err := os.Remove(as); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := os.Link(path, as)
	if err != nil {
		err = copyFile(path, as) // no hard links here
	}
	return errors.Join(err, syncDir(filepath.Dir(path)))
}

// copyFile makes a durable copy. It gets its name when it is whole, and replaces what has that name.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	like, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.CreateTemp(filepath.Dir(to), tempPattern)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	err = errors.Join(err, keepOwner(out, like), out.Sync(), out.Close())
	if err == nil {
		err = os.Rename(out.Name(), to)
	}
	if err != nil {
		return errors.Join(err, os.Remove(out.Name()))
	}
	return nil
}

// forgetFormer removes what was kept of older formats: after a commit it is older than its marker, and no way back.
func (j *Journal) forgetFormer() {
	for _, path := range j.former {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			j.o.Log.Warn("the journal's file of an older format is not needed any more and could not be removed", "path", path, "error", err.Error())
		}
	}
	j.former = nil
}
