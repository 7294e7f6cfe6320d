package doctor

import (
	"errors"
	"strings"
	"testing"
)

// TestClockWarning: a worker warns of a clock that nothing keeps in time, and of nothing that it does not know.
func TestClockWarning(t *testing.T) {
	for name, c := range map[string]struct {
		state ClockState
		err   error
		warns bool
	}{
		"kept in time":    {ClockState{Synchronised: true}, nil, false},
		"left to itself":  {ClockState{}, nil, true},
		"nobody may know": {ClockState{}, errors.New("operation not permitted"), false},
	} {
		found, remedy := ClockWarning(func() (ClockState, error) { return c.state, c.err })
		if c.warns != strings.Contains(found, "nothing keeps the clock in time") || c.warns != strings.Contains(remedy, "timedatectl") {
			t.Errorf("%s: %q, %q", name, found, remedy)
		}
	}
}
