package journal

import (
	"fmt"
	"runtime/debug"
	"strings"
	"unicode/utf8"

	"provctl/receipt"
)

// guard runs what touches the memory map. A truncated file or a failing disk shows there as a memory fault, and bbolt panics on
// pages that make no sense: both become receipt.ErrDamaged. Memory faults can only be caught on the goroutine that asks for it.
func guard(path string, f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{path: path, value: p, stack: debug.Stack()}
		}
	}()
	return f()
}

// panicError is a recovered panic. What bbolt holds in memory may be locked or half changed, so the file is not touched again.
type panicError struct {
	path  string
	value any
	stack []byte // for the log
}

// Error names the file and the remedy.
func (e *panicError) Error() string {
	return fmt.Sprintf("%s: %s cannot be read (%v): check the disk, then restore the journal from a backup or ask for help with it", receipt.ErrDamaged, e.path, e.value)
}

// Unwrap makes it receipt.ErrDamaged.
func (e *panicError) Unwrap() error { return receipt.ErrDamaged }

// maxText bounds each text that comes from elsewhere, in bytes.
const maxText = 1024

// clip makes a text storable whatever it is: valid UTF-8, bounded. An outcome must not be lost over the words that came with it.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxText {
		return s
	}
	cut := maxText
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}
