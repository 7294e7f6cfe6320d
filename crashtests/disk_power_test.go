package crashtests

import (
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"provctl/crashtests/powerloss"
	"provctl/crashtests/trace"
	"provctl/journal"
	"provctl/receipt"
)

// recording is what a sweep over images needs of a run. TRACE names a file that holds one; a failed sweep writes it.
type recording struct {
	Initial powerloss.Image
	Events  []trace.Event
	Ready   int      // from here on there is a journal
	From    int      // before this the images are others' concern
	Needs   []string // requests whose receipts are in the initial image
}

// sweepImages opens every image that a power failure may leave of what a recording holds; nil if it does not run.
func sweepImages(t *testing.T, record func(*testing.T) recording) *imageSweep {
	t.Helper()
	if !mine(t) {
		return nil
	}
	rec, ok := loadRecording(t)
	if !ok {
		if !needFUSE(t) {
			return nil
		}
		rec = record(t)
	}
	s := newImageSweep(t, rec)
	s.run(wide())
	s.sum()
	return s
}

// TestSweep3PowerLoss records one node's provisioning, and opens every image that a power failure may leave at any moment of it.
func TestSweep3PowerLoss(t *testing.T) {
	s := sweepImages(t, record)
	if s == nil {
		return
	}
	if os.Getenv(caseEnv) == "" && (s.ahead == 0 || s.beforeAll == 0 || s.programs == 0) {
		t.Error("the sweep was too tame: no image with unsynced content, or none from during init, or none shown to the program")
	}
	if os.Getenv(caseEnv) == "" {
		powerTeeth(t, s.rec)
	}
}

// powerTeeth proves that the sweep sees a missing sync: with each of these gone from the trace, images must fail.
func powerTeeth(t *testing.T, rec recording) {
	t.Helper()
	for what, gone := range map[string]func(trace.Event) bool{
		"syncs of the journal":     func(e trace.Event) bool { return e.Kind == trace.Sync && e.Path == "journal.db" && e.N > rec.Ready },
		"the sync of a new one":    func(e trace.Event) bool { return e.Kind == trace.Sync && strings.HasPrefix(e.Path, ".journal-") },
		"syncs of the directory":   func(e trace.Event) bool { return e.Kind == trace.DirSync },
		"every other journal sync": func(e trace.Event) bool { return e.Kind == trace.Sync && e.Path == "journal.db" && e.N%2 == 0 },
	} {
		less := rec
		less.Events = slices.Clone(rec.Events)
		for i, e := range less.Events {
			if gone(e) {
				less.Events[i] = trace.Event{N: e.N, Source: "nobody"}
			}
		}
		s := newImageSweep(t, less)
		s.quiet = true
		s.run(false)
		if s.failed == 0 {
			t.Errorf("without %s no image fails: the sweep sees nothing", what)
		}
	}
}

// record runs a worker until its node is provisioned. That the trace, replayed, is what the directory holds proves it complete.
func record(t *testing.T) recording {
	t.Helper()
	ts := newTracedSite(t, options{})
	ts.start()
	ts.finish()
	if code := ts.stop(); code != 0 {
		t.Fatalf("the worker ended with %d", code)
	}
	rec := recording{Initial: ts.initial, Events: ts.trace.Events(), Ready: ts.ready}
	var last powerloss.Case
	for c, err := range powerloss.Cases(rec.Initial, rec.Events, false) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Prefix == len(rec.Events) && (c.Name == powerloss.All || c.Name == powerloss.Synced && last.Image == nil) {
			last = c
		}
	}
	seed := maphash.MakeSeed()
	there, err := powerloss.Load(ts.backing)
	if err != nil || there.Sum(seed) != last.Image.Sum(seed) {
		t.Fatalf("the trace does not lead to what the directory holds (%v): an operation is missing in it", err)
	}
	if n := len(begun(rec.Events, len(rec.Events))); n < 3 {
		t.Fatalf("the run had %d effects, want keys, configuration and restart", n)
	}
	return rec
}

func loadRecording(t *testing.T) (rec recording, ok bool) {
	t.Helper()
	path := os.Getenv("TRACE")
	if path == "" {
		return rec, false
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := gob.NewDecoder(f).Decode(&rec); err != nil {
		t.Fatalf("TRACE=%s: %v", path, err)
	}
	return rec, true
}

// keep writes a recording for a later replay and returns the environment that names it.
func (rec recording) keep(t *testing.T) string {
	t.Helper()
	f, err := os.CreateTemp("", "provctl-trace-*")
	if err == nil {
		err = errors.Join(gob.NewEncoder(f).Encode(rec), f.Close())
	}
	if err != nil {
		t.Errorf("the trace could not be kept: %v", err)
		return ""
	}
	return "TRACE=" + f.Name()
}

// found is what the program makes of an image. It depends on the image alone, so each distinct one is opened once.
type found struct {
	err      error
	info     journal.Info
	requests map[string]bool
}

// imageSweep judges images.
type imageSweep struct {
	t    *testing.T
	rec  recording
	dir  string
	seed maphash.Seed

	known     map[uint64]found
	least     journal.Info // as of the last image of synced content
	requests  []string     // of the effects begun
	upTo      int
	images    int
	beforeAll int // of images from before init returned, those that hold no journal yet
	ahead     int
	programs  int
	quiet     bool // count what fails, in place of reporting it
	kept      string
	failed    int
}

func newImageSweep(t *testing.T, rec recording) *imageSweep {
	return &imageSweep{t: t, rec: rec, dir: fastDir(t), seed: maphash.MakeSeed(), known: map[uint64]found{}, upTo: -1}
}

func (s *imageSweep) run(wide bool) {
	for c, err := range powerloss.Cases(s.rec.Initial, s.rec.Events, wide) {
		if err != nil {
			s.t.Fatal(err)
		}
		s.judge(c)
	}
}

// caseOf names an image, so that it can be judged again alone.
func (s *imageSweep) caseOf(c powerloss.Case) string {
	return fmt.Sprintf("%s/%d:%s", s.t.Name(), c.Prefix, c.Name)
}

func (s *imageSweep) judge(c powerloss.Case) {
	name := s.caseOf(c)
	if c.Prefix != s.upTo {
		s.upTo, s.requests = c.Prefix, append(begun(s.rec.Events, c.Prefix), s.rec.Needs...)
	}
	if (!wanted(name) || c.Prefix < s.rec.From) && c.Name != powerloss.Synced { // the synced ones say what later ones must hold
		return
	}
	sum := c.Image.Sum(s.seed)
	f, seen := s.known[sum]
	if !seen {
		f = s.open(c)
		s.known[sum] = f
	}
	s.images++
	switch {
	case f.err != nil && c.Prefix < s.rec.Ready:
		s.beforeAll++
		return
	case f.err != nil:
		s.fail(name, "it does not open: %v", f.err)
		return
	case f.info.Seq < s.least.Seq || f.info.Epoch < s.least.Epoch || s.least.ID != "" && f.info.ID != s.least.ID:
		s.fail(name, "an older journal opens: %+v, while %+v was synced", f.info, s.least)
	}
	for _, request := range s.requests {
		if !f.requests[request] {
			s.fail(name, "the effect of request %s had begun, and its receipt is not in the journal", request)
		}
	}
	if c.Name == powerloss.Synced {
		s.least = f.info
	} else if f.info.Seq > s.least.Seq {
		s.ahead++
	}
}

// fail reports a case so that it can be run again alone.
func (s *imageSweep) fail(name, format string, args ...any) {
	s.t.Helper()
	if s.failed++; s.quiet {
		return
	}
	if s.kept == "" {
		s.kept = s.rec.keep(s.t)
	}
	if s.failed == 5 {
		s.t.Fatalf("and so on")
	}
	s.t.Errorf("%s\nCASE='%s' %s", fmt.Sprintf(format, args...), name, s.kept)
}

// open does with an image what the next start would: it opens the journal, or makes one if none was complete.
func (s *imageSweep) open(c powerloss.Case) (f found) {
	dir := filepath.Join(s.dir, "image")
	defer os.RemoveAll(dir)
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = c.Image.Write(dir)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	if !s.quiet && len(s.known)%40 == 0 {
		s.asProgram(c, dir)
	}
	j, err := journal.Open(dir, journal.Options{})
	if err != nil {
		if c.Prefix >= s.rec.Ready {
			return found{err: err}
		}
		if !errors.Is(err, receipt.ErrDamaged) {
			s.fail(s.caseOf(c), "Open = %v, want ErrDamaged", err)
		}
		if _, again := journal.Init(dir); again != nil {
			s.fail(s.caseOf(c), "an interrupted init cannot be run again: %v; before it: %v", again, err)
		}
		return found{err: err}
	}
	f.info = j.Info()
	f.info.Path, f.info.Pause = "", nil
	if err := j.Close(); err != nil {
		s.t.Error(err)
	}
	f.requests, f.err = requestsIn(filepath.Join(dir, "journal.db"))
	return f
}

// requestsIn reads the requests of all receipts out of a closed journal, past the program: a record is five bytes and JSON.
func requestsIn(path string) (map[string]bool, error) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	err = db.View(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("receipts")).ForEach(func(_, v []byte) error {
			var r struct{ Request string }
			err := json.Unmarshal(v[5:], &r)
			all[r.Request] = true
			return err
		})
	})
	return all, errors.Join(err, db.Close())
}

// asProgram has the program itself look at a sample of the images: it shows what there is, or says that it is damaged or missing.
func (s *imageSweep) asProgram(c powerloss.Case, dir string) {
	s.t.Helper()
	s.programs++
	var out, said strings.Builder
	cmd := exec.CommandContext(s.t.Context(), program, "inspect", "--json", "--state-dir", dir)
	cmd.Stdout, cmd.Stderr = &out, &said
	code := exitOf(cmd.Run())
	ok := code == 0 || code == 3 || code == 6 && c.Prefix < s.rec.Ready
	if !ok || code != 6 && !json.Valid([]byte(out.String())) {
		s.fail(s.caseOf(c), "inspect exits with %d: %s", code, said.String())
	}
	whole(s.t, "inspect", said.String())
}

// sum counts for the summary.
func (s *imageSweep) sum() {
	s.t.Logf("%d events, %d effects, %d distinct images, %d from before the journal was complete, %d with more than was synced, %d shown to the program",
		len(s.rec.Events), len(begun(s.rec.Events, len(s.rec.Events))), len(s.known), s.beforeAll, s.ahead, s.programs)
	count(s.t, "power-loss images", s.images)
	add("violations", s.failed)
}
