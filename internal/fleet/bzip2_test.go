package fleet

import (
	"bytes"
	unpack "compress/bzip2"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestBzip2IsReadBack(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 5000)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	inputs := map[string][]byte{
		"nothing":      {},
		"one byte":     []byte("x"),
		"text":         []byte("#!/bin/sh\nexec 'a program' --version '1.2.3' \"$@\"\n"),
		"all bytes":    noise,
		"run of 3":     []byte("aaa"),
		"run of 4":     []byte("aaaa"),
		"run of 5":     []byte("aaaaab"),
		"long runs":    []byte(strings.Repeat("a", 259) + strings.Repeat("b", 260) + strings.Repeat("c", 1000)),
		"period":       []byte(strings.Repeat("ab", 300)),
		"zeros":        make([]byte, 3000),
		"random pairs": nil,
	}
	for i := range 2000 {
		inputs["random pairs"] = append(inputs["random pairs"], byte(random.IntN(2)), byte(i%3))
	}
	for name, data := range inputs {
		packed, err := bzip2(data)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(unpack.NewReader(bytes.NewReader(packed)))
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes came back as %d, %v", name, len(data), len(got), err)
		}
	}
	if _, err := bzip2(make([]byte, maxPacked+1)); !errors.Is(err, errTooLargeToPack) {
		t.Errorf("too much: %v", err)
	}
}
