package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"provctl/internal/localfs"
	"provctl/receipt"
)

// The marker is a file of two slots. They are written in turn, so that a torn write leaves the other one; the valid slot with
// the higher count is the one that holds.
const (
	markerName  = "journal.marker"
	slotSize    = 512
	markerMagic = "PROVCTLM"
	markerForm  = 1
	maxIDLen    = 64
	slotIDAt    = 40 // magic 8, format 4, length of the id 4, count 8, epoch 8, sequence 8, id
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// mark is the content of a slot: which journal, whose term, and what was acknowledged.
type mark struct {
	ID    string
	Epoch receipt.Epoch
	Seq   receipt.Seq
	Count uint64
}

// encode lays a mark out in a slot; the last four bytes are a CRC-32C of all before.
func (m mark) encode() []byte {
	b := make([]byte, slotSize)
	copy(b, markerMagic)
	binary.BigEndian.PutUint32(b[8:], markerForm)
	binary.BigEndian.PutUint32(b[12:], uint32(len(m.ID)))
	binary.BigEndian.PutUint64(b[16:], m.Count)
	binary.BigEndian.PutUint64(b[24:], uint64(m.Epoch))
	binary.BigEndian.PutUint64(b[32:], uint64(m.Seq))
	copy(b[slotIDAt:slotIDAt+maxIDLen], m.ID)
	binary.BigEndian.PutUint32(b[slotSize-4:], crc32.Checksum(b[:slotSize-4], castagnoli))
	return b
}

// decodeSlot reads a slot; false if it is torn or none of ours.
func decodeSlot(b []byte) (mark, bool) {
	if len(b) != slotSize || string(b[:8]) != markerMagic || binary.BigEndian.Uint32(b[8:]) != markerForm ||
		crc32.Checksum(b[:slotSize-4], castagnoli) != binary.BigEndian.Uint32(b[slotSize-4:]) {
		return mark{}, false
	}
	n := binary.BigEndian.Uint32(b[12:])
	if n == 0 || n > maxIDLen {
		return mark{}, false
	}
	return mark{
		ID:    string(b[slotIDAt : slotIDAt+n]),
		Count: binary.BigEndian.Uint64(b[16:]),
		Epoch: receipt.Epoch(binary.BigEndian.Uint64(b[24:])),
		Seq:   receipt.Seq(binary.BigEndian.Uint64(b[32:])),
	}, true
}

// decodeMarker picks the mark that holds out of a marker file's bytes.
func decodeMarker(b []byte) (mark, bool) {
	var best mark
	found := false
	for at := 0; at+slotSize <= len(b) && at < 2*slotSize; at += slotSize {
		if m, ok := decodeSlot(b[at : at+slotSize]); ok && (!found || m.Count > best.Count) {
			best, found = m, true
		}
	}
	return best, found
}

// readMarker reads the marker of a directory, with the identity of its file.
func readMarker(dir string) (mark, os.FileInfo, error) {
	path := filepath.Join(dir, markerName)
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return mark{}, nil, fmt.Errorf("%w: marker %s: %w: without it a rolled back journal cannot be told; restore journal and marker together", receipt.ErrDamaged, path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return mark{}, nil, fmt.Errorf("marker %s: %w", path, err)
	}
	b := make([]byte, 2*slotSize)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return mark{}, nil, fmt.Errorf("%w: marker %s: %w", receipt.ErrDamaged, path, err)
	}
	m, ok := decodeMarker(b[:n])
	if !ok {
		return mark{}, nil, fmt.Errorf("%w: marker %s holds no valid slot in %d bytes: restore journal and marker together", receipt.ErrDamaged, path, n)
	}
	return m, info, nil
}

// markerFile is the marker opened for writing.
type markerFile struct {
	f    *os.File
	last mark
}

func openMarker(dir string, last mark) (*markerFile, error) {
	f, err := os.OpenFile(filepath.Join(dir, markerName), os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("marker: %w", err)
	}
	return &markerFile{f: f, last: last}, nil
}

// write makes a new mark durable in the slot that does not hold the last one.
func (m *markerFile) write(epoch receipt.Epoch, seq receipt.Seq) error {
	next := mark{ID: m.last.ID, Epoch: epoch, Seq: seq, Count: m.last.Count + 1}
	if _, err := m.f.WriteAt(next.encode(), int64(next.Count%2)*slotSize); err != nil {
		return fmt.Errorf("marker %s: %w", m.f.Name(), err)
	}
	if err := datasync(m.f); err != nil {
		return fmt.Errorf("marker %s: %w", m.f.Name(), err)
	}
	m.last = next
	return nil
}

func datasync(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// createMarker writes a new marker through a temporary file. Both slots are filled, so that later writes change no metadata.
func createMarker(dir string, m mark) error {
	other := m
	other.Count++
	slots := [2][]byte{}
	slots[m.Count%2], slots[other.Count%2] = m.encode(), other.encode()
	f, err := os.CreateTemp(dir, tempPattern)
	if err != nil {
		return fmt.Errorf("marker: %w", err)
	}
	_, err = f.Write(append(slots[0], slots[1]...))
	err = errors.Join(err, localfs.GiveToOwner(f, dir), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, markerName))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("marker: %w", err), os.Remove(f.Name()))
	}
	return syncDir(dir)
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}
