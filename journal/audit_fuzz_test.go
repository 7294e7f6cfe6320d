package journal

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"provctl/receipt"
)

// FuzzAct reads an entry of the audit trail under a right checksum: what is accepted belongs to its place in the order, and is the same
// after another round; all else is ErrDamaged, in words that can be read.
func FuzzAct(f *testing.F) {
	for _, s := range []string{"{}", `{"seq":7,"did":"verdict","by":"root"}`, `{"seq":8}`, `{"seq":7,"more":1}`} {
		f.Add(uint64(7), []byte(s))
	}
	f.Fuzz(func(t *testing.T, seq uint64, content []byte) {
		key := auditKey(receipt.Seq(seq))
		a, err := readAct(key, sealed(auditBucket, key, content))
		if err != nil {
			if !errors.Is(err, receipt.ErrDamaged) || strings.Contains(err.Error(), "%!") {
				t.Fatalf("%q: %v", content, err)
			}
			return
		}
		if a.Seq != receipt.Seq(seq) {
			t.Fatalf("act %d is accepted at %d", a.Seq, seq)
		}
		b, err := json.Marshal(a)
		if err != nil {
			return // a time that no clock of ours gives
		}
		again, err := readAct(key, sealed(auditBucket, key, b))
		same := again.At.Equal(a.At)
		again.At = a.At
		if err != nil || !same || !reflect.DeepEqual(again, a) {
			t.Fatalf("%v\n got %+v\nwant %+v", err, again, a)
		}
	})
}
