package choria

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"

	"provctl/receipt"
)

const (
	maxMessage = 1 << 20 // bytes of a message that are looked at
	maxText    = 1 << 10 // bytes of a node's text that are kept
)

// errHuge is what a message beyond maxMessage decodes to.
var errHuge = errors.New("it is larger than 1 MiB")

// envelope is a reply with the protocol's layers taken off; of its fields only the sizes are checked.
type envelope struct {
	sender, request, agent string
	body                   []byte
}

// open takes the protocol's layers off a reply and checks its hash. The decoder of the protocol was not written for hostile
// input (a null header makes it fault), so a panic in it is an undecodable message.
func (e *Engine) open(data []byte) (env envelope, err error) {
	if len(data) > maxMessage {
		return envelope{}, errHuge
	}
	defer func() {
		if p := recover(); p != nil {
			env, err = envelope{}, fmt.Errorf("its layers are malformed: %v", p)
		}
	}()
	r, err := e.fw.NewReplyFromTransportJSON(data, false)
	if err != nil {
		return envelope{}, err
	}
	return envelope{sender: r.SenderID(), request: r.RequestID(), agent: r.Agent(), body: r.Message()}, nil
}

// isNobody recognises the broker's notice that nobody was subscribed (status 503, no data).
func isNobody(m *nats.Msg) bool { return len(m.Data) == 0 && m.Header.Get("Status") == "503" }

// body is an mcorpc reply (providers/agent/mcorpc/mcorpc.go:52). Pointers tell missing from zero.
type body struct {
	Code *int64         `json:"statuscode"`
	Text *string        `json:"statusmsg"`
	Data jsontext.Value `json:"data"`
}

// decodeBody reads an mcorpc reply. It is strict about types, about names that occur twice and about text that is no UTF-8;
// facts may hold such things in their data, since they come from files of the node's owner, so there only types count.
func decodeBody(b []byte, strict bool) (body, error) {
	var v body
	if len(b) == 0 {
		return v, errors.New("the reply is empty")
	}
	if err := jsonv2.Unmarshal(b, &v, jsontext.AllowDuplicateNames(!strict), jsontext.AllowInvalidUTF8(!strict)); err != nil {
		return body{}, fmt.Errorf("the reply is no mcorpc reply: %s", clean(err.Error()))
	}
	if v.Code == nil {
		return body{}, errors.New("the reply has no status code")
	}
	if *v.Code < 0 || *v.Code > 5 {
		return body{}, fmt.Errorf("the reply has status code %d, which no agent sends", *v.Code)
	}
	return v, nil
}

func (b body) text() string {
	if b.Text == nil {
		return ""
	}
	return clean(*b.Text)
}

// decodeEffect turns the body of an effect's reply into what receipt.Classify reads, with the reply's data.
func decodeEffect(a receipt.Action, raw []byte) (receipt.Reply, json.RawMessage) {
	b, err := decodeBody(raw, true)
	if err != nil {
		return receipt.Reply{Trouble: clean(err.Error())}, nil
	}
	r := receipt.Reply{Code: int(*b.Code), Text: b.text()}
	if r.Code != 0 {
		return r, json.RawMessage(b.Data)
	}
	switch a {
	case receipt.Gen25519:
		_, err = DecodeKey(a, json.RawMessage(b.Data))
		r.Usable = err == nil
	case receipt.GenCSR:
		_, err = DecodeCSR(json.RawMessage(b.Data))
		r.Usable = err == nil
	default:
		r.Text, err = messageOf(b.Data)
	}
	if err != nil {
		r.Trouble = clean(err.Error())
	}
	return r, json.RawMessage(b.Data)
}

// messageOf reads the "message" that configure, restart, shutdown and release_update answer with.
func messageOf(data jsontext.Value) (string, error) {
	var v struct {
		Message *string `json:"message"`
	}
	if err := jsonv2.Unmarshal(data, &v); err != nil {
		return "", fmt.Errorf("the reply's data cannot be read: %w", err)
	}
	if v.Message == nil {
		return "", errors.New("the reply's data has no message")
	}
	return clean(*v.Message), nil
}

// clean bounds a text from outside to 1 KiB and replaces what could disturb a terminal or a log.
func clean(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || unicode.IsControl(r) || !unicode.IsPrint(r) && r != ' ' {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}
