package inspect

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"provctl/internal/control"
	"provctl/receipt"
)

// Style says for what the text is made.
type Style struct {
	Width  int  // columns of the terminal; 0: no limit
	Colour bool // only on a terminal
	Detail bool // show every item whole, however many
	Rows   int  // at most so many in each list, 0: all
}

// detailed is up to how many blocked items are shown whole without being asked for.
const detailed = 3

// WriteText writes the report for people. Nothing from a node or a helper reaches w unescaped.
func WriteText(w io.Writer, r Report, s Style) error {
	p := &printer{style: s}
	p.damage(r.Damage)
	p.head(r)
	blocked, flight := split(r.Items)
	p.items("BLOCKED", blocked, r)
	title := "IN FLIGHT"
	if r.Worker == nil {
		title = "LEFT OPEN by a worker that ended; the next start settles or blocks these"
	}
	p.items(title, flight, r)
	if s.Detail || len(blocked) <= detailed {
		for _, i := range blocked {
			p.detail(i)
		}
	} else {
		p.line("\nWhat to look at and what to type: provctl inspect RECEIPT")
	}
	if s.Detail {
		for _, i := range flight {
			p.detail(i)
		}
	}
	p.jobs(r.Jobs)
	if r.Asked != nil {
		p.detail(r.Asked)
	}
	p.nodes(r.Nodes, r.Taken)
	if r.Timeline != nil {
		p.timeline(*r.Timeline)
	}
	p.unreadable(r.Damage)
	_, err := io.WriteString(w, p.b.String())
	return err
}

func split(items []Item) (blocked, flight []*Item) {
	for n := range items {
		if i := &items[n]; i.Blocked {
			blocked = append(blocked, i)
		} else {
			flight = append(flight, i)
		}
	}
	return blocked, flight
}

type printer struct {
	b     strings.Builder
	style Style
}

func (p *printer) line(s string) { p.b.WriteString(s + "\n") }

func (p *printer) red(s string) string {
	if !p.style.Colour {
		return s
	}
	return "\x1b[1;31m" + s + "\x1b[0m"
}

// field writes "label  text", the text wrapped and indented under itself.
func (p *printer) field(indent, label, text string) {
	lead := fmt.Sprintf("%s%-10s", indent, label)
	for _, l := range wrap(Printable(text), p.style.Width-len(lead)) {
		p.line(strings.TrimRight(lead+l, " "))
		lead = strings.Repeat(" ", len(lead))
	}
}

func (p *printer) head(r Report) {
	p.worker(r)
	p.field("", "journal", fmt.Sprintf("%s, epoch %d, sequence %d, at %s", r.Journal.ID, r.Journal.Epoch, r.Journal.Seq, r.Journal.Path))
	if at := r.Journal.Accepted; !at.IsZero() {
		p.field("", "", fmt.Sprintf("accepted %s: work newer than it held then is lost ('provctl audit' says who and why)", Time(at)))
	}
	for _, u := range r.Unanswered {
		p.field("", "no answer", u)
	}
	jobs := counts(r.Counts.Jobs, receipt.JobStatuses())
	if ended := counts(r.Counts.Results, receipt.Results()); ended != "none" {
		jobs += " (" + ended + ")"
	}
	p.field("", "jobs", jobs)
	p.field("", "receipts", counts(r.Counts.Receipts, receipt.Statuses()))
	if r.Blocked == 0 {
		p.field("", "blocked", "nothing")
		return
	}
	p.line(fmt.Sprintf("%-10s%s", "blocked", p.red(fmt.Sprintf("%d, oldest first below", r.Blocked))))
}

func (p *printer) worker(r Report) {
	w := r.Worker
	if w == nil {
		p.field("", "worker", "none runs; this is what the journal says")
	} else {
		conn := "connected to the broker"
		if !w.Connected {
			conn = "not connected to the broker"
		}
		p.field("", "worker", fmt.Sprintf("%s, pid %d, epoch %d, since %s, %s; %d of %d lanes at work, %d waiting for a reply or a horizon, %d queued",
			w.State, w.PID, w.Epoch, Time(w.Started), conn, w.Busy, w.Lanes, w.Parked, w.Queue))
	}
	pause := r.Journal.Paused
	switch {
	case pause != nil:
		p.field("", "", fmt.Sprintf("paused since %s by %s: %s", Time(pause.At), pause.By, pause.Reason))
	case w == nil:
	case w.Standby != "":
		p.field("", "", "stands by: "+w.Standby)
	case w.Gate != "":
		p.field("", "", "takes no new work: "+w.Gate)
	case w.State != control.Running:
		p.field("", "", "takes no new work yet")
	}
}

// counts lists what is not zero, in the order of the statuses.
func counts[T fmt.Stringer](of map[string]int, all []T) string {
	var out []string
	for _, v := range all {
		if n := of[v.String()]; n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, v))
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

func (p *printer) detail(i *Item) {
	p.line("")
	title := fmt.Sprintf("%s  %s on %s: %s", i.Receipt, i.Action, Printable(string(i.Node)), i.Status)
	if i.Blocked {
		title = p.red(title)
	}
	p.line(title)
	p.field("  ", "why", i.Why)
	p.field("  ", "request", fmt.Sprintf("%s, made %s (%s ago)", i.Request, Time(i.Since), age(i.AgeSeconds)))
	horizon := "passed " + Time(i.Horizon)
	if i.HorizonLeft > 0 {
		horizon = fmt.Sprintf("%s, %s left: no verdict is taken before", Time(i.Horizon), age(i.HorizonLeft))
	}
	p.field("  ", "horizon", horizon)
	p.field("  ", "process", fmt.Sprintf("%s when it was sent", i.Incarnation))
	if len(i.Evidence) == 0 {
		p.field("  ", "evidence", "none so far")
	}
	for n, e := range i.Evidence {
		p.field("  ", first(n, "evidence"), fmt.Sprintf("%s %s: %s", Time(e.At), e.Source, e.Text))
	}
	p.weights(i.Weights)
	if i.Settled != "" {
		p.field("  ", "settled", fmt.Sprintf("%s, by %s", Time(i.Ended), i.Settled))
	}
	if i.Proposed != nil {
		p.field("  ", "proposed", fmt.Sprintf("%s, by rule %s: %s", i.Proposed.Verdict, i.Proposed.Rule, i.Proposed.Why))
	}
	for n, l := range i.Look {
		p.field("  ", first(n, "look at"), l)
	}
	p.commands(i.Commands)
}

// commands are never wrapped: they are there to be copied.
func (p *printer) commands(cs []Command) {
	for n, c := range cs {
		p.line(fmt.Sprintf("  %-10s%s", first(n, "type"), Printable(c.Run)))
		p.field("  ", "", "(then "+c.Then+")")
	}
}

func first(n int, label string) string {
	if n == 0 {
		return label
	}
	return ""
}

// Time is how moments are shown.
func Time(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// age prints seconds as people say them, in at most two units.
func age(seconds int64) string {
	units := []struct {
		n    int64
		name string
	}{{86400, "d"}, {3600, "h"}, {60, "m"}, {1, "s"}}
	i := slices.IndexFunc(units, func(u struct {
		n    int64
		name string
	},
	) bool {
		return seconds >= u.n
	})
	if i < 0 {
		return "0s"
	}
	out := fmt.Sprintf("%d%s", seconds/units[i].n, units[i].name)
	if rest := seconds % units[i].n; i+1 < len(units) && rest/units[i+1].n > 0 {
		out += fmt.Sprintf("%d%s", rest/units[i+1].n, units[i+1].name)
	}
	return out
}

// WriteItem writes a single receipt in full.
func WriteItem(w io.Writer, i Item, s Style) error {
	p := &printer{style: s}
	p.detail(&i)
	_, err := io.WriteString(w, strings.TrimPrefix(p.b.String(), "\n"))
	return err
}
