package journal

import (
	"io"
	"time"
)

// SetFault makes commits fail from within, at "commit" (before bbolt writes) or "marker" (after bbolt's commit).
func (j *Journal) SetFault(f func(point string) error) { j.fault = f }

// WithFault makes the opening of a journal fail from within, at "migrated" (the new file is ready) or "kept" (the old one has its second name).
func WithFault(o Options, f func(point string) error) Options {
	o.fault = f
	return o
}

// Waiting is how many changes wait for the committer.
func (j *Journal) Waiting() int { return j.queue.length() }

// CloseFile takes the database's descriptor away, so that its next write fails in bbolt itself.
func (j *Journal) CloseFile() error { return j.file.Close() }

// DecodeMarker reads a marker file's content as Open does.
func DecodeMarker(b []byte) (id string, epoch, seq, count uint64, ok bool) {
	m, ok := decodeMarker(b)
	return m.ID, uint64(m.Epoch), uint64(m.Seq), m.Count, ok
}

// EncodeSlot makes one slot of a marker.
func EncodeSlot(id string, epoch, seq, count uint64) []byte {
	return mark{ID: id, Epoch: receiptEpoch(epoch), Seq: receiptSeq(seq), Count: count}.encode()
}

// SetFormat stores another format version in a closed journal.
func SetFormat(path string, format int) error {
	return setMeta(path, func(m *meta) { m.Format = format })
}

// RestoreWithFault makes a restoration fail from within, at "accepted", "kept", "marked" or "placed".
func RestoreWithFault(r Restoration, f func(point string) error) Restoration {
	r.fault = f
	return r
}

// SaveWith is Save on a disk of ours.
func SaveWith(file string, fill func(io.Writer) (Info, error), verify, syncDir func(path string) error) (Info, int64, error) {
	return saveFile(file, fill, verify, syncDir)
}

// MakeDirWith is MakeDir on a disk of ours.
func MakeDirWith(dir string, syncDir func(string) error) error { return makeDir(dir, syncDir) }

// CopyFile copies a file as a migration does where there are no hard links.
func CopyFile(from, to string) error { return copyFile(from, to) }

// Patience is how long a copy may take, and how long the opening writer waits for it.
func Patience(size int64) (reader, writer time.Duration) { return copyTime(size), writeWait(size) }
