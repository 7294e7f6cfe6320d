package receipt_test

import (
	"errors"
	"strings"
	"testing"

	"provctl/receipt"
)

func TestSameVersion(t *testing.T) {
	same := [][2]string{
		{"1.2.3", "1.2.3"},
		{"1.2.3-1", "1.2.3"},
		{"1.2.3", "1.2.3-1.el9"},
		{"1.02", "1.2"},
		{"0:1.2", "1.2"},
		{"1:1.2-3", "1:1.2"},
		{"1.2.3-1", "1.2.3-01"},
		{"1.2.3~rc1", "1.2.3~rc1"},
		{"development", "development"},
	}
	other := [][2]string{
		{"1.2.3", "1.2.4"},
		{"1.2.3-1", "1.2.3-2"},
		{"1.2.3~rc1", "1.2.3"},
		{"1:1.2", "1.2"},
		{"1.2", "1.2.0"},
		{"1.2.3", "1.2.3^git1"},
		{"", ""},
		{"", "1"},
		{".", "-"},
		{"1.2\n", "1.2\n"},
		{strings.Repeat("1", 40), strings.Repeat("1", 40)},
		{"0.30.2", "development"},
	}
	for _, p := range same {
		if !receipt.SameVersion(p[0], p[1]) || !receipt.SameVersion(p[1], p[0]) {
			t.Errorf("%q and %q are the same version", p[0], p[1])
		}
	}
	for _, p := range other {
		if receipt.SameVersion(p[0], p[1]) || receipt.SameVersion(p[1], p[0]) {
			t.Errorf("%q and %q are not the same version", p[0], p[1])
		}
	}
}

func TestCheckVersion(t *testing.T) {
	for _, v := range []string{"1", "0.30.2", "1.2.3-1.el9", "2:1.0~rc1+git^a_b"} {
		if err := receipt.CheckVersion(v); err != nil {
			t.Errorf("%q: %v", v, err)
		}
	}
	for _, v := range []string{"", ".-", "1 2", "1.2\n", "1.2;rm", "../1", "é1", strings.Repeat("1", 33)} {
		if err := receipt.CheckVersion(v); !errors.Is(err, receipt.ErrInvalid) {
			t.Errorf("%q: %v", v, err)
		}
	}
}
