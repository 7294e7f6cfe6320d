package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"provctl/inspect/inspecttest"
	"provctl/receipt"
)

// TestJournalSchema has what the journal commands print meet the documented schema.
func TestJournalSchema(t *testing.T) {
	schema, err := jsonschema.Compile("../../docs/journal-schema.json")
	if err != nil {
		t.Fatal(err)
	}
	b := inspecttest.New(t, t.TempDir(), time.Now())
	b.Unknown("n1.example.net", receipt.Configure, time.Hour)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"compact", "--json"}, {"export"}} { // verify runs a child, which a test is not
		var out, complaints bytes.Buffer
		if code := Main(append([]string{"journal", args[0], "--state-dir", b.Dir}, args[1:]...), &out, &complaints); code != 0 {
			t.Fatalf("%v: exit %d: %s", args, code, complaints.String())
		}
		n := 0
		for dec := json.NewDecoder(&out); dec.More(); n++ {
			var v any
			if err := dec.Decode(&v); err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(v); err != nil {
				t.Errorf("%v: %v", args, err)
			}
		}
		if want := map[string]int{"compact": 1, "export": 4}[args[0]]; n < want {
			t.Errorf("%v printed %d values, want at least %d", args, n, want)
		}
	}
}
