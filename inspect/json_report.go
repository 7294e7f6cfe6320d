package inspect

import (
	"bufio"
	"bytes"
	"io"
	"runtime"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// atOnce is how many items one processor encodes at a time.
const atOnce = 128

// itemsGap is where the items go into a report that has none. No text can look like it: in JSON a line break is never part of one.
var itemsGap = []byte("\n  \"items\": []")

// WriteReportJSON is WriteJSON of a report, on what processors there are: of a look at thousands of blocked nodes that is a third. A worker,
// whose commits come first, uses WriteJSON.
func WriteReportJSON(w io.Writer, r Report) error {
	items := r.Items
	if len(items) <= atOnce {
		return WriteJSON(w, r)
	}
	r.Items = []Item{}
	var frame bytes.Buffer
	if err := WriteJSON(&frame, r); err != nil {
		return err
	}
	before, after, _ := bytes.Cut(frame.Bytes(), itemsGap)
	out := bufio.NewWriterSize(w, 64<<10)
	_, _ = out.Write(before) // the writer keeps its first error
	_, _ = out.Write(itemsGap[:len(itemsGap)-1])
	texts := make([]bytes.Buffer, runtime.GOMAXPROCS(0))
	errs := make([]error, len(texts))
	for separator := ""; len(items) > 0; {
		var wg sync.WaitGroup
		n := min(len(texts), (len(items)+atOnce-1)/atOnce)
		for i := range n {
			some := items[:min(atOnce, len(items))]
			items = items[len(some):]
			texts[i].Reset()
			wg.Go(func() {
				errs[i] = writeJSON(&texts[i], some, jsontext.WithIndent("  "), jsontext.WithIndentPrefix("  "))
			})
		}
		wg.Wait()
		for i := range n {
			if errs[i] != nil {
				return errs[i]
			}
			_, _ = out.WriteString(separator)
			if _, err := out.Write(bytes.TrimSuffix(texts[i].Bytes()[1:], []byte("\n  ]\n"))); err != nil { // without the brackets
				return err
			}
			separator = ","
		}
	}
	_, _ = out.WriteString("\n  ]")
	_, _ = out.Write(after)
	return out.Flush()
}
