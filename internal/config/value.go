package config

import (
	"fmt"
	"math"
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
	return false, fmt.Errorf("%s is neither yes nor no", clip(s))
}

func formatBool(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

const day = 24 * time.Hour

// spanUnits are the units of systemd.time(7) down to the microsecond.
var spanUnits = map[string]time.Duration{
	"us": time.Microsecond, "usec": time.Microsecond, "µs": time.Microsecond, "μs": time.Microsecond,
	"ms": time.Millisecond, "msec": time.Millisecond,
	"s": time.Second, "sec": time.Second, "second": time.Second, "seconds": time.Second,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"d": day, "day": day, "days": day,
	"w": 7 * day, "week": 7 * day, "weeks": 7 * day,
	"M": 2629800 * time.Second, "month": 2629800 * time.Second, "months": 2629800 * time.Second,
	"y": 31557600 * time.Second, "year": 31557600 * time.Second, "years": 31557600 * time.Second,
}

// Forever is the time span "infinity".
const Forever = time.Duration(math.MaxInt64)

// parseSpan reads a time span as systemd.time(7) writes it: "500ms", "2s", "1min 30s",
// "infinity". A number alone counts in unit.
func parseSpan(s string, unit time.Duration) (time.Duration, error) {
	if s == "infinity" {
		return Forever, nil
	}
	if d, err := strconv.ParseFloat(s, 64); err == nil && strings.Trim(s, "0123456789.") == "" {
		return spanOf(d*float64(unit), s)
	}
	rest, total := s, 0.0
	for rest != "" {
		number := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789."))]
		rest = strings.TrimLeft(rest[len(number):], " \t")
		end := strings.IndexAny(rest, "0123456789. \t")
		if end < 0 {
			end = len(rest)
		}
		size, ok := spanUnits[rest[:end]]
		n, err := strconv.ParseFloat(number, 64)
		if err != nil || !ok {
			return 0, fmt.Errorf("%s is no time span such as 500ms, 2s or 1min 30s", clip(s))
		}
		total += n * float64(size)
		rest = strings.TrimLeft(rest[end:], " \t")
	}
	if s == "" {
		return 0, fmt.Errorf("is no time span such as 500ms, 2s or 1min 30s")
	}
	return spanOf(total, s)
}

func spanOf(nanoseconds float64, s string) (time.Duration, error) {
	if nanoseconds >= float64(100*365*day) {
		return 0, fmt.Errorf("%s is longer than a hundred years", clip(s))
	}
	return time.Duration(math.Round(nanoseconds/1000)) * time.Microsecond, nil
}

// formatSpan writes a time span as parseSpan reads it.
func formatSpan(d time.Duration) string {
	switch d {
	case 0:
		return "0"
	case Forever:
		return "infinity"
	}
	var parts []string
	for _, u := range []struct {
		word string
		size time.Duration
	}{{"d", day}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}, {"us", time.Microsecond}} {
		if n := d / u.size; n > 0 {
			parts = append(parts, strconv.FormatInt(int64(n), 10)+u.word)
			d -= n * u.size
		}
	}
	return strings.Join(parts, " ")
}

// parseInt takes decimal digits with a sign.
func parseInt(s string, low, high int64) (int, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%s is no number from %d to %d", clip(s), low, high)
	}
	return int(n), nil
}

func parseWord(s string, words []string) (string, error) {
	for _, w := range words {
		if strings.EqualFold(s, w) {
			return w, nil
		}
	}
	return "", fmt.Errorf("%s is none of %s", clip(s), strings.Join(words, ", "))
}

// splitList splits a list; entries are trimmed, empty ones dropped.
func splitList(s, separator string) []string {
	var out []string
	for entry := range strings.SplitSeq(s, separator) {
		if entry = strings.TrimSpace(entry); entry != "" {
			out = append(out, entry)
		}
	}
	return out
}

// NodeLoss is what happens to units that depend on a node that is lost.
type NodeLoss struct {
	Stop  bool          // stop them; else they go on
	After time.Duration // with Stop: once the node is away for so long
}

// ParseNodeLoss reads what OnNodeLoss= takes.
func ParseNodeLoss(s string) (NodeLoss, error) {
	after, delayed := strings.CutPrefix(s, "stop-after=")
	switch {
	case s == "keep":
		return NodeLoss{}, nil
	case s == "stop":
		return NodeLoss{Stop: true}, nil
	case delayed:
		d, err := parseSpan(after, time.Second)
		if err == nil && d == Forever {
			return NodeLoss{}, nil
		}
		return NodeLoss{Stop: true, After: d}, err
	}
	return NodeLoss{}, fmt.Errorf("%s is none of keep, stop, stop-after=TIME", clip(s))
}

// String writes what OnNodeLoss= reads.
func (l NodeLoss) String() string {
	switch {
	case !l.Stop:
		return "keep"
	case l.After == 0:
		return "stop"
	}
	return "stop-after=" + formatSpan(l.After)
}

// nearest finds the word most like s, for "did you mean"; "" where none is close.
func nearest(s string, words []string) string {
	if len(s) > 64 {
		return "" // no key is as long, and the search takes time
	}
	best, least := "", len(s)/3+1
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
