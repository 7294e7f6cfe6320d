package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"provctl/receipt"
)

// Lost is a part of a damaged journal that cannot be read.
type Lost struct {
	Place string `json:"place"` // a record by bucket and key, or a page
	Why   string `json:"why"`
}

// maxLost bounds the list of what cannot be read; the last entry then says that there is more.
const maxLost = 1000

// Salvage reads of a damaged journal what can be read, record by record, and lists what cannot. It goes by the records alone: counts are of
// what is there and not of the journal's whole life, and what an index says of them does not matter. It reads the file's pages itself, by
// plain reads that nothing in them can mislead, and writes nothing. The error is that not even this is possible: ErrMissing, ErrBusy, or
// receipt.ErrDamaged for what is no journal at all.
func Salvage(dir string) (Snapshot, []Lost, error) { return salvaged(dir, func(Exported) {}) }

// salvaged is Salvage that shows every record on the way.
func salvaged(dir string, show func(Exported)) (Snapshot, []Lost, error) {
	path := filepath.Join(dir, fileName)
	info, err := statJournal(path)
	if err != nil {
		return Snapshot{}, nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Snapshot{}, nil, fmt.Errorf("journal: %w: give this user access to it", err)
	}
	defer f.Close()
	if err := shareLock(f, readWait); err != nil {
		return Snapshot{}, nil, err
	}
	var best *salvage
	for _, m := range metas(f, info.Size()) { // the older one only if the newer one leads nowhere
		s := newSalvage(f, m, path)
		s.show = show
		s.tree(m.root, "", 0)
		if best == nil || s.records > best.records {
			best = s
		}
		if best.records > 0 {
			break
		}
	}
	if best == nil {
		return Snapshot{}, nil, fmt.Errorf("journal %s: %w", path, badFile("neither meta page is valid: this is no bbolt file, or both were overwritten"))
	}
	if err := checkPages(f, info.Size(), len(best.lost) == 0); err != nil {
		best.lose("the file", err) // what it leads to may be old, or not all
	}
	best.missing()
	return best.finish(), best.lost, nil
}

// metas are the valid meta pages, the newer one first, with no more pages than the file has.
func metas(f io.ReaderAt, size int64) []boltMeta {
	var out []boltMeta
	add := func(at int64) {
		m, ok := readMeta(f, at)
		if !ok || m.pageSize < 1024 || m.pageSize > 1<<24 || m.pageSize&(m.pageSize-1) != 0 || at != 0 && m.pageSize != uint64(at) {
			return
		}
		m.pages = min(m.pages, (uint64(size)+m.pageSize-1)/m.pageSize)
		out = append(out, m)
	}
	add(0)
	for at := int64(1024); at <= 1024<<14 && at < size; at *= 2 {
		add(at)
	}
	slices.SortStableFunc(out, func(a, b boltMeta) int { return cmp.Compare(b.txid, a.txid) })
	return out
}

type salvage struct {
	pages    pageWalk
	snapshot Snapshot
	show     func(Exported)
	records  int               // that were read
	format   int               // of the journal, 0 if its record of itself was not read
	have     map[string]bool   // places of records that were read
	refer    map[string]string // places that records refer to, and from where
	lost     []Lost
	more     int // beyond maxLost
}

func newSalvage(f io.ReaderAt, m boltMeta, path string) *salvage {
	s := &salvage{pages: pageWalk{f: f, m: m, used: make([]atomic.Bool, m.pages)}, have: map[string]bool{}, refer: map[string]string{}}
	s.snapshot = Snapshot{
		Info: Info{Path: path}, Taken: time.Now().Round(0).UTC(),
		ByJob: map[receipt.JobStatus]int{}, ByResult: map[receipt.Result]int{}, ByStatus: map[receipt.Status]int{},
	}
	return s
}

func (s *salvage) lose(place string, err error) {
	if len(s.lost) >= maxLost {
		s.more++
		return
	}
	why := strings.TrimPrefix(err.Error(), receipt.ErrDamaged.Error()+": ")
	why = strings.TrimSuffix(strings.TrimPrefix(why, place+": "), ": restore it from a backup together with its marker")
	s.lost = append(s.lost, Lost{Place: place, Why: clip(why)})
}

// tree reads the subtree at a page, which belongs to a bucket; the root bucket has no name.
func (s *salvage) tree(id uint64, bucket string, depth int) {
	place := fmt.Sprintf("page %d of bucket %s", id, cmp.Or(bucket, "(root)"))
	if depth > maxTreeDepth {
		s.lose(place, errors.New("it lies too deep"))
		return
	}
	b, flags, count, err := s.pages.page(id, depth)
	switch {
	case err != nil:
		s.lose(place, err)
	case flags == flagLeaf:
		s.leaf(b, place, int(count), bucket, depth)
	case flags == flagBranch:
		n := elements(b, int(count), 0)
		kids := make([]uint64, 0, n)
		for i := range n {
			at := pageHeader + i*elementBytes
			if at+elementBytes > len(b) {
				s.lose(place, fmt.Errorf("it has %d elements", n))
				break
			}
			kids = append(kids, native.Uint64(b[at+8:]))
		}
		for _, kid := range kids {
			s.tree(kid, bucket, depth+1)
		}
	default:
		s.lose(place, fmt.Errorf("it has type %#x", flags))
	}
}

// elements tells how many elements a page really has by the position of its first key, which lies behind the last of them: it says a
// number, and where the position is there. Of two that differ the greater one counts, since each record shows whether it is one.
func elements(b []byte, said, pos int) int {
	if len(b) < pageHeader+elementBytes {
		return said
	}
	behind := int(native.Uint32(b[pageHeader+pos:]))
	if behind%elementBytes != 0 || pageHeader+behind > len(b) {
		return said
	}
	return max(said, behind/elementBytes)
}

func (s *salvage) leaf(b []byte, place string, count int, bucket string, depth int) {
	count = elements(b, count, 4)
	for i := range count {
		at := pageHeader + i*elementBytes
		if at+elementBytes > len(b) {
			s.lose(place, fmt.Errorf("it has %d elements", count))
			return
		}
		pos, size := native.Uint32(b[at+4:]), native.Uint32(b[at+8:])
		key, err := cut(b, at, pos, size)
		if err != nil {
			s.lose(place, fmt.Errorf("element %d: %w", i, err))
			continue
		}
		value, err := cut(b, at, pos+size, native.Uint32(b[at+12:]))
		switch isBucket := native.Uint32(b[at:]) == flagBucket; {
		case err != nil:
			s.lose(bucket+"/"+clip(string(key)), err)
		case isBucket && bucket == "":
			s.bucket(value, string(key), depth)
		case !isBucket && bucket != "":
			s.record(bucket, string(key), value)
		default:
			s.lose(place, fmt.Errorf("element %d is of the wrong type", i))
		}
	}
}

// cut returns a part of a page at a position that is counted from a place in it.
func cut(b []byte, at int, pos, size uint32) ([]byte, error) {
	from := uint64(at) + uint64(pos)
	if from+uint64(size) > uint64(len(b)) {
		return nil, fmt.Errorf("an element at %d with %d bytes, in a page of %d", from, size, len(b))
	}
	return b[from : from+uint64(size)], nil
}

func (s *salvage) bucket(value []byte, name string, depth int) {
	place := "bucket " + clip(name)
	s.have[place] = true
	switch {
	case slices.Contains([]string{openBucket, activeBuck, endedBucket, tombBucket, lifeBucket}, name): // an index
	case !slices.Contains(buckets, name):
		s.lose(place, errors.New("there is none of that name"))
	case len(value) < bucketBytes:
		s.lose(place, fmt.Errorf("its header has %d bytes", len(value)))
	case native.Uint64(value) != 0:
		s.tree(native.Uint64(value), name, depth+1)
	case len(value) < bucketBytes+pageHeader || native.Uint16(value[bucketBytes+8:]) != flagLeaf:
		s.lose(place, errors.New("it is no page"))
	default:
		s.leaf(value[bucketBytes:], place, int(native.Uint16(value[bucketBytes+10:])), name, depth+1)
	}
}

func (s *salvage) record(bucket, key string, value []byte) {
	place := bucket + "/" + key
	var out Exported
	var err error
	switch bucket {
	case auditBucket:
		var a Act
		a, err = readAct(key, value)
		out.Act = &a
	case metaBucket:
		var m meta
		alone := store{staged: map[string][]byte{metaBucket + "\x00" + key: value}}
		if m, err = alone.metaRecord(); err == nil {
			s.snapshot.Info, s.snapshot.Tally = m.info(s.snapshot.Info.Path), m.Tally
			out.Journal = &s.snapshot.Info
			s.format = m.Format
		}
	case jobBucket:
		var j receipt.Job
		if j, err = receipt.Decode[receipt.Job](place, value); err == nil {
			s.job(j)
			s.refers(place, recBucket, j.Receipts...)
			out.Job = &j
		}
	case recBucket:
		var r receipt.Receipt
		if r, err = receipt.Decode[receipt.Receipt](place, value); err == nil {
			s.snapshot.ByStatus[r.Status]++
			out.Receipt = &r
			s.refer[jobBucket+"/"+string(r.Job)], s.refer[nodeBucket+"/"+string(r.Node)] = place, place
			if r.Status.Open() {
				s.snapshot.Open = append(s.snapshot.Open, r)
			}
		}
	case nodeBucket:
		var n receipt.Node
		if n, err = receipt.Decode[receipt.Node](place, value); err == nil {
			s.node(n, place)
			out.Node = &n
		}
	}
	if err != nil {
		s.lose(clip(place), err)
		return
	}
	s.records++
	s.have[place] = true
	s.show(out)
}

// refers notes what a record refers to.
func (s *salvage) refers(from, bucket string, ids ...receipt.ReceiptID) {
	for _, id := range ids {
		s.refer[bucket+"/"+string(id)] = from
	}
}

// missing finds records that are not there although others refer to them: a page that lost some of its elements looks whole.
func (s *salvage) missing() {
	for _, l := range s.lost {
		s.have[l.Place] = true // it is named already
	}
	if s.format > 0 {
		for _, name := range bucketsOf(s.format) {
			if place := "bucket " + name; !s.have[place] {
				s.lose(place, errors.New("it is not there"))
			}
		}
	}
	for _, place := range slices.Sorted(maps.Keys(s.refer)) {
		if !s.have[place] {
			s.lose(place, fmt.Errorf("%s refers to it, and it is not there", s.refer[place]))
		}
	}
}

func (s *salvage) node(n receipt.Node, place string) {
	if n.Out != 0 || held(n, s.snapshot.Taken) {
		s.snapshot.Nodes = append(s.snapshot.Nodes, n)
	}
	s.refers(place, recBucket, n.Receipts...)
	if n.Open != "" {
		s.refers(place, recBucket, n.Open)
	}
	if n.Job != "" {
		s.refer[jobBucket+"/"+string(n.Job)] = place
	}
}

func (s *salvage) job(j receipt.Job) {
	s.snapshot.ByJob[j.Status]++
	if j.Status == receipt.Ended {
		s.snapshot.ByResult[j.Result]++
		return
	}
	s.snapshot.Jobs = append(s.snapshot.Jobs, j)
	s.refer[nodeBucket+"/"+string(j.Node)] = jobBucket + "/" + string(j.ID)
}

func (s *salvage) finish() Snapshot {
	out := s.snapshot
	slices.SortFunc(out.Open, func(a, b receipt.Receipt) int { return cmp.Compare(a.Seq, b.Seq) })
	slices.SortFunc(out.Jobs, func(a, b receipt.Job) int { return cmp.Compare(a.Seq, b.Seq) })
	slices.SortFunc(out.Nodes, func(a, b receipt.Node) int { return cmp.Compare(a.ID, b.ID) })
	if s.more > 0 {
		s.lost = append(s.lost, Lost{Place: "more", Why: fmt.Sprintf("%d others", s.more)})
	}
	return out
}
