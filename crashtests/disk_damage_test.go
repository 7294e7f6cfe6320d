package crashtests

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"provctl/journal"
	"provctl/receipt"
)

// damageTest begins the names of its cases, in the child as well.
const damageTest = "TestSweep7Corruption/"

// What became of a damage.
const (
	noticed   = "damaged" // receipt.ErrDamaged
	unharmed  = "whole"   // it opens, with all that was in it
	different = "different"
	failed    = "error"
)

// outcome is a line that a child prints before and after each damage.
type outcome struct {
	Name, Is, Said string
}

// damageShard opens every damage of its share; it is the child, since a damaged file may end who maps it.
func damageShard(arg string) error {
	var dir, work string
	var shard, of int
	if _, err := fmt.Sscan(arg, &dir, &work, &shard, &of); err != nil {
		return err
	}
	h, err := loadHarmed(dir)
	if err != nil {
		return err
	}
	want, err := stateOf(dir)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	i := 0
	for d := range h.all(wide()) {
		if i++; i%of != shard || !wanted(damageTest+d.name) {
			continue
		}
		if err := out.Encode(outcome{Name: d.name}); err != nil {
			return err
		}
		if err := d.lay(work); err != nil {
			return err
		}
		o := opened(work, want)
		o.Name = d.name
		if err := out.Encode(o); err != nil {
			return err
		}
	}
	return nil
}

func (d damage) lay(dir string) error {
	return errors.Join(os.WriteFile(filepath.Join(dir, "journal.db"), d.db, 0o600), os.WriteFile(filepath.Join(dir, "journal.marker"), d.marker, 0o600))
}

// state is all that a directory holds, as JSON: what needs a person, and each record.
type state struct{ snapshot, records string }

func inWords(s journal.Snapshot) string {
	s.Taken, s.Info.Path = time.Time{}, ""
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// stateOf is what readers show of a directory.
func stateOf(dir string) (state, error) {
	got, err := journal.Read(dir)
	if err != nil {
		return state{}, err
	}
	var records bytes.Buffer
	out := json.NewEncoder(&records)
	_, err = journal.Export(dir, func(r journal.Exported) error {
		if r.Journal != nil {
			r.Journal.Path = ""
		}
		return out.Encode(r)
	})
	return state{inWords(got), records.String()}, err
}

// opened reads a directory as an inspector does, and opens it as a worker does.
func opened(dir string, want state) outcome {
	got, readErr := stateOf(dir)
	j, err := journal.Open(dir, journal.Options{})
	if err == nil {
		var own journal.Snapshot
		own, err = j.Snapshot()
		if err = errors.Join(err, j.Close()); err == nil && inWords(own) != want.snapshot {
			return outcome{Is: different, Said: "a worker opens " + excerpt(inWords(own)) + " in place of " + excerpt(want.snapshot)}
		}
	}
	switch {
	case readErr == nil && (err != nil || got != want):
		return outcome{Is: different, Said: fmt.Sprintf("a worker says %v, and a reader shows %s in place of %s", err, excerpt(got.snapshot), excerpt(want.snapshot))}
	case readErr != nil && !errors.Is(readErr, receipt.ErrDamaged):
		return outcome{Is: failed, Said: readErr.Error()}
	case err == nil && readErr != nil:
		return outcome{Is: different, Said: "it opens for a worker and not for a reader: " + readErr.Error()}
	case errors.Is(err, receipt.ErrDamaged):
		return outcome{Is: noticed, Said: err.Error()}
	case err != nil:
		return outcome{Is: failed, Said: err.Error()}
	}
	return outcome{Is: unharmed}
}

// toHarm is a directory with what damages are made of.
func toHarm(t *testing.T) (dir string, h harmed) {
	t.Helper()
	dir = sampleJournal(t)
	for name, from := range map[string]string{"other.db": sampleJournal(t), "newer.db": dir} {
		write(t, filepath.Join(dir, name), read(t, filepath.Join(from, "journal.db")))
	}
	newerFormat(t, filepath.Join(dir, "newer.db"))
	h, err := loadHarmed(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, h
}

// replayDamage opens one damage, in this process.
func replayDamage(t *testing.T, name string) {
	t.Helper()
	dir, h := toHarm(t)
	want, err := stateOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	for d := range h.all(true) {
		if d.name != name {
			continue
		}
		work := fastDir(t)
		if err := d.lay(work); err != nil {
			t.Fatal(err)
		}
		if o := opened(work, want); o.Is != noticed && (d.must || o.Is != unharmed) {
			t.Errorf("%s: %s\nCASE='%s%s'", o.Is, o.Said, damageTest, name)
		}
		return
	}
	t.Errorf("there is no damage %q", name)
}

// TestSweep7Corruption damages a journal in every way there is a name for. Each must be called damaged, or change nothing that
// is read; no process may crash or hang over it.
func TestSweep7Corruption(t *testing.T) {
	if !mine(t) {
		return
	}
	t.Parallel()
	dir, h := toHarm(t)
	const shards = 2
	results := make([]map[string]outcome, shards)
	var wg sync.WaitGroup
	for i := range shards {
		work := fastDir(t)
		wg.Go(func() { results[i] = runShard(t, fmt.Sprintf("%s %s %d %d", dir, work, i, shards)) })
	}
	wg.Wait()
	all := results[0]
	maps.Copy(all, results[1])
	judgeDamages(t, h, all)
}

// runShard reads what a child says. One that dies or falls silent fails the case that it had begun.
func runShard(t *testing.T, arg string) map[string]outcome {
	all := map[string]outcome{}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), damageEnv+"="+arg)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Error(err)
		return all
	}
	const patience = 30 * time.Second
	silence := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer silence.Stop()
	var last outcome
	for dec := json.NewDecoder(bufio.NewReader(out)); ; {
		var o outcome
		if err := dec.Decode(&o); err != nil {
			break
		}
		silence.Reset(patience)
		last = o
		if o.Is != "" {
			all[o.Name] = o
		}
	}
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the process crashed or hung: %v: %s\nCASE='%s%s'", err, excerpt(said.String()), damageTest, last.Name)
	}
	return all
}

func excerpt(s string) string { return s[:min(len(s), 2000)] }

func judgeDamages(t *testing.T, h harmed, all map[string]outcome) {
	t.Helper()
	counts := map[string]int{}
	programs, n, dir := 0, 0, fastDir(t)
	for d := range h.all(wide()) {
		name := damageTest + d.name
		if !wanted(name) {
			continue
		}
		o, ok := all[d.name]
		counts[o.Is]++
		switch {
		case !ok:
			t.Errorf("no outcome\nCASE='%s'", name)
		case o.Is == different || o.Is == failed:
			t.Errorf("%s: %s\nCASE='%s'", o.Is, o.Said, name)
		case d.must && o.Is != noticed:
			t.Errorf("it was not noticed\nCASE='%s'", name)
		case o.Is == noticed && !strings.Contains(o.Said, "restore"):
			t.Errorf("no remedy in %q\nCASE='%s'", o.Said, name)
		}
		whole(t, d.name, o.Said)
		if n++; n%60 == 0 || d.must && n%9 == 0 {
			programs++
			if err := d.lay(dir); err != nil {
				t.Fatal(err)
			}
			judgeByProgram(t, dir, name, o)
		}
	}
	t.Logf("outcomes: %s; %d shown to the program", sortedCounts(counts), programs)
	count(t, "damaged journals", n)
	if os.Getenv(caseEnv) == "" && (counts[noticed] < 200 || counts[unharmed] < 100 || programs < 20) {
		t.Error("the sweep was too tame")
	}
}

// judgeByProgram has the program come to the same conclusion, by its exit code and within a time.
func judgeByProgram(t *testing.T, dir, name string, o outcome) {
	t.Helper()
	for _, args := range [][]string{{"inspect", "--json", "--state-dir", dir}, {"verify-journal", filepath.Join(dir, "journal.db")}} {
		out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		code := exitOf(err)
		var ok bool
		switch {
		case o.Is == noticed && args[0] == "verify-journal":
			ok = code == 6 || code == 0 // the file alone may be sound where it and the marker do not fit
		case o.Is == unharmed:
			ok = code == 0 || code == 3
		default:
			ok = code == 6
		}
		if !ok {
			t.Errorf("%s exits with %d, though the journal is %s: %s\nCASE='%s'", args[0], code, o.Is, excerpt(string(out)), name)
		}
		whole(t, args[0], string(out))
	}
}

func sortedCounts(counts map[string]int) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, " %s %d", k, counts[k])
	}
	return strings.TrimSpace(b.String())
}
