package helper

import (
	"errors"
	"fmt"
)

// What a run can end with, besides a reply. Callers branch on these with
// errors.Is; the error itself is an [*Error].
var (
	// ErrMissing is returned when the program is not there or may not be executed.
	ErrMissing = errors.New("helper cannot be executed")
	// ErrStart is returned when the system refuses to start the program, for want
	// of memory or processes.
	ErrStart = errors.New("helper could not be started")
	// ErrTimeout is returned when the helper was killed at its deadline.
	ErrTimeout = errors.New("helper timed out")
	// ErrCanceled is returned when the helper was killed because the caller's
	// context ended.
	ErrCanceled = errors.New("helper canceled")
	// ErrExit is returned when the helper ended with an exit code other than 0, or
	// by a signal.
	ErrExit = errors.New("helper failed")
	// ErrNoOutput is returned when the helper exited with 0 and wrote nothing.
	ErrNoOutput = errors.New("helper wrote nothing")
	// ErrTooMuch is returned when the helper was killed for writing more than the limit.
	ErrTooMuch = errors.New("helper wrote too much")
	// ErrGarbage is returned when the output is not one JSON object of the contract.
	ErrGarbage = errors.New("helper output cannot be decoded")
	// ErrInvalid is returned when the output decodes and must not be used: no
	// verdict, a value that would inject a line, a bad policy name.
	ErrInvalid = errors.New("helper reply is not usable")
	// ErrKeepsProvisioning is returned when the configuration would bring the node
	// back into provisioning for ever.
	ErrKeepsProvisioning = errors.New("helper configuration keeps the node in provisioning mode")
	// ErrInput is returned when the input cannot be encoded; nothing was started.
	ErrInput = errors.New("helper input cannot be encoded")
)

// Error is a failed run. Every text in it is bounded, escaped and free of what
// looks like a key or token, so it may be logged and shown.
type Error struct {
	Kind    error  // one of the sentinels of this package
	Program string // the program run; empty when only a reply was decoded
	Detail  string // what exactly
	Excerpt string // quoted excerpt of the output, or empty
	Remedy  string
	Cause   error // underlying error for errors.Is, or nil; its text is in Detail
}

// Error renders the failure on one line.
func (e *Error) Error() string {
	text := e.Kind.Error()
	if e.Program != "" {
		text = fmt.Sprintf("%s: %s", quote(e.Program, maxExcerpt), text)
	}
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Excerpt != "" {
		text += ", output " + e.Excerpt
	}
	return text + "; " + e.Remedy
}

// Unwrap returns the sentinel and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause != nil {
		return []error{e.Kind, e.Cause}
	}
	return []error{e.Kind}
}

func failure(kind error, detail, remedy string) *Error {
	return &Error{Kind: kind, Detail: detail, Remedy: remedy}
}
