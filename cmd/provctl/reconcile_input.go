package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/urfave/cli/v2"

	"provctl/receipt"
	"provctl/reconcile"
)

// Limits of what standard input may hold.
const (
	maxLine  = 16 << 10 // bytes
	maxLines = 1_000_000
)

// line is one verdict on standard input. What is absent comes from the flags.
type line struct {
	Receipt  string           `json:"receipt"`
	Seen     *receipt.Seq     `json:"seen"`
	Verdict  *receipt.Verdict `json:"verdict"`
	Reason   *string          `json:"reason"`
	Evidence *string          `json:"evidence"`
}

// requests reads what is to be decided, all of it before anything is: whatever is wrong is a usage error. With --all there is none yet.
func requests(c *cli.Context) ([]reconcile.Request, error) {
	q := defaults(c)
	if v := c.String("verdict"); v != "" && q.Verdict == 0 {
		return nil, usagef("--verdict %.40q: it must be applied, not-applied, abandon or finish", v)
	}
	if c.IsSet("seen") {
		n, err := strconv.ParseUint(c.String("seen"), 10, 64)
		if err != nil || n == 0 {
			return nil, usagef("--seen %.40q: it must be a version as 'provctl inspect' shows it, a positive number", c.String("seen"))
		}
		q.Seen = receipt.Seq(n)
	}
	if c.Args().First() == "-" {
		return fromLines(c.App.Reader, q)
	}
	for _, missing := range []struct {
		flag string
		is   bool
	}{{"verdict", q.Verdict == 0}, {"reason", q.Reason == ""}} {
		if missing.is {
			return nil, usagef("--%s is missing; 'provctl reconcile --help' shows what it is", missing.flag)
		}
	}
	if c.Bool("all") {
		q.Receipt = "000000" // any: only the rest is checked
		if err := checkTexts(q, ""); err != nil {
			return nil, usagef("%w", err)
		}
		return nil, nil
	}
	out := make([]reconcile.Request, 0, c.NArg())
	for _, name := range c.Args().Slice() {
		q.Receipt = name
		if err := checkTexts(q, ""); err != nil {
			return nil, usagef("%w", err)
		}
		out = append(out, q)
	}
	return out, nil
}

// defaults are what the flags say of every receipt.
func defaults(c *cli.Context) reconcile.Request {
	q := reconcile.Request{
		Reason: c.String("reason"), Operator: c.String("operator"), Evidence: c.String("evidence"), Contradict: c.Bool("contradict-evidence"),
	}
	if c.Bool("finish") {
		q.Verdict = receipt.VerdictFinish
	} else if q.Verdict.UnmarshalText([]byte(c.String("verdict"))) != nil {
		q.Verdict = 0
	}
	return q
}

// fromLines reads one request a line, strictly; empty lines are passed over. Up to ten mistakes are told at once.
func fromLines(r io.Reader, q reconcile.Request) ([]reconcile.Request, error) {
	var out []reconcile.Request
	var wrong []error
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 4096), maxLine)
	n := 1
	for ; in.Scan(); n++ {
		if len(in.Bytes()) == 0 {
			continue
		}
		one, err := fromLine(in.Bytes(), q)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("standard input, line %d: %w", n, err))
		}
		if out = append(out, one); len(wrong) == 10 || n > maxLines {
			break
		}
	}
	switch err := in.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		wrong = append(wrong, fmt.Errorf("standard input, line %d: it has more than %d bytes", n, maxLine))
	case err != nil:
		return nil, fmt.Errorf("standard input, line %d: %w; nothing was recorded", n, err)
	case len(out) > maxLines:
		wrong = append(wrong, fmt.Errorf("standard input: more than %d lines; split it", maxLines))
	case len(out) == 0:
		wrong = append(wrong, errors.New("standard input holds no receipt; give one JSON object a line, like {\"receipt\":\"01J…\",\"seen\":12}"))
	}
	if len(wrong) > 0 {
		return nil, usagef("%w", errors.Join(wrong...))
	}
	return out, nil
}

func fromLine(b []byte, q reconcile.Request) (reconcile.Request, error) {
	var l line
	if err := json.Unmarshal(b, &l, json.RejectUnknownMembers(true)); err != nil {
		return q, fmt.Errorf("%w: it must be one JSON object with receipt, seen, verdict, reason and evidence alone", err)
	}
	q.Receipt = l.Receipt
	if l.Seen != nil {
		if q.Seen = *l.Seen; q.Seen == 0 {
			return q, errors.New("seen 0: it must be a version as 'provctl inspect' shows it; leave it out to decide on the present one")
		}
	}
	if l.Verdict != nil {
		q.Verdict = *l.Verdict
	}
	if l.Reason != nil {
		q.Reason = *l.Reason
	}
	if l.Evidence != nil {
		q.Evidence = *l.Evidence
	}
	return q, q.Check()
}
