// Package service tells a service manager, systemd, how the worker is: ready, at what, stopping, and that it makes progress. Without one it
// does nothing. What the messages mean is in sd_notify(3).
package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Report is how the program is at a moment.
type Report struct {
	Ready    bool   // all that the manager may wait for is done; once said it stays so
	Stopping bool   // no new work is taken, and the program will end
	Status   string // one line for people
	Stalled  error  // what makes no progress; nil if all does
}

const (
	lookAgain   = 200 * time.Millisecond // how late READY and STOPPING may be
	extendEvery = 5 * time.Second
	extension   = 30 * time.Second // how much time each message asks for
	maxStatus   = 200              // characters of a status
)

// Manager is the service manager that started this process.
type Manager struct {
	log      *slog.Logger
	send     func(state string) error
	watchdog time.Duration // how long it waits for a sign of life; 0: for ever
	stopTime time.Duration
	patience time.Duration // a report that takes longer is a program that is stuck
	report   func() Report

	answer  chan Report // of a report that is being made
	told    told
	stalled bool // it was logged
	lost    bool // sending failed, which was logged
}

// told is what the manager knows.
type told struct {
	status          string
	ready, stopping bool
	extended, fed   time.Time
}

// Connect finds out whether a service manager started this process, from the environment; nil if none did. stopTime is how long the program
// takes at most to stop, and report says how it is: it is called five times a second and must be cheap. A report that blocks counts as stalled.
func Connect(stopTime time.Duration, report func() Report, log *slog.Logger) (*Manager, error) {
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return nil, fmt.Errorf("the service manager's WATCHDOG_USEC and WATCHDOG_PID: %w; correct WatchdogSec= of the unit", err)
	}
	m := &Manager{log: log, watchdog: watchdog, stopTime: stopTime, patience: 10 * time.Second, report: report}
	m.send = func(state string) error {
		there, err := daemon.SdNotify(false, state)
		if err == nil && !there {
			return errNobody
		}
		return err
	}
	if err := m.send("STATUS=starting"); errors.Is(err, errNobody) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("tell the service manager at NOTIFY_SOCKET: %w; start the program by its unit, or without NOTIFY_SOCKET", err)
	}
	return m, nil
}

var errNobody = errors.New("no service manager")

// Attend tells the manager how the program is until the returned function is called, which waits for the last message. It may be called on
// nil. soon is a channel whose end says that the program was told to stop.
func (m *Manager) Attend(soon <-chan struct{}) (stop func()) {
	if m == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(lookAgain)
		defer ticker.Stop()
		ending := false
		for {
			r := m.ask(ctx)
			r.Stopping = r.Stopping || ending
			m.tell(r, time.Now())
			select {
			case <-ctx.Done():
				m.tell(Report{Status: r.Status, Stopping: true}, time.Now())
				return
			case <-soon: // the program was told to stop, whether or not it says so yet
				soon, ending = nil, true
			case <-ticker.C:
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// ask asks for a report, and does not wait for ever.
func (m *Manager) ask(ctx context.Context) Report {
	if m.answer == nil { // else the last one still hangs
		m.answer = make(chan Report, 1)
		go func(answer chan<- Report) { answer <- m.report() }(m.answer)
	}
	timer := time.NewTimer(m.patience)
	defer timer.Stop()
	select {
	case r := <-m.answer:
		m.answer = nil
		return r
	case <-ctx.Done():
		return Report{Status: m.told.status, Stopping: m.told.stopping}
	case <-timer.C:
		return Report{Status: "stuck: it does not say how it is", Stalled: fmt.Errorf("no report within %s", m.patience)}
	}
}

// tell sends what is new. What could not be sent is new again.
func (m *Manager) tell(r Report, now time.Time) {
	m.complain(r)
	next, lines := m.news(r, now)
	if len(lines) == 0 {
		return
	}
	err := m.send(strings.Join(lines, "\n"))
	if err != nil && !m.lost {
		m.log.Error("the service manager cannot be told how the worker is; it may take it for dead", "error", err)
	}
	if m.lost = err != nil; err == nil {
		m.told = next
	}
}

// news is what the manager does not know yet, and what it knows then.
func (m *Manager) news(r Report, now time.Time) (next told, lines []string) {
	next = m.told
	if status := line(r.Status); status != next.status {
		next.status = status
		lines = append(lines, "STATUS="+status)
	}
	if r.Stopping && !next.stopping {
		next.stopping = true
		lines = append(lines, daemon.SdNotifyStopping, extend(m.stopTime+extension))
	}
	if r.Ready && !next.ready && !next.stopping {
		next.ready = true
		lines = append(lines, daemon.SdNotifyReady)
	}
	if r.Stalled != nil {
		return next, lines
	}
	if !next.ready && !next.stopping && now.Sub(next.extended) >= extendEvery {
		next.extended = now
		lines = append(lines, extend(extension))
	}
	if m.watchdog > 0 && now.Sub(next.fed) >= m.watchdog/4 {
		next.fed = now
		lines = append(lines, daemon.SdNotifyWatchdog)
	}
	return next, lines
}

// complain logs, once, why the manager gets no more signs of life.
func (m *Manager) complain(r Report) {
	stalled := r.Stalled != nil
	if stalled && !m.stalled {
		m.log.Error("no progress: the service manager gets no more signs of life and will restart the worker if it has a watchdog", "error", r.Stalled)
	}
	if !stalled && m.stalled {
		m.log.Info("progress again")
	}
	m.stalled = stalled
}

func extend(d time.Duration) string { return fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", d.Microseconds()) }

// line makes a status of a text in which an operator's words may be: one line, for a line is what separates messages.
func line(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if runes := []rune(s); len(runes) > maxStatus {
		return string(runes[:maxStatus-1]) + "…"
	}
	return s
}
