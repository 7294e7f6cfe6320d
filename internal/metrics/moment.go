package metrics

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"provctl/receipt"
)

// State is what is true at the moment of a scrape.
type State struct {
	Epoch     receipt.Epoch
	Busy      int   // lanes at work
	Queued    int   // jobs that wait for a lane
	Parked    int   // passes that wait for a slow node without a lane
	Paused    bool  // nothing is begun: an operator paused the worker, or it does not lead
	Connected bool  // to the broker
	Leading   bool  // it leads, or there is no election
	Requeues  int64 // times a job went back to the queue, over the journal's life
	Open      []receipt.Receipt
}

// Source tells the state now. It must return soon and may be called by several goroutines at a time.
type Source func() (State, error)

// Watch has scrapes read the state from now on. Until then what it would show is absent.
func (m *Metrics) Watch(s Source) { m.source.Store(&s) }

// moment collects what is read at a scrape, all of it from one State.
type moment struct {
	m    *Metrics
	now  func() time.Time
	each []reading
}

// reading is one value of a State.
type reading struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(s State, now time.Time) float64
}

func (m *Metrics) moment() moment {
	c := moment{m: m, now: time.Now}
	add := func(name, help string, kind prometheus.ValueType, of func(State, time.Time) float64) {
		c.each = append(c.each, reading{prometheus.NewDesc(name, help, nil, m.site), kind, of})
	}
	gauge := func(name, help string, of func(State) float64) {
		add(name, help, prometheus.GaugeValue, func(s State, _ time.Time) float64 { return of(s) })
	}
	gauge(theirs+"busy_workers", "Lanes that are at work on a node.", func(s State) float64 { return float64(s.Busy) })
	gauge(theirs+"work_queue_entries", "Nodes that wait for a lane.", func(s State) float64 { return float64(s.Queued) })
	gauge(theirs+"waiting_nodes", "Nodes that are known and not done with: queued, at work or blocked.", func(s State) float64 {
		return float64(s.Queued + s.Busy + s.Parked + unknown(s))
	})
	gauge(theirs+"paused", "1 while the worker begins nothing because it is paused or does not lead, else 0.", func(s State) float64 {
		return oneIf(s.Paused)
	})
	gauge(ours+"connected", "1 while the broker is connected, else 0.", func(s State) float64 { return oneIf(s.Connected) })
	gauge(ours+"leading", "1 while this worker leads, or if there is no election, else 0.", func(s State) float64 { return oneIf(s.Leading) })
	gauge(ours+"receipts_open", "Receipts without an outcome: in flight or unknown.", func(s State) float64 { return float64(len(s.Open)) })
	gauge(ours+"receipts_unknown", "Receipts whose outcome is unknown; each blocks its node.", func(s State) float64 { return float64(unknown(s)) })
	add(ours+"oldest_unknown_age_seconds", "Seconds since the oldest request whose outcome is unknown; 0 if there is none.", prometheus.GaugeValue, oldest)
	add(ours+"requeues_total", "Times a job went back to the queue, over the journal's life.", prometheus.CounterValue,
		func(s State, _ time.Time) float64 { return float64(s.Requeues) })
	gauge(ours+"epoch", "Number of the worker's term.", func(s State) float64 { return float64(s.Epoch) })
	return c
}

func unknown(s State) (n int) {
	for _, r := range s.Open {
		if r.Status == receipt.Unknown {
			n++
		}
	}
	return n
}

func oldest(s State, now time.Time) float64 {
	var age time.Duration
	for _, r := range s.Open {
		if r.Status == receipt.Unknown {
			age = max(age, now.Sub(r.RequestTime))
		}
	}
	return age.Seconds()
}

// Describe implements prometheus.Collector.
func (c moment) Describe(to chan<- *prometheus.Desc) {
	for _, r := range c.each {
		to <- r.desc
	}
}

// Collect implements prometheus.Collector. If the state cannot be read its metrics are missing, and the scrape says so in the log.
func (c moment) Collect(to chan<- prometheus.Metric) {
	source := c.m.source.Load()
	if source == nil {
		return
	}
	s, err := read(*source)
	if err != nil {
		to <- prometheus.NewInvalidMetric(c.each[0].desc, err)
		return
	}
	now := c.now()
	for _, r := range c.each {
		to <- prometheus.MustNewConstMetric(r.desc, r.kind, r.of(s, now))
	}
}

// read asks the source. Collectors run on goroutines of the registry, where a panic would end the worker.
func read(source Source) (s State, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("reading the worker's state panicked, which is a defect of provctl: %v", p)
		}
	}()
	return source()
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
