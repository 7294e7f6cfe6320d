package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"
)

func manCommand() *cli.Command {
	return &cli.Command{
		Name:        "man",
		Usage:       "prints the manual page",
		Description: "As troff: provctl man | man -l -, or into provctl.8 in a directory of manual pages.",
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			_, err := io.WriteString(c.App.Writer, manPage(c.App))
			return err
		},
	}
}

// manPage is made of what the commands say of themselves, so that it cannot say anything else.
func manPage(app *cli.App) string {
	var m manual
	m.line(`.TH PROVCTL 8 "" "provctl %s" "System administration"`, app.Version)
	m.section("NAME")
	m.text(app.Name + ` \- ` + troff(app.Usage))
	m.section("SYNOPSIS")
	m.text(`\fBprovctl\fR \fICOMMAND\fR [\fIOPTION\fR...] [\fIARGUMENT\fR...]`)
	m.section("DESCRIPTION")
	m.text(troff("Options may stand before and behind a command's arguments; what follows -- is no option. Errors go to standard error, one line each."))
	m.section("COMMANDS")
	for _, c := range app.Commands {
		m.command("provctl", c)
	}
	m.section("EXIT STATUS")
	for _, e := range exitCodes {
		m.line(".TP")
		m.line(`\fB%d\fR`, e.code)
		m.text(troff(e.means))
	}
	m.section("ENVIRONMENT")
	m.item(stateDirVariable, "The state directory, if --state-dir is not given.")
	m.item(socketVariable, "In place of the state directory, the control_socket of a worker whose control_group one is in, if neither --state-dir nor --socket is given.")
	m.item("NO_COLOR", "If set to anything, no colour is used; there is none outside of a terminal anyway.")
	m.item("COLUMNS", "The width to fold tables to on a terminal.")
	m.section("FILES")
	for _, f := range stateFiles {
		m.item(f.name, f.means)
	}
	return m.String()
}

// exitCodes explains each; the commands say which of them they use.
var exitCodes = []struct {
	code  int
	means string
}{
	{exitFine, "All went well."},
	{exitError, "Something failed, or was refused."},
	{exitUsage, "The command line is wrong. Nothing was done."},
	{exitBlocked, "Blocked items exist: somebody has to look."},
	{exitChanged, "The item changed since it was seen, or is settled already. Look again."},
	{exitHeld, "Another worker holds the state directory, and does not answer."},
	{exitDamaged, "The journal is damaged or missing."},
	{exitConfig, "The configuration is invalid. To try again without changing it is useless."},
}

// stateFiles are what a state directory holds.
var stateFiles = []struct{ name, means string }{
	{"DIR/journal.db", "The journal: every receipt, job and verdict. It is never made anew by itself."},
	{"DIR/journal.marker", "Which journal belongs here and how far it had come, so that a lost, swapped or older one is noticed. Back up and restore both together."},
	{"DIR/worker.lock", "The lock of the worker, with its process id."},
	{"DIR/worker.sock", "Where the running worker answers these commands; for its own user and root alone."},
}

// manual writes troff.
type manual struct{ strings.Builder }

func (m *manual) line(format string, args ...any) { fmt.Fprintf(m, format+"\n", args...) }

func (m *manual) section(name string) { m.line(".SH %s", name) }

// text writes troff that may be folded; a line of it must not look like a request.
func (m *manual) text(s string) {
	for l := range strings.Lines(s) {
		if l = strings.TrimSpace(l); strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			l = `\&` + l
		}
		m.line("%s", l)
	}
}

func (m *manual) item(name, means string) {
	m.line(".TP")
	m.line(`\fB%s\fR`, troff(name))
	m.text(troff(means))
}

func (m *manual) command(parent string, c *cli.Command) {
	if c.Hidden {
		return
	}
	name := parent + " " + c.Name
	m.line(`.SS "%s"`, troff(strings.TrimSpace(name+" "+c.ArgsUsage)))
	m.text(troff(upper(c.Usage)) + ".")
	if c.Description != "" {
		m.line(".PP")
		m.text(troff(c.Description))
	}
	for _, f := range c.Flags {
		m.flag(f)
	}
	for _, sub := range c.Subcommands {
		m.command(name, sub)
	}
}

func (m *manual) flag(f cli.Flag) {
	d, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return
	}
	value, usage := placeholder(d)
	head := `\fB` + troff("--"+f.Names()[0]) + `\fR`
	if value != "" {
		head += ` \fI` + troff(value) + `\fR`
	}
	m.line(".TP")
	m.line("%s", head)
	m.text(troff(upper(usage)) + ".")
}

// placeholder takes the name of a flag's value out of its usage, where it stands in backquotes.
func placeholder(d cli.DocGenerationFlag) (value, usage string) {
	usage = d.GetUsage()
	if before, rest, ok := strings.Cut(usage, "`"); ok {
		if name, after, ok := strings.Cut(rest, "`"); ok {
			return name, before + name + after
		}
	}
	if d.TakesValue() {
		return "VALUE", usage
	}
	return "", usage
}

func upper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// troff has a text stand for itself: a backslash would begin an escape, a plain hyphen would become a typographic one that cannot be
// copied, and the page is to be plain ASCII wherever it is read.
func troff(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...", "'", `\(aq`, `"`, `\(dq`).Replace(s)
}
