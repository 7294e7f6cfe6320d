package inspect

import (
	"bufio"
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// TestEscaperTakesPieces: wherever the JSON is cut, the same comes out, and it means the same.
func TestEscaperTakesPieces(t *testing.T) {
	const text = "plain \x7f\u009b31m é 日本 \u202e \u200b \U000e0041 \U0001f600 \ufffd end"
	in, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	write := func(pieces ...[]byte) string {
		t.Helper()
		var out bytes.Buffer
		e := &escaper{w: bufio.NewWriter(&out)}
		for _, p := range pieces {
			if n, err := e.Write(p); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
		}
		if err := e.w.Flush(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	want := write(in)
	var back string
	if err := json.Unmarshal([]byte(want), &back); err != nil || back != text {
		t.Errorf("%s means %q, want %q, %v", want, back, text, err)
	}
	if strings.ContainsAny(want, "\x7f\u009b\u202e\u200b\U000e0041") || !strings.Contains(want, "日本") {
		t.Errorf("written is %q", want)
	}
	for i := range len(in) {
		for j := i; j < len(in); j++ {
			if got := write(in[:i], in[i:j], in[j:]); got != want {
				t.Fatalf("cut at %d and %d it is %q, want %q", i, j, got, want)
			}
		}
	}
}

// TestPlainIsTheTableWithoutALimit: what a pipe gets is what a wide terminal shows.
func TestPlainIsTheTableWithoutALimit(t *testing.T) {
	columns := []string{"STATE", "NODE", "WHY"}
	rows := [][]string{{"held", "n1", ""}, {"out", "a-longer-name", "日本 é"}, {"", "n3", "x"}}
	plain, wide := &printer{}, &printer{style: Style{Width: 1000}}
	plain.table(nodesWidth, columns, rows)
	wide.table(nodesWidth, columns, rows)
	if plain.b.String() != wide.b.String() {
		t.Errorf("in a pipe:\n%s\non a terminal:\n%s", plain.b.String(), wide.b.String())
	}
}
