package fence_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"provctl/fence"
	"provctl/receipt"
)

func TestFence(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	lock, err := fence.Acquire(t.TempDir())
	must(t, err)
	t.Cleanup(func() { must(t, lock.Release()) })
	lost, err := fence.Acquire(t.TempDir())
	must(t, err)
	must(t, os.Remove(lost.Path()))
	trouble := errors.New("trouble")

	type subject struct {
		c fence.Checks
		r receipt.Receipt
	}
	for name, tc := range map[string]struct {
		change func(s *subject)
		says   string // "": passes
	}{
		"all is well":           {func(*subject) {}, ""},
		"leader":                {func(s *subject) { s.c.Permit = func() error { return nil } }, ""},
		"exactly enough left":   {func(s *subject) { s.r.Horizon.Time = now.Add(time.Second) }, ""},
		"no lock":               {func(s *subject) { s.c.Lock = nil }, "worker lock"},
		"lost lock":             {func(s *subject) { s.c.Lock = lost }, "worker lock"},
		"older epoch":           {func(s *subject) { s.r.Epoch = 6 }, "epoch"},
		"newer epoch":           {func(s *subject) { s.r.Epoch = 8 }, "epoch"},
		"no epoch":              {func(s *subject) { s.r.Epoch, s.c.Epoch = 0, 0 }, "epoch"},
		"journal swapped":       {func(s *subject) { s.c.Journal = func() error { return trouble } }, "journal"},
		"no journal":            {func(s *subject) { s.c.Journal = nil }, "lacks a check"},
		"no tombstones":         {func(s *subject) { s.c.Revoked = nil }, "lacks a check"},
		"revoked":               {func(s *subject) { s.c.Revoked = func(k receipt.Token) bool { return k == "token" } }, "token"},
		"another token revoked": {func(s *subject) { s.c.Revoked = func(k receipt.Token) bool { return k == "another" } }, ""},
		"leadership lapsed":     {func(s *subject) { s.c.Permit = func() error { return trouble } }, "permission"},
		"too little left":       {func(s *subject) { s.r.Horizon.Time = now.Add(999 * time.Millisecond) }, "time"},
		"horizon passed":        {func(s *subject) { s.r.Horizon.Time = now.Add(-time.Hour) }, "time"},
		"more is asked for":     {func(s *subject) { s.c.MinLeft = time.Hour }, "time"},
		"unknown receipt":       {func(s *subject) { s.r.Status = receipt.Unknown }, "receipt"},
	} {
		t.Run(name, func(t *testing.T) {
			s := subject{
				c: fence.Checks{
					Lock: lock, Journal: func() error { return nil }, Revoked: func(receipt.Token) bool { return false },
					Now: func() time.Time { return now }, Epoch: 7,
				},
				r: receipt.Receipt{
					ID: "R1", Node: "n1.example.net", Action: receipt.Configure, Status: receipt.Pending, Epoch: 7, Token: "token",
					Horizon: receipt.HorizonOf(now, time.Minute, 0),
				},
			}
			tc.change(&s)
			err := fence.New(s.c).Check(s.r)
			switch {
			case tc.says == "" && err != nil:
				t.Errorf("Check = %v, want nil", err)
			case tc.says != "" && (!errors.Is(err, receipt.ErrFenced) || !strings.Contains(err.Error(), tc.says)):
				t.Errorf("Check = %v, want ErrFenced that says %q", err, tc.says)
			}
			if errors.Is(err, receipt.ErrExpired) != (tc.says == "time") {
				t.Errorf("Check = %v: ErrExpired is for the time alone", err)
			}
		})
	}
}

func TestNoFenceRefuses(t *testing.T) {
	var none *fence.Fence
	for _, f := range []*fence.Fence{none, {}} {
		if err := f.Check(receipt.Receipt{}); !errors.Is(err, receipt.ErrFenced) {
			t.Errorf("Check = %v, want ErrFenced", err)
		}
	}
}
