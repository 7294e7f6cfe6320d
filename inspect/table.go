package inspect

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// narrowest is the least that a column gets which folds; the others are what the columns that do not fold take, with the gaps.
const (
	narrowest  = 14
	itemsWidth = 66
	nodesWidth = 21
	jobsWidth  = 47
	auditWidth = 40
)

func (p *printer) items(title string, items []*Item, r Report) {
	if len(items) == 0 {
		return
	}
	shown := items
	if p.style.Rows > 0 && len(items) > p.style.Rows {
		shown = items[:p.style.Rows]
	}
	columns := []string{"RECEIPT", "NODE", "EFFECT", "AGE", "VERDICT", "WHY"}
	if p.style.Width > 0 && p.style.Width < itemsWidth+2*narrowest {
		columns = columns[:len(columns)-1]
	}
	rows := make([][]string, 0, len(shown))
	for _, i := range shown {
		row := []string{string(i.Receipt), Printable(string(i.Node)), i.Action.String(), age(i.AgeSeconds), verdictCell(i, r), Printable(i.Why)}
		rows = append(rows, row[:len(columns)])
	}
	p.line("\n" + title)
	p.table(itemsWidth, columns, rows)
	if n := len(items) - len(shown); n > 0 {
		p.line(fmt.Sprintf("... and %d more: provctl inspect --all-rows, or --node, --effect and --since to choose", n))
	}
}

// verdictCell says whether a verdict can be given now, and which one evidence supports.
func verdictCell(i *Item, r Report) string {
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
	shown := nodes
	if p.style.Rows > 0 && len(nodes) > p.style.Rows {
		shown = nodes[:p.style.Rows]
	}
	rows := make([][]string, 0, len(shown))
	for _, n := range shown {
		rows = append(rows, []string{n.State, Printable(string(n.Node)), until(n.Until, now), Printable(n.Why)})
	}
	p.line("\nNOT TAKEN (provctl admit NODE takes one at once)")
	p.table(nodesWidth, []string{"STATE", "NODE", "UNTIL", "WHY"}, rows)
	if n := len(nodes) - len(shown); n > 0 {
		p.line(fmt.Sprintf("... and %d more: provctl nodes", n))
	}
}

func until(t, now time.Time) string {
	if t.IsZero() {
		return "admitted"
	}
	return "in " + age(max(0, int64(t.Sub(now).Seconds())))
}

func (p *printer) jobs(jobs []Job) {
	if len(jobs) == 0 {
		return
	}
	rows := make([][]string, 0, len(jobs))
	for _, j := range jobs {
		rows = append(rows, []string{string(j.Job), Printable(string(j.Node)), j.Status.String(), strconv.Itoa(j.Claims), Printable(j.Why)})
	}
	p.line("\nJOBS")
	p.table(jobsWidth, []string{"JOB", "NODE", "STATUS", "CLAIMS", "WHY"}, rows)
}

// table has no lines, so that a column can be taken out with ordinary tools. On a terminal the columns of free text fold, beside others
// that take a fixed width together.
func (p *printer) table(fixed int, columns []string, rows [][]string) {
	if p.style.Width == 0 {
		p.plain(columns, rows)
		return
	}
	t := table.NewWriter()
	t.SetStyle(table.Style{
		Box:    table.BoxStyle{PaddingRight: "  "},
		Format: table.FormatOptions{Header: text.FormatDefault, Row: text.FormatDefault},
	})
	t.SuppressTrailingSpaces()
	t.AppendHeader(cells(columns))
	for _, row := range rows {
		t.AppendRow(cells(row))
	}
	node := narrowest
	if slices.Contains(columns, "NODE") {
		node = max(narrowest, p.style.Width-itemsWidth)
		if slices.Contains(columns, "VERDICT") && slices.Contains(columns, "WHY") { // they share what is left
			node = max(narrowest, (p.style.Width-fixed)/2)
		}
	}
	t.SetColumnConfigs([]table.ColumnConfig{
		{Name: "NODE", WidthMax: node, WidthMaxEnforcer: text.WrapHard},
		{Name: "BY", WidthMax: narrowest, WidthMaxEnforcer: text.WrapSoft},
		{Name: "WHY", WidthMax: max(narrowest, p.style.Width-fixed-node), WidthMaxEnforcer: text.WrapSoft},
		{Name: "WHAT", WidthMax: max(narrowest, p.style.Width-fixed-node), WidthMaxEnforcer: text.WrapSoft},
	})
	p.line(t.Render())
}

func cells(texts []string) table.Row {
	row := make(table.Row, len(texts))
	for i, s := range texts {
		row[i] = s
	}
	return row
}

// plain is the same without folding: a pipe may get very many rows.
func (p *printer) plain(columns []string, rows [][]string) {
	widths := make([]int, len(columns))
	for i, c := range columns {
		widths[i] = len(c)
	}
	for _, row := range rows {
		for i, s := range row {
			widths[i] = max(widths[i], width(s))
		}
	}
	for _, row := range slices.Concat([][]string{columns}, rows) {
		last := len(row) - 1
		for last > 0 && row[last] == "" {
			last--
		}
		for i, s := range row[:last+1] {
			p.b.WriteString(s)
			if i < last {
				p.b.WriteString(strings.Repeat(" ", widths[i]-width(s)+2))
			}
		}
		p.b.WriteByte('\n')
	}
}

// width is how many columns of a terminal a text takes.
func width(s string) int {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return text.StringWidth(s)
		}
	}
	return len(s)
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
