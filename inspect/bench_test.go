package inspect_test

import (
	"io"
	"testing"
	"time"

	"provctl/inspect"
	"provctl/inspect/inspecttest"
)

// BenchmarkInspect is one look at a journal with 50,000 jobs of as many nodes, 5,000 of them blocked: read or asked for, made into a
// report, and printed. The journal takes some seconds to make.
func BenchmarkInspect(b *testing.B) {
	const all, blocked = 50_000, 5_000
	book := inspecttest.New(b, b.TempDir(), time.Now())
	book.Many(all-blocked, blocked)
	for _, through := range []string{"worker", "journal"} {
		stop := func() { _ = book.Close() }
		if through == "worker" {
			stop = book.Serve()
		} else {
			stop()
		}
		for name, write := range map[string]func(inspect.Report) error{
			"text": func(r inspect.Report) error { return inspect.WriteText(io.Discard, r, inspect.Style{}) },
			"json": func(r inspect.Report) error { return inspect.WriteReportJSON(io.Discard, r) },
		} {
			b.Run(through+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					r, err := inspect.Fetch(b.Context(), book.Dir)
					if err != nil || r.Blocked != blocked {
						b.Fatal(r.Blocked, err)
					}
					if err := write(r); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		stop()
	}
}
