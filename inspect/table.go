package inspect

import (
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// narrowest is the least that a column gets which folds; itemsWidth, nodesWidth and jobsWidth are what the columns that do not
// fold take, with the gaps.
const (
	narrowest  = 14
	itemsWidth = 66
	nodesWidth = 21
	jobsWidth  = 47
)

func (p *printer) items(title string, items []Item, r Report) {
	if len(items) == 0 {
		return
	}
	t := p.table(itemsWidth, "RECEIPT", "NODE", "EFFECT", "AGE", "VERDICT")
	for _, i := range items {
		t.AppendRow(table.Row{i.Receipt, Printable(string(i.Node)), i.Action.String(), age(i.AgeSeconds), verdictCell(i, r)})
	}
	p.line("\n" + title)
	p.line(t.Render())
}

// verdictCell says whether a verdict can be given now, and which one evidence supports.
func verdictCell(i Item, r Report) string {
	switch {
	case !i.Blocked && r.Worker == nil:
		return "at start"
	case !i.Blocked:
		return "not needed"
	case i.Proposed != nil:
		return i.Proposed.Verdict.String()
	case i.HorizonLeft > 0:
		return "in " + age(i.HorizonLeft)
	default:
		return "yours"
	}
}

func (p *printer) nodes(nodes []Node, now time.Time) {
	if len(nodes) == 0 {
		return
	}
	t := p.table(nodesWidth, "STATE", "NODE", "UNTIL", "WHY")
	for _, n := range nodes {
		until := "admitted"
		if left := n.Until.Sub(now); !n.Until.IsZero() {
			until = "in " + age(max(0, int64(left.Seconds())))
		}
		t.AppendRow(table.Row{n.State, Printable(string(n.Node)), until, Printable(n.Why)})
	}
	p.line("\nNOT TAKEN (provctl admit NODE takes one at once)")
	p.line(t.Render())
}

func (p *printer) jobs(jobs []Job) {
	if len(jobs) == 0 {
		return
	}
	t := p.table(jobsWidth, "JOB", "NODE", "STATUS", "CLAIMS", "WHY")
	for _, j := range jobs {
		t.AppendRow(table.Row{j.Job, Printable(string(j.Node)), j.Status.String(), j.Claims, Printable(j.Why)})
	}
	p.line("\nJOBS")
	p.line(t.Render())
}

// table has no lines, so that a column can be taken out with ordinary tools. On a terminal the columns of free text fold.
func (p *printer) table(fixed int, columns ...string) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.Style{
		Box:    table.BoxStyle{PaddingRight: "  "},
		Format: table.FormatOptions{Header: text.FormatDefault, Row: text.FormatDefault},
	})
	t.SuppressTrailingSpaces()
	header := make(table.Row, len(columns))
	for i, c := range columns {
		header[i] = c
	}
	t.AppendHeader(header)
	if w := p.style.Width; w > 0 {
		node := max(narrowest, w-itemsWidth)
		t.SetColumnConfigs([]table.ColumnConfig{
			{Name: "NODE", WidthMax: node, WidthMaxEnforcer: text.WrapHard},
			{Name: "WHY", WidthMax: max(narrowest, w-fixed-node), WidthMaxEnforcer: text.WrapSoft},
		})
	}
	return t
}

// wrap breaks a text at spaces so that no line is longer than width, unless a word is. A width under 20 does not wrap.
func wrap(s string, width int) []string {
	if width < 20 {
		return []string{s}
	}
	var out []string
	line := ""
	for _, word := range strings.Fields(s) {
		if line != "" && text.StringWidth(line)+1+text.StringWidth(word) > width {
			out, line = append(out, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(out, line)
}
