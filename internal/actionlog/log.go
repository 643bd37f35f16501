package actionlog

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// Bounds of what a caller can write by being refused, or by asking for what fails.
const (
	// Burst is how many refusals and failures of one caller are written in full in each
	// Window; more are counted, and the count is written at its end.
	Burst  = 20
	Window = time.Minute
	// MaxCallers is how many callers are told apart at a time; more share one window.
	MaxCallers = 256
)

// Log writes entries. It is safe from any goroutine and never waits for the journal. A nil
// Log writes nothing.
type Log struct {
	log     *slog.Logger
	mu      sync.Mutex
	callers map[string]*window
	timer   *time.Timer // at the end of the first window; nil while nothing is counted
	closed  bool
}

// window is one caller's share of the present minute.
type window struct {
	began   time.Time
	written int
	last    Entry // of those that were only counted
	more    int
}

// New makes a Log. The logger should not depend on a level: logging.Log.Always. Close it.
func New(log *slog.Logger) *Log { return &Log{log: log, callers: make(map[string]*window)} }

// Write writes an entry, or counts it where its caller has had too many.
func (l *Log) Write(e Entry) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Kind != Refused && e.Result != ResultFailed || e.Kind == JobEnded {
		l.put(&e)
		return
	}
	w := l.window(e.Caller)
	if w.written < Burst || l.closed {
		w.written++
		l.put(&e)
		return
	}
	w.more++
	w.last = e
	if l.timer == nil {
		l.timer = time.AfterFunc(time.Until(w.began.Add(Window)), l.turn)
	}
}

// Close writes what was only counted so far. What comes later is written in full.
func (l *Log) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	for _, key := range slices.Sorted(maps.Keys(l.callers)) {
		l.sum(key)
	}
}

func (l *Log) put(e *Entry) {
	l.log.LogAttrs(context.Background(), e.level(), messages[e.Kind], e.attrs()...)
}

// others is the key of the callers that are not told apart.
const others = "others"

func (l *Log) window(c Caller) *window {
	key := c.Name
	if c.Known {
		key = fmt.Sprintf("uid %d", c.UID)
	}
	w := l.callers[key]
	if w != nil && time.Since(w.began) >= Window {
		l.sum(key)
		w = nil
	}
	if w == nil && len(l.callers) >= MaxCallers {
		l.forgetOld()
	}
	if w == nil && len(l.callers) >= MaxCallers {
		key = others
		w = l.callers[key]
	}
	if w == nil {
		w = &window{began: time.Now()}
		l.callers[key] = w
	}
	return w
}

// sum ends a window and writes what it holds.
func (l *Log) sum(key string) {
	w := l.callers[key]
	delete(l.callers, key)
	if w.more == 0 {
		return
	}
	e := Entry{
		Kind: Summarised, Result: w.last.Result, Caller: w.last.Caller, Count: w.more,
		Reason: fmt.Sprintf("%d more since %s; the last: %s", w.more, w.began.UTC().Format(time.TimeOnly), w.last.words()),
	}
	if key == others {
		e.Caller = Caller{Name: others}
	}
	l.put(&e)
}

// words names an act in a summary.
func (e *Entry) words() string {
	text := e.Verb
	if len(e.Units) > 0 {
		text += " " + e.Units[0]
	}
	if e.Node != "" {
		text += " on " + e.Node
	}
	return text
}

// turn ends the windows that are over.
func (l *Log) turn() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = nil
	if l.closed {
		return
	}
	l.forgetOld()
	var next time.Time
	for _, w := range l.callers {
		if w.more > 0 && (next.IsZero() || w.began.Before(next)) {
			next = w.began
		}
	}
	if !next.IsZero() {
		l.timer = time.AfterFunc(time.Until(next.Add(Window)), l.turn)
	}
}

func (l *Log) forgetOld() {
	for _, key := range slices.Sorted(maps.Keys(l.callers)) {
		if time.Since(l.callers[key].began) >= Window {
			l.sum(key)
		}
	}
}
