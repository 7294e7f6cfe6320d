package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"provctl/receipt"
)

// The layout of a bbolt file (go.etcd.io/bbolt v1.5.0 internal/common: page.go, meta.go, inode.go). It is checked by plain
// reads before bbolt maps the file, because a page reference that leads past the end would fault in memory.
const (
	pageHeader    = 16 // id 8, flags 2, count 2, overflow 4
	metaBytes     = 64
	elementBytes  = 16
	bucketBytes   = 16 // root page 8, sequence 8
	boltMagic     = 0xED0CDAED
	boltVersion   = 2
	noFreelist    = ^uint64(0)
	flagBranch    = 0x01
	flagLeaf      = 0x02
	flagMeta      = 0x04
	flagFreelist  = 0x10
	flagBucket    = 0x01 // of a leaf element
	maxTreeDepth  = 64
	maxBuckets    = 64 // that are walked at once; ours are ten
	smallestPages = 4
)

var native = binary.NativeEndian

// boltMeta is one of the two meta pages.
type boltMeta struct {
	pageSize, root, freelist, pages, txid uint64
}

func badFile(format string, args ...any) error {
	return fmt.Errorf("%w: %w: restore it from a backup together with its marker", receipt.ErrDamaged, fmt.Errorf(format, args...))
}

// readMeta reads the meta page at an offset; false if it is not valid.
func readMeta(f io.ReaderAt, at int64) (boltMeta, bool) {
	b := make([]byte, pageHeader+metaBytes)
	if _, err := f.ReadAt(b, at); err != nil {
		return boltMeta{}, false
	}
	b = b[pageHeader:]
	sum := fnv.New64a()
	_, _ = sum.Write(b[:metaBytes-8])
	if native.Uint32(b) != boltMagic || native.Uint32(b[4:]) != boltVersion || native.Uint64(b[56:]) != sum.Sum64() {
		return boltMeta{}, false
	}
	return boltMeta{
		pageSize: uint64(native.Uint32(b[8:])), root: native.Uint64(b[16:]), freelist: native.Uint64(b[32:]),
		pages: native.Uint64(b[40:]), txid: native.Uint64(b[48:]),
	}, true
}

// newestMeta is the meta page that bbolt will use.
func newestMeta(f io.ReaderAt, size int64) (boltMeta, error) {
	first, ok0 := readMeta(f, 0)
	var second boltMeta
	ok1 := false
	if ok0 {
		second, ok1 = readMeta(f, int64(first.pageSize))
	} else {
		for at := int64(1024); !ok1 && at <= 1024<<14 && at < size; at *= 2 {
			second, ok1 = readMeta(f, at)
			ok1 = ok1 && second.pageSize == uint64(at)
		}
	}
	m := first
	switch {
	case !ok0 && !ok1:
		return m, badFile("neither meta page is valid: this is no bbolt file, or both were overwritten")
	case !ok0, ok1 && second.txid > first.txid:
		m = second
	}
	switch {
	case m.pageSize < 1024 || m.pageSize > 1<<24 || m.pageSize&(m.pageSize-1) != 0:
		return m, badFile("page size %d", m.pageSize)
	case m.pages < smallestPages || m.pages > uint64(size)/m.pageSize:
		return m, badFile("the file has %d bytes, its %d pages of %d need more: it was cut", size, m.pages, m.pageSize)
	case m.root < 2 || m.root >= m.pages || (m.freelist != noFreelist && (m.freelist < 2 || m.freelist >= m.pages)):
		return m, badFile("root page %d or free list %d of %d pages", m.root, m.freelist, m.pages)
	}
	return m, nil
}

// pageWalk visits every page once. Each must be either reachable once or free.
type pageWalk struct {
	f       io.ReaderAt
	m       boltMeta
	used    []atomic.Bool // by page; shared by the walks through a file
	free    []bool        // by page
	buffers [][]byte      // by depth: a page is in use while those below it are visited
	buckets []uint64      // root pages of what lies in the root bucket, to be walked next
}

// checkPages checks that a bbolt file's pages hold together, by reads alone.
func checkPages(f io.ReaderAt, size int64) error {
	m, err := newestMeta(f, size)
	if err != nil {
		return err
	}
	w := &pageWalk{f: f, m: m, used: make([]atomic.Bool, m.pages), free: make([]bool, m.pages)} // no more pages than the file holds
	w.used[0].Store(true)
	w.used[1].Store(true)
	if err := w.metaHeaders(); err != nil {
		return err
	}
	if err := w.freePages(); err != nil {
		return err
	}
	if err := w.tree(m.root, nil, nil, 0); err != nil {
		return err
	}
	if err := w.bucketTrees(); err != nil {
		return err
	}
	for id := range m.pages {
		if w.used[id].Load() == w.free[id] && m.freelist != noFreelist {
			return badFile("page %d is both used and free, or neither", id)
		}
	}
	return nil
}

// bucketTrees walks all buckets at once: of a large file that is most of the time that it takes to open it.
func (w *pageWalk) bucketTrees() error {
	errs := make([]error, len(w.buckets))
	var wg sync.WaitGroup
	for i, root := range w.buckets {
		own := &pageWalk{f: w.f, m: w.m, used: w.used, free: w.free}
		wg.Go(func() { errs[i] = own.tree(root, nil, nil, 1) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// metaHeaders checks what the meta pages say of themselves: their checksums do not cover it, and bbolt's check panics on it.
func (w *pageWalk) metaHeaders() error {
	head := make([]byte, pageHeader)
	for id := range uint64(2) {
		if _, err := w.f.ReadAt(head, int64(id*w.m.pageSize)); err != nil {
			return badFile("meta page %d: %w", id, err)
		}
		if own, flags := native.Uint64(head), native.Uint16(head[8:]); own != id || flags != flagMeta {
			return badFile("meta page %d calls itself %d and has type %#x", id, own, flags)
		}
	}
	return nil
}

// page reads a page with its overflow and marks it used. The bytes are valid until the next page of the same depth is read.
func (w *pageWalk) page(id uint64, depth int) (b []byte, flags, count uint16, err error) {
	if id < 2 || id >= w.m.pages {
		return nil, 0, 0, badFile("a reference to page %d of %d", id, w.m.pages)
	}
	for len(w.buffers) <= depth {
		w.buffers = append(w.buffers, make([]byte, w.m.pageSize))
	}
	b = w.buffers[depth][:w.m.pageSize]
	n, err := w.f.ReadAt(b, int64(id*w.m.pageSize))
	if n < pageHeader || err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, 0, badFile("page %d: %w", id, err)
	}
	clear(b[n:])
	extra := uint64(native.Uint32(b[12:]))
	if native.Uint64(b) != id || id+extra >= w.m.pages {
		return nil, 0, 0, badFile("page %d calls itself %d and has %d more", id, native.Uint64(b), extra)
	}
	for i := id; i <= id+extra; i++ {
		if w.used[i].Swap(true) {
			return nil, 0, 0, badFile("page %d is referred to twice", i)
		}
	}
	if extra > 0 {
		w.buffers[depth] = slices.Grow(b, int(extra*w.m.pageSize))
		b = w.buffers[depth][:(extra+1)*w.m.pageSize]
		if n, err = w.f.ReadAt(b, int64(id*w.m.pageSize)); err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, 0, badFile("page %d: %w", id, err)
		}
		clear(b[n:])
	}
	return b, native.Uint16(b[8:]), native.Uint16(b[10:]), nil
}

// freePages reads the free list.
func (w *pageWalk) freePages() error {
	if w.m.freelist == noFreelist {
		return nil
	}
	b, flags, count, err := w.page(w.m.freelist, 0)
	if err != nil {
		return err
	}
	if flags != flagFreelist {
		return badFile("page %d should be the free list, its type is %#x", w.m.freelist, flags)
	}
	n, ids := uint64(count), b[pageHeader:]
	if count == 0xFFFF {
		n, ids = native.Uint64(ids), ids[8:]
	}
	if n > uint64(len(ids))/8 {
		return badFile("the free list has %d entries", n)
	}
	for i := range n {
		id := native.Uint64(ids[8*i:])
		if id < 2 || id >= w.m.pages || w.free[id] || w.used[id].Load() {
			return badFile("the free list holds page %d", id)
		}
		w.free[id] = true
	}
	return nil
}

// tree checks the subtree at a page, whose keys must lie in [low, high).
func (w *pageWalk) tree(id uint64, low, high []byte, depth int) error {
	if depth > maxTreeDepth {
		return badFile("page %d lies too deep", id)
	}
	b, flags, count, err := w.page(id, depth)
	if err != nil {
		return err
	}
	switch flags {
	case flagLeaf:
		return w.leaf(b, id, int(count), low, high, depth)
	case flagBranch:
		return w.branch(b, id, int(count), low, high, depth)
	default:
		return badFile("page %d has type %#x", id, flags)
	}
}

func (w *pageWalk) branch(b []byte, id uint64, count int, low, high []byte, depth int) error {
	keys := make([][]byte, count)
	kids := make([]uint64, count)
	for i := range count {
		at := pageHeader + i*elementBytes
		if at+elementBytes > len(b) {
			return badFile("branch page %d has %d elements", id, count)
		}
		var err error
		if keys[i], err = cut(b, at, native.Uint32(b[at:]), native.Uint32(b[at+4:])); err != nil {
			return badFile("branch page %d: %w", id, err)
		}
		kids[i] = native.Uint64(b[at+8:])
	}
	if count == 0 {
		return badFile("branch page %d has no elements", id)
	}
	for i, key := range keys {
		if outOfOrder(i, keys[max(0, i-1)], key, low, high) {
			return badFile("branch page %d: key %d is out of order", id, i)
		}
	}
	for i, kid := range kids {
		to := high
		if i+1 < count {
			to = keys[i+1]
		}
		if err := w.tree(kid, keys[i], to, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (w *pageWalk) leaf(b []byte, id uint64, count int, low, high []byte, depth int) error {
	var before []byte
	for i := range count {
		at := pageHeader + i*elementBytes
		if at+elementBytes > len(b) {
			return badFile("leaf page %d has %d elements", id, count)
		}
		size := native.Uint32(b[at+8:])
		key, err := cut(b, at, native.Uint32(b[at+4:]), size)
		if err != nil {
			return badFile("leaf page %d: %w", id, err)
		}
		value, err := cut(b, at, native.Uint32(b[at+4:])+size, native.Uint32(b[at+12:]))
		if err != nil {
			return badFile("leaf page %d: %w", id, err)
		}
		if outOfOrder(i, before, key, low, high) {
			return badFile("leaf page %d: key %d is out of order", id, i)
		}
		before = key
		switch flags := native.Uint32(b[at:]); flags {
		case 0:
		case flagBucket:
			if err := w.child(value, id, depth); err != nil {
				return err
			}
		default:
			return badFile("leaf page %d: element of type %#x", id, flags)
		}
	}
	return nil
}

// child checks a bucket, which lies in a tree of its own or inline as a leaf page behind its header.
func (w *pageWalk) child(value []byte, id uint64, depth int) error {
	if len(value) < bucketBytes {
		return badFile("leaf page %d: bucket of %d bytes", id, len(value))
	}
	if root := native.Uint64(value); root != 0 {
		if depth == 0 && len(w.buckets) < maxBuckets {
			w.buckets = append(w.buckets, root)
			return nil
		}
		return w.tree(root, nil, nil, depth+1)
	}
	inline := value[bucketBytes:]
	if len(inline) < pageHeader || native.Uint16(inline[8:]) != flagLeaf || depth > maxTreeDepth {
		return badFile("leaf page %d: inline bucket of %d bytes", id, len(inline))
	}
	return w.leaf(inline, id, int(native.Uint16(inline[10:])), nil, nil, depth+1)
}

func cut(b []byte, at int, pos, size uint32) ([]byte, error) {
	from := uint64(at) + uint64(pos)
	if from+uint64(size) > uint64(len(b)) {
		return nil, fmt.Errorf("an element at %d with %d bytes, in a page of %d", from, size, len(b))
	}
	return b[from : from+uint64(size)], nil
}

// outOfOrder reports whether key number i does not come after the one before it, or lies outside of [low, high).
func outOfOrder(i int, before, key, low, high []byte) bool {
	return i > 0 && bytes.Compare(before, key) >= 0 || low != nil && bytes.Compare(key, low) < 0 || high != nil && bytes.Compare(key, high) >= 0
}
