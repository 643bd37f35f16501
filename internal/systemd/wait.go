package systemd

import (
	"sync"
	"time"

	"example.org/ctrl/internal/wire"
)

// While systemd re-executes, its sockets are closed for some tens of milliseconds. What is
// asked meanwhile waits for the new connection instead of failing.

// connectPatience is how long a request waits for a connection to systemd.
const connectPatience = 5 * time.Second

// maxWaiting is how many requests may wait; more fail at once.
const maxWaiting = 4096

type waiting struct {
	mu    sync.Mutex
	queue []*waiter
}

type waiter struct {
	proceed func(c *connection) // called once, with nil where patience ended
	timer   *time.Timer
}

func notConnected() error {
	return wire.ErrDisconnected.With("the agent is not connected to systemd at the moment; try again")
}

// connected calls proceed with the connection, as soon as there is one.
func (s *Systemd) connected(timeout time.Duration, proceed func(c *connection)) {
	if c := s.conn.Load(); c != nil {
		proceed(c)
		return
	}
	s.waiting.mu.Lock()
	c := s.conn.Load()
	full := len(s.waiting.queue) >= maxWaiting
	if c == nil && !full {
		w := &waiter{proceed: proceed}
		w.timer = time.AfterFunc(min(timeout, connectPatience), func() { s.giveUp(w) })
		s.waiting.queue = append(s.waiting.queue, w)
	}
	s.waiting.mu.Unlock()
	if c != nil || full {
		proceed(c)
	}
}

// giveUp ends one wait, unless a connection has come at the same moment.
func (s *Systemd) giveUp(w *waiter) {
	s.waiting.mu.Lock()
	found := false
	for i, o := range s.waiting.queue {
		if o == w {
			s.waiting.queue = append(s.waiting.queue[:i:i], s.waiting.queue[i+1:]...)
			found = true
			break
		}
	}
	s.waiting.mu.Unlock()
	if found {
		w.proceed(nil)
	}
}

// release lets all that waits go on, in the order in which it came. What comes meanwhile
// waits behind it: a stop must not overtake a start.
func (s *Systemd) release(c *connection) {
	for {
		s.waiting.mu.Lock()
		queue := s.waiting.queue
		s.waiting.queue = nil
		if len(queue) == 0 {
			s.conn.Store(c)
		}
		s.waiting.mu.Unlock()
		if len(queue) == 0 {
			return
		}
		for _, w := range queue {
			w.timer.Stop()
			w.proceed(c)
		}
	}
}
