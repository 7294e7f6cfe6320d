package statuspage

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestOneReportForAll: readers share one report while it is fresh, and one that is being made.
func TestOneReportForAll(t *testing.T) {
	f, c := busy(), newClock()
	f.wait = make(chan struct{})
	h := Handler(f, Options{Now: c.Now})
	var readers sync.WaitGroup
	for range 20 {
		readers.Go(func() {
			if w := get(h, "/status/report.json"); w.Code != http.StatusOK {
				t.Errorf("code %d: %s", w.Code, w.Body)
			}
		})
	}
	close(f.wait)
	readers.Wait()
	c.forward(freshFor - time.Millisecond)
	get(h, "/status/report.json")
	get(h, "/status/items.json?receipt=a")
	if asked := f.reportsAsked(); asked != 1 {
		t.Errorf("the worker was asked %d times within a second", asked)
	}
	c.forward(time.Millisecond)
	get(h, "/status/report.json")
	if f.asked != 2 || f.atMost != 1 {
		t.Errorf("after a second the worker was asked %d times in all, %d at once", f.asked, f.atMost)
	}
}

// TestCostlyReportIsKeptLonger: the worker spends at most a tenth of its time on reports.
func TestCostlyReportIsKeptLonger(t *testing.T) {
	for took, kept := range map[time.Duration]time.Duration{0: time.Second, 400 * time.Millisecond: 4 * time.Second, time.Minute: freshAtMost} {
		c := newClock()
		asked := 0
		s := &shared{now: c.Now, fetch: func() answer { asked++; c.forward(took); return answer{} }}
		for _, step := range []time.Duration{0, kept - time.Millisecond, time.Millisecond} {
			c.forward(step)
			if _, err := s.get(soon(t)); err != nil {
				t.Fatal(err)
			}
		}
		if asked != 2 {
			t.Errorf("a report that took %s was asked for %d times until %s had passed, want 2", took, asked, kept)
		}
	}
}

// TestHungSource: readers get an error in time, and the source is not asked again before it returned.
func TestHungSource(t *testing.T) {
	f := busy()
	f.wait = make(chan struct{})
	h := Handler(f, Options{Patience: time.Millisecond})
	for range 3 {
		w := get(h, "/status/report.json")
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(failure(t, w), "did not answer in time") {
			t.Errorf("code %d: %s", w.Code, w.Body)
		}
	}
	if asked := f.reportsAsked(); asked != 1 {
		t.Errorf("a worker that hangs was asked %d times", asked)
	}
	close(f.wait)
	for ctx := soon(t); ; {
		if w := get(h, "/status/report.json"); w.Code == http.StatusOK {
			return
		}
		if ctx.Err() != nil {
			t.Fatal("it does not recover")
		}
	}
}

// TestManyRequestsAtOnce: beyond the bound they are refused, and served again later.
func TestManyRequestsAtOnce(t *testing.T) {
	f := busy()
	f.wait = make(chan struct{})
	h := Handler(f, Options{})
	server := httptest.NewServer(h)
	defer server.Close()
	var readers sync.WaitGroup
	codes := make(chan int, 2*requestsAtOnce)
	for range 2 * requestsAtOnce {
		readers.Go(func() {
			res, err := http.Get(server.URL + "/status/report.json")
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
			codes <- res.StatusCode
		})
	}
	for range requestsAtOnce { // as many as are too many are refused while the others wait
		if code := <-codes; code != http.StatusServiceUnavailable {
			t.Errorf("code %d, want 503", code)
		}
	}
	close(f.wait)
	readers.Wait()
	for range requestsAtOnce {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("code %d, want 200", code)
		}
	}
}

func BenchmarkReportOf5000(b *testing.B) {
	f := many(5000)
	h := Handler(f, uncached())
	for b.Loop() {
		if w := get(h, "/status/report.json?brief"); w.Code != http.StatusOK {
			b.Fatal(w.Body)
		}
	}
}
