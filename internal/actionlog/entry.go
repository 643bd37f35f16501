// Package actionlog writes down every act that changes something, every refusal and the end
// of every job, as journal entries with fixed message ids and fields.
package actionlog

import (
	"errors"
	"log/slog"
	"strings"

	"example.org/ctrl/internal/logging"
	"example.org/ctrl/internal/wire"
)

// Kind is what an entry is about. Each has its own MESSAGE_ID.
type Kind uint8

const (
	Acted      Kind = iota // a change was carried out, taken as a job, or failed
	Refused                // the caller may not, or the node does not let the manager
	JobEnded               // a job that was taken has ended
	Summarised             // more of a caller's refusals and failures, only counted
	kinds
)

// MessageIDs are the values of MESSAGE_ID, in the order of the kinds.
var MessageIDs = [kinds]string{
	Acted:      wire.MessageActed,
	Refused:    wire.MessageRefused,
	JobEnded:   wire.MessageJobEnded,
	Summarised: wire.MessageSummarised,
}

var messages = [kinds]string{Acted: "act", Refused: "act refused", JobEnded: "job ended", Summarised: "more acts were refused or failed"}

// Words of Entry.Result beside those of jobs.
const (
	ResultDone    = wire.ResultDone
	ResultQueued  = "queued" // as a job, whose end is an entry of its own
	ResultRefused = "refused"
	ResultFailed  = wire.ResultFailed
	ResultUnknown = "unknown" // of a job whose end nobody on this side will see
)

// Caller is who asked.
type Caller struct {
	Name  string // a unique name on the bus, or the manager's address
	UID   uint32
	Known bool // the uid
}

// Entry is one line of the action log. It has no room for arguments of a call: properties,
// environments and tokens are nobody's business.
type Entry struct {
	Kind   Kind
	Node   string
	Units  []string
	Verb   string // ctl's word
	Job    uint32 // the manager's; 0 is none
	Result string
	Caller Caller
	Reason string
	Count  int // of what is only counted
}

// Judge sets kind, result and reason by how an act of a method ended.
func (e *Entry) Judge(method string, err error) {
	switch {
	case err == nil:
		if e.Result == "" {
			e.Result = ResultDone
		}
		return
	case errors.Is(err, wire.ErrAccessDenied), errors.Is(err, wire.ErrInteractiveAuth):
		e.Kind, e.Result = Refused, ResultRefused
	default:
		e.Result = ResultFailed
	}
	e.Reason = reason(method, err)
}

// reason is an error's text, or only its name where the text may quote what was to be set.
func reason(method string, err error) string {
	de := wire.AsError(err)
	if (method == "StartTransientUnit" || method == "SetUnitProperties") && !errors.Is(err, wire.ErrAccessDenied) {
		return de.Name
	}
	return de.Error()
}

// maxText bounds a value, in bytes.
const maxText = 1 << 10

func clip(s string) string {
	if len(s) > maxText {
		return strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return s
}

// attrs are the fields of an entry, less those that do not apply.
func (e *Entry) attrs() []slog.Attr {
	attrs := []slog.Attr{slog.String(logging.KeyMessageID, MessageIDs[e.Kind])}
	add := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, clip(value)))
		}
	}
	add(logging.KeyNode, e.Node)
	add(logging.KeyUnit, strings.Join(e.Units, " "))
	add(logging.KeyVerb, e.Verb)
	if e.Job != 0 {
		attrs = append(attrs, slog.Uint64(logging.KeyJob, uint64(e.Job)))
	}
	add(logging.KeyResult, e.Result)
	if e.Caller.Known {
		attrs = append(attrs, slog.Uint64(logging.KeyCallerID, uint64(e.Caller.UID)))
	}
	add(logging.KeyCaller, e.Caller.Name)
	if e.Count != 0 {
		attrs = append(attrs, slog.Int("count", e.Count))
	}
	add(logging.KeyReason, e.Reason)
	return attrs
}

func (e *Entry) level() slog.Level {
	if e.Kind == Refused || e.Kind == Summarised {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}
