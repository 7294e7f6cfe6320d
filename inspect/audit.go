package inspect

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"provctl/journal"
)

// AuditSchema names the form of a line of the audit trail. It is documented in docs/audit-schema.json.
const AuditSchema = "provctl.audit/1"

// Act is a deed of a person as a line of JSON shows it.
type Act struct {
	Schema string `json:"schema"`
	journal.Act
}

// MatchAct reports whether a deed is chosen: by its node, effect and time. A filter by states chooses none.
func (f Filter) MatchAct(a journal.Act) bool {
	if len(f.states) > 0 || a.Node == "" && f.node != "" || !f.named(a.Node) || a.At.Before(f.since) {
		return false
	}
	for _, e := range f.effects {
		if e == a.Action {
			return true
		}
	}
	return len(f.effects) == 0
}

// Acts keeps what is chosen.
func (f Filter) Acts(all []journal.Act) []journal.Act { return kept(all, f.MatchAct) }

// WriteAuditJSON writes one line for each deed.
func WriteAuditJSON(w io.Writer, acts []journal.Act) error {
	for _, a := range acts {
		a.At = a.At.UTC()
		if err := WriteJSONLine(w, Act{AuditSchema, a}); err != nil {
			return err
		}
	}
	return nil
}

// WriteAudit writes the trail for people.
func WriteAudit(w io.Writer, acts []journal.Act, s Style) error {
	p := &printer{style: s}
	if len(acts) == 0 {
		p.line("nobody has done anything that is on record and chosen")
	} else {
		rows := make([][]string, 0, len(acts))
		for _, a := range acts {
			rows = append(rows, []string{strconv.FormatUint(uint64(a.Seq), 10), Time(a.At), Printable(a.By), Printable(onWhat(a) + actText(a))})
		}
		p.table(auditWidth, []string{"SEQ", "WHEN", "BY", "WHAT"}, rows)
	}
	_, err := io.WriteString(w, p.b.String())
	return err
}

func actKind(a journal.Act) string {
	if a.Did == journal.DidVerdict {
		return "verdict"
	}
	return "act"
}

func onWhat(a journal.Act) string {
	switch {
	case a.Receipt != "":
		return fmt.Sprintf("%s, %s on %s: ", a.Receipt, a.Action, a.Node)
	case a.Node != "":
		return string(a.Node) + ": "
	default:
		return ""
	}
}

func actText(a journal.Act) string {
	var b strings.Builder
	if a.Did == journal.DidVerdict {
		fmt.Fprintf(&b, "verdict %s on version %d", a.Verdict, a.Seen)
	} else {
		b.WriteString(string(a.Did))
	}
	add := func(lead, text string) {
		if text != "" {
			b.WriteString(lead + text)
		}
	}
	add(": ", a.Reason)
	if a.Supersedes > 0 {
		fmt.Fprintf(&b, "; it takes back the one at %d", a.Supersedes)
	}
	add("; then known: ", strings.Join(a.Saw, " / "))
	add("; seen: ", a.Evidence)
	add("; against the evidence: ", a.Contradicts)
	add("; so: ", a.Result)
	return b.String()
}
