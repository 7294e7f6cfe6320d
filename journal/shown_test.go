package journal_test

import (
	"errors"
	"testing"

	"provctl/journal"
)

// TestSnapshotShowsOnlyWhatIsDurable looks while a commit is written but not acknowledged, and after it failed. bbolt shows it then.
func TestSnapshotShowsOnlyWhatIsDurable(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		j := opened(t, t.TempDir(), journal.Options{})
		must(t, admit(t, j, "before"))
		type shown struct {
			jobs  int
			err   error
			ahead bool
		}
		look := func() shown {
			s, err := j.Snapshot()
			return shown{len(s.Jobs), err, err == nil && s.Info.Seq > j.Info().Seq}
		}
		during := make(chan shown, 1)
		j.SetFault(func(point string) error {
			if point != "marker" {
				return nil
			}
			go func() { during <- look() }()
			if fails {
				return errors.New("trouble")
			}
			return nil
		})
		if err := admit(t, j, "during"); (err != nil) != fails {
			t.Fatalf("admit = %v", err)
		}
		in, after := <-during, look()
		if fails && (!errors.Is(in.err, journal.ErrStopped) || !errors.Is(after.err, journal.ErrStopped)) {
			t.Errorf("after a failed commit it shows %+v, then %+v", in, after)
		}
		if !fails && (in.err != nil || after.err != nil || in.ahead || after.jobs != 2) {
			t.Errorf("during a commit it shows %+v, then %+v", in, after)
		}
		_ = j.Close()
	}
	// A commit that failed before bbolt wrote anything takes nothing from what is shown.
	j := opened(t, t.TempDir(), journal.Options{})
	must(t, admit(t, j, "before"))
	j.SetFault(func(point string) error { return map[string]error{"commit": errors.New("trouble")}[point] })
	if err := admit(t, j, "during"); !errors.Is(err, journal.ErrStopped) {
		t.Fatalf("admit = %v", err)
	}
	if s, err := j.Snapshot(); err != nil || len(s.Jobs) != 1 {
		t.Errorf("it shows %d jobs, %v", len(s.Jobs), err)
	}
	_ = j.Close()
}
