package config

import (
	"testing"
	"time"
)

func TestSpans(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"5": 5 * time.Second, "0": 0, "1.5": 1500 * time.Millisecond, "1min 30s": 90 * time.Second, "1min30s": 90 * time.Second, "1.5h": 90 * time.Minute,
		"2d": 48 * time.Hour, "20us": 20 * time.Microsecond, "20µs": 20 * time.Microsecond, "20μs": 20 * time.Microsecond, "1 hour": time.Hour,
		"2 weeks": 14 * day, "1M": 2629800 * time.Second, "1m": time.Minute, "1y 1 month": (31557600 + 2629800) * time.Second,
		"4.35s": 4350 * time.Millisecond, "0.1ms": 100 * time.Microsecond, "infinity": Forever, "300msec": 300 * time.Millisecond,
	} {
		if got, err := parseSpan(text, time.Second); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "s", "-1", "+1", "1 2", "1 2s", "1.2.3s", "1e3", "1e3s", "0x10", "Inf", "NaN", "1S", "1 fortnight", "infinity 1s", "99999999999999999999y", "101y", ".", "1,5s", "5ns"} {
		if got, err := parseSpan(text, time.Second); err == nil {
			t.Errorf("%q was taken for %v", text, got)
		}
	}
	for _, d := range []time.Duration{0, time.Second, 90 * time.Second, 49*time.Hour + 3*time.Millisecond + time.Microsecond, 400 * day, Forever} {
		if got, err := parseSpan(formatSpan(d), time.Hour); err != nil || got != d {
			t.Errorf("%v is written %q, which reads as %v, %v", d, formatSpan(d), got, err)
		}
	}
}

func TestBooleans(t *testing.T) {
	for want, words := range map[bool][]string{true: {"1", "yes", "Y", "true", "T", "ON"}, false: {"0", "no", "N", "false", "f", "Off"}} {
		for _, w := range words {
			if got, err := parseBool(w); err != nil || got != want {
				t.Errorf("%q is %v, %v", w, got, err)
			}
		}
	}
	for _, w := range []string{"", "2", "ja", "yes no", "enabled"} {
		if _, err := parseBool(w); err == nil {
			t.Errorf("%q was taken", w)
		}
	}
}

func TestNearest(t *testing.T) {
	for _, c := range []struct{ word, want string }{
		{"LogLevl", "LogLevel"}, {"loglevel", "LogLevel"}, {"AllowNodeNames", "AllowedNodeNames"}, {"Prot", ""}, {"Ports", "Port"}, {"Nonsense", ""}, {"", ""},
	} {
		if got := nearest(c.word, names(managerSection)); got != c.want {
			t.Errorf("nearest to %q is %q, want %q", c.word, got, c.want)
		}
	}
}
