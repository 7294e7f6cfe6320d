package receipt_test

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"reflect"
	"strings"
	"testing"
	"time"

	"provctl/receipt"
)

// sealed builds a record by hand, as the format is written down: version, CRC-32C of place, zero byte and body, body.
func sealed(place, body string) []byte {
	sum := crc32.Checksum([]byte(place+"\x00"+body), crc32.MakeTable(crc32.Castagnoli))
	return append(binary.BigEndian.AppendUint32([]byte{receipt.FormatVersion}, sum), body...)
}

// fullReceipt has every field set.
func fullReceipt() receipt.Receipt {
	r := with(sample(receipt.Gen25519, receipt.Abandoned),
		reply(early, 1, receipt.ReplyFailed), event(early, "startup"), stats(early, first, 41, 1), connections(early, 1, early))
	r.Evidence[0].Reply.Key = &receipt.Key{Public: strings.Repeat("a", 64), Directory: "/etc/choria", Signature: strings.Repeat("b", 128)}
	r.Evidence[0].Seq = 11
	r.Why, r.Settled, r.EndedAt = "an operator's verdict", "verdict", late
	r.Key = r.Evidence[0].Reply.Key
	r.Baseline = &receipt.Baseline{Validated: 40, Epoch: 3, Ordinal: 1 << 63}
	r.Decisions = []receipt.Decision{{Verdict: receipt.VerdictAbandon, By: "root", Reason: "nobody knows \u2028 <&>", At: late, Seq: 12, Seen: 11}}
	return r
}

func roundTrip[T receipt.Record](t *testing.T, name string, v T) {
	t.Helper()
	b, err := receipt.Encode("place/key", v)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	got, err := receipt.Decode[T]("place/key", b)
	if err != nil || !reflect.DeepEqual(got, v) {
		t.Errorf("%s: %v\n got %+v\nwant %+v", name, err, got, v)
	}
}

// TestEncodeRoundTrip: what comes back is what went in, to the last bit.
func TestEncodeRoundTrip(t *testing.T) {
	roundTrip(t, "full receipt", fullReceipt())
	for _, a := range receipt.Actions() {
		for _, s := range receipt.Statuses() {
			roundTrip(t, a.String()+" "+s.String(), sample(a, s))
		}
	}
	roundTrip(t, "job", sampleJob())
	for _, result := range receipt.Results() {
		j := sampleJob()
		j.Status, j.Result, j.EndedAt, j.NotBefore, j.Why = receipt.Ended, result, late, early, "it is over"
		roundTrip(t, "job "+result.String(), j)
	}
	roundTrip(t, "node", sampleNode())
	roundTrip(t, "bare node", receipt.Node{ID: "n", Version: 1})
	big := sampleJob()
	big.Seq, big.Version = 1<<63, 1<<64-1
	roundTrip(t, "numbers beyond a float", big)
}

// TestEncodedForm is the stored form itself: if it changes, journals of earlier releases are unreadable.
func TestEncodedForm(t *testing.T) {
	r, err := receipt.Encode("receipts/R1", fullReceipt())
	if err != nil {
		t.Fatal(err)
	}
	j, err := receipt.Encode("jobs/J1", sampleJob())
	if err != nil {
		t.Fatal(err)
	}
	n, err := receipt.Encode("nodes/n1.example.net", sampleNode())
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "encoded.txt", string(r[5:])+"\n"+string(j[5:])+"\n"+string(n[5:])+"\n")
	for place, b := range map[string][]byte{"receipts/R1": r, "jobs/J1": j, "nodes/n1.example.net": n} {
		if want := sealed(place, string(b[5:])); !reflect.DeepEqual(b, want) {
			t.Errorf("%s: header %x, want %x", place, b[:5], want[:5])
		}
	}
}

// TestEncodeRefuses: a record that no transition could have made is not written.
func TestEncodeRefuses(t *testing.T) {
	r := sample(receipt.Configure, receipt.Pending)
	r.Token = ""
	if _, err := receipt.Encode("receipts/R1", r); !errors.Is(err, receipt.ErrInvalid) || !strings.Contains(err.Error(), "receipts/R1") {
		t.Errorf("receipt without a token: %v", err)
	}
	if _, err := receipt.Encode("jobs/J1", receipt.Job{}); !errors.Is(err, receipt.ErrInvalid) {
		t.Errorf("empty job: %v", err)
	}
	if _, err := receipt.Encode("nodes/x", receipt.Node{}); !errors.Is(err, receipt.ErrInvalid) {
		t.Errorf("empty node: %v", err)
	}
}

// TestEncodeBadText: one bad byte of a node must not keep an outcome from being stored.
func TestEncodeBadText(t *testing.T) {
	r := with(sample(receipt.Configure, receipt.Failed), reply(early, 1, receipt.ReplyFailed))
	r.Why, r.Evidence[0].Reply.Text = "node said \xff", "\xc3\x28"
	b, err := receipt.Encode("receipts/R1", r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := receipt.Decode[receipt.Receipt]("receipts/R1", b)
	if err != nil || got.Why != "node said \ufffd" || got.Evidence[0].Reply.Text != "\ufffd(" {
		t.Errorf("%q, %v", got.Why, err)
	}
}

func damaged[T receipt.Record](t *testing.T, name, place string, b []byte, mention string) {
	t.Helper()
	var zero T
	got, err := receipt.Decode[T](place, b)
	if !errors.Is(err, receipt.ErrDamaged) || !strings.Contains(err.Error(), place) || !strings.Contains(err.Error(), mention) {
		t.Errorf("%s: %v, want ErrDamaged with %q and %q", name, err, place, mention)
	}
	if !reflect.DeepEqual(got, zero) {
		t.Errorf("%s: a partly filled record comes back", name)
	}
}

// TestDecodeRefuses covers everything that can be wrong with stored bytes.
func TestDecodeRefuses(t *testing.T) {
	const place = "receipts/R1"
	good, err := receipt.Encode(place, fullReceipt())
	if err != nil {
		t.Fatal(err)
	}
	body := string(good[5:])
	for n := range 5 {
		damaged[receipt.Receipt](t, "too short", place, good[:n], "too short")
	}
	damaged[receipt.Receipt](t, "nil", place, nil, "too short")
	damaged[receipt.Receipt](t, "another place", "receipts/R2", good, "checksum")
	damaged[receipt.Receipt](t, "another bucket", "jobs/R1", good, "checksum")
	for _, v := range []byte{0, 2, 255} {
		damaged[receipt.Receipt](t, "version", place, append([]byte{v}, good[1:]...), "format version")
	}
	damaged[receipt.Receipt](t, "cut", place, good[:len(good)-1], "checksum")
	damaged[receipt.Receipt](t, "longer", place, append(good[:len(good):len(good)], ' '), "checksum")
	for name, b := range map[string]string{
		"empty body": "", "null": "null", "empty object": "{}", "array": "[]", "text": `"x"`, "two objects": body + body,
		"trailing": body + "x", "invalid UTF-8": strings.Replace(body, "verdict", "verdic\xff", 1),
		"unknown field":        strings.Replace(body, "{", `{"extra":1,`, 1),
		"nested unknown field": strings.Replace(body, `"baseline":{`, `"baseline":{"extra":1,`, 1),
		"duplicate name":       strings.Replace(body, "{", `{"id":"R0",`, 1),
		"other case":           strings.Replace(body, `"id"`, `"ID"`, 1),
		"missing id":           strings.Replace(body, `"id":"R1",`, "", 1),
		"missing horizon":      strings.Replace(body, `"horizon":"2025-03-01T12:01:10Z",`, "", 1),
		"text for a number":    strings.Replace(body, `"seq":10`, `"seq":"10"`, 1),
		"negative sequence":    strings.Replace(body, `"seq":10`, `"seq":-10`, 1),
		"fraction":             strings.Replace(body, `"seq":10`, `"seq":10.5`, 1),
		"too large a number":   strings.Replace(body, `"seq":10`, `"seq":18446744073709551616`, 1),
		"unknown status":       strings.Replace(body, `"abandoned"`, `"maybe"`, 1),
		"status by number":     strings.Replace(body, `"status":"abandoned"`, `"status":9`, 1),
		"bad time":             strings.Replace(body, `"2025-03-01T12:00:00Z"`, `"yesterday"`, 1),
		"bad node":             strings.Replace(body, "n1.example.net", "n1.*", 1),
		"empty evidence":       strings.Replace(body, `"evidence":[`, `"evidence":[{"kind":"reply","source":"x","at":"2025-03-01T12:00:00Z"},`, 1),
	} {
		if b == body {
			t.Fatalf("%s: the body was not changed", name)
		}
		damaged[receipt.Receipt](t, name, place, sealed(place, b), "")
	}
	damaged[receipt.Job](t, "a receipt read as a job", place, good, "")
	damaged[receipt.Node](t, "a receipt read as a node", place, good, "")
	damaged[receipt.Job](t, "deep nesting", "jobs/J1", sealed("jobs/J1", strings.Repeat(`{"id":`, 100_000)), "")
}

// TestDecodeEveryFlippedBit: no single flipped bit of a record goes unnoticed.
func TestDecodeEveryFlippedBit(t *testing.T) {
	b, err := receipt.Encode("jobs/J1", sampleJob())
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(b) * 8 {
		b[i/8] ^= 1 << (i % 8)
		if _, err := receipt.Decode[receipt.Job]("jobs/J1", b); !errors.Is(err, receipt.ErrDamaged) {
			t.Errorf("bit %d flipped: %v", i, err)
		}
		b[i/8] ^= 1 << (i % 8)
	}
}

// TestTimesComeBackAsTheyWere: local times and monotonic readings do not survive, the moment does.
func TestTimesComeBackAsTheyWere(t *testing.T) {
	r := sample(receipt.Restart, receipt.Pending)
	r.RequestTime = time.Date(2025, 3, 1, 14, 0, 0, 123456789, time.FixedZone("east", 7200))
	b, err := receipt.Encode("receipts/R1", r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := receipt.Decode[receipt.Receipt]("receipts/R1", b)
	if err != nil || !got.RequestTime.Equal(r.RequestTime) || !got.Horizon.Equal(r.Horizon.Time) {
		t.Errorf("%s and %s, %v", got.RequestTime, got.Horizon, err)
	}
}
