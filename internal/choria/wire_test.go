package choria

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"provctl/receipt"
)

func TestHugeMessageIsNotRead(t *testing.T) {
	e := &Engine{} // without a framework: anything read would fault
	if _, err := e.open(make([]byte, maxMessage+1)); !errors.Is(err, errHuge) {
		t.Errorf("error %v, want errHuge", err)
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"plain ü text":                 "plain ü text",
		"a\x1b[31m\r\n\tb":             "a?[31m???b",
		"bad \xff\xfe utf8":            "bad ? utf8",
		"bidi \u202e and zero\u200b":   "bidi ? and zero?",
		strings.Repeat("x", 2*maxText): strings.Repeat("x", maxText),
	} {
		if got := clean(in); got != want {
			t.Errorf("clean(%.40q) = %.60q, want %.60q", in, got, want)
		}
	}
	if got := clean(strings.Repeat("ü", maxText)); !utf8.ValidString(got) || len(got) > maxText {
		t.Errorf("a text cut inside a character becomes %d bytes", len(got))
	}
}

func TestEffectTextsKeepTheirMeaning(t *testing.T) {
	for _, tc := range []struct {
		action receipt.Action
		body   string
		want   receipt.Event
	}{
		{receipt.Configure, `{"statuscode":0,"statusmsg":"OK","data":{"message":"Wrote 12 lines to /etc/choria/server.conf"}}`, receipt.ReplyApplied},
		{receipt.Shutdown, `{"statuscode":0,"statusmsg":"OK","data":{"message":"Shutting Choria Server down after 3s"}}`, receipt.ReplyApplied},
		{receipt.ReleaseUpdate, `{"statuscode":0,"data":{"message":"Restarting Choria Server after 2s"}}`, receipt.ReplyApplied},
		{receipt.ReleaseUpdate, `{"statuscode":1,"statusmsg":"Version updates is not enabled in the configuration","data":{}}`, receipt.ReplyRefused},
		{receipt.Configure, `{"statuscode":4,"statusmsg":"Validation failed: x"}`, receipt.ReplyRefused},
		{receipt.Configure, `{"statuscode":5,"statusmsg":"x","data":null}`, receipt.ReplyFailed},
		{receipt.Configure, `{"statuscode":0,"statusmsg":"Wrote 12 lines","data":{}}`, receipt.Lost},
		{receipt.Configure, `{"statuscode":0,"statusmsg":7,"data":{"message":"Wrote 1"}}`, receipt.Lost},
		{receipt.Configure, `{"statuscode":0,"data":{"message":"Wrote 1","message":"Wrote 2"}}`, receipt.Lost},
		{receipt.GenCSR, `{"statuscode":0,"data":{"csr":"x"}}`, receipt.Lost},
		{receipt.Configure, `{"statuscode":0,"data":{"message":"Wrote 1"}} {}`, receipt.Lost},
		{receipt.Configure, `{"statuscode":1e0,"data":{}}`, receipt.Lost},
	} {
		r, _ := decodeEffect(tc.action, []byte(tc.body))
		if got, why := receipt.Classify(tc.action, r); got != tc.want {
			t.Errorf("%s %s: %s (%s), want %s", tc.action, tc.body, got, why, tc.want)
		}
	}
}
