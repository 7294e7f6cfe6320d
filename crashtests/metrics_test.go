package crashtests

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"provctl/internal/fleet"
	"provctl/internal/loopback/loopbacktest"
)

// scrape is what /metrics showed: each series by its name and labels, those of site left out.
type scrape map[string]float64

// scrape reads the worker's metrics; nil while nobody serves them. Every series of ours must have the site.
func (s *site) scrape(port int, name string) scrape {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/metrics", port), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		s.t.Fatalf("/metrics gives %s", res.Status)
	}
	label, all := `site="`+name+`"`, scrape{}
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		series, text, ok := strings.Cut(lines.Text(), " ")
		if !ok || !strings.HasPrefix(series, "choria_provisioner_") && !strings.HasPrefix(series, "provctl_") {
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !strings.Contains(series, label) {
			s.t.Fatalf("/metrics shows %q (%v), want a number and %s", lines.Text(), err, label)
		}
		series = strings.NewReplacer("{"+label+"}", "", label+",", "", ","+label, "").Replace(series)
		all[strings.TrimPrefix(series, "choria_provisioner_")] = v
	}
	return all
}

// awaitScrape waits until the metrics say so and returns them.
func (s *site) awaitScrape(port int, what string, is func(scrape) bool) scrape {
	s.t.Helper()
	var m scrape
	s.await(what, func() bool {
		m = s.scrape(port, "test")
		return m != nil && is(m)
	})
	return m
}

// shows checks values; a series that is not there is not 0.
func (m scrape) shows(t *testing.T, want map[string]float64) {
	t.Helper()
	for series, v := range want {
		if got, ok := m[series]; !ok || got != v {
			t.Errorf("%s is %g (shown: %t), want %g", series, got, ok, v)
		}
	}
}

// received counts the requests for an action in all nodes' logs; ended those whose action the real agent did with success.
func (s *site) received(action string) (received, ended float64) {
	s.t.Helper()
	entries, err := s.fleet.Entries()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range entries {
		switch {
		case e.Action != action:
		case e.Phase == fleet.PhaseReceived:
			received++
		case e.Phase == fleet.PhaseEnd && e.Status == 0:
			ended++
		}
	}
	return received, ended
}

// TestMetricsTellWhatTheNodesDid compares the worker's figures with the nodes' own logs: three nodes are provisioned, one of them after
// its reply was lost, one is shut down, one refuses to be. The first life leaves the lost one unknown, the second settles it.
func TestMetricsTellWhatTheNodesDid(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{nodes: 5})
	nodes, port := s.fleet.Nodes(), loopbacktest.Port(t)
	life := func(evidence string) fleet.WorkerOptions {
		return fleet.WorkerOptions{Shutdown: nodes[3:], Values: short(map[string]any{
			"workers": 2, "site": "test", "monitor_port": port, "evidence": evidence, "effect_ttl": "10s", "helper_timeout": "60s",
		})}
	}
	s.fleet.SetFault(nodes[0], "configure", fleet.Fault{Kind: fleet.Drop})
	s.fleet.SetFault(nodes[4], "shutdown", fleet.Fault{Kind: fleet.Answer, Code: 1, Text: "Incorrect provision token supplied"})

	s.reconfigure(life("manual"))
	helper := s.gateHelper(nodes[1])
	s.start()
	release := helper()
	s.awaitScrape(port, "an effect is in flight, and a helper runs", func(m scrape) bool {
		return m["provctl_receipts_open"] >= 1 && m["provctl_receipts_unknown"] == 0 && m["waiting_nodes"] >= 1 && m["busy_workers"] >= 1
	})
	release()
	m := s.awaitScrape(port, "one effect is unknown, the other nodes are done with", func(m scrape) bool {
		return m["provctl_receipts_unknown"] == 1 && m["provisioned"] == 2 && m["waiting_nodes"] == 1 &&
			m[`provctl_settled_total{how="reply",status="refused"}`] == 1 && m[`rpc_time_count{rpc="choria_provision#shutdown"}`] == 2 &&
			m[`rpc_time_count{rpc="choria_provision#jwt"}`] == 5+2 // the blocked node is asked twice whether it is idle, beyond its horizon
	})
	// A node counts as provisioned once it has accepted its restart; it joins a moment later.
	s.awaitFleet("the two have joined", func(st fleet.State) bool { return st.Count(joined) == 2 })
	s.firstLife(t, m)
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if m := s.scrape(port, "test"); m != nil {
		t.Errorf("somebody serves metrics after the worker ended")
	}

	s.reconfigure(life("auto"))
	s.start()
	s.awaitFleet("the third node is provisioned", func(st fleet.State) bool { return st.Count(joined) == 3 })
	m = s.awaitScrape(port, "its job has ended", func(m scrape) bool {
		return m["provisioned"] == 1 && m["waiting_nodes"] == 0 && m["provctl_receipts_open"] == 0
	})
	m.shows(t, map[string]float64{
		"provctl_epoch": 2, "provctl_receipts_open": 0, "provctl_receipts_unknown": 0, "provctl_oldest_unknown_age_seconds": 0,
		"provctl_requeues_total": 1, "provctl_fence_refusals_total": 0, "provision_errors": 0, "waiting_nodes": 0, "work_queue_entries": 0,
		`provctl_settled_total{how="evidence",status="applied"}`: 1, // the configure
		`provctl_settled_total{how="reply",status="applied"}`:    1, // the restart
		`rpc_time_count{rpc="choria_provision#restart"}`:         1,
	})
	if _, sent := m[`rpc_time_count{rpc="choria_provision#configure"}`]; sent {
		t.Error("the second life sent a configure")
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.noneTwice()
	s.discreet()
}

// firstLife checks the figures at the moment when one node is blocked and the others are done with.
func (s *site) firstLife(t *testing.T, m scrape) {
	t.Helper()
	applied := -1.0 // whose reply was lost
	for action, failed := range map[string]float64{"jwt": 0, "gen25519": 0, "configure": 1, "restart": 0, "shutdown": 1} {
		received, ended := s.received(action)
		if fleet.IsEffect(action) {
			applied += ended
		}
		rpc := `{rpc="choria_provision#` + action + `"}`
		m.shows(t, map[string]float64{"rpc_time_count" + rpc: received, "rpc_errors" + rpc: failed})
	}
	if applied != 10 { // five keys, two configurations and restarts, one shutdown
		t.Errorf("by the nodes' logs %g effects took effect and were answered, want 10", applied)
	}
	m.shows(t, map[string]float64{
		"discovery_errors": 0, "provision_errors": 2, "work_queue_entries": 0, "busy_workers": 0, "paused": 0,
		"helper_time_count": 5, "helper_errors": 0, "helper_shutdown_requests": 2,
		"provctl_receipts_open": 1, "provctl_requeues_total": 0, "provctl_epoch": 1, "provctl_fence_refusals_total": 0,
		`provctl_settled_total{how="reply",status="applied"}`:    applied,
		`provctl_settled_total{how="evidence",status="applied"}`: 0,
		`provctl_settled_total{how="verdict",status="applied"}`:  0,
		"provctl_commit_changes_count":                           m["provctl_commit_seconds_count"],
	})
	if found := m["discovered"] + m["event_discovered"]; found != 5 || m["discover_cycles"] < 1 {
		t.Errorf("%g nodes were found in %g discoveries, want 5 in some", found, m["discover_cycles"])
	}
	if age := m["provctl_oldest_unknown_age_seconds"]; age < 3 || age > 240 { // its horizon is over, the test is not
		t.Errorf("the unknown receipt is %g s old", age)
	}
	// Each node takes an admission, a claim, two changes per effect and its end with the last one, at least.
	if changes := m["provctl_commit_changes_sum"]; changes < 5+5+2*12 || m["provctl_commit_seconds_sum"] <= 0 {
		t.Errorf("%g changes were committed in %g s", changes, m["provctl_commit_seconds_sum"])
	}
	if state := s.fleet.State(); m["provisioned"] != float64(state.Count(joined)) {
		t.Errorf("provisioned is %g, %d nodes joined", m["provisioned"], state.Count(joined))
	}
}

// TestMonitorPortInUse must not come up, not die later: at once, with port and remedy, and before anything is sent or written.
func TestMonitorPortInUse(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{nodes: 1})
	port := loopbacktest.Port(t)
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s.reconfigure(fleet.WorkerOptions{Values: short(map[string]any{"site": "test", "monitor_port": port})})
	before, pid := contents(t, s.files.StateDir), filepath.Join(t.TempDir(), "pid")
	out, code := refused(t, "--config", s.files.Config, "--choria-config", s.files.ChoriaConfig, "--pid", pid)
	says(t, out, code, 1, fmt.Sprintf("monitor_port %d: ", port), "address already in use", "stop what uses the port, set another one, or 0")
	if strings.Contains(out, "unused") {
		t.Errorf("a key that has an effect is called unused: %s", out)
	}
	after := contents(t, s.files.StateDir)
	for _, name := range []string{"journal.db", "journal.marker"} {
		if before[name] == "" || before[name] != after[name] {
			t.Errorf("%s was changed, or is empty", name)
		}
	}
	if len(contents(t, filepath.Dir(pid))) != 0 {
		t.Error("the pid file was written")
	}
	node := s.fleet.Nodes()[0]
	if n := s.requests(node); n != 0 {
		t.Errorf("%d requests reached the node", n)
	}
	l.Close()
	s.start()
	s.awaitFleet("with the port free, the node is provisioned", func(st fleet.State) bool { return st.Count(joined) == 1 })

	begun := s.worker.cmd.Process.Pid
	out, code = refused(t, "--config", s.files.Config, "--choria-config", s.files.ChoriaConfig)
	says(t, out, code, 5, `worker\.lock`, strconv.Itoa(begun)) // the first worker, not its port, is the news
}
