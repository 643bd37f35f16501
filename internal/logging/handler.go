package logging

import (
	"context"
	"encoding"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode"
)

// field is one attribute, its groups in the key, joined with dots. Its value is a string, a
// number, a boolean, a duration or a time.
type field struct {
	key   string
	value slog.Value
}

// record is one message as the sinks get it.
type record struct {
	time   time.Time
	level  slog.Level
	msg    string
	pc     uintptr
	fields []field
}

// take returns the text of a field and removes it.
func (r *record) take(key string) string {
	i := slices.IndexFunc(r.fields, func(f field) bool { return f.key == key })
	if i < 0 {
		return ""
	}
	text := r.fields[i].value.String()
	r.fields = slices.Delete(r.fields, i, i+1)
	return text
}

// handler is the front of every logger: it takes attributes apart and gives the result to
// whatever sink is set at the time of the message.
type handler struct {
	log    *Log
	always bool   // whatever the level
	prefix string // of the open groups
	fields []field
}

func (h *handler) Enabled(_ context.Context, level slog.Level) bool {
	return (h.always || level >= h.log.level.Level()) && h.log.sink.Load() != nil
}

func (h *handler) Handle(_ context.Context, r slog.Record) error {
	to := h.log.sink.Load()
	if to == nil {
		return nil
	}
	out := record{time: r.Time, level: r.Level, msg: clip(r.Message, maxValue), pc: r.PC, fields: slices.Clone(h.fields)}
	r.Attrs(func(a slog.Attr) bool {
		out.fields = appendAttr(out.fields, h.prefix, a)
		return true
	})
	h.log.queue.push(entry{to: to, line: to.format(out)})
	return nil
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	n := *h
	n.fields = slices.Clone(h.fields)
	for _, a := range attrs {
		n.fields = appendAttr(n.fields, h.prefix, a)
	}
	return &n
}

func (h *handler) WithGroup(name string) slog.Handler {
	n := *h
	if name != "" {
		n.prefix += name + "."
	}
	return &n
}

// Bounds of one value in bytes. What others say may be long; it is not worth more than this.
const (
	maxValue = 8 << 10
	maxStack = 64 << 10
)

func appendAttr(fields []field, prefix string, a slog.Attr) []field {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, inner := range v.Group() {
			fields = appendAttr(fields, prefix, inner)
		}
		return fields
	}
	if a.Key == "" {
		return fields
	}
	return append(fields, field{cleanKey(prefix + a.Key), plain(a.Key, v)})
}

// cleanKey keeps a key one word; keys are the program's own, but a mistake must not cost more
// than an ugly line.
func cleanKey(key string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("\"=\\", r) || unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, key)
}

// plain makes a string of everything that has no simple kind. It is done here and not later
// since what a value refers to may change after the call that logs it.
func plain(key string, v slog.Value) slog.Value {
	var s string
	switch v.Kind() {
	case slog.KindString:
		s = v.String()
	case slog.KindAny:
		s = describe(v.Any())
	default:
		return v
	}
	if key == KeyStack {
		return slog.StringValue(clip(s, maxStack))
	}
	return slog.StringValue(clip(s, maxValue))
}

func describe(v any) (text string) {
	defer func() {
		// An error or String method may panic, mostly on a nil receiver; a log line is no
		// reason to end a daemon.
		if p := recover(); p != nil {
			text = fmt.Sprintf("!PANIC: %v", p)
		}
	}()
	switch v := v.(type) {
	case error:
		return v.Error()
	case fmt.Stringer:
		return v.String()
	case encoding.TextMarshaler:
		if b, err := v.MarshalText(); err == nil {
			return string(b)
		}
	case []byte:
		return string(v)
	}
	return fmt.Sprintf("%+v", v)
}
