package crashtests

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"provctl/doctor"
	"provctl/internal/fleet"
)

var update = flag.Bool("update", false, "write the golden files anew")

// varying is what differs from run to run in a log or a report, and what stands for it.
var varying = []struct {
	is   *regexp.Regexp
	text string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b|\b[0-9A-Za-z]{27}\b`), "REQUEST"}, // protocol 1, protocol 2
	{regexp.MustCompile(`\b[0-9A-HJKMNP-TV-Z]{26}\b`), "ID"},
	{regexp.MustCompile(`\{"pid":\d+,"start":\d+\}`), `"INCARNATION"`},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:PORT"},
	{regexp.MustCompile(`^\{"time":"TIME",`), "{"},
	{regexp.MustCompile(`("msg":"starting","version":)"[^"]*"`), `$1"VERSION"`},
	{regexp.MustCompile(`("by":)"[^"]*"`), `$1"USER"`},
	{regexp.MustCompile(`(Shutting Choria Server down after )\d+s`), `${1}SPLAY`},
	{regexp.MustCompile(`provctl\.yaml:\d+:\d+`), "provctl.yaml:LINE:COLUMN"},
}

// steady replaces what varies.
func (s *site) steady(text string) string {
	text = strings.ReplaceAll(text, filepath.Dir(s.fleet.Dir()), "DIR")
	for _, v := range varying {
		text = v.is.ReplaceAllString(text, v.text)
	}
	return text
}

// toldAtInfo is the worker's output without what is for debugging and what is about this host's clock: what is of no node first, then
// node by node, each in the order in which it was written.
func (s *site) toldAtInfo() string {
	s.t.Helper()
	type line struct{ node, text string }
	var lines []line
	ofClock, _ := doctor.ClockWarning(func() (doctor.ClockState, error) { return doctor.ClockState{}, nil })
	warned := false
	for text := range strings.Lines(read(s.t, s.log)) {
		if key := repeated(text); key != "" {
			s.t.Errorf("a line of the log has the key %q twice: %s", key, text)
		}
		var l struct{ Level, Node, Msg string }
		if err := json.Unmarshal([]byte(text), &l); err == nil && l.Level == "DEBUG" {
			continue
		}
		if l.Level == "WARN" && l.Msg == ofClock {
			warned = true
			continue
		}
		lines = append(lines, line{l.Node, s.steady(text)})
	}
	if found, _ := doctor.ClockWarning(doctor.KernelClock); found != "" && !warned {
		s.t.Errorf("of this host's clock the worker's log does not say: %s", found)
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.node, b.node) })
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.text)
	}
	return b.String()
}

// repeated is a key that a JSON object has twice, of which a reader would take either; "" if none.
func repeated(object string) string {
	d := json.NewDecoder(strings.NewReader(object))
	if _, err := d.Token(); err != nil {
		return ""
	}
	seen := map[json.Token]bool{}
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			break
		}
		if seen[key] {
			return fmt.Sprint(key)
		}
		seen[key] = true
	}
	return ""
}

// golden compares a text with a file of testdata, or writes it with -update.
func golden(t testing.TB, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		write(t, path, got)
		return
	}
	if want := read(t, path); got != want {
		t.Errorf("%s differs; if it should, write it anew with -update. %s", path, firstDifference(want, got))
	}
}

// firstDifference shows where two texts part.
func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		line := func(of []string) string {
			if i < len(of) {
				return of[i]
			}
			return "(the end)"
		}
		if line(w) != line(g) {
			return fmt.Sprintf("line %d, wanted: %s\nfound: %s", i+1, line(w), line(g))
		}
	}
	return ""
}

// told compares what a flow's worker said, and what a check of its configuration says, with the golden files of the flow.
func (s *site) told(flow string) {
	s.t.Helper()
	golden(s.t, "run-"+flow, s.toldAtInfo())
	out, code := s.provctl("config", "check", s.files.Config, "--choria-config", s.files.ChoriaConfig)
	if code != 0 {
		s.t.Errorf("config check: exit %d: %s", code, out)
	}
	golden(s.t, "check-"+flow, s.steady(out))
}

// TestAdviceToLeaveNodesAlone has one node deferred and one shut down.
func TestAdviceToLeaveNodesAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{nodes: 2})
	deferred, down := s.fleet.Nodes()[0], s.fleet.Nodes()[1]
	s.reconfigure(fleet.WorkerOptions{Values: patient(nil), Defer: []string{deferred}, Shutdown: []string{down}})
	s.start()
	s.awaitFleet("one node is down", func(st fleet.State) bool { return !st.Nodes[down].Alive })
	v := s.awaitView("both jobs have ended", func(v view) bool { return v.Counts.Results["deferred"] == 1 && v.Counts.Results["shutdown"] == 1 })
	if state, why := v.out(deferred); state != "held" || !strings.Contains(why, "deferred by the fleet helper") {
		t.Errorf("the deferred node is shown as %q, %q", state, why)
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.ran(deferred, map[string]int{"gen25519": 1, "configure": 0, "restart": 0, "shutdown": 0})
	s.ran(down, map[string]int{"gen25519": 1, "configure": 0, "restart": 0, "shutdown": 1})
	if st := s.fleet.State().Nodes[deferred]; st.Mode != fleet.Provisioning || st.Boots != 1 {
		t.Errorf("the deferred node: mode %q, %d boots", st.Mode, st.Boots)
	}
	s.noneTwice()
	s.discreet()
	s.told("defer-shutdown")
}
