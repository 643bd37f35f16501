package backoff

import (
	"math"
	"testing"
	"time"
)

func TestCeiling(t *testing.T) {
	b := Backoff{Min: 100 * time.Millisecond, Max: 10 * time.Second}
	want := []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000}
	for attempt, ms := range want {
		if got := b.Ceiling(attempt); got != ms*time.Millisecond {
			t.Errorf("attempt %d: %v, want %v", attempt, got, ms*time.Millisecond)
		}
	}
	if got := b.Ceiling(math.MaxInt); got != b.Max {
		t.Errorf("attempt without end: %v", got)
	}
	huge := Backoff{Min: time.Second, Max: math.MaxInt64}
	if got := huge.Ceiling(200); got != huge.Max {
		t.Errorf("doubling overflowed to %v", got)
	}
	if got := (Backoff{Min: time.Minute, Max: time.Second}).Ceiling(0); got != time.Second {
		t.Errorf("a Min above Max gave %v", got)
	}
}

func TestDelay(t *testing.T) {
	b := Backoff{Min: time.Second, Max: time.Minute}
	if got := b.Delay(3, 0); got != 0 {
		t.Errorf("random 0: %v", got)
	}
	if got := b.Delay(3, 0.5); got != 4*time.Second {
		t.Errorf("random 0.5: %v, want 4s", got)
	}
	if got := b.Delay(3, 0.999); got >= 8*time.Second {
		t.Errorf("random 0.999: %v, not below the ceiling", got)
	}
}
