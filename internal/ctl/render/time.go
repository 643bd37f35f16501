package render

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Infinity is the duration and the moment that systemd writes as infinity.
const Infinity = uint64(math.MaxUint64)

const (
	usec   = uint64(1)
	msec   = 1000 * usec
	second = 1000 * msec
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour
	week   = 7 * day
	month  = 2629800 * second
	year   = 31557600 * second
)

var spanUnits = []struct {
	name string
	size uint64
}{{"y", year}, {"month", month}, {"w", week}, {"d", day}, {"h", hour}, {"min", minute}, {"s", second}, {"ms", msec}, {"us", usec}}

// Span writes microseconds as systemd does (format_timespan in its time-util.c): "2h 5min",
// "1.500s", "0", "infinity". What is less than accuracy is left out.
func Span(t, accuracy uint64) string {
	switch t {
	case Infinity:
		return "infinity"
	case 0:
		return "0"
	}
	var parts []string
	for _, u := range spanUnits {
		if t == 0 || t < accuracy && len(parts) > 0 {
			break
		}
		if t < u.size {
			continue
		}
		whole, rest := t/u.size, t%u.size
		if digits := decimals(u.size) - decimals(accuracy); t < minute && rest > 0 && digits > 0 {
			for range decimals(accuracy) {
				rest /= 10
			}
			parts = append(parts, fmt.Sprintf("%d.%0*d%s", whole, digits, rest, u.name))
			break
		}
		parts = append(parts, fmt.Sprintf("%d%s", whole, u.name))
		t = rest
	}
	return strings.Join(parts, " ")
}

// decimals is how many times n can be divided by ten before it is 1.
func decimals(n uint64) int {
	d := 0
	for ; n > 1; n /= 10 {
		d++
	}
	return d
}

// Ago says how long ago a moment was, as systemd does (format_timestamp_relative): "2h 5min
// ago"; "now" within the same second.
func Ago(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	d, suffix := now.Sub(t), " ago"
	if d < 0 {
		d, suffix = -d, " left"
	}
	if d < time.Second {
		return "now"
	}
	return relative(uint64(d.Microseconds())) + suffix
}

func relative(d uint64) string {
	switch {
	case d >= year:
		return count(d/year, "year") + " " + count(d%year/month, "month")
	case d >= month:
		return count(d/month, "month") + " " + count(d%month/day, "day")
	case d >= week:
		return count(d/week, "week") + " " + count(d%week/day, "day")
	case d >= 2*day:
		return count(d/day, "day")
	case d >= 25*hour:
		return fmt.Sprintf("1 day %dh", (d-day)/hour)
	case d >= 6*hour:
		return fmt.Sprintf("%dh", d/hour)
	case d >= hour:
		return fmt.Sprintf("%dh %dmin", d/hour, d%hour/minute)
	case d >= 5*minute:
		return fmt.Sprintf("%dmin", d/minute)
	case d >= minute:
		return fmt.Sprintf("%dmin %ds", d/minute, d%minute/second)
	}
	return fmt.Sprintf("%ds", d/second)
}

func count(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Stamp writes a moment as systemctl does, in the local time zone.
func Stamp(t time.Time) string {
	if t.IsZero() {
		return "n/a"
	}
	return t.Local().Format("Mon 2006-01-02 15:04:05 MST")
}

// Moment is a time that a table shows as the time that has passed until Now.
type Moment struct{ Time, Now time.Time }

func (m Moment) String() string { return Ago(m.Time, m.Now) }
