package statuspage

import (
	"sync"
	"testing"
	"time"

	"provctl/journal"
	"provctl/receipt"
)

func commit(took time.Duration, ended int) journal.CommitStats {
	return journal.CommitStats{Operations: 1, Took: took, Moves: journal.Moves{Ended: make([]receipt.Result, ended)}}
}

func TestMeterSumsUpIntervals(t *testing.T) {
	c := newClock() // 7 s past an interval's begin
	m := NewMeter(c.Now)
	if got := m.Samples(); len(got) != 0 {
		t.Errorf("before an interval is over there are %+v", got)
	}
	for n := range 100 {
		m.Observe(commit(time.Duration(n+1)*time.Millisecond, n%2))
	}
	c.forward(3 * time.Second)
	m.Observe(commit(time.Second, 3)) // the next interval's
	c.forward(30 * time.Second)
	got := m.Samples()
	begin := time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC)
	if len(got) != 4 {
		t.Fatalf("there are %d samples, want 4: %+v", len(got), got)
	}
	first := got[0]
	if !first.At.Equal(begin) || first.Commits != 100 || first.Ended != 50 || first.CommitMax != 100*time.Millisecond {
		t.Errorf("the first is %+v", first)
	}
	if d := first.CommitP50 - 50*time.Millisecond; d < -2500*time.Microsecond || d > 2500*time.Microsecond {
		t.Errorf("the median is %s, want 50 ms within 5 %%", first.CommitP50)
	}
	if s := got[1]; s.Commits != 1 || s.Ended != 3 || s.CommitP50 > s.CommitMax || s.CommitMax != time.Second {
		t.Errorf("the second is %+v", s)
	}
	for n, s := range got[2:] {
		if want := (Sample{At: begin.Add(time.Duration(n+2) * Interval)}); s != want {
			t.Errorf("a quiet interval is %+v, want %+v", s, want)
		}
	}
}

func TestMeterKeepsAnHour(t *testing.T) {
	c := newClock()
	m := NewMeter(c.Now)
	for range 2 * Kept {
		m.Observe(commit(time.Millisecond, 1))
		c.forward(Interval)
	}
	got := m.Samples()
	if len(got) != Kept || cap(m.ring) != Kept {
		t.Fatalf("%d samples in room for %d, want %d", len(got), cap(m.ring), Kept)
	}
	for n := 1; n < len(got); n++ {
		if got[n].At.Sub(got[n-1].At) != Interval || got[n].Ended != 1 {
			t.Fatalf("sample %d is %+v after %+v", n, got[n], got[n-1])
		}
	}
	got[0].Ended = 99
	if m.Samples()[0].Ended == 99 {
		t.Error("a reader can change what the meter keeps")
	}
}

// TestMeterUnderOddClocks: a clock that leaps or goes back loses no commit that is within the hour, and no time.
func TestMeterUnderOddClocks(t *testing.T) {
	c := newClock()
	m := NewMeter(c.Now)
	m.Observe(commit(time.Millisecond, 1))
	c.forward(-time.Hour)
	m.Observe(commit(time.Millisecond, 1))
	if got := m.Samples(); len(got) != 0 {
		t.Errorf("a clock that went back ended an interval: %+v", got)
	}
	c.forward(time.Hour + Interval)
	if got := m.Samples(); len(got) != 1 || got[0].Ended != 2 {
		t.Errorf("then there are %+v, want both commits in one", got)
	}
	c.forward(100000 * time.Hour)
	got := m.Samples()
	if len(got) != Kept || got[Kept-1].Commits != 0 || c.Now().Sub(got[Kept-1].At) >= 2*Interval {
		t.Errorf("after a leap there are %d, the last %+v", len(got), got[len(got)-1])
	}
}

func TestMeterTakesAnyDuration(t *testing.T) {
	for _, d := range []time.Duration{-time.Second, 0, 1, time.Microsecond, 3 * time.Millisecond, time.Second, time.Hour, 1 << 62} {
		c := newClock()
		m := NewMeter(c.Now)
		m.Observe(commit(d, 0))
		c.forward(Interval)
		s := m.Samples()[0]
		if s.CommitP50 > s.CommitMax || s.CommitMax != max(d, 0) {
			t.Errorf("a commit of %s gives %+v", d, s)
		}
		if d >= time.Microsecond && d < time.Minute && (float64(s.CommitP50) < 0.95*float64(d) || float64(s.CommitP50) > 1.05*float64(d)) {
			t.Errorf("the median of one commit of %s is %s", d, s.CommitP50)
		}
	}
}

// TestMeterIsSafe for the race detector: the committer observes while readers read. No commit is lost.
func TestMeterIsSafe(t *testing.T) {
	c := newClock()
	m := NewMeter(c.Now)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 500 {
				m.Observe(commit(time.Millisecond, 1))
				c.forward(10 * time.Millisecond)
				m.Samples()
			}
		})
	}
	all.Wait()
	c.forward(Interval)
	ended := 0
	for _, s := range m.Samples() {
		ended += s.Ended
	}
	if ended != 2000 {
		t.Errorf("%d of 2000 are counted", ended)
	}
}

func TestSamplesTravel(t *testing.T) {
	f := calm()
	f.samples = []Sample{{At: time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC), Ended: 2, Commits: 9, CommitP50: 1500 * time.Microsecond, CommitMax: 2 * time.Second}}
	got := decoded[map[string]any](t, get(Handler(f, Options{}), "/status/samples.json"))
	one := got["samples"].([]any)[0].(map[string]any)
	if got["schema"] != SamplesSchema || got["interval_seconds"] != 10.0 || one["at"] != "2026-03-04T05:06:00Z" || one["ended"] != 2.0 || one["commits"] != 9.0 ||
		one["commit_p50_ms"] != 1.5 || one["commit_max_ms"] != 2000.0 {
		t.Errorf("they travel as %v", got)
	}
	f.samples = nil
	if w := get(Handler(f, Options{}), "/status/samples.json"); decoded[map[string]any](t, w)["samples"] == nil {
		t.Errorf("no samples are %s, want an empty list", w.Body)
	}
}

func BenchmarkObserve(b *testing.B) {
	m := NewMeter(nil)
	c := commit(3*time.Millisecond, 2)
	b.ReportAllocs()
	for b.Loop() {
		m.Observe(c)
	}
}
