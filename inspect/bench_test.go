package inspect_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	"provctl/inspect"
	"provctl/inspect/inspecttest"
	"provctl/receipt"
)

// BenchmarkInspect is one look at a journal with many blocked nodes: read or asked for, made into a report, and printed.
func BenchmarkInspect(b *testing.B) {
	const blocked = 300
	book := inspecttest.New(b, b.TempDir(), time.Now())
	for i := range blocked {
		book.Unknown(receipt.NodeID(fmt.Sprintf("n%04d.example.net", i)), receipt.Configure, time.Hour)
	}
	look := func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r, err := inspect.Fetch(b.Context(), book.Dir)
			if err != nil || r.Blocked != blocked {
				b.Fatal(r.Blocked, err)
			}
			if err := inspect.WriteText(io.Discard, r, inspect.Style{}); err != nil {
				b.Fatal(err)
			}
			if err := inspect.WriteJSON(io.Discard, r); err != nil {
				b.Fatal(err)
			}
		}
	}
	stop := book.Serve()
	b.Run("worker", look)
	stop()
	_ = book.Close()
	b.Run("journal", look)
}
