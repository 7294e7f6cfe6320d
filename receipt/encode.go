package receipt

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// FormatVersion is the version of stored records. A reader refuses what is newer, and what is older goes through a migration.
const FormatVersion = 1

// headerSize is version (1 byte) and checksum (4 bytes, big endian).
const headerSize = 5

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Record is anything the journal stores.
type Record interface {
	Job | Receipt | Node
	Check() error
}

// Encode turns a record into bytes: version, CRC-32C over its place (bucket and key) and content, then JSON. Since the place is
// part of the checksum, a record that turns up under another key is noticed. It refuses a record that fails its own Check.
// Bytes of a text that are not UTF-8 are stored as U+FFFD.
func Encode[T Record](place string, v T) ([]byte, error) {
	if err := v.Check(); err != nil {
		return nil, fmt.Errorf("encode %s: %w", place, err)
	}
	// Texts of nodes and errors end up in a record: one bad byte in them must not keep an outcome from being stored.
	body, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", place, err)
	}
	return seal(place, body), nil
}

func seal(place string, body []byte) []byte {
	out := make([]byte, headerSize, headerSize+len(body))
	out[0] = FormatVersion
	binary.BigEndian.PutUint32(out[1:], checksum(place, body))
	return append(out, body...)
}

// Decode reads what Encode wrote. Every failure is ErrDamaged with the place: unknown version, wrong checksum, unknown fields,
// duplicate names, or content that fails its own Check. It never returns a partly filled record as good.
func Decode[T Record](place string, b []byte) (T, error) {
	var v, zero T
	if len(b) < headerSize {
		return zero, fmt.Errorf("%w: %s: record of %d bytes is too short", ErrDamaged, place, len(b))
	}
	if b[0] != FormatVersion {
		return zero, fmt.Errorf("%w: %s: record has format version %d, this program reads %d", ErrDamaged, place, b[0], FormatVersion)
	}
	body := b[headerSize:]
	if got, want := binary.BigEndian.Uint32(b[1:headerSize]), checksum(place, body); got != want {
		return zero, fmt.Errorf("%w: %s: checksum is %08x, should be %08x", ErrDamaged, place, got, want)
	}
	if err := json.Unmarshal(body, &v, json.RejectUnknownMembers(true)); err != nil {
		return zero, fmt.Errorf("%w: %s: %w", ErrDamaged, place, err)
	}
	if err := v.Check(); err != nil {
		return zero, fmt.Errorf("%w: %s: %w", ErrDamaged, place, err)
	}
	return v, nil
}

func checksum(place string, body []byte) uint32 {
	h := crc32.New(castagnoli)
	_, _ = h.Write([]byte(place))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write(body)
	return h.Sum32()
}
