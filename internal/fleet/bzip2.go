package fleet

import (
	"bytes"
	"errors"
	"hash/crc32"
	"math/bits"
	"slices"
	"sort"
)

// go-updater takes binaries that are packed with bzip2 alone (http_downloader.go:91), which the standard library can
// read but not write. What a fleet publishes is small, so one block without any attempt at a good ratio is enough.

// maxPacked bounds what bzip2 packs: sorting every rotation would take too long for more.
const maxPacked = 64 << 10

var errTooLargeToPack = errors.New("too large to be published")

// bitWriter writes the most significant bit first.
type bitWriter struct {
	out   []byte
	spare uint // bits still free in the last byte
}

func (w *bitWriter) write(value uint64, count uint) {
	for i := count; i > 0; i-- {
		if w.spare == 0 {
			w.out, w.spare = append(w.out, 0), 8
		}
		w.spare--
		w.out[len(w.out)-1] |= byte(value>>(i-1)&1) << w.spare
	}
}

// bzip2 packs data as one bzip2 stream.
func bzip2(data []byte) ([]byte, error) {
	if len(data) > maxPacked {
		return nil, errTooLargeToPack
	}
	w := &bitWriter{}
	for _, c := range []byte("BZh1") {
		w.write(uint64(c), 8)
	}
	var sum uint32
	if len(data) > 0 {
		sum = bzip2Sum(data)
		writeBlock(w, data, sum)
	}
	w.write(0x177245385090, 48) // end of stream
	w.write(uint64(sum), 32)
	return w.out, nil
}

// bzip2Sum is the usual polynomial over bits in the other order.
func bzip2Sum(data []byte) uint32 {
	turned := make([]byte, len(data))
	for i, c := range data {
		turned[i] = bits.Reverse8(c)
	}
	return bits.Reverse32(crc32.ChecksumIEEE(turned))
}

func writeBlock(w *bitWriter, data []byte, sum uint32) {
	last, origin := transform(shortenRuns(data))
	used := usedBytes(last)
	symbols := moveToFront(last, used)
	w.write(0x314159265359, 48) // start of a block
	w.write(uint64(sum), 32)
	w.write(0, 1) // not randomised
	w.write(uint64(origin), 24)
	writeUsed(w, used)
	lengths := evenLengths(len(used) + 2)
	// Two trees are the fewest that the format allows; all groups use the first.
	groups := (len(symbols) + 49) / 50
	w.write(2, 3)
	w.write(uint64(groups), 15)
	w.write(0, uint(groups))
	for range 2 {
		writeLengths(w, lengths)
	}
	codes := canonicalCodes(lengths)
	for _, s := range symbols {
		w.write(codes[s], lengths[s])
	}
}

// shortenRuns writes runs of four and more as four bytes and the count of those that follow.
func shortenRuns(data []byte) []byte {
	var out []byte
	for i := 0; i < len(data); {
		run := 1
		for i+run < len(data) && data[i+run] == data[i] && run < 4+255 {
			run++
		}
		out = append(out, bytes.Repeat(data[i:i+1], min(run, 4))...)
		if run >= 4 {
			out = append(out, byte(run-4))
		}
		i += run
	}
	return out
}

// transform sorts the rotations of data and gives their last bytes, and where the unrotated one went.
func transform(data []byte) (last []byte, origin int) {
	twice := append(slices.Clone(data), data...)
	order := make([]int, len(data))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool {
		return bytes.Compare(twice[order[a]:order[a]+len(data)], twice[order[b]:order[b]+len(data)]) < 0
	})
	last = make([]byte, len(data))
	for i, start := range order {
		last[i] = twice[start+len(data)-1]
		if start == 0 {
			origin = i
		}
	}
	return last, origin
}

func usedBytes(data []byte) []byte {
	used := slices.Clone(data)
	slices.Sort(used)
	return slices.Compact(used)
}

// writeUsed tells which bytes occur: one bit for each sixteen, then sixteen bits for each of those that have any.
func writeUsed(w *bitWriter, used []byte) {
	var ranges uint64
	var members [16]uint64
	for _, c := range used {
		ranges |= 1 << (15 - c/16)
		members[c/16] |= 1 << (15 - c%16)
	}
	w.write(ranges, 16)
	for _, m := range members {
		if m != 0 {
			w.write(m, 16)
		}
	}
}

// moveToFront gives the symbols of a block: runs of the front in two digits of weight 1, 2, 4 and so on, then places,
// and the end of the block.
func moveToFront(data, used []byte) []int {
	front := slices.Clone(used)
	var symbols []int
	zeros := 0
	flush := func() {
		for ; zeros > 0; zeros = (zeros - 1) / 2 {
			symbols = append(symbols, (zeros-1)%2)
		}
	}
	for _, c := range data {
		place := bytes.IndexByte(front, c)
		if place == 0 {
			zeros++
			continue
		}
		flush()
		symbols = append(symbols, place+1)
		copy(front[1:place+1], front[:place])
		front[0] = c
	}
	flush()
	return append(symbols, len(used)+1)
}

// evenLengths is a complete code for that many symbols whose lengths differ by one at most.
func evenLengths(count int) []uint {
	long := uint(bits.Len(uint(count - 1)))
	lengths := make([]uint, count)
	for i := range lengths {
		lengths[i] = long
		if i < 1<<long-count {
			lengths[i]--
		}
	}
	return lengths
}

func writeLengths(w *bitWriter, lengths []uint) {
	current := lengths[0]
	w.write(uint64(current), 5)
	for _, l := range lengths {
		for ; current < l; current++ {
			w.write(0b10, 2)
		}
		w.write(0, 1)
	}
}

// canonicalCodes counts up through the symbols, which evenLengths gives in order of their length.
func canonicalCodes(lengths []uint) []uint64 {
	codes := make([]uint64, len(lengths))
	var code uint64
	for i, l := range lengths {
		if i > 0 {
			code = (code + 1) << (l - lengths[i-1])
		}
		codes[i] = code
	}
	return codes
}
