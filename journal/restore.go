package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"provctl/internal/localfs"
	"provctl/receipt"
)

// ErrKeep is returned by Restore for a directory whose journal is sound and holds what the backup does not, or whose journal or marker says
// that another one belongs there.
var ErrKeep = errors.New("the journal that is there is kept")

// Restoration says which backup takes the journal's place and why.
type Restoration struct {
	File       string
	By, Reason string
	Replace    bool                    // even if the journal that is there is sound, and newer or another one
	Verify     func(path string) error // the full check of a file; nil: Verify in this process

	fault func(point string) error // for tests: fails "accepted" (the temporary file is ready), "kept", "marked" or "placed"
}

// Restored says what Restore did.
type Restored struct {
	Accepted        // Aside is where the former journal is now; empty if there was none
	From     string // the backup, in words
}

// Restore puts a backup in the journal's place, accepted as by Accept: what was recorded since is lost, the next worker sends nothing for one
// horizon, and the audit trail says who restored what and why. The former journal keeps existing under another name. At any moment the former
// file is whole and in place, or the restored one, which is accepted then. Interrupted, it can be run again with the same order. The
// caller holds the worker lock. Errors: receipt.ErrDamaged and ErrNewer for the backup; ErrKeep, unless Replace is set. Nothing is changed
// then. Durable when it returns without an error.
func Restore(dir string, r Restoration) (Restored, error) {
	out, err := restore(dir, r)
	if err != nil {
		return Restored{}, fmt.Errorf("restore journal: %w", err)
	}
	return out, nil
}

func restore(dir string, r Restoration) (out Restored, err error) {
	if strings.TrimSpace(r.By) == "" || strings.TrimSpace(r.Reason) == "" {
		return out, fmt.Errorf("%w: a name and a reason are needed", receipt.ErrInvalid)
	}
	if r.Verify == nil {
		r.Verify = Verify
	}
	if err := localfs.Check(dir); err != nil {
		return out, err
	}
	path := filepath.Join(dir, fileName)
	if in, err := os.Stat(r.File); err == nil {
		if there, err := os.Stat(path); err == nil && os.SameFile(in, there) {
			return out, fmt.Errorf("%s is the journal itself: 'provctl journal accept' goes on with it", r.File)
		}
	}
	temp, err := takeIn(dir, r.File)
	if err != nil {
		return out, err
	}
	if out, err = putInPlace(temp, path, r); err != nil {
		return out, errors.Join(err, removeLeft(temp))
	}
	return out, nil
}

// putInPlace makes a copied backup the journal.
func putInPlace(temp, path string, r Restoration) (out Restored, err error) {
	dir := filepath.Dir(path)
	info, err := examine(temp, r.Verify)
	if err != nil {
		return out, fmt.Errorf("%s: %w", r.File, err)
	}
	m, _, markErr := readMarker(dir)
	if err := mayGo(path, info, m, markErr, r); err != nil {
		return out, err
	}
	out.From = fmt.Sprintf("restored from %s, which ended at sequence %d in epoch %d", r.File, info.Seq, info.Epoch)
	var next mark
	out.Accepted, next, err = acceptFile(temp, m, markErr, Acceptance{By: r.By, Reason: r.Reason, from: out.From})
	if err != nil {
		return out, fmt.Errorf("%w: is there space?", err)
	}
	out.Info.Path = path
	if err := r.injected("accepted"); err != nil {
		return out, err
	}
	if out.Aside, err = makeWay(path); err != nil {
		return out, err
	}
	// The marker comes first, as in Init: what is in place then is still judged as before when this is run again. The other way round a
	// restored journal without its marker would look like one that holds more than the backup.
	err = r.injected("kept")
	if err == nil {
		err = errors.Join(createMarker(dir, next), r.injected("marked"))
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err == nil {
		err = errors.Join(r.injected("placed"), syncDir(dir))
	}
	if err != nil {
		return out, fmt.Errorf("%w: run this again", err)
	}
	return out, nil
}

func (r Restoration) injected(point string) error {
	if r.fault == nil {
		return nil
	}
	return r.fault(point)
}

// examine checks a whole journal file and says what it is. Its own word comes first: a check in another process can tell ErrNewer
// from other damage by its text only.
func examine(path string, verify func(path string) error) (Info, error) {
	info, err := Look(path)
	if err == nil {
		err = verify(path)
	}
	return info, err
}

func removeLeft(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// takeIn copies a backup into the state directory under a temporary name, durably: what is checked is then what is used.
func takeIn(dir, file string) (string, error) {
	st, err := os.Stat(file)
	switch {
	case err != nil:
		return "", fmt.Errorf("backup: %w", err)
	case !st.Mode().IsRegular():
		return "", fmt.Errorf("backup %s: %w: it is no regular file (%s)", file, receipt.ErrInvalid, st.Mode().Type())
	}
	in, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("backup: %w", err)
	}
	defer in.Close()
	to, err := os.CreateTemp(dir, tempPattern)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(to, in)
	err = errors.Join(err, localfs.GiveToOwner(to, dir), to.Sync(), to.Close())
	if err != nil {
		return "", errors.Join(fmt.Errorf("copy %s: %w: is there space?", file, err), os.Remove(to.Name()))
	}
	return to.Name(), nil
}

// makeWay gives what is in the journal's place a second name, under which it stays. Its own name it keeps until the restored file takes that.
func makeWay(path string) (aside string, err error) {
	switch _, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("journal %s: %w: give this user access to it", path, err)
	}
	aside = path + ".replaced-" + time.Now().UTC().Format("20060102T150405.000")
	if err := os.Link(path, aside); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("keep the former journal: %w: try again", err)
		}
		if err := renameNew(path, aside); err != nil { // no hard links here: for a moment there is no journal, which no worker starts with
			return "", fmt.Errorf("keep the former journal: %w", err)
		}
	}
	return aside, syncDir(filepath.Dir(path))
}

// mayGo refuses to replace a sound journal that is another one than the backup, or newer than it; and to put a backup where the marker
// belongs to another journal, whatever became of that.
func mayGo(path string, backup Info, m mark, markErr error, r Restoration) error {
	if r.Replace {
		return nil
	}
	have, err := examine(path, r.Verify)
	switch {
	case errors.Is(err, ErrNewer):
		return fmt.Errorf("%w: %v; to replace it nevertheless: --replace", ErrKeep, err) //nolint:errorlint // it is no damage
	case errors.Is(err, receipt.ErrDamaged) && markErr == nil && m.ID != backup.ID:
		return fmt.Errorf("%w: %v; the marker there belongs to journal %s, the backup is of %s: is this the right state directory? To restore it nevertheless: --replace",
			ErrKeep, err, m.ID, backup.ID) //nolint:errorlint // that it is damaged is not the answer
	case errors.Is(err, receipt.ErrDamaged):
		return nil
	case err != nil:
		return err // whether it is sound is not known
	case have.ID != backup.ID:
		return fmt.Errorf("%w: %s is sound, and journal %s; the backup is of %s: is this the right state directory? To replace it nevertheless: --replace",
			ErrKeep, path, have.ID, backup.ID)
	case have.Seq > backup.Seq || have.Epoch > backup.Epoch:
		how := "a worker goes on with it and loses nothing"
		if markErr != nil || m.covers(have) != nil {
			how = "it and its marker do not go together, but 'provctl journal accept' goes on with it and loses less"
		}
		return fmt.Errorf("%w: %s is sound, and ends at sequence %d in epoch %d, the backup at %d in %d: %s; to replace it nevertheless: --replace",
			ErrKeep, path, have.Seq, have.Epoch, backup.Seq, backup.Epoch, how)
	}
	return nil
}
