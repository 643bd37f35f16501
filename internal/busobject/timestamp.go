package busobject

import (
	"time"

	"golang.org/x/sys/unix"
)

// start is one moment on both clocks. Go's monotonic readings cannot be asked for, but they
// are readings of CLOCK_MONOTONIC, so differences of the two agree.
var start = func() (s struct {
	at        time.Time
	monotonic time.Duration
}) {
	var ts unix.Timespec
	before := time.Now()
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err == nil {
		s.monotonic = time.Duration(ts.Nano())
	}
	s.at = before.Add(time.Since(before) / 2)
	return s
}()

// Realtime is t in microseconds since 1970, as properties named …Timestamp show it; 0 for
// the zero time.
func Realtime(t time.Time) uint64 {
	if t.IsZero() || t.UnixMicro() < 0 {
		return 0
	}
	return uint64(t.UnixMicro())
}

// Monotonic is t in microseconds of CLOCK_MONOTONIC, as properties named
// …TimestampMonotonic show it; 0 for the zero time and times before the machine started.
func Monotonic(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(max(0, (start.monotonic + t.Sub(start.at)).Microseconds()))
}
