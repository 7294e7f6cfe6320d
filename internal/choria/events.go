package choria

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"

	"provctl/receipt"
)

const (
	maxEvent     = 64 << 10
	eventSubject = "choria.lifecycle.event.*.>"
)

// Event is a lifecycle event of a node in provisioning mode. Its absence means nothing: many are never published.
type Event struct {
	Node receipt.NodeID
	Seen receipt.EventSeen
	At   time.Time
}

// The event types that are passed on.
const (
	Startup      = "startup"
	Provisioned  = "provisioned"
	Upgraded     = "upgraded"
	ShutdownSeen = "shutdown"
)

var eventTypes = map[string]bool{Startup: true, Provisioned: true, Upgraded: true, ShutdownSeen: true}

// watchEvents subscribes to lifecycle events (lifecycle/basic.go:76).
func (e *Engine) watchEvents(nc *nats.Conn) error {
	_, err := nc.Subscribe(eventSubject, func(m *nats.Msg) {
		ev, err := decodeEvent(m.Data)
		if err != nil {
			e.stats.garbage.Add(1)
			e.log.Debug("dropping what is no lifecycle event", "subject", clean(m.Subject), "error", clean(err.Error()))
			return
		}
		if !eventTypes[ev.Seen.Type] || ev.Seen.Type == Startup && e.opt.Component != "" && ev.Seen.Component != e.opt.Component {
			return
		}
		ev.At = e.opt.Now()
		e.events.add(func() { e.opt.OnEvent(ev) })
	})
	return err
}

// decodeEvent reads an event, bare or inside a CloudEvent (lifecycle/lifecycle.go:119). The caller sets At.
func decodeEvent(data []byte) (Event, error) {
	if len(data) > maxEvent {
		return Event{}, errors.New("it is larger than 64 KiB")
	}
	var outer struct {
		Source string         `json:"source"`
		Data   jsontext.Value `json:"data"`
	}
	if err := lenient(json.RawMessage(data), &outer); err != nil {
		return Event{}, err
	}
	if outer.Source == "io.choria.lifecycle" {
		data = outer.Data
	}
	var v struct {
		Protocol   string `json:"protocol"`
		Identity   string `json:"identity"`
		Component  string `json:"component"`
		Timestamp  int64  `json:"timestamp"`
		Version    string `json:"version"`
		NewVersion string `json:"new_version"`
	}
	if err := jsonv2.Unmarshal(data, &v); err != nil {
		return Event{}, err
	}
	node, err := receipt.ParseNodeID(v.Identity)
	if err != nil {
		return Event{}, err
	}
	kind, err := eventType(v.Protocol)
	if err != nil {
		return Event{}, err
	}
	seen := receipt.EventSeen{Type: kind, Component: clean(v.Component), Version: clean(v.Version), Time: v.Timestamp}
	if kind == Upgraded {
		seen.Version = clean(v.NewVersion)
	}
	return Event{Node: node, Seen: seen}, nil
}

// eventType reads io.choria.lifecycle.v1.TYPE and the older choria:lifecycle:TYPE:1 (lifecycle/lifecycle.go:188).
func eventType(protocol string) (string, error) {
	if t, ok := strings.CutPrefix(protocol, "io.choria.lifecycle.v1."); ok {
		return t, nil
	}
	if p := strings.Split(protocol, ":"); len(p) == 4 && p[0] == "choria" && p[1] == "lifecycle" {
		return p[2], nil
	}
	return "", fmt.Errorf("protocol %.80q is not known", protocol)
}
