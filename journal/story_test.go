package journal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"provctl/journal"
	"provctl/receipt"
)

// both runs a test on an open journal and on its file.
func both(t *testing.T, s sample, f func(t *testing.T, story func(receipt.NodeID) (journal.Story, error), find func(string) ([]receipt.Receipt, error))) {
	t.Run("file", func(t *testing.T) {
		f(t,
			func(n receipt.NodeID) (journal.Story, error) { return journal.ReadStory(s.dir, n) },
			func(p string) ([]receipt.Receipt, error) { return journal.FindIn(s.dir, p) })
	})
	t.Run("open", func(t *testing.T) {
		dir := t.TempDir()
		s.copyTo(t, dir, s.db)
		j, err := journal.Open(dir, journal.Options{})
		must(t, err)
		defer j.Close()
		f(t, j.Story, j.Find)
	})
}

func TestStory(t *testing.T) {
	both(t, newSample(t), func(t *testing.T, story func(receipt.NodeID) (journal.Story, error), find func(string) ([]receipt.Receipt, error)) {
		s, err := story("blocked")
		must(t, err)
		if s.Node == nil || len(s.Jobs) != 1 || len(s.Receipts) != 1 || s.Receipts[0].Status != receipt.Unknown || s.Jobs[0].ID != s.Receipts[0].Job {
			t.Errorf("the story of a blocked node is %+v", s)
		}
		if s, err := story("done-3"); err != nil || len(s.Jobs) != 1 || s.Jobs[0].Status != receipt.Ended || len(s.Receipts) != 1 {
			t.Errorf("the story of a node that is done is %+v, %v", s, err)
		}
		if s, err := story("waits-3"); err != nil || len(s.Jobs) != 1 || len(s.Receipts) != 0 {
			t.Errorf("the story of a queued node is %+v, %v", s, err)
		}
		if _, err := story("nobody"); !errors.Is(err, journal.ErrNotFound) {
			t.Errorf("a node that was never there: %v", err)
		}
		open := s.Receipts[0].ID
		for _, name := range []string{string(open), strings.ToLower(string(open))} {
			if got, err := find(name); err != nil || len(got) != 1 || got[0].ID != open {
				t.Errorf("%s names %+v, %v", name, got, err)
			}
		}
		all, err := find("")
		if err != nil || len(all) != 11 || all[0].ID != open || !all[0].Status.Open() {
			t.Errorf("all receipts are %d, the open one first: %v", len(all), err)
		}
		if got, err := find("nothing"); err != nil || len(got) != 0 {
			t.Errorf("nothing names %+v, %v", got, err)
		}
	})
}

// damagedSample is one whose receipt has a changed byte.
func damagedSample(t *testing.T) sample {
	t.Helper()
	s := newSample(t)
	dir := t.TempDir()
	must(t, journal.Meddle(s.copyTo(t, dir, s.db), "record byte changed"))
	s.dir = dir
	return s
}

func TestStoryOfADamagedRecord(t *testing.T) {
	s := damagedSample(t)
	damaged := 0
	for i := range 10 {
		if _, err := journal.ReadStory(s.dir, receipt.NodeID(fmt.Sprintf("done-%d", i))); errors.Is(err, receipt.ErrDamaged) {
			damaged++
		}
	}
	if _, err := journal.ReadStory(s.dir, "blocked"); errors.Is(err, receipt.ErrDamaged) {
		damaged++
	}
	if damaged == 0 {
		t.Error("a changed record was shown as good")
	}
}

func TestStandings(t *testing.T) {
	s := newSample(t)
	var all []journal.Standing
	must(t, journal.ReadStandings(s.dir, func(some []journal.Standing) error { all = append(all, some...); return nil }))
	byState := map[string]int{}
	for _, n := range all {
		switch {
		case n.Open != nil:
			byState["open"]++
		case n.Job != nil:
			byState[n.Job.Status.String()]++
		default:
			byState["none"]++
		}
	}
	if want := map[string]int{"queued": 41, "none": 10, "open": 1}; !reflect.DeepEqual(byState, want) {
		t.Errorf("nodes stand as %v, want %v", byState, want)
	}
	j, err := journal.Open(s.dir, journal.Options{})
	must(t, err)
	defer j.Close()
	var paged []journal.Standing
	for after := receipt.NodeID(""); ; after = paged[len(paged)-1].Node.ID {
		some, err := j.Standings(after, 7)
		must(t, err)
		if paged = append(paged, some...); len(some) < 7 {
			break
		}
	}
	if !reflect.DeepEqual(paged, all) {
		t.Errorf("in portions there are %d nodes, at once %d", len(paged), len(all))
	}
	if !slices.IsSortedFunc(all, func(a, b journal.Standing) int { return strings.Compare(string(a.Node.ID), string(b.Node.ID)) }) {
		t.Error("the nodes are not in order")
	}
	stop := errors.New("stop")
	must(t, j.Close())
	if err := journal.ReadStandings(s.dir, func([]journal.Standing) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the error of the reader is %v", err)
	}
}

// TestNodesNotTaken: what is not decoded is neither held nor out.
func TestNodesNotTaken(t *testing.T) {
	dir := t.TempDir()
	_, err := journal.Init(dir)
	must(t, err)
	now := time.Now()
	j, err := journal.Open(dir, journal.Options{Now: func() time.Time { return now }})
	must(t, err)
	_, err = j.RaiseEpoch()
	must(t, err)
	end := func(node receipt.NodeID, n journal.Next) {
		t.Helper()
		a, err := j.Admit(t.Context(), []journal.Sighting{{Node: node}}, 1)
		must(t, err)
		job, err := j.Claim(t.Context(), a[0].Job.ID)
		must(t, err)
		n.Event = receipt.End
		_, err = j.Move(t.Context(), job.ID, n)
		must(t, err)
	}
	end("held", journal.Next{Result: receipt.Deferred, HoldUntil: now.Add(time.Minute), Why: "later"})
	end("held-no-more", journal.Next{Result: receipt.Deferred, HoldUntil: now.Add(-time.Second), Why: "later"})
	end("out", journal.Next{Result: receipt.Exhausted, Why: "tried"})
	end("talks", journal.Next{Result: receipt.Provisioned, Why: `"out":"held_until":"2999-01-01T00:00:00Z"`})
	end("done", journal.Next{Result: receipt.Provisioned})
	s, err := j.Snapshot()
	must(t, err)
	var names []receipt.NodeID
	for _, n := range s.Nodes {
		names = append(names, n.ID)
	}
	if want := []receipt.NodeID{"held", "out"}; !reflect.DeepEqual(names, want) {
		t.Errorf("not taken are %v, want %v", names, want)
	}
	must(t, j.Close())
}

// records names everything of a snapshot that a reader acts on.
func records(s journal.Snapshot) map[string]bool {
	out := map[string]bool{}
	add := func(bucket string, v any) {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		out[bucket+" "+string(b)] = true
	}
	for _, r := range s.Open {
		add("receipts", r)
	}
	for _, j := range s.Jobs {
		add("jobs", j)
	}
	for _, n := range s.Nodes {
		add("nodes", n)
	}
	return out
}

// TestSalvage: of a damaged file everything that is shown is right, and what is not shown is named.
func TestSalvage(t *testing.T) {
	t.Parallel()
	s, dir := newSample(t), t.TempDir()
	whole := records(s.snapshot)
	got, lost, err := journal.Salvage(s.dir)
	if err != nil || len(lost) != 0 || !reflect.DeepEqual(records(got), whole) || got.Info.ID != s.snapshot.Info.ID {
		t.Fatalf("of a whole journal: %d records, lost %v, %v", len(records(got)), lost, err)
	}
	page := os.Getpagesize()
	check := func(what string, db []byte) (missing int) {
		t.Helper()
		path := s.copyTo(t, dir, db)
		got, lost, err := journal.Salvage(dir)
		if after, rerr := os.ReadFile(path); rerr != nil || !slices.Equal(after, db) {
			t.Fatalf("%s: the file was changed", what)
		}
		if err != nil {
			if !errors.Is(err, receipt.ErrDamaged) {
				t.Errorf("%s: %v", what, err)
			}
			return len(whole)
		}
		shown := records(got)
		for r := range whole {
			if !shown[r] {
				missing++
			}
		}
		for r := range shown {
			if !whole[r] && len(lost) == 0 && got.Info.Seq == s.snapshot.Info.Seq { // a stray reference or an older meta page shows an older state
				t.Errorf("%s: shows %s, which never was", what, r)
			}
		}
		if missing > 0 && len(lost) == 0 && got.Info.Seq == s.snapshot.Info.Seq {
			t.Errorf("%s: %d records are gone and nothing says so", what, missing)
		}
		return missing
	}
	pages := len(s.db) / page
	for n := range pages {
		db := slices.Clone(s.db)
		clear(db[n*page : (n+1)*page])
		check(fmt.Sprintf("page %d zeroed", n), db)
		db = slices.Clone(s.db)
		copy(db[n*page:(n+1)*page], s.db[(n+1)%pages*page:])
		check(fmt.Sprintf("page %d overwritten by its neighbour", n), db)
		check(fmt.Sprintf("cut in page %d", n), s.db[:n*page+page/2])
		for bit := range 16 { // how many elements it says that it has: the first one tells it as well
			db = slices.Clone(s.db)
			db[n*page+10+bit/8] ^= 1 << (bit % 8)
			if missing := check(fmt.Sprintf("bit %d of the count of page %d", bit, n), db); n > 1 && missing > 0 {
				t.Errorf("bit %d of the count of page %d: %d records are not shown", bit, n, missing)
			}
		}
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range 400 {
		db := slices.Clone(s.db)
		db[2*page+rng.IntN(len(db)-2*page)] ^= byte(1 << rng.IntN(8))
		check(fmt.Sprintf("flip %d", i), db)
	}
}

func TestSalvageOfARecord(t *testing.T) {
	s := damagedSample(t)
	_, lost, err := journal.Salvage(s.dir)
	if err != nil || len(lost) != 1 || !strings.Contains(lost[0].Place, "/") || !strings.Contains(lost[0].Why, "checksum") {
		t.Errorf("lost are %+v, %v", lost, err)
	}
}

// TestSalvageOfABucketUnderAnotherName: what lies in it is not shown, and both names tell so.
func TestSalvageOfABucketUnderAnotherName(t *testing.T) {
	t.Parallel()
	s, dir := newSample(t), t.TempDir()
	s.copyTo(t, dir, bytes.ReplaceAll(s.db, []byte("audit"), []byte("audiu")))
	var places []string
	n := 0
	lost, err := journal.Export(dir, func(journal.Exported) error { n++; return nil })
	for _, l := range lost {
		places = append(places, l.Place)
	}
	if want := []string{"bucket audiu", "bucket audit"}; !errors.Is(err, receipt.ErrDamaged) || !reflect.DeepEqual(places, want) || n != len(s.all)-1 {
		t.Errorf("%d of %d records, lost %+v, %v", n, len(s.all), lost, err)
	}
}
