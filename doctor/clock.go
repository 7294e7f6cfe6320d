package doctor

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"provctl/internal/choria"
)

// clockSteady is how far a file's time may be ahead before the clock counts as set back.
const clockSteady = time.Minute

// setClock is what helps against most of what is wrong with a clock.
const setClock = "set the clock (timedatectl set-ntp true, or chronyc makestep), and keep it synchronised; with a wrong clock nodes refuse requests and tokens"

// unkept is a clock that is right by chance, and keepClock what to do about it.
const unkept = "by the kernel nothing keeps the clock in time"

const keepClock = "run a time service (timedatectl set-ntp true): requests count for effect_ttl, and no node's clock may be off by more than clock_skew"

// ClockWarning says what is wrong with a clock that nothing keeps in time, and what to do; empty if nothing is, or nobody knows. For
// a worker, which goes on all the same.
func ClockWarning(clock func() (ClockState, error)) (found, remedy string) {
	if state, err := clock(); err != nil || state.Synchronised {
		return "", ""
	}
	return unkept, keepClock
}

// KernelClock asks the kernel and changes nothing; see adjtimex(2).
func KernelClock() (ClockState, error) {
	var t unix.Timex // no modes: a question
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return ClockState{}, err
	}
	const unsynchronised, timeError = 0x40, 5 // STA_UNSYNC, TIME_ERROR
	return ClockState{
		Synchronised: state != timeError && t.Status&unsynchronised == 0,
		MaxError:     time.Duration(t.Maxerror) * time.Microsecond,
	}, nil
}

// clock compares this host's clock with what the last worker left, and asks the kernel whether it is kept in time.
func (v *visit) clock() {
	now := v.o.Now()
	for _, name := range []string{journalFile, markerFile} {
		info, err := os.Stat(filepath.Join(v.cfg.StateDir, name))
		if err != nil || info.ModTime().Sub(now) <= clockSteady {
			continue
		}
		v.fail(checkClock, nil, setClock+"; if the clock was ahead before and is right now, the next start dates open receipts anew",
			"it is %s here, and the last commit was at %s: the clock was set back", stamp(now), stamp(info.ModTime()))
		return
	}
	state, err := v.o.Clock()
	switch {
	case err != nil:
		v.skip(checkClock, "it is %s; whether the clock is kept in time cannot be told: %v", stamp(now), err)
	case !state.Synchronised:
		v.warn(checkClock, keepClock, "it is %s, and "+unkept, stamp(now))
	default:
		v.ok(checkClock, "it is %s, synchronised to within %s by the kernel", stamp(now), state.MaxError.Round(time.Millisecond))
	}
}

// compareClock holds the clock against the broker's.
func (v *visit) compareClock(server string, seen choria.ServerSeen) {
	if seen.Time.IsZero() {
		return
	}
	off, how := seen.Ahead.Abs(), "ahead of"
	if seen.Ahead > 0 {
		how = "behind"
	}
	skew := v.cfg.ClockSkew
	switch {
	case off-seen.Off > skew:
		v.fail(checkClock, nil, setClock, "this clock (%s) is %s %s the broker's (%s at %s), and clock_skew allows %s",
			stamp(seen.Time.Add(-seen.Ahead)), off.Round(time.Second), how, stamp(seen.Time), server, skew)
	case off-seen.Off > skew/2:
		v.warn(checkClock, setClock, "this clock is %s %s the broker's at %s, more than half of clock_skew (%s)", off.Round(10*time.Millisecond), how, server, skew)
	default:
		v.ok(checkClock, "within %s of the broker's at %s", max(off+seen.Off, time.Millisecond).Round(time.Millisecond), server)
	}
}
