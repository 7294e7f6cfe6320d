package journal_test

import (
	"bytes"
	"testing"

	"provctl/journal"
)

func TestMarkerSlots(t *testing.T) {
	t.Parallel()
	older, newer := journal.EncodeSlot("J", 3, 10, 6), journal.EncodeSlot("J", 3, 11, 7)
	torn := append([]byte(nil), newer...)
	torn[200] ^= 1
	for name, tc := range map[string]struct {
		file []byte
		seq  uint64
	}{
		"in order":        {append(append([]byte(nil), older...), newer...), 11},
		"the other order": {append(append([]byte(nil), newer...), older...), 11},
		"torn":            {append(append([]byte(nil), older...), torn...), 10},
		"cut":             {append(append([]byte(nil), older...), newer[:511]...), 10},
		"one alone":       {newer, 11},
		"both torn":       {append(append([]byte(nil), torn...), torn...), 0},
		"empty":           {nil, 0},
		"no id":           {journal.EncodeSlot("", 1, 1, 1), 0},
	} {
		id, epoch, seq, _, ok := journal.DecodeMarker(tc.file)
		if ok != (tc.seq > 0) || seq != tc.seq || (ok && (id != "J" || epoch != 3)) {
			t.Errorf("%s: %q epoch %d seq %d, %v; want seq %d", name, id, epoch, seq, ok, tc.seq)
		}
	}
}

func FuzzMarker(f *testing.F) {
	f.Add(journal.EncodeSlot("01J", 1, 2, 3))
	f.Add(append(journal.EncodeSlot("01J", 1, 2, 3), journal.EncodeSlot("01J", 1, 3, 4)...))
	f.Add([]byte("PROVCTLM"))
	f.Fuzz(func(t *testing.T, b []byte) {
		id, epoch, seq, count, ok := journal.DecodeMarker(b)
		if !ok {
			return
		}
		again := journal.EncodeSlot(id, epoch, seq, count)
		if !bytes.Contains(b, again) && len(b) >= len(again) {
			// What was accepted must be what would be written, apart from bytes that mean nothing.
			i, e, s, c, ok := journal.DecodeMarker(again)
			if !ok || i != id || e != epoch || s != seq || c != count {
				t.Errorf("accepted %q %d %d %d, which does not survive", id, epoch, seq, count)
			}
		}
	})
}
