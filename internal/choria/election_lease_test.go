package choria

import (
	"errors"
	"testing"
	"time"
)

func TestLease(t *testing.T) {
	const ttl = time.Minute
	sent := time.Now()
	answered := sent.Add(3 * time.Second)
	l := won(7, sent, answered, ttl, 70*time.Second)
	for _, tc := range []struct {
		name string
		got  bool
		want bool
	}{
		{"valid from the start", l.valid(sent), true},
		{"valid just before three quarters", l.valid(sent.Add(45*time.Second - 1)), true},
		{"lapsed at three quarters after the sending, not the answer", l.valid(sent.Add(45 * time.Second)), false},
		{"lapsed by a wall clock alone", l.valid(sent.Round(0).Add(45 * time.Second)), false},
		{"a lease without a revision", lease{from: sent, length: ttl}.valid(sent), false},
		{"waits from the answer", l.ready.Equal(answered.Add(70 * time.Second)), true},
		{"waits at least the lease", won(7, sent, answered, ttl, 0).ready.Equal(answered.Add(45 * time.Second)), true},
		{"renewed without another wait", l.renewed(8, answered, ttl).ready.Equal(l.ready), true},
		{"renewed from the new sending", l.renewed(8, answered, ttl).valid(answered.Add(44 * time.Second)), true},
		{"renewed with a shorter key", l.renewed(8, answered, ttl/2).valid(answered.Add(23 * time.Second)), false},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %t", tc.name, tc.got)
		}
	}
}

func TestBucketTTL(t *testing.T) {
	for ttl, ok := range map[time.Duration]bool{
		0: false, time.Millisecond: false, 500 * time.Millisecond: true, time.Minute: true, time.Hour: true, time.Hour + 1: false, -time.Minute: false,
	} {
		if err := checkTTL(ttl); (err == nil) != ok {
			t.Errorf("%s: %v", ttl, err)
		}
	}
}

func TestStreamsAnswers(t *testing.T) {
	for _, tc := range []struct {
		answer string
		at     int // revision of a revisionError; -1: another error; -2: none
	}{
		{`{"stream":"KV_CHORIA_LEADER_ELECTION","seq":4}`, -2},
		{`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 12"},"seq":0}`, 12},
		{`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 0"}}`, 0},
		// says nothing about who leads: a write is under way on a cluster
		{`{"error":{"code":400,"err_code":10164,"description":"wrong last sequence"}}`, -1},
		{`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: -3"}}`, -1},
		{`{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}`, -1},
		{`{"error":{}}`, -1},
		{`{"seq":"4"}`, -1},
		{`{"seq":-4}`, -1},
		{`[]`, -1},
		{``, -1},
		{`null`, -2},
	} {
		var ack struct {
			Sequence uint64 `json:"seq"`
		}
		err := readStreams("subject", []byte(tc.answer), &ack)
		var wrong *revisionError
		got := -2
		switch {
		case errors.As(err, &wrong):
			got = int(wrong.at)
		case err != nil:
			got = -1
		}
		if got != tc.at {
			t.Errorf("%s: %v (%d, want %d)", tc.answer, err, got, tc.at)
		}
	}
}

func FuzzStreamsAnswers(f *testing.F) {
	f.Add([]byte(`{"error":{"err_code":10071,"description":"wrong last sequence: 12"},"seq":3}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var ack struct {
			Sequence uint64 `json:"seq"`
		}
		if err := readStreams("subject", data, &ack); err != nil && ack.Sequence != 0 {
			var wrong *revisionError
			if errors.As(err, &wrong) {
				t.Errorf("%q is a refusal and an acknowledgement", data)
			}
		}
	})
}
