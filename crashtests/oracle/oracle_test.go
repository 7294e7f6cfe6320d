package oracle_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"provctl/crashtests/oracle"
	"provctl/crashtests/trace"
	"provctl/internal/fleet"
)

var zero = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func at(s float64) time.Time { return zero.Add(time.Duration(s * float64(time.Second))) }

// start is when the node's first process joined, as its log has it.
var start = at(0).UnixNano()

func entry(s float64, phase fleet.Phase, action, request string, change ...func(*fleet.Entry)) fleet.Entry {
	e := fleet.Entry{
		Node: "n", PID: 7, Start: start, Boot: 1, Phase: phase, Mode: fleet.Provisioning, Action: action, RequestID: request,
		Effect: fleet.IsEffect(action), Status: fleet.NoStatus, Time: at(s),
	}
	if phase == fleet.PhaseEnd {
		e.Status = 0
	}
	for _, c := range change {
		c(&e)
	}
	return e
}

func reborn(mode fleet.Mode) func(*fleet.Entry) {
	return func(e *fleet.Entry) { e.Start, e.Boot, e.Mode = e.Time.UnixNano(), 2, mode }
}

func faulty(e *fleet.Entry) { e.Fault = "drop" }

func status(code int) func(*fleet.Entry) { return func(e *fleet.Entry) { e.Status = code } }

// ran is an effect as a node logs it.
func ran(s float64, action, request string, change ...func(*fleet.Entry)) []fleet.Entry {
	return []fleet.Entry{
		entry(s, fleet.PhaseReceived, action, request, change...), entry(s, fleet.PhaseBegin, action, request, change...), entry(s+0.1, fleet.PhaseEnd, action, request, change...),
	}
}

func log(parts ...any) []fleet.Entry {
	out := []fleet.Entry{entry(0, fleet.PhaseBoot, "", "", func(e *fleet.Entry) { e.Start = 0 }), entry(0, fleet.PhaseJoined, "", "")}
	for _, p := range parts {
		switch p := p.(type) {
		case fleet.Entry:
			out = append(out, p)
		case []fleet.Entry:
			out = append(out, p...)
		}
	}
	return out
}

type set func(*oracle.Report)

// look is an output of inspect, of a worker that has been there for long.
func look(s float64, change ...set) oracle.Look {
	r := oracle.Report{Worker: &oracle.Worker{PID: 1, State: "running", Connected: true}}
	r.Journal.ID, r.Journal.Epoch, r.Journal.Seq = "j", 1, uint64(s*10)
	r.Counts.Receipts, r.Counts.Jobs = map[string]int{}, map[string]int{}
	for _, c := range change {
		c(&r)
	}
	return oracle.Look{From: at(s), To: at(s + 0.01), Report: r}
}

// item is an unknown receipt R of request q whose horizon is at second 10.
func item(action string, change ...func(*oracle.Item)) set {
	return func(r *oracle.Report) {
		i := oracle.Item{Receipt: "R", Node: "n", Action: action, Status: "unknown", Request: "q", Version: 5, Since: at(0.9), Horizon: at(10)}
		i.Incarnation.PID, i.Incarnation.Start = 7, at(0).Unix()
		for _, c := range change {
			c(&i)
		}
		r.Items = append(r.Items, i)
	}
}

func count(what string, n int) set {
	return func(r *oracle.Report) { r.Counts.Receipts[what], r.Counts.Jobs[what] = n, n }
}

var longLife = []oracle.Life{{Span: oracle.Span{From: at(-100)}}}

func TestJudge(t *testing.T) {
	disk := func(n int, kind trace.Kind, data string) trace.Event {
		return trace.Event{N: n, Source: trace.DiskSource, Kind: kind, Path: "journal.db", Data: []byte(data)}
	}
	begin := func(n int) trace.Event {
		return trace.Event{N: n, Source: "n", Kind: trace.Begin, Action: "configure", Request: "q"}
	}
	joinedProvisioned := entry(9, fleet.PhaseJoined, "", "", reborn(fleet.Provisioned))
	for name, c := range map[string]struct {
		run  oracle.Run
		want []int // invariants, in order
	}{
		"durable":                      {oracle.Run{Trace: []trace.Event{disk(1, trace.Write, "..q.."), disk(2, trace.Sync, ""), begin(3)}}, nil},
		"begun before the sync":        {oracle.Run{Trace: []trace.Event{disk(1, trace.Write, "..q.."), begin(2), disk(3, trace.Sync, "")}}, []int{1}},
		"begun without a receipt":      {oracle.Run{Trace: []trace.Event{disk(1, trace.Write, "..p.."), disk(2, trace.Sync, ""), begin(3)}}, []int{1}},
		"synced before it was written": {oracle.Run{Trace: []trace.Event{disk(1, trace.Sync, ""), disk(2, trace.Write, "..q.."), begin(3)}}, []int{1}},
		"durable before the failure":   {oracle.Run{FailedAt: 3, Trace: []trace.Event{disk(1, trace.Write, "q"), disk(2, trace.Sync, ""), disk(3, trace.Write, ""), begin(4)}}, nil},
		"durable after the failure":    {oracle.Run{FailedAt: 1, Trace: []trace.Event{disk(1, trace.Write, ""), disk(2, trace.Write, "q"), disk(3, trace.Sync, ""), begin(4)}}, []int{8}},

		"two open receipts": {oracle.Run{Looks: []oracle.Look{look(1, item("configure"), item("restart", func(i *oracle.Item) { i.Receipt = "S" }))}}, []int{2}},
		"an effect while blocked": {oracle.Run{
			Entries: log(ran(2, "restart", "other")), Looks: []oracle.Look{look(1, item("configure")), look(3, item("configure"))},
		}, []int{2}},
		"its own effect while open": {oracle.Run{
			Entries: log(ran(2, "configure", "q")), Looks: []oracle.Look{look(1, item("configure")), look(3, item("configure"))},
		}, nil},

		"arrived twice":             {oracle.Run{Entries: log(entry(1, fleet.PhaseReceived, "configure", "q"), entry(2, fleet.PhaseReceived, "configure", "q"))}, []int{3}},
		"ran twice":                 {oracle.Run{Entries: log(ran(1, "configure", "a"), ran(2, "configure", "b"))}, []int{3}},
		"ran again after it failed": {oracle.Run{Entries: log(ran(1, "configure", "a", status(1)), ran(2, "configure", "b"))}, nil},
		"keys after a configure":    {oracle.Run{Entries: log(ran(1, "configure", "a"), ran(2, "gen25519", "b"))}, []int{3}},
		"keys again":                {oracle.Run{Entries: log(ran(1, "gen25519", "a"), ran(2, "gen25519", "b"))}, nil},

		"an outcome was taken back": {oracle.Run{Looks: []oracle.Look{look(1, count("applied", 2)), look(2, count("applied", 1))}}, []int{4}},
		"open again":                {oracle.Run{Looks: []oracle.Look{look(1, item("configure")), look(2), look(3, item("configure"))}}, []int{4}},
		"pending again":             {oracle.Run{Looks: []oracle.Look{look(1, item("configure")), look(2, item("configure", func(i *oracle.Item) { i.Status = "pending" }))}}, []int{4}},
		"another journal":           {oracle.Run{Looks: []oracle.Look{look(1), look(2, func(r *oracle.Report) { r.Journal.ID = "k" })}}, []int{4}},

		"lost":        {oracle.Run{Ended: true, Nodes: []string{"n"}, Entries: log(), Looks: []oracle.Look{look(9)}}, []int{5}},
		"queued":      {oracle.Run{Ended: true, Nodes: []string{"n"}, Entries: log(), Looks: []oracle.Look{look(9, count("queued", 1))}}, nil},
		"held":        {oracle.Run{Ended: true, Nodes: []string{"n"}, Entries: log(), Looks: []oracle.Look{look(9, func(r *oracle.Report) { r.Nodes = []oracle.Out{{Node: "n"}} })}}, nil},
		"provisioned": {oracle.Run{Ended: true, Nodes: []string{"n"}, Entries: log(joinedProvisioned), Looks: []oracle.Look{look(9)}}, nil},
		"down":        {oracle.Run{Ended: true, Nodes: []string{"n"}, Entries: log(ran(1, "shutdown", "q")), Looks: []oracle.Look{look(9)}}, nil},

		"inspect wrote":       {oracle.Run{Stills: [][2]map[string]string{{{"journal.db": "1"}, {"journal.db": "2"}}}}, []int{7}},
		"inspect made a file": {oracle.Run{Stills: [][2]map[string]string{{{}, {"x": "2"}}}}, []int{7}},
		"inspect read":        {oracle.Run{Stills: [][2]map[string]string{{{"journal.db": "1"}, {"journal.db": "1"}}}}, nil},

		"an older sequence": {oracle.Run{Looks: []oracle.Look{look(2), look(1)}}, []int{9}},
		"an older version":  {oracle.Run{Looks: []oracle.Look{look(1, item("configure")), look(2, item("configure", func(i *oracle.Item) { i.Version-- }))}}, []int{9}},
	} {
		t.Run(name, func(t *testing.T) { want(t, c.run, c.want) })
	}
}

// TestNeedless has each reason for which a block is needless, beside the same without that reason.
func TestNeedless(t *testing.T) {
	killed := []oracle.Life{{Span: oracle.Span{From: at(-100), To: at(1.05)}}, {Span: oracle.Span{From: at(2)}}}
	received := entry(1, fleet.PhaseReceived, "configure", "q")
	back := []fleet.Entry{entry(2, fleet.PhaseBoot, "", "", reborn("")), entry(2, fleet.PhaseJoined, "", "", reborn(fleet.Provisioning))}
	gone := []fleet.Entry{entry(2, fleet.PhaseBoot, "", "", reborn("")), entry(2, fleet.PhaseJoined, "", "", reborn(fleet.Provisioned))}
	for name, c := range map[string]struct {
		run  oracle.Run
		want []int
	}{
		"its reply was there":  {oracle.Run{Lives: longLife, Entries: log(ran(1, "configure", "q")), Looks: []oracle.Look{look(20, item("configure"))}}, []int{6}},
		"... and was lost":     {oracle.Run{Lives: longLife, Entries: log(ran(1, "configure", "q", faulty)), Looks: []oracle.Look{look(20, item("configure"))}}, nil},
		"... and nobody heard": {oracle.Run{Lives: killed, Entries: log(ran(1, "configure", "q")), Looks: []oracle.Look{look(20, item("configure"))}}, nil},
		"... and the broker was away": {oracle.Run{
			Lives: longLife, Outages: []oracle.Span{{From: at(0.5), To: at(4)}}, Entries: log(ran(1, "configure", "q")), Looks: []oracle.Look{look(20, item("configure"))},
		}, nil},
		"... and nobody looks":          {oracle.Run{Manual: true, Lives: longLife, Entries: log(ran(1, "configure", "q")), Looks: []oracle.Look{look(20, item("configure"))}}, nil},
		"never arrived":                 {oracle.Run{Lives: killed, Entries: log(), Looks: []oracle.Look{look(30, item("configure"))}}, []int{6}},
		"... but may yet":               {oracle.Run{Lives: killed, Entries: log(), Looks: []oracle.Look{look(20, item("configure"))}}, nil},
		"... without a worker for long": {oracle.Run{Lives: []oracle.Life{{Span: oracle.Span{From: at(29)}}}, Entries: log(), Looks: []oracle.Look{look(30, item("configure"))}}, nil},
		"... and one that was killed has asked meanwhile": {oracle.Run{
			Lives:   []oracle.Life{{Span: oracle.Span{From: at(-100), To: at(1)}}, {Span: oracle.Span{From: at(2), To: at(3)}}, {Span: oracle.Span{From: at(4)}}},
			Entries: log(), Looks: []oracle.Look{look(30, item("configure"))},
		}, nil},
		"arrived":                    {oracle.Run{Lives: killed, Entries: log(received), Looks: []oracle.Look{look(20, item("configure"))}}, nil},
		"came back":                  {oracle.Run{Lives: killed, Entries: log(received, back), Looks: []oracle.Look{look(20, item("configure"))}}, []int{6}},
		"came back as provisioned":   {oracle.Run{Lives: killed, Entries: log(received, gone), Looks: []oracle.Look{look(20, item("configure"))}}, nil},
		"keys":                       {oracle.Run{Lives: killed, Entries: log(ran(1, "gen25519", "q")), Looks: []oracle.Look{look(20, item("gen25519"))}}, []int{6}},
		"keys under a configuration": {oracle.Run{Lives: killed, Entries: log(ran(1, "gen25519", "q"), ran(2, "configure", "p")), Looks: []oracle.Look{look(20, item("gen25519"))}}, nil},
		"left":                       {oracle.Run{Lives: killed, Entries: log(ran(1, "restart", "q"), gone), Looks: []oracle.Look{look(30, item("restart"))}}, []int{6}},
		"has just left":              {oracle.Run{Lives: killed, Entries: log(ran(1, "restart", "q"), gone), Looks: []oracle.Look{look(20, item("restart"))}}, nil},
		"left a broker that has restarted": {oracle.Run{
			Lives: killed, Outages: []oracle.Span{{From: at(3), To: at(4)}}, Entries: log(ran(1, "restart", "q"), gone), Looks: []oracle.Look{look(30, item("restart"))},
		}, nil},
		"leaves after the look": {oracle.Run{Lives: killed, Entries: log(ran(1, "restart", "q"), entry(31, fleet.PhaseJoined, "", "", reborn(fleet.Provisioned))), Looks: []oracle.Look{look(30, item("restart"))}}, nil},
		"was shut down":         {oracle.Run{Lives: killed, Entries: log(ran(1, "shutdown", "q")), Looks: []oracle.Look{look(30, item("shutdown"))}}, []int{6}},
	} {
		t.Run(name, func(t *testing.T) {
			want(t, c.run, c.want)
		})
	}
}

func want(t *testing.T, r oracle.Run, invariants []int) {
	t.Helper()
	var got []int
	for _, v := range oracle.Judge(r) {
		got = append(got, v.Invariant)
		if v.String() == "" || v.Node == "" {
			t.Errorf("it does not say where: %+v", v)
		}
	}
	if !slices.Equal(got, invariants) {
		t.Errorf("broken: %v, want %v", oracle.Judge(r), invariants)
	}
}

func TestReadReport(t *testing.T) {
	good, err := json.Marshal(map[string]any{"schema": "provctl.inspect/1", "items": []any{map[string]any{"receipt": "R", "horizon": zero}}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := oracle.ReadReport(good)
	if err != nil || len(r.Items) != 1 || !r.Items[0].Horizon.Equal(zero) {
		t.Errorf("%+v, %v", r, err)
	}
	for _, bad := range []string{"", "{}", `{"schema":"provctl.inspect/2"}`, `{"schema":"provctl.inspect/1","items":3}`} {
		if _, err := oracle.ReadReport([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
