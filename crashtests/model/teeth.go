package model

import "slices"

// Tooth is a seeded fault, or several that only together do harm, and the invariant by which a search notices it.
type Tooth struct {
	Name   string
	Faults []Fault
	Budget Budget      // the least trouble in which it shows
	Breaks Invariant   // what the shortest counterexample violates
	Past   []Invariant // not checked, so that the harm is seen and not the first sign of it
}

// the signs of a lapsed worker that goes on, looked past to see the harm.
var signs = []Invariant{StaleWrite, LostLock, TwoOpen}

// Teeth lists them. Defects of one guard among several show as a broken promise about that guard; the harm itself needs all of the
// guards of its kind to be gone, which is what the entries with several faults show.
func Teeth() []Tooth {
	none, one := Budget{Jobs: 1}, uint8(1)
	return []Tooth{
		{"receipt-after-publish", []Fault{LateReceipt}, none, NoReceipt, nil},
		{"commit-error-ignored", []Fault{IgnoreDisk}, Budget{Jobs: 1, Disk: one}, NoReceipt, nil},
		{"no-sync", []Fault{NoSync}, Budget{Jobs: 1, Crashes: one}, NoReceipt, nil},
		{
			"no-sync-harm",
			[]Fault{NoSync},
			Budget{Jobs: 1, Crashes: one},
			WrongKey,
			[]Invariant{NoReceipt, TwoOpen, RanAfterOutcome, FalseOutcome},
		},
		{"requeue-open-receipt", []Fault{RequeueOpen}, Budget{Jobs: 1, Crashes: one}, FalseOutcome, nil},
		{
			"requeue-open-receipt-harm",
			[]Fault{RequeueOpen},
			Budget{Jobs: 1, Crashes: one},
			WrongKey,
			[]Invariant{FalseOutcome, RanAfterOutcome, TwoOpen},
		},
		{"retry-unknown", []Fault{RetryUnknown}, Budget{Jobs: 1, Lost: one}, FalseOutcome, nil},
		{"retry-unknown-harm", []Fault{RetryUnknown}, Budget{Jobs: 1, Lost: one}, RepeatedEffect, []Invariant{FalseOutcome}},
		{"unacknowledged-is-not-sent", []Fault{Unacknowledged}, none, FalseOutcome, nil},
		{"any-error-is-refused", []Fault{RefusedAnyway}, Budget{Jobs: 1, Odd: one}, FalseOutcome, nil},
		{"drop-job-on-crash", []Fault{DropJob}, Budget{Jobs: 1, Crashes: one}, JobLost, nil},
		{"no-epoch-check", []Fault{NoWriteEpoch}, Budget{Jobs: 1, Steals: one}, StaleWrite, nil},
		{"no-fence-lock-check", []Fault{NoFenceLock}, Budget{Jobs: 1, Steals: one}, LostLock, nil},
		{
			"no-epoch-check-harm",
			[]Fault{NoWriteEpoch, NoFenceEpoch, NoFenceLock},
			Budget{Jobs: 1, Steals: one},
			WrongKey, append(slices.Clone(signs), RanAfterOutcome),
		},
		{"no-fence-harm", []Fault{NoFenceEpoch, NoFenceLock, NoFenceJournal}, Budget{Jobs: 1, Steals: one}, NoReceipt, signs},
		{"same-epoch", []Fault{SameEpoch}, Budget{Jobs: 1, Crashes: one}, EpochBack, nil},
		{"verdict-before-horizon", []Fault{EarlyVerdicts}, Budget{Jobs: 1, Crashes: one, Verdicts: one}, EarlyVerdict, nil},
		{
			"verdict-before-horizon-harm",
			[]Fault{EarlyVerdicts},
			Budget{Jobs: 1, Crashes: one, Verdicts: one},
			WrongKey,
			[]Invariant{EarlyVerdict, TwoOpen},
		},
		{"verdict-without-idle", []Fault{NotIdle}, Budget{Jobs: 1, Slow: one, Verdicts: one}, RanAfterOutcome, nil},
		{
			"verdict-without-idle-harm",
			[]Fault{NotIdle},
			Budget{Jobs: 1, Slow: one, Verdicts: one},
			RepeatedEffect,
			[]Invariant{RanAfterOutcome},
		},
		{"idle-before-horizon", []Fault{EarlyIdle}, Budget{Jobs: 1, Crashes: one, Slow: one, Verdicts: one}, RanAfterOutcome, nil},
		{"new-start-before-horizon", []Fault{EarlyNewStart}, Budget{Jobs: 1, Crashes: one, Restarts: one}, FalseOutcome, nil},
		{
			"settle-ignores-tombstone",
			[]Fault{SettleRevoked, SettleOverwrite, NoWriteEpoch},
			Budget{Jobs: 1, Steals: one, Verdicts: one},
			OutcomeChanged, signs,
		},
		{
			"fence-ignores-time-and-ttl",
			[]Fault{NoFenceTime, NoTTL, NoFenceLock, NoFenceEpoch, NoFenceToken},
			Budget{Jobs: 1, Steals: one, Slow: one},
			RanAfterOutcome, append(slices.Clone(signs), FalseOutcome),
		},
		{"no-ttl", []Fault{NoTTL}, Budget{Jobs: 1, Slow: one}, FalseOutcome, nil},
		{"keygen-after-configure", []Fault{KeepKeyRule}, Budget{Jobs: 1, Crashes: one}, KeyAfterConfigure, nil},
		{"forget-history", []Fault{ForgetHistory}, Budget{Jobs: 2, Odd: one}, RepeatedEffect, nil},
		{"counter-rule-before-horizon", []Fault{EarlyCounter}, Budget{Jobs: 1, Crashes: one}, FalseOutcome, nil},
		{"no-mutex-barrier", []Fault{NoBarrier}, Budget{Jobs: 1, Slow: one}, WrongKey, nil},
		{"no-look", []Fault{NoLook}, Budget{Jobs: 1, Restarts: one}, WrongLife, nil},
		{"never-prove", []Fault{NeverProve}, Budget{Jobs: 1, Crashes: one}, OverBlocked, nil},
	}
}
