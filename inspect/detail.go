package inspect

import (
	"fmt"
	"io"
	"strings"

	"provctl/receipt"
)

// weights lists what speaks for and against each verdict, marked with its source.
func (p *printer) weights(all []receipt.Weight) {
	n := 0
	for _, v := range receipt.Verdicts() {
		for _, side := range []bool{true, false} {
			for _, w := range all {
				if w.Verdict != v || w.For != side {
					continue
				}
				word := "against"
				if w.For {
					word = "for"
				}
				p.field("  ", first(n, "weighs"), fmt.Sprintf("%s %s (%s): %s", word, v, w.Source, w.Says))
				n++
			}
		}
	}
}

// damage comes first: nothing below it is the whole.
func (p *printer) damage(d *Damage) {
	if d == nil {
		return
	}
	p.line(p.red("DAMAGED"))
	p.field("  ", "why", d.Why)
	p.field("  ", "below", fmt.Sprintf("what can be read, record by record; %d parts cannot. Nothing was written, and no worker starts on it.", len(d.Unreadable)))
	p.line("")
}

func (p *printer) unreadable(d *Damage) {
	if d == nil || len(d.Unreadable) == 0 {
		return
	}
	p.line("\nCANNOT BE READ")
	rows := make([][]string, 0, len(d.Unreadable))
	for _, l := range d.Unreadable {
		rows = append(rows, []string{Printable(l.Place), Printable(l.Why)})
	}
	p.plain([]string{"PLACE", "WHY"}, rows)
}

// WriteTimeline writes what is kept of a node for people.
func WriteTimeline(w io.Writer, t Timeline, s Style) error {
	p := &printer{style: s}
	p.timeline(t)
	_, err := io.WriteString(w, strings.TrimPrefix(p.b.String(), "\n"))
	return err
}

func (p *printer) timeline(t Timeline) {
	p.line("\nWHAT HAPPENED TO " + Printable(string(t.Node)))
	for _, e := range t.Entries {
		when := strings.Repeat(" ", 20)
		if !e.At.IsZero() {
			when = Time(e.At)
		}
		lead := fmt.Sprintf("%8d  %s  %-9s  ", e.Seq, when, e.Kind)
		text := e.Text
		switch {
		case e.By != "" && e.Kind != "admission" && e.Kind != "facts":
			text = e.By + ": " + text
		case e.Kind == "receipt":
			text = string(e.Receipt) + ", " + text
		}
		for _, l := range wrap(Printable(text), p.style.Width-len(lead)) {
			p.line(strings.TrimRight(lead+l, " "))
			lead = strings.Repeat(" ", len(lead))
		}
	}
}
