package logging

import (
	"fmt"
	"log/slog"
	"strings"
)

// Levels are the words for levels, from the most talkative on.
var Levels = []string{"debug", "info", "warn", "error"}

// ParseLevel reads a level's word in any case.
func ParseLevel(s string) (slog.Level, error) {
	switch strings.ToLower(s) {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("%q is no log level; it is one of %s", clip(s, 40), strings.Join(Levels, ", "))
}

// LevelWord is what ParseLevel reads, in lower case.
func LevelWord(l slog.Level) string { return strings.ToLower(l.String()) }

// Target says where the log goes.
type Target uint8

const (
	// Auto is the journal where standard error leads there anyway, else standard error.
	Auto Target = iota
	// Journald is the journal, with a field per attribute.
	Journald
	// Stderr is one line of text per message, in colour on a terminal.
	Stderr
	// StderrFull is Stderr with the whole time and the place in the source.
	StderrFull
	// JSON is one object per line on standard error.
	JSON
)

// Targets are the words for targets, in the order of the constants.
var Targets = []string{"auto", "journald", "stderr", "stderr-full", "json"}

// ParseTarget reads a target's word in any case.
func ParseTarget(s string) (Target, error) {
	for i, word := range Targets {
		if strings.EqualFold(s, word) {
			return Target(i), nil
		}
	}
	return 0, fmt.Errorf("%q is no log target; it is one of %s", clip(s, 40), strings.Join(Targets, ", "))
}

func (t Target) String() string {
	if int(t) < len(Targets) {
		return Targets[t]
	}
	return fmt.Sprintf("Target(%d)", uint8(t))
}
