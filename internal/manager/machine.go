package manager

import (
	"context"
	"log/slog"
	"slices"
	"time"
)

// Machine is one state machine of the core as docs/states.md draws it. A test holds the
// drawing against this table, and transition refuses every move that is not in it.
type Machine struct {
	Name  string // the heading of the drawing
	Moves []Move
}

// Move is one arrow of a drawing. From is "new" for the arrow that a machine begins with.
type Move struct{ From, To, Why string }

// Machines lists the state machines of the core.
func Machines() []Machine {
	return []Machine{nodeMachine.table(), jobMachine.table()}
}

type machine[S ~string] struct {
	name  string
	moves []move[S]
}

type move[S ~string] struct {
	from, to S
	why      string
}

func (m *machine[S]) allows(from, to S) bool {
	return slices.ContainsFunc(m.moves, func(v move[S]) bool { return v.from == from && v.to == to })
}

func (m *machine[S]) table() Machine {
	t := Machine{Name: m.name}
	for _, v := range m.moves {
		t.Moves = append(t.Moves, Move{From: string(v.from), To: string(v.to), Why: v.why})
	}
	return t
}

// state is where one thing stands in its machine, and since when. Only transition writes it.
type state[S ~string] struct {
	is    S
	since time.Time
}

// transition makes one move and reports whether the machine allows it. A move that it does
// not allow is a mistake in this package: it is logged, naming both states, and not made.
func (s *state[S]) transition(m *machine[S], to S, log *slog.Logger, why string, about ...slog.Attr) bool {
	allowed := m.allows(s.is, to)
	level, text := slog.LevelDebug, "state changed"
	if !allowed {
		level, text = slog.LevelError, "state change refused: not in the machine's table"
	}
	if log.Enabled(context.Background(), level) {
		about = append(about, slog.String(keyMachine, m.name),
			slog.String(keyFrom, string(s.is)), slog.String(keyTo, string(to)), slog.String(keyReason, why))
		log.LogAttrs(context.Background(), level, text, about...)
	}
	if allowed {
		s.is, s.since = to, time.Now()
	}
	return allowed
}

// Attribute keys of this package's log lines.
const (
	keyNode    = "node"
	keyUnit    = "unit"
	keyJob     = "job"
	keySession = "session"
	keyErr     = "err"
	keyReason  = "reason"
	keyMachine = "machine"
	keyFrom    = "from"
	keyTo      = "to"
)
