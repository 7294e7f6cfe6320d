package choria

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"
)

const (
	maxNote  = 1 << 10
	maxRival = 200 // bytes of a leader's name that are kept
)

// watching are the subscriptions of a running election, on one connection.
type watching struct {
	nc   *nats.Conn
	subs []*nats.Subscription
}

// watch listens to notes of leaders that stop, and to the writes of others, which the broker passes to everybody in the account
// before it takes them. The NATS library subscribes again when the connection comes back.
//
// Only the provisioner's password gives a caller these subjects, by giving him all of the account
// (broker/network/choria_auth.go:436-483). Without it a standby takes over once the key has expired, and leaders have no names.
func (e *Election) watch() error {
	nc, err := e.opt.Engine.conn()
	if err != nil {
		return err
	}
	if c := e.opt.Engine.fw.Config.Choria; e.watching.nc == nc || c.NatsUser != provisioningUser || c.NatsPass == "" {
		return nil
	}
	e.watching.nc = nc
	for subject, f := range map[string]nats.MsgHandler{
		releaseSubject: e.onRelease, electionKey: e.onWrite, "choria.streams." + electionKey: e.onWrite,
	} {
		sub, err := nc.Subscribe(subject, f)
		if err != nil {
			e.unwatch()
			return fmt.Errorf("the election: subscribe to %s: %w", subject, err)
		}
		e.watching.subs = append(e.watching.subs, sub)
	}
	return nil
}

func (e *Election) unwatch() {
	for _, s := range e.watching.subs {
		_ = s.Unsubscribe() // fails only if the connection is closed, and all is gone then
	}
	e.watching = watching{}
}

// onWrite remembers who renews the key. It is what he says himself, and decides nothing. A candidate expects revision 0.
func (e *Election) onWrite(m *nats.Msg) {
	expected := m.Header.Get(expectRevision)
	if expected == "" || expected == "0" || len(m.Data) == 0 || string(m.Data) == e.opt.Name {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rival, e.rivalAt = clean(string(m.Data[:min(len(m.Data), maxRival)])), e.opt.Now()
}

// onRelease wakes Run to take a key that was given up; the newest note counts.
func (e *Election) onRelease(m *nats.Msg) {
	var n released
	if len(m.Data) > maxNote || lenient(json.RawMessage(m.Data), &n) != nil || n.Revision == 0 {
		e.opt.Engine.stats.garbage.Add(1)
		return
	}
	for {
		select {
		case e.notes <- n:
			return
		default:
		}
		select {
		case <-e.notes:
		default:
		}
	}
}

// giveUp tells the others the revision of the key that we have just stopped to hold. If nobody hears it, the key expires.
func (e *Election) giveUp(revision uint64) {
	nc, err := e.opt.Engine.conn()
	if err != nil {
		return
	}
	note, err := json.Marshal(released{Revision: revision})
	if err == nil {
		err = nc.Publish(releaseSubject, note)
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), farewell)
		defer cancel()
		err = nc.FlushWithContext(ctx)
	}
	if err != nil {
		e.opt.Log.Warn("could not tell the other workers that this one stops leading; they find out when the key expires", "error", clean(err.Error()))
	}
}
