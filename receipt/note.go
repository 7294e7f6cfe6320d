package receipt

import (
	"strings"
	"unicode/utf8"
)

const (
	// maxOfKind bounds the evidence of one kind. Each kind has a bound of its own, so that a flood of one, which any holder of a
	// provisioning token can send, crowds out nothing that a rule needs; above all not the second reply that voids the first.
	maxOfKind = 8
	// maxText bounds one text of an observation, in bytes.
	maxText = 1024
)

// Note adds an observation to the receipt's evidence and reports whether that changed anything worth storing. Repeated
// answers of daemon_stats and of the broker replace the former ones of the same incarnation, so that a receipt blocked for
// weeks does not grow; replies and events are all kept, up to a bound that keeps the first ones. Long texts are cut, and what
// fails Evidence.Check is not kept. Evidence once noted is never changed in place: copies of the receipt stay as they were.
func (r *Receipt) Note(e Evidence) bool {
	if e.Check() != nil {
		return false
	}
	e = e.bounded()
	count := 0
	for i, old := range r.Evidence {
		if e.sameSubject(old) {
			if e.adds(old, r.Horizon) {
				r.Evidence = append(append(append([]Evidence(nil), r.Evidence[:i]...), r.Evidence[i+1:]...), e)
				return true
			}
			return false
		}
		if e.sameClass(old) {
			count++
		}
	}
	if count >= maxOfKind {
		return false
	}
	r.Evidence = append(r.Evidence[:len(r.Evidence):len(r.Evidence)], e)
	return true
}

// sameClass reports whether two observations share one bound. Events that prove something do not share that of the others.
func (e Evidence) sameClass(old Evidence) bool {
	return e.Kind == old.Kind && (e.Kind != SawEvent || e.Event.positive() == old.Event.positive())
}

// sameSubject reports whether the new observation is about the same as the old one, so that only one is kept.
func (e Evidence) sameSubject(old Evidence) bool {
	switch {
	case e.Kind != old.Kind:
		return false
	case e.Kind == SawStats:
		return e.Stats.Incarnation == old.Stats.Incarnation
	case e.Kind == SawConnections:
		return true
	case e.Kind == SawIdle:
		return e.Idle.Incarnation == old.Idle.Incarnation
	case e.Kind == SawEvent:
		return *e.Event == *old.Event
	default:
		return false
	}
}

// adds reports whether the observation says more than the old one on the same subject. What the broker lists says more with
// every look until the rules have one from after the horizon: they ask when it was seen.
func (e Evidence) adds(old Evidence, h Horizon) bool {
	switch e.Kind {
	case SawConnections:
		c, o := e.Connections, old.Connections
		same := c.Live == o.Live && c.LastClosed.Equal(o.LastClosed) && c.Reason == o.Reason
		return !same || !old.At.After(h.Add(LeaveSplay))
	case SawEvent:
		return false
	case SawIdle: // the first one past the horizon is as good as any later one
		return !h.Passed(old.At) && h.Passed(e.At)
	default:
		return true
	}
}

// bounded is the observation with its texts cut to a length that may be stored.
func (e Evidence) bounded() Evidence {
	e.Source = cut(e.Source)
	switch e.Kind {
	case SawReply:
		c := *e.Reply
		c.Text = cut(c.Text)
		e.Reply = &c
	case SawEvent:
		c := *e.Event
		c.Type, c.Component, c.Version = cut(c.Type), cut(c.Component), cut(c.Version)
		e.Event = &c
	case SawStats:
		c := *e.Stats
		c.Version = cut(c.Version)
		e.Stats = &c
	case SawConnections:
		c := *e.Connections
		c.Reason = cut(c.Reason)
		e.Connections = &c
	}
	return e
}

// cut bounds a text without splitting a character.
func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	n := maxText
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n])
}
