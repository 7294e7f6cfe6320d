package choria

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"provctl/receipt"
)

// fit fails the test for a text that is longer than what is kept, or could disturb a terminal.
func fit(t *testing.T, texts ...string) {
	t.Helper()
	for _, s := range texts {
		if len(s) > maxText || !utf8.ValidString(s) || clean(s) != s {
			t.Fatalf("%d bytes of %.80q are kept", len(s), s)
		}
	}
}

// FuzzClean cuts and cleans whatever text a node sends, once and for all.
func FuzzClean(f *testing.F) {
	f.Add("plain ü text", 3)
	f.Fuzz(func(t *testing.T, s string, times int) {
		fit(t, clean(s), clean(strings.Repeat(s, min(max(times, 0), 2*maxText/(len(s)+1)+1))))
	})
}

// FuzzEffectReply reads the body of a reply to each effect. What is taken as applied has code 0 and the action's data or words; what is
// read twice is the same; an odd reply is trouble and never a quiet zero.
func FuzzEffectReply(f *testing.F) {
	f.Add(byte(receipt.Configure), []byte(`{"statuscode":0,"statusmsg":"OK","data":{"message":"Wrote 1 lines"}}`))
	f.Fuzz(func(t *testing.T, action byte, raw []byte) {
		a := receipt.Actions()[int(action)%len(receipt.Actions())]
		r, data := decodeEffect(a, raw)
		if again, same := decodeEffect(a, raw); again != r || string(same) != string(data) {
			t.Fatalf("once %+v, once %+v", r, again)
		}
		fit(t, r.Text, r.Trouble)
		if r.Code < 0 || r.Code > 5 || r.Usable && (r.Code != 0 || r.Trouble != "") {
			t.Fatalf("%+v", r)
		}
		if event, _ := receipt.Classify(a, r); event == receipt.ReplyApplied {
			var v struct {
				Code *int64                     `json:"statuscode"`
				Data map[string]json.RawMessage `json:"data"`
			}
			if err := json.Unmarshal(raw, &v); err != nil || v.Code == nil || *v.Code != 0 || len(v.Data) == 0 {
				t.Fatalf("%s is applied by %q: %v", a, raw, err)
			}
		}
	})
}

// FuzzKeyAndCSR reads what gen25519 and gencsr answer: all parts are there and within their bounds, or it is ErrBadReply.
func FuzzKeyAndCSR(f *testing.F) {
	key := `{"public_key":"` + strings.Repeat("aB", 32) + `","directory":"/etc/choria","signature":"` + strings.Repeat("0f", 64) + `"}`
	csr := `{"csr":"-----BEGIN CERTIFICATE REQUEST-----\nAA==\n-----END CERTIFICATE REQUEST-----\n","public_key":"x","ssldir":"C:\\ssl"}`
	f.Add([]byte(key))
	f.Add([]byte(csr))
	f.Fuzz(func(t *testing.T, data []byte) {
		k, err := DecodeKey(receipt.Gen25519, data)
		switch {
		case err != nil && (!errors.Is(err, ErrBadReply) || k != receipt.Key{}):
			t.Fatalf("%v with %+v", err, k)
		case err == nil && (!isHex(k.Public, 64) || !isHex(k.Signature, 128) ||
			strings.ToLower(k.Public+k.Signature) != k.Public+k.Signature || checkPath(k.Directory) != nil):
			t.Fatalf("accepted %+v", k)
		}
		if err == nil {
			b, _ := json.Marshal(map[string]string{"public_key": k.Public, "directory": k.Directory, "signature": k.Signature})
			if again, err := DecodeKey(receipt.Gen25519, b); err != nil || again != k {
				t.Fatalf("%v\n got %+v\nwant %+v", err, again, k)
			}
		}
		c, err := DecodeCSR(data)
		switch {
		case err != nil && (!errors.Is(err, ErrBadReply) || c != CSR{}):
			t.Fatalf("%v with %+v", err, c)
		case err == nil && (len(c.PEM) > maxPEM || len(c.PublicKey) > maxPEM ||
			!strings.Contains(c.PEM, "-----BEGIN CERTIFICATE REQUEST-----") || checkPath(c.SSLDir) != nil):
			t.Fatalf("accepted %+v", c)
		}
	})
}

// FuzzFacts reads the answers to jwt, daemon_stats and inventory: a number that a proof counts with is there and plausible, or the answer
// is ErrBadReply; a refusal of the node is its own error.
func FuzzFacts(f *testing.F) {
	for _, s := range []string{
		`{"statuscode":0,"statusmsg":"OK","data":{"pid":7,"starttime":1740000000,"validated":3,"version":"0.30.2"}}`,
		`{"statuscode":0,"data":{"jwt":"a.b.c","ecdh_public":"00ff"}}`, `{"statuscode":1,"statusmsg":"no"}`, `{"statuscode":0,"data":[]}`,
	} {
		f.Add([]byte(s))
	}
	e := &Engine{}
	e.epoch.Store(7)
	at := time.Unix(1740000000, 0)
	f.Fuzz(func(t *testing.T, raw []byte) {
		fact, err := factOf(FactRequest{Node: "n1", Agent: "rpcutil", Action: "daemon_stats"}, "Q", 5, envelope{body: raw}, at)
		if err != nil {
			var said *ReplyError
			if errors.As(err, &said) {
				fit(t, said.Text)
			}
			if (said == nil) != errors.Is(err, ErrBadReply) || fact.Data != nil || said != nil && (said.Code < 1 || said.Code > 5) {
				t.Fatalf("%v with %+v", err, fact)
			}
			return
		}
		if fact.Code != 0 || fact.ordinal != 5 || len(fact.Data) == 0 || fact.Data[0] != '{' {
			t.Fatalf("%+v", fact)
		}
		s, err := e.statsFrom("n1", fact)
		switch {
		case err != nil && (!errors.Is(err, ErrBadReply) || s != receipt.StatsSeen{}):
			t.Fatalf("%v with %+v", err, s)
		case err == nil && (!s.Incarnation.Known() || s.Validated < 1 || s.Validated >= 1<<53 || s.Epoch != 7 || s.Ordinal != 5 || s.Known != 0):
			t.Fatalf("accepted %+v", s)
		}
		fit(t, s.Version)
		j, err := jwtFrom("n1", fact)
		switch {
		case err != nil && (!errors.Is(err, ErrBadReply) || j != JWTReply{}):
			t.Fatalf("%v with %+v", err, j)
		case err == nil && (j.JWT == "" || len(j.JWT) > len(raw) || len(j.ECDHPublic) > 256 || !isHex(j.ECDHPublic, len(j.ECDHPublic))):
			t.Fatalf("accepted %+v", j)
		}
	})
}

// FuzzEvent reads lifecycle events, bare and wrapped: a bare one and the same one inside a CloudEvent say the same.
func FuzzEvent(f *testing.F) {
	f.Add([]byte(`{"protocol":"io.choria.lifecycle.v1.upgraded","identity":"a","component":"x","timestamp":5,"new_version":"2"}`))
	f.Add([]byte(`{"source":"io.choria.lifecycle","data":{"protocol":"choria:lifecycle:startup:1","identity":"a"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		ev, err := decodeEvent(data)
		if err != nil {
			if ev != (Event{}) {
				t.Fatalf("%v with %+v", err, ev)
			}
			return
		}
		fit(t, ev.Seen.Component, ev.Seen.Version)
		if _, err := receipt.ParseNodeID(string(ev.Node)); err != nil || len(data) > maxEvent || !ev.At.IsZero() {
			t.Fatalf("accepted %+v: %v", ev, err)
		}
		if !strings.Contains(string(data), "\\") && !strings.Contains(string(data), ev.Seen.Type) {
			t.Fatalf("type %q is not in %q", ev.Seen.Type, data)
		}
		if len(data) > maxEvent/2 || strings.Contains(string(data), "source") {
			return
		}
		wrapped, err := decodeEvent([]byte(`{"source":"io.choria.lifecycle","data":` + string(data) + `}`))
		if err != nil || wrapped != ev {
			t.Fatalf("wrapped: %+v, %v, bare: %+v", wrapped, err, ev)
		}
	})
}

// FuzzConnz reads the broker's list of connections and counts with it: never more live ones than the answer holds, a closure that it
// holds, or an error. Two lists of one server are not counted twice.
func FuzzConnz(f *testing.F) {
	f.Add([]byte(`{"server":{"id":"S"},"data":{"connections":[{"name":"n1","stop":"2020-01-01T00:00:00Z"},{"subscriptions_list":["provisioning.node.n1"]}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := decodeConnz(data)
		if again, err2 := decodeConnz(data); (err == nil) != (err2 == nil) || err == nil && !reflect.DeepEqual(a, again) {
			t.Fatalf("once %+v, once %+v", a, again)
		}
		in := make(chan *nats.Msg, 2)
		e := &Engine{closing: make(chan struct{})}
		in <- &nats.Msg{Data: data}
		in <- &nats.Msg{Data: data}
		answers, collected := e.connzAnswers(t.Context(), in, nil, connzQuestion{heard: map[string]bool{}, brief: true}, time.Millisecond)
		if len(data) > 0 && (collected == nil) != (err == nil) || collected == nil && len(answers) != 1 {
			t.Fatalf("%d answers, %v; alone it is %v", len(answers), collected, err)
		}
		if err != nil {
			if len(data) > 0 && !errors.Is(collected, ErrNoConnectionList) {
				t.Fatal(collected)
			}
			fit(t, strings.TrimPrefix(err.Error(), "the broker refuses: "))
			return
		}
		if a.Data == nil || a.Server.ID == "" {
			t.Fatalf("accepted %+v", a)
		}
		seen, err := connections(t.Context(), func(context.Context, connzQuestion) ([]connzAnswer, error) { return answers, nil }, "n1", time.Time{})
		if err != nil {
			if !errors.Is(err, ErrNoConnectionList) || len(a.Data.Conns) < connzPage {
				t.Fatal(err)
			}
			return
		}
		fit(t, seen.Reason)
		named, closed := false, seen.LastClosed.IsZero()
		for _, c := range a.Data.Conns {
			named = named || c.Name == "n1" || slices.Contains(c.Subs, "provisioning.node.n1")
			closed = closed || c.Name == "n1" && c.Stop != nil && c.Stop.Equal(seen.LastClosed)
		}
		if live := map[bool]int{true: len(a.Data.Conns)}[named]; seen.Live != live || !closed {
			t.Fatalf("%+v of %+v", seen, a.Data.Conns)
		}
	})
}

// FuzzEnvelope wraps any reply as a node does, with a right hash: what comes out is what was put in, another hash is refused, and nothing
// of it faults.
func FuzzEnvelope(f *testing.F) {
	reply := `{"protocol":"io.choria.protocol.v2.reply","message":"e30=","request":"Q","sender":"n1","agent":"rpcutil","time":1}`
	f.Add([]byte(reply), []byte(`{"sender":"n1"}`), uint16(0))
	e, err := New(options(f, broker(f)))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, reply, headers []byte, spoil uint16) {
		if !json.Valid(headers) {
			headers = []byte("null")
		}
		wrap := func(hash []byte) []byte {
			secure := must(json.Marshal(map[string]any{
				"protocol": "io.choria.protocol.v2.secure_reply", "reply": reply, "hash": base64.StdEncoding.EncodeToString(hash),
			}))
			return must(json.Marshal(map[string]any{
				"protocol": "io.choria.protocol.v2.transport", "data": secure, "headers": json.RawMessage(headers),
			}))
		}
		sum := sha256.Sum256(reply)
		env, err := e.open(wrap(sum[:]))
		if err == nil {
			var v struct{ Request, Sender, Agent *string }
			var m struct{ Message []byte }
			if json.Unmarshal(reply, &v) == nil && json.Unmarshal(reply, &m) == nil && v.Request != nil && v.Sender != nil && v.Agent != nil &&
				(env.request != *v.Request || env.sender != *v.Sender || env.agent != *v.Agent || string(env.body) != string(m.Message)) {
				t.Fatalf("%q was opened as %+v", reply, env)
			}
		} else if env.body != nil || env.sender != "" {
			t.Fatalf("%v with %+v", err, env)
		}
		sum[int(spoil)%len(sum)] ^= byte(spoil>>8) | 1
		if env, err := e.open(wrap(sum[:])); err == nil {
			t.Fatalf("a wrong hash is accepted: %+v", env)
		}
	})
}

// FuzzReleased hears notes of leaders that stop: one that names no revision is dropped, and none blocks who hears it.
func FuzzReleased(f *testing.F) {
	for _, s := range []string{`{"revision":7}`, `{"revision":0}`, `{"revision":-1}`, `{"revision":18446744073709551616}`, "null"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e := &Election{opt: ElectionOptions{Engine: &Engine{}}, notes: make(chan released, 1)}
		e.onRelease(&nats.Msg{Data: data})
		e.onRelease(&nats.Msg{Data: data})
		garbage := e.opt.Engine.stats.garbage.Load()
		select {
		case n := <-e.notes:
			if n.Revision == 0 || garbage != 0 || len(data) > maxNote {
				t.Fatalf("%+v of %q", n, data)
			}
		default:
			if garbage != 2 {
				t.Fatalf("%q was neither taken nor dropped", data)
			}
		}
	})
}
