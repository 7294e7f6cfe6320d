package inspect

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// WriteJSON writes a value as indented JSON with stable order and a final newline. Values from nodes stay exact, in escapes
// that no terminal obeys. What has been written when an error comes is not taken back.
func WriteJSON(w io.Writer, v any) error {
	return writeJSON(w, v, jsontext.WithIndent("  "))
}

// WriteJSONLine is WriteJSON on a single line.
func WriteJSONLine(w io.Writer, v any) error { return writeJSON(w, v) }

// writeJSON encodes in one goroutine, and escapes and writes in another.
func writeJSON(w io.Writer, v any, form ...json.Options) error {
	form = append(form, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	from, to := io.Pipe()
	var encoded error
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := bufio.NewWriterSize(to, piece)
		if encoded = json.MarshalWrite(b, v, form...); encoded == nil {
			_ = b.Flush() // an error of the pipe is the other side's
		}
		_ = to.CloseWithError(encoded)
	}()
	e := &escaper{w: bufio.NewWriterSize(w, piece)}
	_, err := io.CopyBuffer(e, from, make([]byte, piece))
	_ = from.CloseWithError(err)
	<-done
	switch {
	case e.failed != nil:
		return e.failed
	case encoded != nil:
		return fmt.Errorf("encode output: %w", encoded)
	}
	_, err = e.Write([]byte{'\n'})
	return errors.Join(err, e.w.Flush())
}

// piece is how much of the output is handed on at once, in bytes.
const piece = 256 << 10
