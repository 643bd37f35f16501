// Package logging makes the daemons' loggers: for people on a terminal, for the journal with
// a field per attribute, for machines as JSON.
//
// To log never blocks. Whatever comes from outside may be logged as an attribute as it is:
// what cannot be printed is escaped before it reaches a terminal or the journal.
package logging

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
	"golang.org/x/term"
)

// Config is what the configuration says about the log.
type Config struct {
	Level  slog.Level
	Target Target
	Quiet  bool // nothing at all is logged
}

// Output is where the log can go.
type Output struct {
	// Name is what the journal calls the program.
	Name string
	// Stderr takes every target but the journal.
	Stderr io.Writer
	// Terminal says that a person looks at Stderr, Colour that it should be in colour.
	Terminal, Colour bool
	// Journal says that Stderr leads to journald.
	Journal bool
	// Send writes an entry to the journal; nil: there is no journal.
	Send func(message string, priority journal.Priority, fields map[string]string) error
}

// SystemOutput looks at the process's standard error and at the journal. getenv is
// os.Getenv.
func SystemOutput(name string, getenv func(string) string) (Output, error) {
	// A file with another number: the runtime ends a process that finds nobody at the other
	// end of its number 2, and a daemon must not end with whoever reads its log.
	fd, err := syscall.Dup(int(os.Stderr.Fd()))
	if err != nil {
		return Output{}, fmt.Errorf("cannot use standard error for the log: %w", err)
	}
	syscall.CloseOnExec(fd)
	out := Output{Name: name, Stderr: os.NewFile(uintptr(fd), "standard error"), Terminal: term.IsTerminal(fd)}
	out.Colour = out.Terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
	out.Journal, _ = journal.StderrIsJournalStream() // a malformed variable says no
	if journal.Enabled() {
		out.Send = journal.Send
	}
	return out, nil
}

// Log is a logger whose level, target and silence may change while it is in use. It is safe
// from any goroutine.
type Log struct {
	out    Output
	level  slog.LevelVar
	sink   atomic.Pointer[sink] // nil: quiet
	target atomic.Uint32
	queue  *queue
	logger *slog.Logger
}

// New starts a log. Close ends it.
func New(cfg Config, out Output) *Log {
	l := &Log{out: out, queue: newQueue()}
	l.logger = slog.New(&handler{log: l})
	l.Apply(cfg)
	go l.queue.run()
	return l
}

// Logger is the root of all loggers.
func (l *Log) Logger() *slog.Logger { return l.logger }

// Always is a root for what must be written down whatever the level is. LogIsQuiet= silences
// it too.
func (l *Log) Always() *slog.Logger { return slog.New(&handler{log: l, always: true}) }

// SetLevel changes the level alone.
func (l *Log) SetLevel(level slog.Level) { l.level.Set(level) }

// Level is the present level.
func (l *Log) Level() slog.Level { return l.level.Level() }

// Target is where the log goes, never Auto.
func (l *Log) Target() Target { return Target(l.target.Load()) }

// Apply changes everything at once; what was logged before still goes where it was to go. A
// journal that is not there is replaced by standard error, which a warning says.
func (l *Log) Apply(cfg Config) {
	target, missing := l.out.choose(cfg.Target)
	l.level.Set(cfg.Level)
	l.target.Store(uint32(target))
	if cfg.Quiet {
		l.sink.Store(nil)
		return
	}
	l.sink.Store(l.out.sink(target))
	if missing {
		l.logger.Warn("there is no journal here; logging to standard error", KeyConfig, "LogTarget")
	}
}

// Close writes what is pending, until ctx ends. What is logged later is lost.
func (l *Log) Close(ctx context.Context) { l.queue.close(ctx) }

func (o Output) choose(t Target) (target Target, missing bool) {
	switch {
	case t == Auto && o.Journal && o.Send != nil:
		return Journald, false
	case t == Auto:
		return Stderr, false
	case t == Journald && o.Send == nil:
		return Stderr, true
	}
	return t, false
}

const (
	clockTime = "15:04:05.000"
	fullTime  = "2006-01-02T15:04:05.000Z07:00"
)

func (o Output) sink(t Target) *sink {
	style := textStyle{colour: o.Colour, priority: o.Journal, time: fullTime}
	switch t {
	case Journald:
		return journalSink(o.Name, o.Send, o.Stderr)
	case JSON:
		return streamSink(o.Stderr, jsonLine)
	case StderrFull:
		style.source, style.time = true, time.RFC3339Nano
	default:
		if o.Terminal {
			style.time = clockTime
		}
	}
	return streamSink(o.Stderr, style.format)
}
