package journal

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"provctl/receipt"
)

// TestReadInPortions: a journal with more records than a portion, and with as many as two, reads as its worker has it.
func TestReadInPortions(t *testing.T) {
	for _, n := range []int{portion + 1, 2 * portion} {
		dir := queued(t, n)
		j, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		want, err := j.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := Read(dir)
		if err != nil || len(got.Jobs) != n || !reflect.DeepEqual(got.Jobs, want.Jobs) {
			t.Errorf("%d jobs are read as %d, in the worker %d: %v", n, len(got.Jobs), len(want.Jobs), err)
		}
	}
}

// TestReleaseGivesBack: nothing of the journal stays mapped, and what was given back can be read again. A worker keeps its pages.
func TestReleaseGivesBack(t *testing.T) {
	dir := queued(t, 2*portion)
	path := filepath.Join(dir, fileName)
	readAll := func(s *store) error {
		return s.each(jobBucket, "", func(key string, v []byte) error {
			_, err := receipt.Decode[receipt.Job](jobBucket+"/"+key, v)
			return err
		})
	}
	err := withReadOnly(path, readWait, func(db *bolt.DB) error {
		return db.View(func(tx *bolt.Tx) error {
			s := &store{tx: tx}
			if err := readAll(s); err != nil {
				return err
			}
			before := mapped(t, path)
			s.release()
			if after := mapped(t, path); before < portion || after != 0 {
				t.Errorf("%d KiB were mapped, %d after they were given back", before, after)
			}
			return readAll(s)
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	j, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	err = j.view(func(s *store) error {
		err := readAll(s)
		before := mapped(t, path)
		s.release()
		if after := mapped(t, path); before == 0 || after < before {
			t.Errorf("a worker had %d KiB mapped, and gave back all but %d", before, after)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// queued makes a journal with so many queued jobs.
func queued(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := Init(dir); err != nil {
		t.Fatal(err)
	}
	j, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.RaiseEpoch(); err != nil {
		t.Fatal(err)
	}
	seen := make([]Sighting, n)
	for i := range seen {
		seen[i] = Sighting{Node: receipt.NodeID(fmt.Sprintf("n%06d.example.net", i)), Source: "discovery", At: time.Now()}
	}
	if _, err := j.Admit(t.Context(), seen, n); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// mapped is how much of a file this process has in memory by its maps, in KiB.
func mapped(t *testing.T, path string) int {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	total, ours := 0, false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if name, value, _ := strings.Cut(line, ":"); ours && name == "Rss" {
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(value, "kB")))
			if err != nil {
				t.Fatal(err)
			}
			total += n
		} else if strings.Contains(line, "-") && strings.Contains(line, "/") { // the head of a map
			ours = strings.HasSuffix(line, path)
		} else if first, _, _ := strings.Cut(line, " "); strings.Contains(first, "-") {
			ours = false
		}
	}
	return total
}
