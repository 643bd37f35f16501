// Package machine holds state machines as tables: which moves there are, and that no other
// is made.
package machine

import (
	"context"
	"log/slog"
	"slices"
	"time"
)

// New is the state in which a drawing's first arrow begins.
const New = "new"

// Move is one arrow of a machine.
type Move[S ~string] struct {
	From, To S
	Why      string
}

// Table is one state machine, as docs/states.md draws it.
type Table[S ~string] struct {
	Name  string // the heading of the drawing
	Moves []Move[S]
}

// Drawing is a table whose states are plain strings, for the test that holds the drawing
// against the code.
type Drawing = Table[string]

// Allows reports whether the machine has an arrow from one state to the other.
func (t *Table[S]) Allows(from, to S) bool {
	return slices.ContainsFunc(t.Moves, func(m Move[S]) bool { return m.From == from && m.To == to })
}

// Drawing gives the table with plain strings.
func (t *Table[S]) Drawing() Drawing {
	d := Drawing{Name: t.Name}
	for _, m := range t.Moves {
		d.Moves = append(d.Moves, Move[string]{string(m.From), string(m.To), m.Why})
	}
	return d
}

// State is where one thing stands in its machine, and since when. Only Transition writes it.
type State[S ~string] struct {
	Is    S
	Since time.Time
}

// Keys of the attributes that Transition logs.
const (
	keyMachine = "machine"
	keyFrom    = "from"
	keyTo      = "to"
	keyReason  = "reason"
)

// Transition makes one move and reports whether the machine allows it. A move that it does
// not allow is a mistake in the caller: it is logged, naming both states, and not made.
func (s *State[S]) Transition(t *Table[S], to S, log *slog.Logger, why string, about ...slog.Attr) bool {
	allowed := t.Allows(s.Is, to)
	level, text := slog.LevelDebug, "state changed"
	if !allowed {
		level, text = slog.LevelError, "state change refused: not in the machine's table"
	}
	if log.Enabled(context.Background(), level) {
		about = append(about, slog.String(keyMachine, t.Name),
			slog.String(keyFrom, string(s.Is)), slog.String(keyTo, string(to)), slog.String(keyReason, why))
		log.LogAttrs(context.Background(), level, text, about...)
	}
	if allowed {
		s.Is, s.Since = to, time.Now()
	}
	return allowed
}
