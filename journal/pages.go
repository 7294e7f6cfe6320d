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
	buckets []treeRoot    // what lies in the root bucket, to be walked next
	seals   bool          // whether the values of our buckets are held against their seals
	ours    string        // the bucket whose values are, empty for none, and its bucketSum
	sum     uint32
}

// treeRoot is where a bucket with a tree of its own begins.
type treeRoot struct {
	name string
	page uint64
}

// checkPages checks that a bbolt file's pages hold together, by reads alone. With seals every value of our buckets must carry the checksum
// of its place and content as well, so that whoever reads some of them later misses none whose key is another one now.
func checkPages(f io.ReaderAt, size int64, seals bool) error {
	m, err := newestMeta(f, size)
	if err != nil {
		return err
	}
	w := &pageWalk{f: f, m: m, used: make([]atomic.Bool, m.pages), free: make([]bool, m.pages), seals: seals} // no more pages than the file holds
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
	for i, b := range w.buckets {
		own := &pageWalk{f: w.f, m: w.m, used: w.used, free: w.free, seals: w.seals}
		own.enter(b.name)
		wg.Go(func() { errs[i] = own.tree(b.page, nil, nil, 1) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// enter begins with a bucket, whose values are to be held against their seals if it is one of ours.
func (w *pageWalk) enter(bucket string) {
	if w.ours = ""; w.seals && slices.Contains(buckets, bucket) {
		w.ours, w.sum = bucket, bucketSum(bucket)
	}
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
		_, err := w.leaf(b, id, int(count), low, high, depth)
		return err
	case flagBranch:
		return w.branch(b, id, int(count), low, high, depth)
	default:
		return badFile("page %d has type %#x", id, flags)
	}
}

// packed reads the elements of a page in their order. bbolt writes their keys and values behind the last of them without a gap
// (internal/common/inode.go:68, WriteInodeToPage), so an element that begins elsewhere tells that the page has lost or gained some.
type packed struct {
	b     []byte
	count int
	next  uint64 // where the next key begins
}

// packedPage reads a page that is said to have a number of elements. One without any is zero where the first would be
// (tx.go:583, write): nothing else tells whether there was one.
func packedPage(b []byte, count int) (packed, error) {
	ends := pageHeader + count*elementBytes
	switch {
	case ends > len(b):
		return packed{}, fmt.Errorf("%d elements in %d bytes", count, len(b))
	case count == 0 && len(bytes.Trim(b[pageHeader:min(len(b), pageHeader+elementBytes)], "\x00")) > 0:
		return packed{}, errors.New("no elements, and something where the first would be")
	}
	return packed{b: b, count: count, next: uint64(ends)}, nil
}

// element returns the bytes of element number i.
func (p *packed) element(i int) []byte { return p.b[pageHeader+i*elementBytes:][:elementBytes] }

// take returns the key of element number i and the value behind it, which lie at the position that the element gives.
func (p *packed) take(i int, pos, key, value uint32) ([]byte, []byte, error) {
	from := uint64(pageHeader+i*elementBytes) + uint64(pos)
	size := uint64(key) + uint64(value)
	switch {
	case key == 0:
		return nil, nil, fmt.Errorf("element %d of %d has no key", i, p.count)
	case from+size > uint64(len(p.b)):
		return nil, nil, fmt.Errorf("element %d of %d: %d bytes at %d, in a page of %d", i, p.count, size, from, len(p.b))
	case from != p.next:
		return nil, nil, fmt.Errorf("element %d of %d: it lies at %d and should at %d, as if there were more or fewer", i, p.count, from, p.next)
	}
	p.next += size
	both := p.b[from:p.next]
	return both[:key], both[key:], nil
}

func (w *pageWalk) branch(b []byte, id uint64, count int, low, high []byte, depth int) error {
	p, err := packedPage(b, count)
	if err == nil && count == 0 {
		err = errors.New("no elements")
	}
	if err != nil {
		return badFile("branch page %d: %w", id, err)
	}
	keys := make([][]byte, count)
	kids := make([]uint64, count)
	for i := range count {
		e := p.element(i)
		if keys[i], _, err = p.take(i, native.Uint32(e), native.Uint32(e[4:]), 0); err != nil {
			return badFile("branch page %d: %w", id, err)
		}
		kids[i] = native.Uint64(e[8:])
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

// leaf checks a leaf page, of which only the root of a tree can be empty, and returns where its last value ends.
func (w *pageWalk) leaf(b []byte, id uint64, count int, low, high []byte, depth int) (end uint64, err error) {
	p, err := packedPage(b, count)
	if err == nil && count == 0 && low != nil {
		err = errors.New("no elements, below a branch")
	}
	if err != nil {
		return 0, badFile("leaf page %d: %w", id, err)
	}
	var before []byte
	for i := range count {
		e := p.element(i)
		key, value, err := p.take(i, native.Uint32(e[4:]), native.Uint32(e[8:]), native.Uint32(e[12:]))
		if err != nil {
			return 0, badFile("leaf page %d: %w", id, err)
		}
		if outOfOrder(i, before, key, low, high) {
			return 0, badFile("leaf page %d: key %d is out of order", id, i)
		}
		before = key
		switch flags := native.Uint32(e); {
		case flags == flagBucket:
			err = w.child(string(key), value, id, depth)
		case flags != 0:
			err = badFile("leaf page %d: element of type %#x", id, flags)
		case w.ours != "" && !sealFits(w.sum, key, value):
			err = badFile("%s/%q: wrong version or checksum", w.ours, key)
		}
		if err != nil {
			return 0, err
		}
	}
	return p.next, nil
}

// child checks a bucket, which lies in a tree of its own or inline as a leaf page behind its header.
func (w *pageWalk) child(name string, value []byte, id uint64, depth int) error {
	if len(value) < bucketBytes {
		return badFile("leaf page %d: bucket of %d bytes", id, len(value))
	}
	if root := native.Uint64(value); root != 0 {
		if depth == 0 && len(w.buckets) < maxBuckets {
			w.buckets = append(w.buckets, treeRoot{name, root})
			return nil
		}
		return w.tree(root, nil, nil, depth+1)
	}
	inline := value[bucketBytes:]
	if len(inline) < pageHeader || native.Uint16(inline[8:]) != flagLeaf || depth > maxTreeDepth {
		return badFile("leaf page %d: inline bucket of %d bytes", id, len(inline))
	}
	if depth == 0 {
		w.enter(name)
		defer w.enter("")
	}
	end, err := w.leaf(inline, id, int(native.Uint16(inline[10:])), nil, nil, depth+1)
	if err == nil && end != uint64(len(inline)) {
		err = badFile("leaf page %d: inline bucket of %d bytes, which holds %d", id, len(inline), end)
	}
	return err
}

// outOfOrder reports whether key number i does not come after the one before it, or lies outside of [low, high).
func outOfOrder(i int, before, key, low, high []byte) bool {
	return i > 0 && bytes.Compare(before, key) >= 0 || low != nil && bytes.Compare(key, low) < 0 || high != nil && bytes.Compare(key, high) >= 0
}
