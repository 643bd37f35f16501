package logging

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// entry is one line on its way.
type entry struct {
	to   *sink
	line line
}

// maxQueued bounds what waits, in bytes.
const maxQueued = 4 << 20

// queue keeps those who log from waiting for those who read: a terminal that was stopped or a
// journal that hangs must not stop a core. When it is full, lines are dropped and counted.
type queue struct {
	mu      sync.Mutex
	pending []entry
	size    int
	lost    int
	lostTo  *sink
	closed  bool
	wake    chan struct{}
	done    chan struct{}
}

func newQueue() *queue {
	return &queue{wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// push never blocks.
func (q *queue) push(e entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	if size := e.line.size(); q.size+size <= maxQueued {
		q.size += size
		q.pending = append(q.pending, e)
	} else {
		q.lost++
		q.lostTo = e.to
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// run writes until close, and then what is left.
func (q *queue) run() {
	defer close(q.done)
	for {
		batch, closed := q.take()
		if len(batch) == 0 && closed {
			return
		}
		if len(batch) == 0 {
			<-q.wake
			continue
		}
		for start, i := 0, 1; i <= len(batch); i++ {
			if i == len(batch) || batch[i].to != batch[start].to {
				writeAll(batch[start:i])
				start = i
			}
		}
	}
}

func (q *queue) take() (batch []entry, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	batch, q.pending, q.size = q.pending, nil, 0
	if q.lost > 0 {
		batch = append(batch, entry{q.lostTo, q.lostTo.format(record{
			time: time.Now(), level: slog.LevelWarn, msg: "messages were lost, since the log was not taken fast enough",
			fields: []field{{"count", slog.IntValue(q.lost)}},
		})})
		q.lost, q.lostTo = 0, nil
	}
	return batch, q.closed
}

func writeAll(batch []entry) {
	lines := make([]line, len(batch))
	for i, e := range batch {
		lines[i] = e.line
	}
	batch[0].to.write(lines)
}

// close ends the writer after what is pending, or when ctx ends first.
func (q *queue) close(ctx context.Context) {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
	select {
	case <-q.done:
	case <-ctx.Done():
	}
}
