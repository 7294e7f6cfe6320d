package inspect_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"provctl/inspect/inspecttest"
)

// BenchmarkInspectProcess runs the real program on the file of a journal that no worker has open, and tells what its process takes at most:
// resident memory in all, of its own (anon) and of files, the journal and the program. The last is shared with the page cache. Those two
// are looked at every millisecond, so they may be a little low; the first is the kernel's own mark.
func BenchmarkInspectProcess(b *testing.B) {
	bin := program(b)
	book := inspecttest.New(b, b.TempDir(), time.Now())
	book.Many(costJobs-costBlocked, costBlocked)
	if err := book.Close(); err != nil {
		b.Fatal(err)
	}
	journal, err := os.Stat(book.Dir + "/journal.db")
	if err != nil {
		b.Fatal(err)
	}
	node := fmt.Sprintf("n%06d.example.net", costJobs-1)
	for _, c := range []struct {
		name string
		args []string
	}{
		{"text", []string{"inspect"}},
		{"json", []string{"inspect", "--json"}},
		{"filter", []string{"inspect", "--node", node}},
		{"node", []string{"inspect", node}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var most memory
			var cpu time.Duration
			for b.Loop() {
				cmd := exec.CommandContext(b.Context(), bin, append(c.args, "--state-dir", book.Dir)...)
				most = most.or(watched(b, cmd))
				cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
			}
			b.ReportMetric(float64(cpu.Milliseconds())/float64(b.N), "cpu-ms/op")
			b.ReportMetric(float64(most.all)/1024, "peak-MiB")
			b.ReportMetric(float64(most.anon)/1024, "anon-MiB")
			b.ReportMetric(float64(most.file)/1024, "file-MiB")
			b.ReportMetric(float64(journal.Size())/(1<<20), "journal-MiB")
		})
	}
}

// memory is what a process has resident, in KiB.
type memory struct{ all, anon, file int }

func (m memory) or(o memory) memory {
	return memory{max(m.all, o.all), max(m.anon, o.anon), max(m.file, o.file)}
}

// watched runs an inspection that must find something blocked, and returns the most it had resident.
func watched(b *testing.B, cmd *exec.Cmd) (most memory) {
	b.Helper()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for {
		select {
		case err := <-ended:
			if cmd.ProcessState.ExitCode() != 3 || most.all == 0 {
				b.Fatalf("%v: %v, want exit code 3; the most it had was %+v", cmd.Args, err, most)
			}
			return most
		case <-look.C:
			most = most.or(resident(cmd.Process.Pid))
		}
	}
}

// resident reads what a process has; nothing of one that has ended.
func resident(pid int) (m memory) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return m
	}
	for lines := bufio.NewScanner(bytes.NewReader(status)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		if err != nil {
			continue
		}
		switch name {
		case "VmHWM":
			m.all = n
		case "RssAnon":
			m.anon = n
		case "RssFile":
			m.file = n
		}
	}
	return m
}
