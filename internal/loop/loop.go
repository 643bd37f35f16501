// Package loop runs a core: one goroutine that owns a state and handles posted functions
// one after the other.
package loop

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrStopped is returned for work that a stopped loop will not do.
var ErrStopped = errors.New("loop is stopped")

// Loop is an ordered inbox with one consumer. Posting from outside is bounded: past the
// capacity Post blocks, so a connection that floods a core stops being read. Work that the
// loop gives itself (Defer, timers) is not bounded by the inbox, since blocking there
// would be a deadlock.
type Loop struct {
	mu       sync.Mutex
	space    sync.Cond // signalled when the inbox was drained
	wake     chan struct{}
	inbox    []func()
	spare    []func()
	capacity int
	stopped  bool
	timers   map[*Timer]struct{}
	done     chan struct{}
}

// New makes a loop whose inbox holds capacity functions from outside.
func New(capacity int) *Loop {
	l := &Loop{
		capacity: max(capacity, 1),
		wake:     make(chan struct{}, 1),
		timers:   make(map[*Timer]struct{}),
		done:     make(chan struct{}),
	}
	l.space.L = &l.mu
	return l
}

// Run handles posted functions until Stop is called or ctx ends, in the calling goroutine.
// What was posted before the stop is still handled; what comes later is refused.
func (l *Loop) Run(ctx context.Context) {
	defer close(l.done)
	stop := context.AfterFunc(ctx, l.Stop)
	defer stop()
	for {
		batch, stopped := l.take()
		for i, fn := range batch {
			fn()
			batch[i] = nil
		}
		if len(batch) == 0 && stopped {
			return
		}
		l.recycle(batch)
		if len(batch) == 0 {
			<-l.wake
		}
	}
}

func (l *Loop) take() (batch []func(), stopped bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch, l.inbox, l.spare = l.inbox, l.spare, nil
	l.space.Broadcast()
	return batch, l.stopped
}

// maxSpare bounds the memory that a burst leaves behind.
const maxSpare = 4096

func (l *Loop) recycle(batch []func()) {
	if cap(batch) > maxSpare {
		return
	}
	l.mu.Lock()
	if l.spare == nil {
		l.spare = batch[:0]
	}
	l.mu.Unlock()
}

// Post hands fn to the loop and reports whether it will run. It blocks while the inbox is
// full. It must not be called from the loop's own goroutine: use Defer there.
func (l *Loop) Post(fn func()) bool {
	l.mu.Lock()
	for len(l.inbox) >= l.capacity && !l.stopped {
		l.space.Wait()
	}
	return l.appendLocked(fn)
}

// Defer hands fn to the loop without waiting for room: for the loop's own goroutine, and
// for callbacks of calls that the loop itself made and whose number it therefore bounds.
func (l *Loop) Defer(fn func()) bool {
	l.mu.Lock()
	return l.appendLocked(fn)
}

func (l *Loop) appendLocked(fn func()) bool {
	if l.stopped {
		l.mu.Unlock()
		return false
	}
	l.inbox = append(l.inbox, fn)
	first := len(l.inbox) == 1
	l.mu.Unlock()
	if first {
		l.signal()
	}
	return true
}

func (l *Loop) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Stop ends the loop after what is already posted, and with it all timers. It returns at
// once and may be called from anywhere, also twice.
func (l *Loop) Stop() {
	l.mu.Lock()
	l.stopped = true
	for t := range l.timers {
		t.timer.Stop()
	}
	clear(l.timers)
	l.space.Broadcast()
	l.mu.Unlock()
	l.signal()
}

// Done is closed when Run has returned.
func (l *Loop) Done() <-chan struct{} { return l.done }

// Timer is a pending After.
type Timer struct {
	loop    *Loop
	timer   *time.Timer
	stopped bool // owned by the loop's goroutine
}

// After runs fn on the loop after d. On a stopped loop it never runs.
func (l *Loop) After(d time.Duration, fn func()) *Timer {
	t := &Timer{loop: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		t.stopped = true
		t.timer = time.NewTimer(0)
		t.timer.Stop()
		return t
	}
	l.timers[t] = struct{}{}
	t.timer = time.AfterFunc(d, func() {
		l.forget(t)
		l.Defer(func() {
			if !t.stopped {
				t.stopped = true
				fn()
			}
		})
	})
	return t
}

func (l *Loop) forget(t *Timer) {
	l.mu.Lock()
	delete(l.timers, t)
	l.mu.Unlock()
}

// Stop cancels the timer. Called on the loop's own goroutine it is exact: fn does not run
// afterwards, also if the time was already up. A nil timer may be stopped.
func (t *Timer) Stop() {
	if t == nil {
		return
	}
	t.stopped = true
	t.timer.Stop()
	t.loop.forget(t)
}

// Call runs fn on the loop and waits for its result, for ctx or for the loop's end. It
// must not be called from the loop's own goroutine.
func Call[T any](ctx context.Context, l *Loop, fn func() T) (T, error) {
	result := make(chan T, 1)
	var zero T
	if !l.Post(func() { result <- fn() }) {
		return zero, ErrStopped
	}
	select {
	case v := <-result:
		return v, nil
	case <-ctx.Done():
		return zero, ctx.Err()
	case <-l.done:
		select {
		case v := <-result:
			return v, nil
		default:
			return zero, ErrStopped
		}
	}
}
