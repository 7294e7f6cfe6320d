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

func writeJSON(w io.Writer, v any, form ...json.Options) error {
	e := &escaper{w: bufio.NewWriterSize(w, 64<<10)}
	form = append(form, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err := json.MarshalWrite(e, v, form...); err != nil {
		if e.failed != nil {
			return e.failed
		}
		return fmt.Errorf("encode output: %w", err)
	}
	_, err := e.Write([]byte{'\n'})
	return errors.Join(err, e.w.Flush())
}
