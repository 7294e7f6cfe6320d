package powerloss

import (
	"fmt"
	"iter"

	"provctl/crashtests/trace"
)

// Case is one state that a power failure may leave.
type Case struct {
	Prefix int    // the power failed after so many events of the trace
	Name   string // what of the pending operations reached the disk
	Image  Image
}

// The names of the two cases that every prefix has.
const (
	Synced = "synced" // nothing that is pending
	All    = "all"
)

// tears are the bytes after which a write may end: a sector, and a page.
var tears = []int{512, 4096}

// Cases yields, for each prefix of the trace from none to all, its cases: what was synced only; all; the first few of what is
// pending; each alone; all but one; names without content and content without names; the last write torn. wide tears every
// pending write, at each page as well. It ends after an error: a trace that does not fit its image.
func Cases(initial Image, events []trace.Event, wide bool) iter.Seq2[Case, error] {
	return func(yield func(Case, error) bool) {
		s := newState(initial)
		for prefix := 0; ; prefix++ {
			for name, changes := range s.choices(wide) {
				if !yield(Case{Prefix: prefix, Name: name, Image: s.image(changes)}, nil) {
					return
				}
			}
			if prefix == len(events) {
				return
			}
			if err := s.step(events[prefix]); err != nil {
				yield(Case{Prefix: prefix}, err)
				return
			}
		}
	}
}

// choices are the sets of pending changes that reach the disk.
func (s *state) choices(wide bool) iter.Seq2[string, []change] {
	return func(yield func(string, []change) bool) {
		p := s.pending
		if !yield(Synced, nil) || len(p) == 0 {
			return
		}
		if !yield(All, p) {
			return
		}
		for i, c := range p {
			ok := len(p) == 1 || // one alone is all
				i == 0 || yield(fmt.Sprintf("up to %d", c.n-1), p[:i])
			ok = ok && (len(p) == 1 || yield(fmt.Sprintf("only %d", c.n), p[i:i+1]) &&
				yield(fmt.Sprintf("without %d", c.n), without(p, i)))
			if !ok {
				return
			}
		}
		if names, content := split(p); len(names) > 0 && len(content) > 0 {
			if !yield("names", names) || !yield("content", content) {
				return
			}
		}
		s.torn(wide, yield)
	}
}

func without(p []change, i int) []change { return append(append([]change(nil), p[:i]...), p[i+1:]...) }

func split(p []change) (names, content []change) {
	for _, c := range p {
		if c.file == nil {
			names = append(names, c)
		} else {
			content = append(content, c)
		}
	}
	return names, content
}

// torn tears the last pending write, with all else that is pending and with the names alone; either end may be what is there.
func (s *state) torn(wide bool, yield func(string, []change) bool) {
	p := s.pending
	for i := len(p) - 1; i >= 0; i-- {
		if p[i].data == nil {
			continue
		}
		for _, at := range places(len(p[i].data), wide) {
			head, tail := p[i], p[i]
			head.data = p[i].data[:at]
			tail.off, tail.data = p[i].off+int64(at), p[i].data[at:]
			names, _ := split(p)
			for j, half := range []change{head, tail} {
				whole := append([]change(nil), p...)
				whole[i] = half
				label := fmt.Sprintf("%s of %d torn at %d", []string{"head", "tail"}[j], p[i].n, at)
				if !yield(label+", all", whole) || !yield(label+", names", append(names[:len(names):len(names)], half)) {
					return
				}
			}
		}
		if !wide {
			return
		}
	}
}

func places(size int, wide bool) []int {
	var at []int
	for _, t := range tears {
		if t < size {
			at = append(at, t)
		}
	}
	for t := 2 * tears[1]; wide && t < size; t += tears[1] {
		at = append(at, t)
	}
	return at
}
