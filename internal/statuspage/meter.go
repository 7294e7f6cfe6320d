package statuspage

import (
	"math"
	"net/http"
	"sync"
	"time"

	"provctl/journal"
)

// Interval is what one sample covers, and Kept how many samples a meter keeps: the last hour.
const (
	Interval = 10 * time.Second
	Kept     = 360
)

// Sample sums up the commits of one interval.
type Sample struct {
	At        time.Time     // the interval's begin, UTC
	Ended     int           // jobs that ended
	Commits   int           // commits that were made
	CommitP50 time.Duration // half of them took no longer, within 5 %; 0 without commits
	CommitMax time.Duration // the longest
}

// Durations are counted in steps of an eighth of a power of two above the least, so that an interval needs the same memory however
// many commits it has. The last step is above 4 minutes.
const (
	stepsPerOctave = 8
	leastStep      = time.Microsecond
	steps          = 28 * stepsPerOctave
)

// Meter collects samples of a journal's commits in memory of a fixed size. It is safe for concurrent use. Make it with NewMeter.
type Meter struct {
	now func() time.Time

	mu    sync.Mutex
	ring  []Sample // oldest first
	begin time.Time
	open  Sample // of the interval that begins at begin
	steps [steps]uint32
}

// NewMeter makes a meter whose first interval begins now. now nil: time.Now.
func NewMeter(now func() time.Time) *Meter {
	if now == nil {
		now = time.Now
	}
	return &Meter{now: now, begin: now().UTC().Truncate(Interval), ring: make([]Sample, 0, Kept)}
}

// Observe counts a commit: journal.Options.Observe. It waits at most while Samples copies an hour.
func (m *Meter) Observe(c journal.CommitStats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn()
	m.open.Commits++
	m.open.Ended += len(c.Ended)
	m.open.CommitMax = max(m.open.CommitMax, c.Took)
	m.steps[step(c.Took)]++
}

// Samples are the intervals that are over, oldest first, quiet ones included.
func (m *Meter) Samples() []Sample {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn()
	return append(make([]Sample, 0, len(m.ring)), m.ring...)
}

// turn ends the open interval once it is over, and adds those since in which nothing happened. A clock that goes back changes
// nothing: the open interval lasts until the clock has passed it.
func (m *Meter) turn() {
	behind := int64(m.now().Sub(m.begin) / Interval)
	if behind <= 0 {
		return
	}
	m.open.At, m.open.CommitP50 = m.begin, m.median()
	m.push(m.open)
	quiet := min(behind-1, Kept) // a clock that leaps costs no more than an hour
	now := m.begin.Add(time.Duration(behind) * Interval)
	for i := quiet; i > 0; i-- {
		m.push(Sample{At: now.Add(-time.Duration(i) * Interval)})
	}
	m.begin, m.open, m.steps = now, Sample{}, [steps]uint32{}
}

func (m *Meter) push(s Sample) {
	if len(m.ring) == Kept {
		copy(m.ring, m.ring[1:])
		m.ring = m.ring[:Kept-1]
	}
	m.ring = append(m.ring, s)
}

func (m *Meter) median() time.Duration {
	seen := 0
	for i, n := range m.steps {
		if seen += int(n); n > 0 && 2*seen >= m.open.Commits {
			middle := float64(leastStep) * math.Exp2((float64(i)+0.5)/stepsPerOctave)
			return min(time.Duration(middle), m.open.CommitMax)
		}
	}
	return 0
}

// step is the place of a duration in the counts.
func step(d time.Duration) int {
	if d <= leastStep {
		return 0
	}
	return min(int(stepsPerOctave*math.Log2(float64(d)/float64(leastStep))), steps-1)
}

// SamplesSchema names the form of samples.json; docs/status-page.md describes it.
const SamplesSchema = "provctl.samples/1"

// samples and sample are how they travel; durations in milliseconds.
type (
	samples struct {
		Schema   string   `json:"schema"`
		Interval float64  `json:"interval_seconds"`
		Samples  []sample `json:"samples"`
	}
	sample struct {
		At        time.Time `json:"at"`
		Ended     int       `json:"ended"`
		Commits   int       `json:"commits"`
		CommitP50 float64   `json:"commit_p50_ms"`
		CommitMax float64   `json:"commit_max_ms"`
	}
)

func (h *handler) serveSamples(w http.ResponseWriter, _ *http.Request) {
	out := samples{Schema: SamplesSchema, Interval: Interval.Seconds(), Samples: []sample{}}
	for _, s := range h.src.Samples() {
		out.Samples = append(out.Samples, sample{s.At.UTC(), s.Ended, s.Commits, milliseconds(s.CommitP50), milliseconds(s.CommitMax)})
	}
	h.serveJSON(w, out)
}

// milliseconds keeps microseconds.
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
