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

// ErrKeep is returned by Restore when the journal that is there is sound and holds what the backup does not.
var ErrKeep = errors.New("the journal that is there is sound, and holds what the backup does not")

// Restoration says which backup takes the journal's place and why.
type Restoration struct {
	File       string
	By, Reason string
	Replace    bool                    // even if the journal that is there is sound, and newer or another one
	Verify     func(path string) error // the full check of a file; nil: Verify in this process
}

// Restored says what Restore did.
type Restored struct {
	Accepted        // Aside is where the former journal is now; empty if there was none
	From     string // the backup, in words
}

// Restore puts a backup in the journal's place and accepts it, as Accept does: what was recorded since is lost, the next worker sends
// nothing for one horizon, and the audit trail says who restored what and why. The former journal keeps existing under another name.
// At any moment the old file or the restored one is whole and in place; interrupted in between, Open refuses what is there until Restore is
// run again, or Accept. The caller holds the worker lock. Errors: receipt.ErrDamaged and ErrNewer for the backup; ErrKeep, unless Replace
// is set. Nothing is changed then. Durable when it returns without an error.
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
	err = r.Verify(temp)
	var info Info
	if err == nil {
		info, err = Look(temp)
	}
	if err != nil {
		return out, errors.Join(fmt.Errorf("%s: %w", r.File, err), os.Remove(temp))
	}
	out.From = fmt.Sprintf("restored from %s, which ended at sequence %d in epoch %d", r.File, info.Seq, info.Epoch)
	if out.Aside, err = makeWay(path, info, r); err == nil {
		err = errors.Join(os.Rename(temp, path), syncDir(dir))
	}
	if err != nil {
		return out, errors.Join(err, removeLeft(temp))
	}
	m, _, markErr := readMarker(dir)
	aside := out.Aside
	out.Accepted, err = acceptAsItIs(dir, m, markErr, Acceptance{By: r.By, Reason: r.Reason, from: out.From})
	if err != nil {
		return out, fmt.Errorf("the backup is in place, but was not accepted: %w: 'provctl journal accept' does that", err)
	}
	out.Aside = aside
	return out, nil
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

// makeWay judges what is in the journal's place and gives it a second name, under which it stays. Its own name it keeps until the restored
// file takes that.
func makeWay(path string, backup Info, r Restoration) (aside string, err error) {
	switch _, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("journal %s: %w: give this user access to it", path, err)
	}
	if err := mayGo(path, backup, r); err != nil {
		return "", err
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

// mayGo refuses to replace a sound journal that is another one than the backup, or newer than it.
func mayGo(path string, backup Info, r Restoration) error {
	if r.Replace {
		return nil
	}
	err := r.Verify(path)
	var have Info
	if err == nil {
		have, err = Look(path)
	}
	switch {
	case errors.Is(err, ErrNewer):
		return fmt.Errorf("%w: %w; to replace it nevertheless: --replace", ErrKeep, err)
	case errors.Is(err, receipt.ErrDamaged):
		return nil
	case err != nil:
		return err // whether it is sound is not known
	case have.ID != backup.ID:
		return fmt.Errorf("%w: %s is journal %s, the backup is of %s: is this the right state directory? To replace it nevertheless: --replace",
			ErrKeep, path, have.ID, backup.ID)
	case have.Seq > backup.Seq || have.Epoch > backup.Epoch:
		return fmt.Errorf("%w: %s ends at sequence %d in epoch %d, the backup at %d in %d: going on with it loses nothing; to replace it nevertheless: --replace",
			ErrKeep, path, have.Seq, have.Epoch, backup.Seq, backup.Epoch)
	}
	return nil
}
