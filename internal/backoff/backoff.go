// Package backoff computes the delay before the next try.
package backoff

import "time"

// Backoff is full-jitter exponential back-off: the delay is drawn evenly from zero to a
// ceiling that begins at Min and doubles with each failed try up to Max. Thousands of
// clients that fail together thereby come back spread out, not in waves.
type Backoff struct {
	Min time.Duration
	Max time.Duration
}

// Ceiling is the longest delay before try number attempt+1; attempt counts failures from 0.
func (b Backoff) Ceiling(attempt int) time.Duration {
	ceiling := b.Min
	for ; attempt > 0 && ceiling < b.Max; attempt-- {
		// Doubling past Max, or past what a Duration holds, is Max.
		if ceiling > b.Max/2 {
			return b.Max
		}
		ceiling *= 2
	}
	return min(ceiling, b.Max)
}

// Delay is the delay after failure number attempt (from 0), where random is drawn evenly
// from [0, 1).
func (b Backoff) Delay(attempt int, random float64) time.Duration {
	return time.Duration(random * float64(b.Ceiling(attempt)))
}
