package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"golang.org/x/vuln/scan"
)

// tooOld is how old a pinned database may be without a word.
const tooOld = 90 * 24 * time.Hour

func main() {
	root := flag.String("root", "../..", "`DIR` of the module to check")
	packages := flag.String("packages", "./cmd/provctl", "what is built of it")
	version := flag.String("db", "", "`VERSION` of "+databaseModule+", or latest")
	allow := flag.String("allow", "allow.txt", "`FILE` of what may wait")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	bad, err := check(ctx, *root, *packages, *version, *allow, time.Now(), os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "vuln:", err)
		os.Exit(2)
	case bad:
		os.Exit(1)
	}
}

// check scans and says what it found; bad: something needs somebody.
func check(ctx context.Context, root, packages, version, allow string, now time.Time, out io.Writer) (bad bool, err error) {
	allowed, err := readAllowed(allow)
	if err != nil {
		return false, err
	}
	module, version, made, err := download(ctx, version)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(out, "vulnerability database %s@%s\n", databaseModule, version)
	if now.Sub(made) > tooOld {
		fmt.Fprintf(out, "warning: it is of %s: take a newer one in packaging/govulncheck.sh\n", made.Format(time.DateOnly))
	}
	db, err := os.MkdirTemp("", "vulndb-")
	if err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(db) }()
	if err := index(module, db, made); err != nil {
		return false, err
	}
	found, err := called(ctx, root, packages, "file://"+db)
	if err != nil {
		return false, err
	}
	return judge(out, found, allowed, now), nil
}

// finding is a vulnerability that the program calls.
type finding struct{ id, summary, module, symbol, fixed string }

// message is the part of govulncheck's -format json that says what was found.
type message struct {
	Config *struct {
		GoVersion string `json:"go_version"`
	} `json:"config"`
	OSV *struct {
		ID, Summary string
	} `json:"osv"`
	Finding *struct {
		OSV   string `json:"osv"`
		Fixed string `json:"fixed_version"`
		Trace []struct{ Module, Version, Package, Function, Receiver string }
	} `json:"finding"`
}

// called scans the packages and returns what they call of what is vulnerable.
func called(ctx context.Context, root, packages, db string) ([]finding, error) {
	var out, complaints bytes.Buffer
	cmd := scan.Command(ctx, "-format", "json", "-db", db, "-C", root, packages)
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("govulncheck: %w: %s", err, complaints.String())
	}
	found, summaries, whole := map[string]finding{}, map[string]string{}, false
	for dec := json.NewDecoder(&out); ; {
		var m message
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("govulncheck's output: %w", err)
		}
		whole = whole || m.Config != nil && m.Config.GoVersion != ""
		if m.OSV != nil {
			summaries[m.OSV.ID] = m.OSV.Summary
		}
		if f := m.Finding; f != nil && len(f.Trace) > 0 && f.Trace[0].Function != "" {
			at := f.Trace[0]
			found[f.OSV] = finding{id: f.OSV, module: at.Module + "@" + at.Version, symbol: strings.TrimPrefix(at.Package+"."+at.Receiver+"."+at.Function, "."), fixed: f.Fixed}
		}
	}
	if !whole {
		return nil, errors.New("govulncheck did not say which Go it looked at: what its output means has changed")
	}
	list := slices.SortedFunc(maps.Values(found), func(a, b finding) int { return strings.Compare(a.id, b.id) })
	for i := range list {
		list[i].summary = summaries[list[i].id]
	}
	return list, nil
}
