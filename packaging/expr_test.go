package packaging_test

import (
	"fmt"
	"maps"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// kind says how a series may be used.
type kind int

const (
	anyKind kind = iota
	gauge        // compared as it is
	counter      // only its increase means anything
)

// metric is a series as a scrape shows it: of a histogram each of its three names is one.
type metric struct {
	family string // the name in docs/metrics.md
	kind   kind
	labels names
	values map[string]names // of labels whose values are all shown from the start
}

// names is a set of them.
type names map[string]bool

func setOf(list ...string) names {
	s := names{}
	for _, n := range list {
		s[n] = true
	}
	return s
}

func (s names) with(more names) names {
	out := maps.Clone(s)
	maps.Copy(out, more)
	return out
}

func (s names) without(list ...string) names {
	out := maps.Clone(s)
	for _, n := range list {
		delete(out, n)
	}
	return out
}

func (s names) lacks(list ...string) error {
	for _, n := range list {
		if !s[n] {
			return fmt.Errorf("no label %q, there are %v", n, slices.Sorted(maps.Keys(s)))
		}
	}
	return nil
}

// catalogue is every series that a scrape of provctl brings, by name.
type catalogue map[string]metric

// What each function takes, by what it does to a series; all of these keep its labels.
var (
	ofCounters = setOf("rate", "irate", "increase", "resets")
	ofGauges   = setOf("changes", "delta", "deriv", "avg_over_time", "min_over_time", "max_over_time", "last_over_time", "abs", "clamp_min", "clamp_max", "round")
)

// check parses an expression and says what is wrong with it: a series or label that no scrape brings, a counter that is compared,
// operands that can never match. It returns the labels that the result has.
func (c catalogue) check(expr string) (names, error) {
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	out, err := c.infer(e, gauge)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	return out, nil
}

// infer returns the labels of what e gives, where a series of the wanted kind is expected.
func (c catalogue) infer(e parser.Expr, want kind) (names, error) {
	switch e := e.(type) {
	case *parser.NumberLiteral, *parser.StringLiteral:
		return names{}, nil
	case *parser.ParenExpr:
		return c.infer(e.Expr, want)
	case *parser.UnaryExpr:
		return c.infer(e.Expr, want)
	case *parser.MatrixSelector:
		return c.infer(e.VectorSelector, want)
	case *parser.SubqueryExpr:
		return c.infer(e.Expr, want)
	case *parser.VectorSelector:
		return c.selector(e, want)
	case *parser.Call:
		return c.call(e)
	case *parser.AggregateExpr:
		return c.aggregate(e)
	case *parser.BinaryExpr:
		return c.binary(e)
	}
	return nil, fmt.Errorf("%T is not known to this check: teach it", e)
}

func (c catalogue) selector(e *parser.VectorSelector, want kind) (names, error) {
	m, ok := c[e.Name]
	if !ok {
		return nil, fmt.Errorf("no series %q", e.Name)
	}
	if want != anyKind && want != m.kind {
		return nil, fmt.Errorf("%s: a counter needs rate or increase, and nothing else does", e.Name)
	}
	for _, match := range e.LabelMatchers {
		if match.Name == model.MetricNameLabel {
			continue
		}
		if err := m.labels.lacks(match.Name); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name, err)
		}
		if known := m.values[match.Name]; known != nil && !slices.ContainsFunc(slices.Collect(maps.Keys(known)), match.Matches) {
			return nil, fmt.Errorf("%s: %s matches none of %v", e.Name, match, slices.Sorted(maps.Keys(known)))
		}
	}
	return m.labels, nil
}

func (c catalogue) call(e *parser.Call) (names, error) {
	switch f := e.Func.Name; {
	case ofCounters[f]:
		return c.infer(e.Args[0], counter)
	case ofGauges[f]:
		return c.infer(e.Args[0], gauge)
	case f == "histogram_quantile":
		of, err := c.infer(e.Args[1], gauge)
		if err == nil {
			err = of.lacks("le")
		}
		return of.without("le"), err
	case f == "absent":
		if _, err := c.infer(e.Args[0], anyKind); err != nil {
			return nil, err
		}
		return equalities(e.Args[0]), nil
	}
	return nil, fmt.Errorf("%s is not known to this check: teach it", e.Func.Name)
}

// equalities are the labels that absent can give its result.
func equalities(e parser.Expr) names {
	out := names{}
	if s, ok := e.(*parser.VectorSelector); ok {
		for _, m := range s.LabelMatchers {
			if m.Type == labels.MatchEqual && m.Name != model.MetricNameLabel {
				out[m.Name] = true
			}
		}
	}
	return out
}

func (c catalogue) aggregate(e *parser.AggregateExpr) (names, error) {
	of, err := c.infer(e.Expr, gauge)
	if err != nil {
		return nil, err
	}
	if err := of.lacks(e.Grouping...); err != nil {
		return nil, fmt.Errorf("%s by or without: %w", e.Op, err)
	}
	if e.Without {
		return of.without(e.Grouping...), nil
	}
	return setOf(e.Grouping...), nil
}

func (c catalogue) binary(e *parser.BinaryExpr) (names, error) {
	l, err := c.infer(e.LHS, gauge)
	if err != nil {
		return nil, err
	}
	r, err := c.infer(e.RHS, gauge)
	switch m := e.VectorMatching; {
	case err != nil:
		return nil, err
	case m == nil: // one of them is a number
		return l.with(r), nil
	case m.Card == parser.CardOneToMany, m.Card == parser.CardManyToOne:
		return nil, fmt.Errorf("group_left and group_right are not known to this check: teach it")
	case m.On:
		if err := l.lacks(m.MatchingLabels...); err != nil {
			return nil, fmt.Errorf("left of %s on: %w", e.Op, err)
		}
		if err := r.lacks(m.MatchingLabels...); err != nil {
			return nil, fmt.Errorf("right of %s on: %w", e.Op, err)
		}
		if !e.Op.IsSetOperator() {
			l = setOf(m.MatchingLabels...)
		}
	default:
		if a, b := l.without(m.MatchingLabels...), r.without(m.MatchingLabels...); !maps.Equal(a, b) {
			return nil, fmt.Errorf("%s never matches: %v on its left, %v on its right", e.Op, slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b)))
		}
	}
	return l, nil
}

// series names the series that an expression reads.
func series(expr string) (out []string) {
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return nil // check says so
	}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			out = append(out, s.Name)
		}
		return nil
	})
	return out
}
