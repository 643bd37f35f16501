package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// parseBool takes the words that systemd takes.
func parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "1", "yes", "y", "true", "t", "on":
		return true, nil
	case "0", "no", "n", "false", "f", "off":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither yes nor no", s)
}

// spans are the units of systemd.time(7).
var spans = map[string]time.Duration{
	"us": time.Microsecond, "usec": time.Microsecond, "µs": time.Microsecond,
	"ms": time.Millisecond, "msec": time.Millisecond,
	"s": time.Second, "sec": time.Second, "second": time.Second, "seconds": time.Second,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour, "days": 24 * time.Hour,
	"w": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour, "weeks": 7 * 24 * time.Hour,
}

// parseSpan reads a time span as systemd writes it ("1min 30s"); a bare number counts in
// unit. Negative spans are refused, 0 is allowed.
func parseSpan(s string, unit time.Duration) (time.Duration, error) {
	fault := fmt.Errorf("%q is no time span such as 500ms, 2s or 1min 30s", s)
	rest, total := strings.TrimSpace(s), 0.0
	if rest == "" {
		return 0, fault
	}
	for rest != "" {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789."))
		number, err := strconv.ParseFloat(rest[:digits], 64)
		if err != nil {
			return 0, fault
		}
		rest = strings.TrimLeft(rest[digits:], " \t")
		word := rest[:len(rest)-len(strings.TrimLeft(rest, "abcdefghijklmnopqrstuvwxyzµ"))]
		rest = strings.TrimLeft(rest[len(word):], " \t")
		step, ok := spans[word]
		if word == "" {
			step, ok = unit, true
		}
		if !ok {
			return 0, fault
		}
		total += number * float64(step)
	}
	if total > math.MaxInt64/2 {
		return 0, fmt.Errorf("%q is too long", s)
	}
	return time.Duration(total), nil
}

// formatSpan writes a time span as parseSpan reads it.
func formatSpan(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	var parts []string
	for _, u := range []struct {
		word string
		size time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}, {"us", time.Microsecond}} {
		if n := d / u.size; n > 0 {
			parts = append(parts, strconv.FormatInt(int64(n), 10)+u.word)
			d -= n * u.size
		}
	}
	return strings.Join(parts, " ")
}

func parseInt(s string, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%q is no number from %d to %d", s, low, high)
	}
	return n, nil
}

func parseWord(s string, words []string) (string, error) {
	if word := strings.ToLower(s); slices.Contains(words, word) {
		return word, nil
	}
	return "", fmt.Errorf("%q is none of %s", s, strings.Join(words, ", "))
}

// parseList splits at commas, or at the given separator; entries are trimmed, empty ones
// dropped.
func parseList(s, separator string) []string {
	var out []string
	for entry := range strings.SplitSeq(s, separator) {
		if entry = strings.TrimSpace(entry); entry != "" {
			out = append(out, entry)
		}
	}
	return out
}

// nearest finds the word most like s, for "did you mean"; "" where none is close.
func nearest(s string, words []string) string {
	best, least := "", len(s)/3+2
	for _, w := range words {
		if d := distance(strings.ToLower(s), strings.ToLower(w)); d < least {
			best, least = w, d
		}
	}
	return best
}

// distance is Levenshtein's: insertions, deletions and substitutions.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
