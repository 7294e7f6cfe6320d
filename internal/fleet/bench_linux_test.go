package fleet

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// BenchmarkStart measures the start of whole fleets, broker and keys included, and what a node's process holds.
func BenchmarkStart(b *testing.B) {
	executable, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	for _, nodes := range []int{1, 30, 100} {
		b.Run(strconv.Itoa(nodes), func(b *testing.B) {
			for b.Loop() {
				f, err := Start(b.Context(), Options{Dir: b.TempDir(), Nodes: nodes, NodeCommand: []string{executable, nodeArgument}})
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				total := 0
				for _, n := range f.State().Nodes {
					total += residentKB(b, n.PID)
				}
				b.ReportMetric(float64(total)/float64(nodes)/1024, "MB/node")
				f.Close()
				b.StartTimer()
			}
		})
	}
}

func residentKB(b *testing.B, pid int) int {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmRSS:" {
			kb, err := strconv.Atoi(fields[1])
			if err != nil {
				b.Fatal(err)
			}
			return kb
		}
	}
	b.Fatalf("process %d has no VmRSS", pid)
	return 0
}
