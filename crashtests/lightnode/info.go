package lightnode

import (
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/choria-io/go-choria/aagent"
	"github.com/choria-io/go-choria/build"
	"github.com/choria-io/go-choria/filter/facts"
	"github.com/choria-io/go-choria/lifecycle"
	"github.com/choria-io/go-choria/providers/data/ddl"
	"github.com/choria-io/go-choria/server/agents"
	"github.com/choria-io/go-choria/statistics"
)

var errNone = errors.New("not available in provisioning mode")

// counts are a server's counters (server/stats.go).
type counts struct {
	total, valid, invalid, passed, filtered, replies, expired, events atomic.Int64
}

// What follows is what agents ask of their server (server/agents/agents.go:36).

// AgentMetadata describes a loaded agent.
func (l *life) AgentMetadata(name string) (agents.Metadata, bool) {
	a, ok := l.agents.Get(name)
	if !ok {
		return agents.Metadata{}, false
	}
	return *a.Metadata(), true
}

// BuildInfo is go-choria's.
func (l *life) BuildInfo() *build.Info { return l.node.fw.BuildInfo() }

// Classes are none: nothing manages a light node.
func (l *life) Classes() []string { return []string{} }

// ConfigFile is the server.conf.
func (l *life) ConfigFile() string { return l.node.guest.Config }

// ConnectedServer is the broker.
func (l *life) ConnectedServer() string { return l.link.ConnectedServer() }

// DataFuncMap fails as it does in provisioning mode.
func (l *life) DataFuncMap() (ddl.FuncMap, error) { return nil, errNone }

// Facts are read from the node's file each time.
func (l *life) Facts() json.RawMessage {
	j, err := facts.JSON(l.node.guest.Facts, l.node.fw.Logger("facts"))
	if err != nil {
		return json.RawMessage("{}")
	}
	return j
}

// Identity is the node's name.
func (l *life) Identity() string { return l.node.name }

// KnownAgents are the loaded agents.
func (l *life) KnownAgents() []string { return l.agents.KnownAgents() }

// LastProcessedMessage is not kept.
func (l *life) LastProcessedMessage() time.Time { return time.Unix(0, 0) }

// MachineTransition fails: there are no machines.
func (l *life) MachineTransition(string, string, string, string, string) error { return errNone }

// MachinesStatus is empty.
func (l *life) MachinesStatus() ([]aagent.MachineState, error) { return []aagent.MachineState{}, nil }

// NewEvent publishes a lifecycle event.
func (l *life) NewEvent(t lifecycle.Type, opts ...lifecycle.Option) error { return l.event(t, opts...) }

// PrepareForShutdown fails: a light node is ended by its life.
func (l *life) PrepareForShutdown() error { return errNone }

// Provisioning is true: no other life serves requests.
func (l *life) Provisioning() bool { return true }

// StartTime is the life's start, whose seconds may be ahead of the clock.
func (l *life) StartTime() time.Time { return l.start }

// Stats are the counters.
func (l *life) Stats() statistics.ServerStats {
	c := &l.counts
	return statistics.ServerStats{
		Total: c.total.Load(), Valid: c.valid.Load(), Invalid: c.invalid.Load(), Passed: c.passed.Load(),
		Filtered: c.filtered.Load(), Replies: c.replies.Load(), TTLExpired: c.expired.Load(), Events: c.events.Load(),
	}
}

// UpTime is in seconds.
func (l *life) UpTime() int64 { return int64(max(0, time.Since(l.start)).Seconds()) }
