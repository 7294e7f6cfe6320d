package receipt_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"provctl/receipt"
)

// fuzzDecode reads a body under a right header, so that the fuzzer works on the content and not on the checksum. What is
// accepted must be valid and must be the same after another round.
func fuzzDecode[T receipt.Record](t *testing.T, body []byte) {
	const place = "place/key"
	v, err := receipt.Decode[T](place, sealed(place, string(body)))
	if err != nil {
		var zero T
		if !errors.Is(err, receipt.ErrDamaged) || !reflect.DeepEqual(v, zero) {
			t.Fatalf("%v with %+v", err, v)
		}
		return
	}
	if err := v.Check(); err != nil {
		t.Fatalf("accepted, but: %v", err)
	}
	b, err := receipt.Encode(place, v)
	if err != nil {
		t.Fatalf("accepted, but cannot be written again: %v", err)
	}
	again, err := receipt.Decode[T](place, b)
	if err != nil || !reflect.DeepEqual(again, v) {
		t.Fatalf("%v\n got %+v\nwant %+v", err, again, v)
	}
}

// FuzzDecodeReceipt reads stored receipts, and has the rules and the printing look at what was accepted.
func FuzzDecodeReceipt(f *testing.F) {
	addStored(f, fullReceipt(), sample(receipt.Restart, receipt.Unknown))
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _ = receipt.Decode[receipt.Receipt]("place/key", body) // as it is: must not panic
		fuzzDecode[receipt.Receipt](t, body)
		r, err := receipt.Decode[receipt.Receipt]("x", sealed("x", string(body)))
		if err != nil {
			return
		}
		for _, e := range r.Evidence {
			_ = e.String()
			r.Note(e)
		}
		for _, rule := range receipt.Rules() {
			if p, ok := rule.Try(r, receipt.History{Receipts: []receipt.Receipt{r}}, late); ok {
				if _, err := receipt.Unknown.Apply(p.Event); err != nil {
					t.Fatalf("rule %s concludes %s: %v", rule.Name, p.Event, err)
				}
			}
		}
	})
}

// FuzzDecodeJob reads stored jobs.
func FuzzDecodeJob(f *testing.F) {
	ended := sampleJob()
	ended.Status, ended.Result, ended.EndedAt = receipt.Ended, receipt.Exhausted, late
	fuzzStored(f, sampleJob(), ended)
}

// addStored begins with samples as they are stored.
func addStored[T receipt.Record](f *testing.F, samples ...T) {
	for _, r := range samples {
		b, err := receipt.Encode("x", r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[5:])
	}
}

// fuzzStored reads stored records of one kind, beginning with the samples.
func fuzzStored[T receipt.Record](f *testing.F, samples ...T) {
	addStored(f, samples...)
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _ = receipt.Decode[T]("place/key", body)
		fuzzDecode[T](t, body)
	})
}

// FuzzParseNodeID checks that what is accepted is one or more plain tokens of a subject.
func FuzzParseNodeID(f *testing.F) {
	for _, s := range []string{"node-001.example.net", "a..b", "*", "a b", "\xff", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := receipt.ParseNodeID(s)
		if err != nil {
			if !errors.Is(err, receipt.ErrInvalid) || id != "" || !utf8.ValidString(err.Error()) {
				t.Fatalf("%q, %v", id, err)
			}
			return
		}
		if string(id) != s || len(s) > 255 {
			t.Fatalf("%q became %q", s, id)
		}
		for token := range strings.SplitSeq(s, ".") {
			if token == "" || strings.ContainsAny(token, " *>\t\r\n") || strings.IndexFunc(token, func(r rune) bool { return r < 0x21 || r > 0x7e }) >= 0 {
				t.Fatalf("%q has the part %q", s, token)
			}
		}
	})
}
