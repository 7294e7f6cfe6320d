package packaging_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"provctl/internal/loopback/loopbacktest"
	"provctl/internal/metrics"
	"provctl/journal"
	"provctl/receipt"
)

// scraped is what Prometheus stores of a real worker's metrics, every one of which was used once: the series of the scrape, its
// target's labels, and the series up that Prometheus adds.
func scraped(t *testing.T) catalogue {
	t.Helper()
	m := metrics.New("s")
	m.Asked("choria_provision#configure", time.Second)
	m.Watch(func() (metrics.State, error) {
		return metrics.State{Epoch: 1, Open: []receipt.Receipt{{Status: receipt.Unknown, RequestTime: time.Now()}}}, nil
	})
	m.Committed(journal.CommitStats{Operations: 1, Took: time.Millisecond})
	target := setOf("job", "instance")
	all := catalogue{"up": {family: "up", kind: gauge, labels: target}}
	text := expfmt.NewTextParser(model.UTF8Validation)
	families, err := text.TextToMetricFamilies(strings.NewReader(fetch(t, m)))
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range families {
		has, values := target, map[string]names{}
		for _, one := range f.GetMetric() {
			for _, l := range one.GetLabel() {
				has = has.with(setOf(l.GetName()))
				values[l.GetName()] = setOf(l.GetValue()).with(values[l.GetName()])
			}
		}
		delete(values, "site") // any value
		delete(values, "rpc")  // every action, once it was asked
		add := func(suffix string, k kind, more ...string) {
			all[name+suffix] = metric{family: name, kind: k, labels: has.with(setOf(more...)), values: values}
		}
		switch f.GetType().String() {
		case "COUNTER":
			add("", counter)
		case "SUMMARY":
			add("_sum", counter)
			add("_count", counter)
		case "HISTOGRAM":
			add("_sum", counter)
			add("_count", counter)
			add("_bucket", counter, "le")
		default:
			add("", gauge)
		}
	}
	return all
}

// fetch is what a scrape reads.
func fetch(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	port := loopbacktest.Port(t)
	stop, err := m.Serve(port, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/metrics", port), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("the scrape ended with %s, %v", res.Status, err)
	}
	return string(b)
}
