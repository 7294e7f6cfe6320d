package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

const databaseModule = "golang.org/x/vulndb"

// fewest reports that a database has: one with less is none, and would find nothing.
const fewest = 1000

// download fetches a version of the database through the module proxy and returns where it is, which version it is and of when.
func download(ctx context.Context, version string) (dir, resolved string, made time.Time, err error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", databaseModule+"@"+version)
	out, err := cmd.Output()
	var got struct {
		Version, Dir, Info, Error string
	}
	if uerr := json.Unmarshal(out, &got); uerr != nil || got.Error != "" || got.Dir == "" {
		return "", "", made, fmt.Errorf("go mod download %s@%s: %s%w; give a version that the module proxy has", databaseModule, version, got.Error, errors.Join(err, uerr))
	}
	var info struct{ Time time.Time }
	b, err := os.ReadFile(got.Info)
	if err == nil {
		err = json.Unmarshal(b, &info)
	}
	return got.Dir, got.Version, info.Time, err
}

// A moduleEntry is one of index/modules.json: https://go.dev/doc/security/vuln/database. Without a fixed version a reader looks into
// each report.
type moduleEntry struct {
	Path  string      `json:"path"`
	Vulns []vulnEntry `json:"vulns"`
}

type vulnEntry struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"`
	Aliases  []string  `json:"aliases,omitempty"`
}

// report is the part of an OSV report that the index is made of.
type report struct {
	vulnEntry
	Affected []struct {
		Package struct {
			Name string `json:"name"`
		} `json:"package"`
	} `json:"affected"`
}

// index lays the reports in the module's directory out as a database in dir, which the scanner reads as file://dir.
func index(module, dir string, made time.Time) error {
	files, err := filepath.Glob(filepath.Join(module, "data", "osv", "GO-*.json"))
	if err != nil {
		return err
	}
	if len(files) < fewest {
		return fmt.Errorf("%s has %d reports in data/osv, expected %d and more: its layout has changed, look at it before trusting this check", module, len(files), fewest)
	}
	modules, vulns := map[string]*moduleEntry{}, make([]vulnEntry, 0, len(files))
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var r report
		if err := json.Unmarshal(b, &r); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if r.ID+".json" != filepath.Base(file) {
			return fmt.Errorf("%s names itself %q", file, r.ID)
		}
		vulns = append(vulns, r.vulnEntry)
		for _, a := range r.Affected {
			m := modules[a.Package.Name]
			if m == nil {
				m = &moduleEntry{Path: a.Package.Name}
				modules[m.Path] = m
			}
			if n := len(m.Vulns); n == 0 || m.Vulns[n-1].ID != r.ID {
				m.Vulns = append(m.Vulns, vulnEntry{ID: r.ID, Modified: r.Modified})
			}
		}
		if err := write(filepath.Join(dir, "ID", r.ID+".json"), b); err != nil {
			return err
		}
	}
	all := slices.SortedFunc(maps.Values(modules), func(a, b *moduleEntry) int { return cmp.Compare(a.Path, b.Path) })
	return errors.Join(
		writeJSON(filepath.Join(dir, "index", "db.json"), map[string]time.Time{"modified": made}),
		writeJSON(filepath.Join(dir, "index", "modules.json"), all),
		writeJSON(filepath.Join(dir, "index", "vulns.json"), vulns),
	)
}

func writeJSON(file string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return write(file, b)
}

func write(file string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}
