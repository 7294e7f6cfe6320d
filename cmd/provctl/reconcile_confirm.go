package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"provctl/inspect"
	"provctl/receipt"
	"provctl/reconcile"
)

// finishWarning is why finish is never automatic.
const finishWarning = "finish restarts the node to find out what became of its configure. It is never done unasked: a configure may have failed after\n" +
	"server.conf was written and before the policies were, and a restart would then put the node to work without them. See first that\n" +
	"the node's log has no 'Could not save' since the request."

// needsConfirmation: only one receipt as inspect prints the command for it needs none. Of --all nothing is known yet.
func needsConfirmation(requests []reconcile.Request) bool {
	return len(requests) != 1 || requests[0].Seen == 0 || requests[0].Verdict == receipt.VerdictFinish
}

// mayAsk refuses at once what could only be confirmed by asking where nobody can be asked.
func mayAsk(c *cli.Context, requests []reconcile.Request) error {
	yes := c.Generic("yes").(*confirmed)
	several := c.Bool("all") || len(requests) > 1
	switch {
	case c.Bool("dry-run"):
		return nil
	case yes.given && several && yes.count == 0:
		return usagef("--yes of several receipts must say how many: look with --dry-run, which counts them, then give --yes=COUNT")
	case yes.given && !c.Bool("all") && yes.count > 0 && yes.count != len(requests):
		return usagef("--yes=%d: %d are given", yes.count, len(requests))
	case yes.given || !needsConfirmation(requests) || onTerminal(c) && c.Args().First() != "-":
		return nil
	case several:
		return usagef("there is no terminal to ask on: look with --dry-run, then confirm with --yes=COUNT; 'provctl reconcile --help' shows the usage")
	case requests[0].Verdict == receipt.VerdictFinish:
		return usagef("there is no terminal to ask on: confirm with --yes; %s", strings.ReplaceAll(finishWarning, "\n", " "))
	default:
		return usagef("without --seen nobody says what was seen: give --seen VERSION as 'provctl inspect' shows it, or confirm with --yes that the present one is meant")
	}
}

// onTerminal reports whether somebody can read the question and answer it.
func onTerminal(c *cli.Context) bool {
	return isTerminal(c.App.Reader) && isTerminal(c.App.ErrWriter)
}

func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// confirm shows what is about to be decided and asks, unless --yes confirms it or nothing needs it. A count that does not match is
// receipt.ErrStale: something came or went since it was counted.
func confirm(ctx context.Context, c *cli.Context, s reconcile.Sight, requests []reconcile.Request, items []reconcile.Item) error {
	yes := c.Generic("yes").(*confirmed)
	switch {
	case yes.given && yes.count > 0 && yes.count != len(items):
		return fmt.Errorf("--yes=%d: %w: %d are chosen now; look with --dry-run", yes.count, receipt.ErrStale, len(items))
	case len(items) == 0 || yes.given || !c.Bool("all") && !needsConfirmation(requests):
		return nil
	}
	w := c.App.ErrWriter
	if len(items) == 1 && items[0].Found.Status != 0 {
		_ = inspect.WriteItem(w, inspect.Describe(items[0].Found, s.Taken, s.Dir), style(w))
	}
	list(w, s, items)
	answer, ask := question(items)
	if strings.HasPrefix(answer, restartWord) {
		fmt.Fprintln(w, finishWarning)
	}
	fmt.Fprintf(w, "Type %s to %s, anything else to leave all as it is: ", answer, ask)
	got, err := readAnswer(ctx, c.App.Reader)
	if err != nil {
		fmt.Fprintln(w)
		return fmt.Errorf("nothing was recorded: %w", err)
	}
	if got != answer {
		return fmt.Errorf("nothing was recorded: %q is not %q", got, answer)
	}
	return nil
}

// restartWord confirms that nodes are restarted.
const restartWord = "restart"

// question is what has to be typed, and what it does: how many there are, and that nodes are restarted if they are.
func question(items []reconcile.Item) (answer, does string) {
	finishes := slices.ContainsFunc(items, func(i reconcile.Item) bool { return i.Verdict == receipt.VerdictFinish })
	switch {
	case len(items) > 1 && finishes:
		return fmt.Sprintf("%s %d", restartWord, len(items)), "record them"
	case len(items) > 1:
		return strconv.Itoa(len(items)), "record them"
	case finishes:
		return restartWord, "record it"
	default:
		return "yes", "record it"
	}
}

// readAnswer reads a line, or ends with the context: a terminal's reading cannot be interrupted otherwise.
func readAnswer(ctx context.Context, r io.Reader) (string, error) {
	type answer struct {
		text string
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		text, err := bufio.NewReader(io.LimitReader(r, 256)).ReadString('\n')
		got <- answer{strings.TrimSpace(text), err}
	}()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case a := <-got:
		if errors.Is(a.err, io.EOF) {
			a.err = errors.New("there was no answer")
		}
		return a.text, a.err
	}
}

// list shows what is about to be decided: at most a screenful.
func list(w io.Writer, s reconcile.Sight, items []reconcile.Item) {
	for _, i := range items[:min(len(items), screenful)] {
		fmt.Fprintln(w, inspect.Printable(proposal(s, i)))
	}
	if n := len(items) - screenful; n > 0 {
		fmt.Fprintf(w, "… and %d more: --dry-run lists them all\n", n)
	}
}

// then is what a verdict brings about.
var then = map[receipt.Verdict]string{
	receipt.VerdictApplied:    "the job goes on",
	receipt.VerdictNotApplied: "it is queued again and sent once more",
	receipt.VerdictAbandon:    "the job ends and the node stays out",
	receipt.VerdictFinish:     "the node is restarted",
}

func proposal(s reconcile.Sight, i reconcile.Item) string {
	r := i.Found
	name := fmt.Sprintf("receipt %s: ", receiptName(i))
	if r.Status == 0 {
		return name + "not open"
	}
	text := name + fmt.Sprintf("%s on %s, %s for %s: %s, then %s", r.Action, r.Node, r.Status, s.Taken.Sub(r.RequestTime).Round(time.Second), i.Verdict, then[i.Verdict])
	if err := s.Refusal(i); err != nil {
		return text + "; will be refused: " + err.Error()
	}
	if why := s.Contradiction(i); why != "" {
		text += "; EVIDENCE SAYS OTHERWISE: " + why
	}
	return text
}

func receiptName(i reconcile.Item) string {
	if i.Found.ID != "" {
		return string(i.Found.ID)
	}
	return strings.ToUpper(i.Receipt)
}
