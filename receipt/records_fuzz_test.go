package receipt_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"provctl/receipt"
)

// FuzzDecodeNode reads stored node records.
func FuzzDecodeNode(f *testing.F) {
	out := sampleNode()
	out.Out = receipt.Exhausted
	fuzzStored(f, sampleNode(), out)
}

// FuzzDamagedRecord damages one stored record anyhow: cut, lengthened, a byte changed, or found under another key. It is ErrDamaged,
// and nothing of it is taken for good.
func FuzzDamagedRecord(f *testing.F) {
	const place = "receipts/R1"
	f.Add(uint16(0), byte(2), uint16(0xffff), "", "")
	whole, err := receipt.Encode(place, fullReceipt())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, at uint16, flip byte, keep uint16, more, moved string) {
		b := append([]byte(nil), whole...)
		b[int(at)%len(b)] ^= flip
		b = append(b[:min(int(keep), len(b))], more...)
		got, err := receipt.Decode[receipt.Receipt](place+moved, b)
		if string(b) == string(whole) && moved == "" {
			if err != nil || !reflect.DeepEqual(got, fullReceipt()) {
				t.Fatalf("the whole record: %v", err)
			}
			return
		}
		if !errors.Is(err, receipt.ErrDamaged) || !reflect.DeepEqual(got, receipt.Receipt{}) {
			t.Fatalf("byte %d ^ %#x, %d bytes kept, %q added, at %q: %v, %+v", at, flip, keep, more, moved, err, got)
		}
		if !strings.Contains(err.Error(), place) {
			t.Fatalf("%v does not say where", err)
		}
	})
}

// stored is a word that the journal holds for a number.
type stored[T any] interface {
	*T
	UnmarshalText([]byte) error
}

func fuzzName[T interface {
	~uint8
	String() string
	MarshalText() ([]byte, error)
}, P stored[T]](t *testing.T, text []byte,
) {
	var v T
	if err := P(&v).UnmarshalText(text); err != nil {
		if v != 0 || !errors.Is(err, receipt.ErrInvalid) || !utf8.ValidString(err.Error()) || len(err.Error()) > 400 {
			t.Fatalf("%q: %d, %v", text, v, err)
		}
		return
	}
	if back, err := v.MarshalText(); err != nil || string(back) != string(text) || v.String() != string(text) || v == 0 {
		t.Fatalf("%q became %d, which is %q (%s), %v", text, v, back, v, err)
	}
}

// FuzzNames reads each kind of stored word: it is the word of exactly one number, or refused.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"applied", "Applied", "configure", "withdrawn ", "", "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		fuzzName[receipt.Action](t, text)
		fuzzName[receipt.Status](t, text)
		fuzzName[receipt.Event](t, text)
		fuzzName[receipt.Verdict](t, text)
		fuzzName[receipt.JobStatus](t, text)
		fuzzName[receipt.Result](t, text)
		fuzzName[receipt.EvidenceKind](t, text)
	})
}

// FuzzClassify judges whatever a node may answer: the event is one that a receipt in flight takes, applied needs code 0, refused needs a
// code of its own, and what could not be decoded is never more than lost.
func FuzzClassify(f *testing.F) {
	f.Add(byte(receipt.Configure), 0, "Wrote 12 lines to /etc/choria/server.conf", false, "")
	f.Fuzz(func(t *testing.T, action byte, code int, text string, usable bool, trouble string) {
		a := receipt.Action(action)
		event, why := receipt.Classify(a, receipt.Reply{Code: code, Text: text, Usable: usable, Trouble: trouble})
		if again, reason := receipt.Classify(a, receipt.Reply{Code: code, Text: text, Usable: usable, Trouble: trouble}); again != event || reason != why {
			t.Fatalf("once %s, once %s", event, again)
		}
		status, err := receipt.Pending.Apply(event)
		switch {
		case err != nil || why == "":
			t.Fatalf("%s (%q): %v", event, why, err)
		case trouble != "" && event != receipt.Lost, code < 0 && event != receipt.Lost, code > 5 && event != receipt.Lost:
			t.Fatalf("a reply that cannot be used is %s", event)
		case status == receipt.Applied && code != 0, status.Harmless() && (code < 1 || code > 4), status == receipt.NotSent:
			t.Fatalf("code %d %q is %s", code, text, status)
		case status == receipt.Applied && a.Repeatable() != usable && a.Repeatable():
			t.Fatalf("%s is applied without usable data", a)
		}
	})
}

// FuzzVersions compares what nodes and helpers call versions: SameVersion is symmetric, and reflexive for what CheckVersion accepts.
func FuzzVersions(f *testing.F) {
	for _, p := range [][2]string{{"1.2.3", "1.2.3-1"}, {"1.02", "1.2"}, {"0:1.2", "1.2"}, {"~", "^"}, {"99999999999999999999:1", "1"}} {
		f.Add(p[0], p[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		same := receipt.SameVersion(a, b)
		if receipt.SameVersion(b, a) != same {
			t.Fatalf("%q and %q are the same one way only", a, b)
		}
		for _, v := range []string{a, b} {
			err := receipt.CheckVersion(v)
			if receipt.SameVersion(v, v) != (err == nil) || err != nil && !errors.Is(err, receipt.ErrInvalid) {
				t.Fatalf("%q is like itself: %t, %v", v, receipt.SameVersion(v, v), err)
			}
			if same && err != nil {
				t.Fatalf("%q is like something, but: %v", v, err)
			}
		}
	})
}
