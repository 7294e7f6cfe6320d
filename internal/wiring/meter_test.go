package wiring_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"provctl/internal/helper"
	"provctl/internal/wiring"
	"provctl/receipt"
)

// run is what a HelperMeter was told.
type run struct {
	took     time.Duration
	shutdown bool
	err      error
}

type runs []run

func (r *runs) Helped(took time.Duration, shutdown bool, err error) {
	*r = append(*r, run{took, shutdown, err})
}

// TestHelperMeter: an answer, a wish to shut down and a failure are told apart; what the worker's stop ended is not the helper's.
func TestHelperMeter(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for name, c := range map[string]struct {
		ctx              context.Context
		script           string
		told             int
		shutdown, failed bool
	}{
		"defers":    {t.Context(), `echo '{"defer":true}'`, 1, false, false},
		"shutdown":  {t.Context(), `echo '{"shutdown":true}'`, 1, true, false},
		"both":      {t.Context(), `echo '{"defer":true,"shutdown":true}'`, 1, false, false}, // defer wins
		"exit 1":    {t.Context(), `exit 1`, 1, false, true},
		"no answer": {t.Context(), `:`, 1, false, true},
		"stopped":   {stopped, `echo '{"defer":true}'`, 0, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "helper.sh")
			if err := os.WriteFile(file, []byte("#!/bin/sh\ncat >/dev/null\n"+c.script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			var told runs
			_, err := wiring.Advisor{Command: file, Timeout: 10 * time.Second, Meter: &told}.Ask(c.ctx, receipt.Job{ID: "j"}, helper.Input{Identity: "n"})
			if len(told) != c.told {
				t.Fatalf("told %d times, want %d (Ask: %v)", len(told), c.told, err)
			}
			if c.told == 0 {
				return
			}
			if got := told[0]; got.shutdown != c.shutdown || (got.err != nil) != c.failed || !errors.Is(err, got.err) || got.took <= 0 {
				t.Errorf("told %+v, want shutdown %t, failed %t; Ask gave %v", got, c.shutdown, c.failed, err)
			}
		})
	}
}
