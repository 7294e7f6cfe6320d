package receipt

import "errors"

var (
	// ErrIllegalTransition is returned when an event does not fit the status it meets. It is never a warning: the caller
	// must write nothing.
	ErrIllegalTransition = errors.New("illegal transition")
	// ErrStale is returned when an item changed since it was seen: a compare-and-set lost.
	ErrStale = errors.New("changed since it was seen")
	// ErrFenced is returned when a write or a publish is refused because the worker's right to it has lapsed.
	ErrFenced = errors.New("fenced")
	// ErrStandby is returned, as a kind of ErrFenced, while this worker may not act for now: it is paused, or another one leads. The
	// journal is still ours: the request is to be made anew when it may.
	ErrStandby = errors.New("standing by")
	// ErrExpired is returned, as a kind of ErrFenced, when too little of a request's time is left to publish it. The right to send is
	// intact: the request is to be made anew.
	ErrExpired = errors.New("too little of the request's time is left")
	// ErrRepeat is returned when an effect may not be begun because an earlier receipt of the same incarnation forbids it.
	ErrRepeat = errors.New("effect may not be repeated")
	// ErrBeforeHorizon is returned when a verdict comes before the request's horizon has passed.
	ErrBeforeHorizon = errors.New("the request can still be accepted")
	// ErrInvalid is returned for an identifier or a record whose content is not allowed.
	ErrInvalid = errors.New("invalid")
	// ErrDamaged is returned when a stored record cannot be trusted: wrong version, checksum, key or content.
	ErrDamaged = errors.New("journal damaged")
)
