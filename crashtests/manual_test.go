package crashtests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// manual is a document: the commands of each section, block by block, and which of them were run.
type manual struct {
	path   string
	blocks map[string][][]string
	ran    map[string]bool
}

func readManual(t *testing.T, path string) *manual {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", path))
	if err != nil {
		t.Fatal(err)
	}
	r := &manual{path: path, blocks: map[string][][]string{}, ran: map[string]bool{}}
	section, inside := "", false
	for line := range strings.Lines(string(b)) {
		line = strings.TrimRight(line, "\n")
		switch title, isTitle := strings.CutPrefix(line, "## "); {
		case isTitle:
			section = title
		case line == "```sh":
			inside = true
			r.blocks[section] = append(r.blocks[section], nil)
		case line == "```":
			inside = false
		case inside:
			n := len(r.blocks[section]) - 1
			r.blocks[section][n] = append(r.blocks[section][n], line)
		}
	}
	return r
}

// all reports what was never typed.
func (r *manual) all(t *testing.T) {
	t.Helper()
	for section, blocks := range r.blocks {
		for n := range blocks {
			if !r.ran[fmt.Sprint(section, n)] {
				t.Errorf("%s, %q, block %d: nobody has tried it: %q", r.path, section, n, blocks[n])
			}
		}
	}
}

// reader is an operator with a manual open.
type reader struct {
	*site
	book   *manual
	path   string            // a directory with the program under its name
	places *strings.Replacer // where what the manual names is here
}

func newReader(t *testing.T, s *site, path string) *reader {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(program, filepath.Join(dir, "provctl")); err != nil {
		t.Fatal(err)
	}
	return &reader{site: s, book: readManual(t, path), path: dir, places: strings.NewReplacer(
		"/etc/provctl/provctl.yaml", s.files.Config, "/etc/provctl/choria.conf", s.files.ChoriaConfig,
		"/var/lib/provctl", s.files.StateDir, "/var/backups", dir,
	)}
}

// types runs a block line by line, as a person does, and returns what was printed. A line of inspect may exit with 3.
func (r *reader) types(section string, block int, node string) string {
	r.t.Helper()
	out, failed := r.tries(section, block, node)
	if failed != "" {
		r.t.Fatalf("%s, %q, on %s: %s", r.book.path, section, node, failed)
	}
	return out
}

// tries is types for a block that may be refused; failed says how.
func (r *reader) tries(section string, block int, node string) (all, failed string) {
	r.t.Helper()
	blocks := r.book.blocks[section]
	if block >= len(blocks) {
		r.t.Fatalf("%s has no block %d under %q", r.book.path, block, section)
	}
	r.book.ran[fmt.Sprint(section, block)] = true
	for _, line := range blocks[block] {
		out, code := r.line(line, node)
		all += out
		if code != 0 && (code != 3 || !strings.Contains(line, "inspect")) {
			return all, fmt.Sprintf("%s: exit %d: %s", line, code, out)
		}
	}
	return all, ""
}

func (r *reader) line(line, node string) (string, int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-u", "-c", r.places.Replace(line))
	cmd.Dir = r.path
	cmd.Env = append(os.Environ(), "PATH="+r.path+":"+os.Getenv("PATH"), "PROVCTL_STATE_DIR="+r.files.StateDir, "NODE="+node)
	if v, err := r.tryView(); err == nil { // a damaged journal has no count
		cmd.Env = append(cmd.Env, fmt.Sprintf("COUNT=%d", len(v.Items)))
	}
	if id, version := r.last(node); id != "" {
		cmd.Env = append(cmd.Env, "RECEIPT="+id, fmt.Sprintf("SEEN=%d", version))
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.t.Fatalf("%s: %v", line, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// last is the node's newest receipt and its version, by the public output; empty if there is none.
func (r *reader) last(node string) (id string, version uint64) {
	r.t.Helper()
	if node == "" {
		return "", 0
	}
	if i, ok := r.view().of(node); ok {
		return i.Receipt, i.Version
	}
	out, _ := r.provctl("history", node, "--json", "--state-dir", r.files.StateDir)
	var told struct {
		Entries []struct{ Receipt string }
	}
	if json.Unmarshal([]byte(out), &told) != nil {
		return "", 0
	}
	for _, e := range told.Entries {
		if e.Receipt != "" {
			id = e.Receipt
		}
	}
	if id == "" {
		return "", 0
	}
	out, code := r.provctl("inspect", id, "--json", "--state-dir", r.files.StateDir)
	var shown struct {
		Asked *struct{ Version uint64 }
		Items []struct{ Version uint64 }
	}
	switch err := json.Unmarshal([]byte(out), &shown); {
	case err != nil:
		r.t.Fatalf("inspect %s: exit %d: %v", id, code, err)
	case shown.Asked != nil:
		return id, shown.Asked.Version
	case len(shown.Items) == 1:
		return id, shown.Items[0].Version
	}
	return id, 0
}

// insists types a block until it is not refused for now: evidence of the node may still be on its way.
func (r *reader) insists(section string, block int, node string) {
	r.t.Helper()
	r.await(section+" is done on "+node, func() bool {
		_, failed := r.tries(section, block, node)
		if failed != "" && !strings.Contains(failed, "may still have it to do") && !strings.Contains(failed, "changed since it was seen") {
			r.t.Fatalf("%s, %q, on %s: %s", r.book.path, section, node, failed)
		}
		return failed == ""
	})
}
