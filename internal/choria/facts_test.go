package choria

import (
	"cmp"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"provctl/receipt"
)

func TestOnlyFactsAreFacts(t *testing.T) {
	e := engine(t, broker(t))
	n := node(t, broker(t), func(r fakeRequest) { r.answer(0, "OK", `{}`) })
	for _, a := range append(receipt.Actions(), receipt.Action(0)) {
		if _, err := e.Fact(deadline(t), FactRequest{Node: n.node(), Agent: provisionAgent, Action: a.String()}); !errors.Is(err, ErrNotAFact) {
			t.Errorf("%s as a fact: %v", a, err)
		}
	}
	for _, q := range []FactRequest{{Agent: provisionAgent, Action: "reprovision"}, {Agent: "rpcutil", Action: "jwt"}, {Agent: "package", Action: "install"}, {}} {
		q.Node = n.node()
		if _, err := e.Fact(deadline(t), q); !errors.Is(err, ErrNotAFact) {
			t.Errorf("%s#%s as a fact: %v", q.Agent, q.Action, err)
		}
	}
	if _, err := e.Fact(deadline(t), FactRequest{Node: n.node(), Agent: "rpcutil", Action: "ping"}); err != nil {
		t.Error(err)
	}
	if ran := n.executed(); len(ran) != 1 {
		t.Errorf("the node accepted %d requests, want the ping alone", len(ran))
	}
}

func TestFactRetries(t *testing.T) {
	jwt := `{"jwt":"e30.e30.e30","ecdh_public":"aabb"}`
	for _, tc := range []struct {
		name  string
		node  func(int64, fakeRequest)
		tries int64
		want  error
		limit time.Duration // of each try; 0: long, for what is answered
	}{
		{"answered at once", func(_ int64, r fakeRequest) { r.answer(0, "OK", jwt) }, 1, nil, 0},
		{"answered the third time", func(i int64, r fakeRequest) {
			if i == 3 {
				r.answer(0, "OK", jwt)
			}
		}, 3, nil, time.Second},
		{"never answered", func(int64, fakeRequest) {}, 3, ErrNoReply, 150 * time.Millisecond},
		{"garbage, then good", func(i int64, r fakeRequest) {
			if i == 1 {
				r.raw(`{"statuscode":"x"}`)
				return
			}
			r.answer(0, "OK", jwt)
		}, 2, nil, 0},
		{"answered by others", func(_ int64, r fakeRequest) { r.publish(r.seal("other", r.ID, r.body(0, "OK", jwt))) }, 3, ErrNoReply, 150 * time.Millisecond},
		{"no object", func(_ int64, r fakeRequest) { r.answer(0, "OK", `"x"`) }, 3, ErrBadReply, 0},
		{"no jwt", func(_ int64, r fakeRequest) { r.answer(0, "OK", `{}`) }, 1, ErrBadReply, 0},
		{"mistyped jwt", func(_ int64, r fakeRequest) { r.answer(0, "OK", `{"jwt":[]}`) }, 1, ErrBadReply, 0},
		{"odd key", func(_ int64, r fakeRequest) { r.answer(0, "OK", `{"jwt":"a","ecdh_public":"zz"}`) }, 1, ErrBadReply, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := engine(t, broker(t), func(o *Options) { o.FactTimeout = cmp.Or(tc.limit, 10*time.Second) })
			var asked atomic.Int64
			n := node(t, broker(t), func(r fakeRequest) { tc.node(asked.Add(1), r) })
			got, err := e.JWT(deadline(t), n.node(), "s3cret")
			if !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			if tc.want == nil && got != (JWTReply{JWT: "e30.e30.e30", ECDHPublic: "aabb"}) {
				t.Errorf("got %+v", got)
			}
			ran := n.executed()
			if int64(len(ran)) != tc.tries {
				t.Errorf("asked %d times, want %d", len(ran), tc.tries)
			}
			ids := map[string]bool{}
			for _, id := range ran {
				ids[id] = true
			}
			if len(ids) != len(ran) {
				t.Error("a request id was used twice")
			}
		})
	}
}

func TestFactRefusedIsNotRetried(t *testing.T) {
	e := engine(t, broker(t))
	n := node(t, broker(t), func(r fakeRequest) { r.answer(1, "Could not obtain provisioning lock\x1b[0m", "{}") })
	_, err := e.JWT(deadline(t), n.node(), "")
	var re *ReplyError
	if !errors.As(err, &re) || re.Code != 1 || re.Text != "Could not obtain provisioning lock?[0m" {
		t.Errorf("error %v (%+v), want the node's words", err, re)
	}
	if ran := n.executed(); len(ran) != 1 {
		t.Errorf("asked %d times", len(ran))
	}
}

func TestAbsentNodeAnswersNoFact(t *testing.T) {
	e := engine(t, broker(t))
	if _, err := e.Inventory(deadline(t), "nobody.example.net"); !errors.Is(err, ErrNobody) || !strings.Contains(err.Error(), "5 of 5") {
		t.Errorf("inventory of nobody: %v, want ErrNobody after 5 tries", err)
	}
}

func TestInventoryKeepsOddData(t *testing.T) {
	e := engine(t, broker(t))
	n := node(t, broker(t), func(r fakeRequest) {
		r.raw(`{"statuscode":0,"statusmsg":"OK","data":{"facts":{"a":1,"a":2},"version":"x"}}`)
	})
	got, err := e.Inventory(deadline(t), n.node())
	if err != nil || string(got) != `{"facts":{"a":1,"a":2},"version":"x"}` {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestStatsAndKnownSince(t *testing.T) {
	e := engine(t, broker(t))
	n := node(t, broker(t), func(r fakeRequest) { r.answer(0, "OK", `{"pong":1,"message":"Restarting Choria Server after 2s"}`) })
	ping := func() {
		t.Helper()
		if _, err := e.Fact(deadline(t), FactRequest{Node: n.node(), Agent: "rpcutil", Action: "ping"}); err != nil {
			t.Fatal(err)
		}
	}
	stats := func() receipt.StatsSeen {
		t.Helper()
		s, err := e.Stats(deadline(t), n.node())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	ping()
	first := stats()
	if first.Incarnation != (receipt.Incarnation{PID: 10, Start: 1000}) || first.Validated != 2 || first.Epoch != 7 || first.Version != "0.30.2" {
		t.Errorf("stats are %+v", first)
	}
	base := e.BaselineOf(n.node(), first)
	ping()
	found := func() int {
		t.Helper()
		got, err := e.Discover(deadline(t), 3*time.Second, func(receipt.NodeID) {})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if found() != 1 {
		t.Fatal("the node was not discovered")
	}
	second := stats()
	if known := e.KnownSince(n.node(), base, second); known != 3 || second.Validated-base.Validated != known {
		t.Errorf("known %d of %d validated, want all 3", known, second.Validated-base.Validated)
	}
	restart(t, e, n.node())
	third := stats()
	if known := e.KnownSince(n.node(), base, third); known != 4 || third.Validated-base.Validated != known+1 {
		t.Errorf("known %d of %d validated, want all but the effect", known, third.Validated-base.Validated)
	}
}

func TestStatsAreChecked(t *testing.T) {
	e := &Engine{}
	for _, data := range []string{
		`{}`, `{"pid":0,"starttime":1,"validated":1}`, `{"pid":1,"starttime":-1,"validated":1}`, `{"pid":1,"starttime":1,"validated":"1"}`,
		`{"pid":1.5,"starttime":1,"validated":1}`, `{"pid":1,"starttime":1,"validated":90071992547409929}`, `[]`, `null`, ``,
	} {
		if got, err := e.statsFrom("n", Fact{Data: []byte(data)}); !errors.Is(err, ErrBadReply) {
			t.Errorf("stats %s: %+v, %v", data, got, err)
		}
	}
	if got, err := e.statsFrom("n", Fact{Data: []byte(`{"pid":1,"starttime":2,"validated":3,"more":[]}`)}); err != nil || got.Validated != 3 {
		t.Errorf("good stats: %+v, %v", got, err)
	}
}

func TestKnownCounts(t *testing.T) {
	full := &history{}
	for i := uint64(1); i <= answersKept+10; i++ {
		full.add(answered{published: i * 10, back: i*10 + 5})
	}
	for _, tc := range []struct {
		name        string
		ring        *history
		base, probe uint64
		want        int64
	}{
		{"nothing remembered", nil, 5, 10, 1},
		{"probe alone", &history{ring: []answered{{1, 2}, {3, 4}}}, 2, 3, 1},
		{"one between", &history{ring: []answered{{1, 2}, {3, 4}, {5, 6}}}, 2, 5, 2},
		{"baseline named by its publish", &history{ring: []answered{{1, 2}, {3, 4}, {5, 6}}}, 1, 5, 2},
		{"published before the baseline was answered", &history{ring: []answered{{1, 3}, {2, 4}, {5, 6}}}, 3, 5, 1},
		{"the same, baseline named by its publish", &history{ring: []answered{{1, 3}, {2, 4}, {5, 6}}}, 1, 5, 1},
		{"answered after the probe was published", &history{ring: []answered{{1, 2}, {5, 7}, {3, 8}}}, 2, 5, 1},
		{"unanswered", &history{ring: []answered{{1, 2}, {9, 10}}}, 2, 9, 1},
		{"probe before the baseline", &history{ring: []answered{{1, 2}, {3, 4}}}, 4, 1, 0},
		{"probe is the baseline", &history{ring: []answered{{1, 2}}}, 2, 1, 0},
		{"probe is the baseline, named by its publish", &history{ring: []answered{{1, 2}}}, 1, 1, 0},
		{"all of this term", &history{ring: []answered{{1, 2}, {3, 4}, {5, 6}}}, 0, 5, 3},
		{"ring overflowed", full, 15, 420, 32},
		{"ring overflowed, baseline inside", full, 405, 420, 2},
		{"whole histories forgotten", &history{lost: 100}, 5, 110, 1},
		{"ring after a forgotten history", &history{lost: 100, ring: []answered{{90, 101}, {102, 103}}}, 5, 110, 2},
	} {
		if got := tc.ring.known(tc.base, tc.probe); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestKnownAcrossTerms(t *testing.T) {
	e := &Engine{}
	e.counts.init()
	e.SetEpoch(9)
	a, b := e.counts.next(), e.counts.next()
	e.counts.answered("n", a)
	e.counts.answered("n", b)
	probe := receipt.StatsSeen{Epoch: 9, Ordinal: e.counts.next()}
	for _, tc := range []struct {
		name  string
		base  receipt.Baseline
		probe receipt.StatsSeen
		want  int64
	}{
		{"baseline of an earlier term", receipt.Baseline{Epoch: 8, Ordinal: 1_000_000}, probe, 3},
		{"baseline of a later term", receipt.Baseline{Epoch: 10}, probe, 0},
		{"probe of an earlier term", receipt.Baseline{Epoch: 7}, receipt.StatsSeen{Epoch: 8, Ordinal: 3}, 1},
		{"both of an earlier term, in the wrong order", receipt.Baseline{Epoch: 8, Ordinal: 5}, receipt.StatsSeen{Epoch: 8, Ordinal: 3}, 0},
		{"probe of a later term", receipt.Baseline{Epoch: 9}, receipt.StatsSeen{Epoch: 10, Ordinal: 3}, 1},
	} {
		if got := e.KnownSince("n", tc.base, tc.probe); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}
