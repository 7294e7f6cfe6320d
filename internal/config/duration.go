package config

import (
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var (
	durationForm = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|[smhdDwWMyY]))+$`)
	durationPart = regexp.MustCompile(`([0-9]+(?:\.[0-9]+)?)([a-zA-Zµ]+)`)
)

// units are Go's and the ones Choria adds: a month has 30 days, a year 365
// (go-choria internal/util/util.go:466).
var units = map[string]time.Duration{
	"ns": time.Nanosecond, "us": time.Microsecond, "µs": time.Microsecond, "ms": time.Millisecond,
	"s": time.Second, "m": time.Minute, "h": time.Hour,
	"d": day, "D": day, "w": 7 * day, "W": 7 * day, "M": 30 * day, "y": year, "Y": year,
}

// parseDuration reads a duration without sign. Parts may be joined (1d12h),
// which Choria's own parser does not accept.
func parseDuration(s string) (time.Duration, error) {
	s = strings.TrimSpace(s)
	if s == "0" {
		return 0, nil
	}
	if !durationForm.MatchString(s) {
		return 0, errors.New("a number and a unit are needed")
	}
	var total float64
	for _, part := range durationPart.FindAllStringSubmatch(s, -1) {
		number, err := strconv.ParseFloat(part[1], 64)
		if err != nil {
			return 0, errors.New("the number is too large")
		}
		total += number * float64(units[part[2]])
	}
	if total >= math.MaxInt64 {
		return 0, errors.New("it is longer than 290 years")
	}
	return time.Duration(math.Round(total)), nil
}

// formatDuration renders a limit in the units an operator writes.
func formatDuration(d time.Duration) string {
	for _, u := range []struct {
		name string
		unit time.Duration
	}{{"y", year}, {"d", day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}} {
		if d >= u.unit && d%u.unit == 0 {
			return strconv.FormatInt(int64(d/u.unit), 10) + u.name
		}
	}
	return d.String()
}
