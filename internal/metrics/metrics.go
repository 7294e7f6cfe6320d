// Package metrics counts what the worker does and serves it to Prometheus: under the names and labels of choria-provisioner, so
// that its dashboards go on working, and under names of our own for receipts and the journal. docs/metrics.md lists them all.
//
// Counters are fed by hooks; what is true at a moment is read when a scrape asks. Nothing here can hold up or end the worker.
package metrics

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"provctl/journal"
	"provctl/receipt"
)

// Metrics holds the counters of one process in a registry of its own. It is safe for concurrent use. Make it with New.
type Metrics struct {
	registry *prometheus.Registry
	site     prometheus.Labels
	source   atomic.Pointer[Source]

	discovered, byEvent, cycles, discoveryErrors prometheus.Counter
	provisioned, provisionErrors                 prometheus.Counter
	helperTime                                   prometheus.Summary
	helperErrors, helperShutdowns                prometheus.Counter
	rpcTime                                      *prometheus.SummaryVec
	rpcErrors                                    *prometheus.CounterVec

	settled, ended               *prometheus.CounterVec
	refusals                     prometheus.Counter
	commitSeconds, commitChanges prometheus.Histogram
}

// Names of our metrics begin so.
const (
	theirs = "choria_provisioner_" // the existing provisioner's: their names, types and labels are its contract
	ours   = "provctl_"
)

// ways are the outcomes by which a receipt is settled, for each how: the receipt's transition table. They are shown from the
// start, so that the first one counts as an increase.
var ways = map[string][]receipt.Status{
	"reply":    {receipt.Applied, receipt.Refused, receipt.Failed, receipt.NotSent},
	"evidence": {receipt.Applied, receipt.Refused, receipt.Failed, receipt.NotApplied, receipt.Moot},
	"verdict":  {receipt.Applied, receipt.NotApplied, receipt.Abandoned},
}

// New makes metrics whose label site has the given value. The Go runtime's and the process's own are with them, as in the existing
// provisioner.
func New(site string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		site:     prometheus.Labels{"site": strings.ToValidUTF8(site, "�")},
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registerTheirs()
	m.registerOurs()
	m.registry.MustRegister(m.moment())
	return m
}

func (m *Metrics) registerTheirs() {
	m.discovered = m.counter(theirs+"discovered", "Nodes that became new work by a discovery.")
	m.byEvent = m.counter(theirs+"event_discovered", "Nodes that became new work by a lifecycle event.")
	m.cycles = m.counter(theirs+"discover_cycles", "Discoveries that ended, failed ones included.")
	m.discoveryErrors = m.counter(theirs+"discovery_errors", "Discoveries that failed.")
	m.provisionErrors = m.counter(theirs+"provision_errors", "Jobs that failed or were given up after too many tries, and effects that became unknown.")
	m.provisioned = m.counter(theirs+"provisioned", "Nodes that were configured and restarted; shutdowns and refusals do not count.")
	m.helperErrors = m.counter(theirs+"helper_errors", "Helper runs without a usable answer.")
	m.helperShutdowns = m.counter(theirs+"helper_shutdown_requests", "Helper answers that ask for a shutdown.")
	m.helperTime = prometheus.NewSummary(prometheus.SummaryOpts{
		Name: theirs + "helper_time", Help: "Seconds that a helper run took.", ConstLabels: m.site,
	})
	m.rpcTime = prometheus.NewSummaryVec(prometheus.SummaryOpts{
		Name: theirs + "rpc_time", Help: "Seconds from a request to its answer or the end of the waiting, each try counted.", ConstLabels: m.site,
	}, []string{"rpc"})
	m.rpcErrors = m.counters(theirs+"rpc_errors", "Requests without the answer that was wanted, after all tries.", "rpc")
	m.registry.MustRegister(m.helperTime, m.rpcTime)
}

func (m *Metrics) registerOurs() {
	m.settled = m.counters(ours+"settled_total", "Receipts that got their outcome, by what it came from and what it is.", "how", "status")
	for how, statuses := range ways {
		for _, s := range statuses {
			m.settled.WithLabelValues(how, s.String())
		}
	}
	m.ended = m.counters(ours+"jobs_ended_total", "Jobs that ended, by their result.", "result")
	for _, r := range receipt.Results() {
		m.ended.WithLabelValues(r.String())
	}
	m.refusals = m.counter(ours+"fence_refusals_total", "Effects that the fence stopped before they were sent.")
	m.commitSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: ours + "commit_seconds", Help: "Seconds that a journal commit took, syncs included.", ConstLabels: m.site,
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 14), // to 8 s
	})
	m.commitChanges = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: ours + "commit_changes", Help: "Changes that a journal commit held.", ConstLabels: m.site,
		Buckets: prometheus.ExponentialBuckets(1, 2, 10), // to 512, the most that a commit takes
	})
	m.registry.MustRegister(m.commitSeconds, m.commitChanges)
}

func (m *Metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: m.site})
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: m.site}, labels)
	m.registry.MustRegister(c)
	return c
}

// Discovered implements worker.Meter: a node became new work, by discovery or event.
func (m *Metrics) Discovered(source string) {
	if source == "event" {
		m.byEvent.Inc()
		return
	}
	m.discovered.Inc()
}

// Cycle implements worker.Meter: a discovery ended.
func (m *Metrics) Cycle(err error) {
	m.cycles.Inc()
	if err != nil {
		m.discoveryErrors.Inc()
	}
}

// Asked implements choria.Meter: a request was under way for so long. rpc is agent#action, of which there are few.
func (m *Metrics) Asked(rpc string, took time.Duration) {
	m.rpcTime.WithLabelValues(rpc).Observe(took.Seconds())
	m.rpcErrors.WithLabelValues(rpc) // 0 from the first request on
}

// Failed implements choria.Meter: a request did not get the answer that was wanted.
func (m *Metrics) Failed(rpc string) { m.rpcErrors.WithLabelValues(rpc).Inc() }

// Helped implements wiring.HelperMeter: the helper ran.
func (m *Metrics) Helped(took time.Duration, shutdown bool, err error) {
	m.helperTime.Observe(took.Seconds())
	if err != nil {
		m.helperErrors.Inc()
	}
	if shutdown {
		m.helperShutdowns.Inc()
	}
}

// Refused is told of an effect that the fence stopped.
func (m *Metrics) Refused(error) { m.refusals.Inc() }

// Committed is told of each journal commit, with what it decided. It is the one source for outcomes: what is counted is durable,
// and counted once.
func (m *Metrics) Committed(c journal.CommitStats) {
	m.commitSeconds.Observe(c.Took.Seconds())
	m.commitChanges.Observe(float64(c.Operations))
	m.provisionErrors.Add(float64(c.Unknown))
	for _, s := range c.Settled {
		m.settled.WithLabelValues(how(s.By), s.Status.String()).Inc()
	}
	for _, r := range c.Ended {
		m.ended.WithLabelValues(r.String()).Inc()
		switch r {
		case receipt.Provisioned:
			m.provisioned.Inc()
		case receipt.FailedJob, receipt.Exhausted:
			m.provisionErrors.Inc()
		}
	}
}

// how maps what a receipt was settled by to a label's value: a proof rule's name stays in the journal.
func how(by string) string {
	for _, word := range []string{"evidence", "verdict"} {
		if strings.HasPrefix(by, word) {
			return word
		}
	}
	return "reply"
}
