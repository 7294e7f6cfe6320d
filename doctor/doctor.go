// Package doctor looks at everything that a worker depends on, with and without one running, and says in one line each what it saw and what
// to do. It writes nothing to the state directory, takes no lock that a worker needs, and sends nothing to a node.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"provctl/fence"
	"provctl/internal/choria"
	"provctl/internal/config"
	"provctl/internal/control"
)

// Status is what a check came to.
type Status string

// The statuses of a check.
const (
	OK   Status = "ok"
	Warn Status = "warn" // a worker starts and works, and somebody should know
	Fail Status = "fail" // a worker does not start, does not work, or would lose something
	Skip Status = "skip" // it was not looked at, for the reason given
)

// Schema names the form of a Report as JSON: docs/doctor-schema.json.
const Schema = "provctl.doctor/1"

// Finding is one check. Nothing in it was made fit for a terminal.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Found  string `json:"found"`           // what was looked at, with its value
	Remedy string `json:"remedy,omitzero"` // what to do; every Warn and Fail has one, unless Found says it
}

// Report is all that was found, in the order in which a worker meets it at its start.
type Report struct {
	Schema       string    `json:"schema"`
	Config       string    `json:"config"`
	ChoriaConfig string    `json:"choria_config"`
	User         string    `json:"user"`   // for whom the rights to files were checked
	Usable       bool      `json:"usable"` // nothing failed
	Exit         int       `json:"exit"`   // what a worker exits with, by the first failure that it meets
	Checks       []Finding `json:"checks"`

	failed error
}

// Failed is the first failure in the order in which a worker meets them, nil if there is none: config.Invalid, fence.ErrHeld, receipt.ErrDamaged, or
// another error.
func (r *Report) Failed() error { return r.failed }

// Count counts the checks of a status.
func (r *Report) Count(s Status) (n int) {
	for _, f := range r.Checks {
		if f.Status == s {
			n++
		}
	}
	return n
}

// ClockState is what the kernel says of the clock.
type ClockState struct {
	Synchronised bool
	MaxError     time.Duration // how far it may be off, as far as the kernel knows
}

// Options say what to look at, and with which means.
type Options struct {
	ChoriaConfig string
	Network      bool          // connect to the broker
	Timeout      time.Duration // of all that concerns the broker; 0: 10 s

	// Examine reads both configurations, and what they name, as a worker does at its start.
	Examine func() *config.Report
	// Verify checks a journal file in a process of its own, which the context ends.
	Verify func(ctx context.Context, journal string) error
	// ExitCode is what the program exits with for an error.
	ExitCode func(error) int

	Version string // of this program, to compare with the worker's; empty: not compared

	Now   func() time.Time                   // nil: time.Now
	Clock func() (ClockState, error)         // nil: the kernel is asked
	Look  func(string) (fence.Holder, error) // nil: fence.Look
}

const (
	defaultTimeout = 10 * time.Second
	expirySoon     = 30 * 24 * time.Hour
)

// visit is one run through all checks.
type visit struct {
	o      Options
	r      *Report
	config *config.Report
	cfg    *config.Config // nil: the file cannot be read
	user   user

	holder fence.Holder
	live   *control.Live // nil: no worker answers
	client *control.Client
	engine *choria.Engine // nil: the Choria configuration cannot be used

	usable bool  // the state directory is there, and its user's
	hung   bool  // a worker has the socket and does not answer
	free   int64 // bytes for the journal
}

// Run looks at everything. It ends soon after the context does.
func Run(ctx context.Context, o Options) *Report {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Clock == nil {
		o.Clock = KernelClock
	}
	if o.Look == nil {
		o.Look = fence.Look
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	v := &visit{o: o, config: o.Examine()}
	v.cfg = v.config.Config
	v.user = expected(v.cfg)
	v.r = &Report{Schema: Schema, Config: v.config.File, ChoriaConfig: o.ChoriaConfig, User: v.user.String(), Checks: []Finding{}}
	v.settings()
	if v.cfg != nil {
		// In the order of a start, so that the first failure is the one that a worker meets.
		v.files()
		v.helper()
		v.signing()
		v.stateDir()
		v.space()
		v.lock(ctx)
		v.worker()
		v.groupSocket()
		v.ports("monitor_port", v.cfg.MonitorPort)
		v.journal(ctx)
		v.clock()
		v.identity()
		v.ports("status_port", v.cfg.StatusPort)
		v.broker(ctx)
	}
	v.r.Usable = v.r.failed == nil
	v.r.Exit = o.ExitCode(v.r.failed)
	if v.engine != nil {
		v.engine.Close()
	}
	return v.r
}

func (v *visit) add(f Finding) { v.r.Checks = append(v.r.Checks, f) }

func (v *visit) ok(check, format string, args ...any) {
	v.add(Finding{Check: check, Status: OK, Found: fmt.Sprintf(format, args...)})
}

func (v *visit) skip(check, format string, args ...any) {
	v.add(Finding{Check: check, Status: Skip, Found: fmt.Sprintf(format, args...)})
}

func (v *visit) warn(check, remedy, format string, args ...any) {
	v.add(Finding{Check: check, Status: Warn, Found: fmt.Sprintf(format, args...), Remedy: remedy})
}

// fail adds a failure. The error decides with what a worker exits; nil: with 1.
func (v *visit) fail(check string, as error, remedy, format string, args ...any) {
	f := Finding{Check: check, Status: Fail, Found: fmt.Sprintf(format, args...), Remedy: remedy}
	v.add(f)
	if as == nil {
		as = errors.New(f.Found)
	}
	if v.r.failed == nil {
		v.r.failed = as
	}
}
