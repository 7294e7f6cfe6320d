package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"provctl/inspect"
	"provctl/receipt"
)

// completeCommandName is what the scripts call: its arguments are the words of the command line, the last one being typed.
const completeCommandName = "complete-words"

// completionPatience is how long anybody waits for a name after pressing the key.
const completionPatience = 700 * time.Millisecond

// maxCompletions bounds what a shell is given to show.
const maxCompletions = 200

// The scripts hand the words over as they are and take one candidate a line. Words are never evaluated, and whatever goes wrong is silent.
var completionScripts = map[string]string{
	"bash": `# bash completion for provctl: source <(provctl completion bash)
_provctl() {
    local cur=${COMP_WORDS[COMP_CWORD]} word
    COMPREPLY=()
    while IFS= read -r word; do
        COMPREPLY+=("$word")
    done < <("${COMP_WORDS[0]}" ` + completeCommandName + ` -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 0 && $cur != -* ]]; then
        compopt -o default 2>/dev/null
    fi
}
complete -F _provctl provctl
`,
	"zsh": `#compdef provctl
# zsh completion for provctl: source <(provctl completion zsh)
_provctl() {
    local -a candidates
    candidates=("${(@f)$("${words[1]}" ` + completeCommandName + ` -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    candidates=(${candidates:#})
    if (( ${#candidates} )); then
        compadd -- "${candidates[@]}"
    else
        _files
    fi
}
if [[ ${funcstack[1]} == _provctl ]]; then # read as a function at the first use
    _provctl "$@"
else
    compdef _provctl provctl
fi
`,
	"fish": `# fish completion for provctl: provctl completion fish | source
function __provctl_complete
    set -l words (commandline -opc) (commandline -ct)
    $words[1] ` + completeCommandName + ` -- $words[2..-1] 2>/dev/null
end
complete -c provctl -f -a '(__provctl_complete)'
complete -c provctl -n 'string match -qr -- "-(dir|config)\$" (commandline -opc)[-1]' -F
`,
}

func completionCommand() *cli.Command {
	return &cli.Command{
		Name:        "completion",
		Usage:       "prints a script that completes commands, flags, nodes and receipts",
		ArgsUsage:   "bash|zsh|fish",
		Description: "In bash: source <(provctl completion bash). In zsh: source <(provctl completion zsh). In fish: provctl completion fish | source.",
		Action: func(c *cli.Context) error {
			if err := arguments(c, 1, 1, "a shell"); err != nil {
				return err
			}
			script, ok := completionScripts[c.Args().First()]
			if !ok {
				return usagef("shell %.40q: it must be bash, zsh or fish", c.Args().First())
			}
			_, err := io.WriteString(c.App.Writer, script)
			return err
		},
	}
}

func completeCommand() *cli.Command {
	return &cli.Command{
		Name: completeCommandName, Hidden: true, SkipFlagParsing: true, Usage: "the candidates for the last of the words; the completion scripts run this",
		Action: func(c *cli.Context) error {
			words := c.Args().Slice()
			if len(words) > 0 && words[0] == "--" {
				words = words[1:]
			}
			for _, w := range candidates(c.Context, c.App, words) {
				if _, err := fmt.Fprintln(c.App.Writer, w); err != nil {
					return nil //nolint:nilerr // completion is silent
				}
			}
			return nil
		},
	}
}

// candidates are what the last word can become. Names that a shell or a terminal could take for anything else are left out.
func candidates(ctx context.Context, app *cli.App, words []string) []string {
	if len(words) == 0 {
		words = []string{""}
	}
	typed, before := words[len(words)-1], words[:len(words)-1]
	cmd, before := commandOf(app, before)
	var all []string
	switch last := lastOf(before); {
	case cmd == nil && len(before) > 0:
		return nil
	case cmd == nil:
		all = commandNames(app.Commands)
	case strings.HasPrefix(last, "-") && !strings.Contains(last, "=") && takesValue(cmd, last):
		all = valuesOf(ctx, cmd, strings.TrimLeft(last, "-"), before)
	case strings.HasPrefix(typed, "-"):
		all = flagNames(cmd)
	default:
		all = append(commandNames(cmd.Subcommands), argumentsOf(ctx, cmd, before)...)
	}
	out := slices.DeleteFunc(all, func(s string) bool { return !strings.HasPrefix(s, typed) || strings.ContainsFunc(s, unsafe) })
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(len(out), maxCompletions)]
}

// unsafe characters would need quoting in some shell.
func unsafe(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"'`$\\&;|<>()[]{}*?!#~", r)
}

func lastOf(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return words[len(words)-1]
}

// commandOf finds the command, or its subcommand, and the words that follow it.
func commandOf(app *cli.App, words []string) (*cli.Command, []string) {
	if len(words) == 0 {
		return nil, words
	}
	cmd, rest := app.Command(words[0]), words[1:]
	if cmd == nil || cmd.Hidden {
		return nil, words
	}
	if len(rest) > 0 {
		for _, sub := range cmd.Subcommands {
			if sub.HasName(rest[0]) {
				return sub, rest[1:]
			}
		}
	}
	return cmd, rest
}

func commandNames(all []*cli.Command) []string {
	var out []string
	for _, c := range all {
		if !c.Hidden {
			out = append(out, c.Name)
		}
	}
	return out
}

func flagNames(cmd *cli.Command) []string {
	out := []string{"--help"}
	for _, f := range cmd.Flags {
		out = append(out, "--"+f.Names()[0])
	}
	return out
}

func valuesOf(ctx context.Context, cmd *cli.Command, flag string, words []string) []string {
	switch flag {
	case "verdict":
		return named(receipt.Verdicts())
	case "effect":
		return named(receipt.Actions())
	case "state":
		if cmd.Name == "nodes" {
			return inspect.NodeStates()
		}
		return inspect.States()
	case "node":
		_, nodes := known(ctx, stateDirOf(words))
		return nodes
	default:
		return nil
	}
}

func named[T fmt.Stringer](all []T) []string {
	var out []string
	for _, v := range all {
		out = append(out, v.String())
	}
	return out
}

// argumentsOf go by what the command's usage calls them.
func argumentsOf(ctx context.Context, cmd *cli.Command, words []string) []string {
	wantsReceipt, wantsNode := strings.Contains(cmd.ArgsUsage, "RECEIPT"), strings.Contains(cmd.ArgsUsage, "NODE")
	if cmd.Name == "completion" {
		return []string{"bash", "zsh", "fish"}
	}
	if !wantsReceipt && !wantsNode {
		return nil
	}
	receipts, nodes := known(ctx, stateDirOf(words))
	var out []string
	if wantsReceipt {
		out = append(out, receipts...)
	}
	if wantsNode {
		out = append(out, nodes...)
	}
	return out
}

// stateDirOf is the directory that the words name.
func stateDirOf(words []string) string {
	for n, w := range words {
		if dir, ok := strings.CutPrefix(w, "--state-dir="); ok {
			return dir
		}
		if w == "--state-dir" && n+1 < len(words) {
			return words[n+1]
		}
	}
	return os.Getenv(stateDirVariable)
}

// known lists the open receipts, and the nodes that have one or are held or out, if they can be read quickly.
func known(ctx context.Context, dir string) (receipts, nodes []string) {
	if dir == "" {
		return nil, nil
	}
	type names struct{ receipts, nodes []string }
	got := make(chan names, 1)
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	go func() {
		var n names
		defer func() {
			_ = recover() // a completion that fails is none
			got <- n
		}()
		r, err := inspect.Reader{Dir: dir, Patience: completionPatience}.Report(ctx)
		if err != nil {
			return
		}
		for _, i := range r.Items {
			n.receipts, n.nodes = append(n.receipts, string(i.Receipt)), append(n.nodes, string(i.Node))
		}
		for _, held := range r.Nodes {
			n.nodes = append(n.nodes, string(held.Node))
		}
	}()
	select {
	case n := <-got:
		return n.receipts, n.nodes
	case <-ctx.Done():
		return nil, nil
	}
}
