package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"provctl/internal/fleet"
)

const nodeCommandName = "fleet-node"

// demoResult is what `provctl demo --json` prints. Effects, EffectsTwice and Lost come from the nodes' own effect logs.
type demoResult struct {
	Nodes             int     `json:"nodes"`
	Provisioned       int     `json:"provisioned"` // joined the collective with their own configuration
	Blocked           int     `json:"blocked"`     // still blocked at the end
	Requeued          int64   `json:"requeued"`    // times a job went back to the queue
	SettledByEvidence int64   `json:"settled_by_evidence"`
	Reconciled        int     `json:"reconciled"` // unknown receipts that needed a verdict
	Effects           int     `json:"effects"`
	EffectsTwice      int     `json:"effects_twice"`
	Lost              int     `json:"lost"` // neither provisioned nor blocked
	Seconds           float64 `json:"seconds"`
}

func demoCommand() *cli.Command {
	return &cli.Command{
		Name:  "demo",
		Usage: "provision a fleet of real Choria servers on this machine, with a crash in the middle",
		Description: "Starts an embedded broker and real Choria servers in a temporary directory, provisions them, kills the worker in\n" +
			"mid-effect, drops replies, and shows what was settled, requeued and blocked. Talks to 127.0.0.1 only. Exit 0 only if\n" +
			"no effect ran twice and no node was lost, by the nodes' own logs.",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "nodes", Usage: "how many `SERVERS` to start", Value: 20},
			&cli.IntFlag{Name: "lanes", Usage: "how many `NODES` are worked on at a time", Value: 4},
			&cli.BoolFlag{Name: "crash", Usage: "kill the worker in mid-effect and drop replies", Value: true},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object on standard output, nothing else"},
			&cli.BoolFlag{Name: "keep", Usage: "keep the directory, for a look"},
		},
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			if n := c.Int("nodes"); n < 1 || n > 500 {
				return usageError(fmt.Sprintf("--nodes is %d; give 1 to 500", n))
			}
			if n := c.Int("lanes"); n < 1 || n > 256 {
				return usageError(fmt.Sprintf("--lanes is %d; give 1 to 256", n))
			}
			ctx, stop := signal.NotifyContext(c.Context, syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return demo(ctx, c)
		},
	}
}

// nodeCommand is the body of the demo's server processes.
func nodeCommand() *cli.Command {
	return &cli.Command{
		Name: nodeCommandName, Hidden: true, SkipFlagParsing: true, Usage: "a server of an embedded fleet",
		Action: func(c *cli.Context) error { return fleet.NodeMain(c.Args().Slice()) },
	}
}

func demo(ctx context.Context, c *cli.Context) (err error) {
	dir, err := os.MkdirTemp("", "provctl-demo-")
	if err != nil {
		return err
	}
	show := newStage(c.Bool("json"))
	defer func() {
		if err != nil || c.Bool("keep") {
			show.say("everything is in " + dir)
			return
		}
		_ = os.RemoveAll(dir)
	}()
	d := &demonstration{dir: dir, nodes: c.Int("nodes"), lanes: c.Int("lanes"), crash: c.Bool("crash"), show: show}
	defer d.end()
	began := time.Now()
	if err := d.run(ctx); err != nil {
		return err
	}
	result, err := d.result(began)
	if err != nil {
		return err
	}
	show.clear()
	if c.Bool("json") {
		if err := json.NewEncoder(c.App.Writer).Encode(result); err != nil {
			return err
		}
	} else {
		printDemo(c.App.Writer, result)
	}
	if result.EffectsTwice > 0 || result.Lost > 0 {
		return fmt.Errorf("%d effects ran twice and %d nodes were lost: this is a defect of provctl; the logs are kept", result.EffectsTwice, result.Lost)
	}
	return nil
}

func printDemo(w io.Writer, r demoResult) {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.AppendRows([]table.Row{
		{"nodes", r.Nodes},
		{"provisioned", r.Provisioned},
		{"still blocked", r.Blocked},
		{"jobs requeued", r.Requeued},
		{"settled by evidence", r.SettledByEvidence},
		{"reconciled by verdict", r.Reconciled},
		{"effects on the nodes", r.Effects},
		{"effects twice", r.EffectsTwice},
		{"nodes lost", r.Lost},
		{"seconds", fmt.Sprintf("%.1f", r.Seconds)},
	})
	t.Render()
}

// stage tells the audience what happens: lines, and a line of progress that is redrawn on a terminal. In JSON mode, and in a
// pipe, there is no progress; in JSON mode nothing at all.
type stage struct {
	quiet, live bool
	drawn       bool
}

func newStage(quiet bool) *stage {
	return &stage{quiet: quiet, live: !quiet && term.IsTerminal(int(os.Stderr.Fd()))}
}

func (s *stage) say(text string) {
	if s.quiet {
		return
	}
	s.clear()
	fmt.Fprintln(os.Stderr, text)
}

func (s *stage) progress(text string) {
	if s.live {
		fmt.Fprint(os.Stderr, "\r\x1b[K"+text)
		s.drawn = true
	}
}

func (s *stage) clear() {
	if s.drawn {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
		s.drawn = false
	}
}

func (d *demonstration) path(parts ...string) string {
	return filepath.Join(append([]string{d.dir}, parts...)...)
}
