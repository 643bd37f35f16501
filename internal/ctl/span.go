package ctl

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// spanUnits are the units of systemd.time(7), in microseconds.
var spanUnits = map[string]float64{
	"usec": 1, "us": 1, "μs": 1, "µs": 1, "msec": 1e3, "ms": 1e3,
	"seconds": 1e6, "second": 1e6, "sec": 1e6, "s": 1e6, "minutes": 60e6, "minute": 60e6, "min": 60e6, "m": 60e6,
	"hours": 3600e6, "hour": 3600e6, "hr": 3600e6, "h": 3600e6, "days": 86400e6, "day": 86400e6, "d": 86400e6,
	"weeks": 604800e6, "week": 604800e6, "w": 604800e6, "months": 2629800e6, "month": 2629800e6, "M": 2629800e6,
	"years": 31557600e6, "year": 31557600e6, "y": 31557600e6,
}

// parseSpan reads a time span as systemd.time(7) words it: "5min 20s", "1.5h", "infinity"; a
// bare number is in unit microseconds. The result is in microseconds, MaxUint64 for infinity.
func parseSpan(s string, unit float64) (uint64, error) {
	rest := strings.TrimSpace(s)
	if rest == "infinity" {
		return math.MaxUint64, nil
	}
	if rest == "" {
		return 0, fmt.Errorf("time span is empty")
	}
	total := 0.0
	for rest != "" {
		end := strings.IndexFunc(rest, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
		if end < 0 {
			end = len(rest)
		}
		n, err := strconv.ParseFloat(rest[:end], 64)
		if err != nil {
			return 0, fmt.Errorf("%q is no time span; write it like 90, 5min 20s or infinity", s)
		}
		rest = strings.TrimLeft(rest[end:], " ")
		end = strings.IndexFunc(rest, func(r rune) bool { return r == ' ' || r >= '0' && r <= '9' })
		if end < 0 {
			end = len(rest)
		}
		scale := unit
		if word := rest[:end]; word != "" {
			known, ok := spanUnits[word]
			if !ok {
				return 0, fmt.Errorf("%q is no time span: unit %q is not known", s, word)
			}
			scale = known
		}
		total += n * scale
		rest = strings.TrimLeft(rest[end:], " ")
	}
	if total >= math.MaxInt64 {
		return 0, fmt.Errorf("time span %q is too long", s)
	}
	return uint64(math.Round(total)), nil
}

// second is the unit of a bare number in most places, in microseconds.
const second = 1e6

// spanFlag is a flag that takes a time span; a bare number is in seconds.
type spanFlag struct{ d *time.Duration }

func (f spanFlag) String() string {
	if f.d == nil || *f.d == 0 {
		return ""
	}
	return f.d.String()
}

func (f spanFlag) Set(s string) error {
	us, err := parseSpan(s, second)
	if err != nil {
		return err
	}
	if us > math.MaxInt64/1000 {
		us = 0 // without end, as without the flag
	}
	*f.d = time.Duration(us) * time.Microsecond
	return nil
}

func (f spanFlag) Type() string { return "time" }
