package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"provctl/inspect/inspecttest"
	"provctl/receipt"
)

// TestReadScripts runs the scripts of the commands that only read.
func TestReadScripts(t *testing.T) {
	s := scenes{books: map[string]*inspecttest.Book{}}
	r := serving{scenes: &s}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/read",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"state": s.state, "blocked": s.blocked, "pending": s.pending, "out": s.out, "held": s.held, "hang": s.hang,
			"exits":   exits,
			"serve":   r.serve,
			"leave":   r.leave,
			"done":    s.done,
			"decided": s.decided,
			"queued":  s.queued,
			"corrupt": corrupt,
		},
		RequireUniqueNames: true,
	})
}

// serving are scenes whose worker can end.
type serving struct {
	*scenes
	stops sync.Map // by directory
}

// serve DIR: a worker runs.
func (r *serving) serve(ts *testscript.TestScript, _ bool, a []string) {
	r.stops.Store(ts.MkAbs(a[0]), r.book(ts, a[0]).Serve())
}

// leave DIR: the worker has ended, if one ran.
func (r *serving) leave(ts *testscript.TestScript, neg bool, a []string) {
	if stop, ok := r.stops.LoadAndDelete(ts.MkAbs(a[0])); ok {
		stop.(func())()
	}
	r.scenes.leave(ts, neg, a)
}

// done DIR NODE VARIABLE
func (s *scenes) done(ts *testscript.TestScript, _ bool, a []string) {
	name(ts, a[2], s.book(ts, a[0]).Done(receipt.NodeID(a[1])))
}

// decided DIR NODE ACTION VERDICT VARIABLE
func (s *scenes) decided(ts *testscript.TestScript, _ bool, a []string) {
	var v receipt.Verdict
	ts.Check(v.UnmarshalText([]byte(a[3])))
	name(ts, a[4], s.book(ts, a[0]).Decided(receipt.NodeID(a[1]), action(ts, a[2]), v))
}

// queued DIR NODE
func (s *scenes) queued(ts *testscript.TestScript, _ bool, a []string) {
	_, err := s.book(ts, a[0]).AdmitByHand(context.Background(), receipt.NodeID(a[1]), "alice", "it is new")
	ts.Check(err)
}

// corrupt DIR TEXT: changes the last byte of a text wherever it is in the journal of a directory.
func corrupt(ts *testscript.TestScript, _ bool, a []string) {
	path := filepath.Join(ts.MkAbs(a[0]), "journal.db")
	b, err := os.ReadFile(path)
	ts.Check(err)
	changed := bytes.ReplaceAll(b, []byte(a[1]), []byte(a[1][:len(a[1])-1]+"#"))
	if bytes.Equal(b, changed) {
		ts.Fatalf("%s does not hold %q", path, a[1])
	}
	ts.Check(os.WriteFile(path, changed, 0o600))
}
