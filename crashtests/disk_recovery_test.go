package crashtests

import (
	"fmt"
	"testing"

	"provctl/crashtests/powerloss"
	"provctl/crashtests/trace"
)

// TestSweep3PowerLossInRecovery kills a worker at some events, and has the power fail at every moment of what the next one does about
// it: its start, its proofs, the verdict of a person if one is needed, the rest of the work.
func TestSweep3PowerLossInRecovery(t *testing.T) {
	t.Parallel()
	if !mine(t) || !needFUSE(t) {
		return
	}
	l := newLab(t, 1)
	stride := 40
	if wide() {
		stride = 8
	}
	for n := stride; ; n += stride {
		survived := false
		t.Run(fmt.Sprintf("event-%d", n), func(t *testing.T) {
			if !mine(t) {
				survived = n > 1000
				return
			}
			rec, ok := loadRecording(t)
			if !ok {
				rec, ok = recordRecovery(t, l, n)
			}
			if survived = !ok; ok {
				s := newImageSweep(t, rec)
				s.run(wide())
				s.sum()
			}
		})
		if survived {
			return
		}
	}
}

// recordRecovery kills at event n and records what follows; false if there is no event n. What the killed worker had not synced
// stays pending: the kernel may not have written it when the power fails later.
func recordRecovery(t *testing.T, l *lab, n int) (rec recording, ok bool) {
	t.Helper()
	tr := l.begin(t, alone, program)
	var err error
	if rec.Initial, err = powerloss.Load(tr.dir); err != nil {
		t.Fatal(err)
	}
	tr.killAt(n)
	if !tr.play() {
		return rec, false
	}
	first := tr.traceNow()
	tr.recover(program)
	var happened []trace.Event
	for _, e := range first.Events() {
		if e.N < n || !e.Disk() { // from n on the disk refused all, but a request on its way arrived
			happened = append(happened, e)
		}
	}
	rec.Events = join(join(nil, happened), tr.traceNow().Events())
	rec.From = len(happened)
	add("kills", 1)
	return rec, true
}
