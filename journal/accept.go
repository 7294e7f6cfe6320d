package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	bolt "go.etcd.io/bbolt"

	"provctl/internal/localfs"
	"provctl/receipt"
)

// Acceptance says how somebody goes on with a journal that is not what its marker says.
type Acceptance struct {
	By, Reason string
	SetAside   bool // a damaged journal is renamed, and a blank one begun

	from string // of a restored one: where it is from, in words; it is accepted even if its marker agrees
}

// Accepted says what Accept did.
type Accepted struct {
	Info  Info
	Was   string // what was found, in words
	Aside string // where a damaged journal was put; empty if there was none
}

// ErrNothingToAccept is returned by Accept for a journal that is what its marker says.
var ErrNothingToAccept = errors.New("nothing to accept")

// Accept goes on with a journal that Open refuses: with one that is older than its marker says, or another one, as it is; in the place of
// one that is gone, or damaged and set aside, with a blank one. What was recorded since is lost: nodes that were being provisioned then
// look new. From then on the journal says when it was accepted, so that a worker sends nothing for one horizon; its epoch is above all
// that the marker knew, which fences any worker of before. The caller holds the worker lock. It can be run again after a crash. Errors:
// ErrNothingToAccept; receipt.ErrDamaged for a damaged journal without SetAside; ErrMissing if there never was one here. Durable when it
// returns without an error.
func Accept(dir string, a Acceptance) (Accepted, error) {
	if strings.TrimSpace(a.By) == "" || strings.TrimSpace(a.Reason) == "" {
		return Accepted{}, fmt.Errorf("accept journal: %w: a name and a reason are needed", receipt.ErrInvalid)
	}
	if err := localfs.Check(dir); err != nil {
		return Accepted{}, fmt.Errorf("accept journal: %w", err)
	}
	out, err := accept(dir, a)
	if err != nil {
		return Accepted{}, fmt.Errorf("accept journal: %w", err)
	}
	return out, nil
}

func accept(dir string, a Acceptance) (out Accepted, err error) {
	path := filepath.Join(dir, fileName)
	m, _, markErr := readMarker(dir)
	_, statErr := statJournal(path)
	switch {
	case errors.Is(statErr, ErrMissing) && errors.Is(markErr, fs.ErrNotExist):
		return out, statErr
	case errors.Is(statErr, ErrMissing):
		out.Was = "the journal was missing"
		if markErr != nil {
			out.Was += ", and its marker unreadable"
		}
		if err := removeEmpty(path); err != nil {
			return out, err
		}
	case statErr != nil:
		return out, statErr
	default:
		damage := Verify(path)
		switch {
		case damage == nil:
			return acceptAsItIs(dir, m, markErr, a)
		case !errors.Is(damage, receipt.ErrDamaged), errors.Is(damage, ErrNewer):
			return out, damage
		case !a.SetAside:
			return out, fmt.Errorf("%w; 'provctl journal export' saves what can be read; to set it aside and begin a blank one: --set-aside", damage)
		}
		out.Was = "the journal was damaged: " + damage.Error()
		out.Aside = path + ".damaged-" + time.Now().UTC().Format("20060102T150405")
		if err := errors.Join(renameNew(path, out.Aside), syncDir(dir)); err != nil {
			return out, err
		}
	}
	out.Info, err = acceptBlank(dir, m, a, out.Was)
	return out, err
}

// removeEmpty removes an empty file that is in the journal's place: bbolt never leaves one.
func removeEmpty(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && st.Mode().IsRegular() && st.Size() == 0 {
		return os.Remove(path)
	}
	return errors.Join(err, fmt.Errorf("%s: move it away", path))
}

// acceptBlank begins a blank journal that goes on counting where the marker ended.
func acceptBlank(dir string, last mark, a Acceptance, was string) (Info, error) {
	m := meta{Magic: metaMagic, Format: formatVersion, ID: ulid.Make().String(), Created: time.Now().Round(0).UTC(), Ended: noTotals()}
	temp, err := blank(dir, m, func(s *stage) error { return s.accept(last, a, was) })
	if err != nil {
		return Info{}, fmt.Errorf("%w: is there space, and may this user write?", err)
	}
	// The marker comes first, as in Init: with the marker alone this can be run again.
	m.accept(last, m.Created)
	err = createMarker(dir, mark{ID: m.ID, Epoch: m.Epoch, Seq: m.Seq})
	if err == nil {
		err = renameNew(temp, filepath.Join(dir, fileName))
	}
	if err != nil {
		return Info{}, errors.Join(err, os.Remove(temp))
	}
	return m.info(filepath.Join(dir, fileName)), syncDir(dir)
}

// acceptAsItIs makes a whole journal and a marker that does not go with it agree.
func acceptAsItIs(dir string, m mark, markErr error, a Acceptance) (Accepted, error) {
	out, next, err := acceptFile(filepath.Join(dir, fileName), m, markErr, a)
	if err != nil {
		return Accepted{}, err
	}
	// From here on the journal is ahead of its marker, which a start mends; of another one's marker it is another journal still.
	return out, createMarker(dir, next)
}

// acceptFile accepts a whole journal file, durably, and says what its marker is from then on.
func acceptFile(path string, m mark, markErr error, a Acceptance) (out Accepted, next mark, err error) {
	db, file, err := openWritable(path)
	if err != nil {
		return Accepted{}, mark{}, err
	}
	err = guard(path, func() error {
		return db.Update(func(tx *bolt.Tx) error {
			if err := createBuckets(tx); err != nil {
				return err
			}
			s := &stage{store: store{tx: tx}, now: time.Now().Round(0).UTC()}
			if s.meta, err = s.metaRecord(); err != nil {
				return err
			}
			out.Was, err = disagreement(s.meta.info(path), m, markErr)
			if a.from != "" {
				out.Was, err = strings.TrimSuffix(a.from+"; "+out.Was, "; "), nil
			}
			if err != nil {
				return err
			}
			s.meta.Format = formatVersion
			if err := s.accept(m, a, out.Was); err != nil {
				return err
			}
			out.Info, next = s.meta.info(path), mark{ID: s.meta.ID, Epoch: s.meta.Epoch, Seq: s.meta.Seq}
			return s.flush()
		})
	})
	return out, next, errors.Join(err, file.Sync(), guard(path, db.Close))
}

// disagreement says how a journal and its marker do not go together.
func disagreement(i Info, m mark, markErr error) (string, error) {
	switch {
	case errors.Is(markErr, fs.ErrNotExist):
		return fmt.Sprintf("there was no marker, and the journal ended at sequence %d in epoch %d", i.Seq, i.Epoch), nil
	case markErr != nil:
		return fmt.Sprintf("the marker could not be read (%v), the journal ended at sequence %d in epoch %d", markErr, i.Seq, i.Epoch), nil
	case m.ID != i.ID:
		return fmt.Sprintf("the journal was %s at sequence %d in epoch %d, the marker that of %s at %d in %d", i.ID, i.Seq, i.Epoch, m.ID, m.Seq, m.Epoch), nil
	case m.Seq > i.Seq || m.Epoch > i.Epoch:
		return fmt.Sprintf("the journal ended at sequence %d in epoch %d, its marker at %d in %d", i.Seq, i.Epoch, m.Seq, m.Epoch), nil
	}
	return "", fmt.Errorf("%w: %s ends at sequence %d in epoch %d, and its marker agrees", ErrNothingToAccept, i.Path, i.Seq, i.Epoch)
}

// accept raises a journal above all that its marker knew, in a term of its own, and says when that was.
func (m *meta) accept(last mark, now time.Time) {
	m.Epoch, m.Seq, m.Accepted = max(m.Epoch, last.Epoch)+1, max(m.Seq, last.Seq)+1, now
}

// accept puts on record who goes on with the journal and why.
func (s *stage) accept(last mark, a Acceptance, was string) error {
	s.meta.accept(last, s.now)
	return errors.Join(s.enter(Act{Did: DidAccept, By: a.By, Reason: a.Reason, Result: was}), s.saveMeta(s.meta))
}
