package oracle_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"provctl/crashtests/oracle"
)

// FuzzReadReport reads what inspect may print: an oracle that took another schema, or half a report, for an answer would pass anything.
func FuzzReadReport(f *testing.F) {
	for _, s := range []string{`{"schema":"provctl.inspect/1","items":[{"receipt":"R","node":"n1"}]}`, `{"schema":"provctl.inspect/2"}`, "{}", "null", ""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := oracle.ReadReport(text)
		if err != nil {
			return
		}
		if r.Schema != "provctl.inspect/1" || !json.Valid(text) {
			t.Fatalf("%q is accepted as %+v", text, r)
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := oracle.ReadReport(b); err != nil || len(again.Items) != len(r.Items) || !reflect.DeepEqual(again.Counts, r.Counts) {
			t.Fatalf("%v\n got %+v\nwant %+v", err, again, r)
		}
	})
}
