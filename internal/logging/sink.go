package logging

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/lmittmann/tint"
)

// line is one formatted message: text for a stream, or fields for the journal.
type line struct {
	text     []byte
	message  string
	priority journal.Priority
	fields   map[string]string
}

// size is about what the line takes in memory.
func (l line) size() int {
	n := 256 + len(l.text) + len(l.message)
	for key, value := range l.fields {
		n += len(key) + len(value)
	}
	return n
}

// sink formats messages, in the goroutine that logs, and writes them, in the queue's.
type sink struct {
	format func(record) line
	write  func([]line)
}

func slogRecord(r record) slog.Record {
	return slog.NewRecord(r.time, r.level, r.msg, r.pc)
}

func streamSink(w io.Writer, format func(record) []byte) *sink {
	return &sink{
		format: func(r record) line { return line{text: format(r)} },
		write: func(lines []line) {
			var all []byte
			for _, l := range lines {
				all = append(all, l.text...)
			}
			// Nobody can be told that the log cannot be written.
			_, _ = w.Write(all)
		},
	}
}

// textStyle is how lines of text look.
type textStyle struct {
	colour   bool
	time     string // layout
	source   bool
	priority bool // begin with <N>, for journald (sd-daemon(3))
}

func (s textStyle) format(r record) []byte {
	r.take(KeyMessageID)
	stack := r.take(KeyStack)
	if s.priority {
		r.time = time.Time{} // journald has its own
	}
	var b bytes.Buffer
	if s.priority {
		b.WriteString("<" + strconv.Itoa(int(priority(r.level))) + ">")
	}
	h := tint.NewTextHandler(&b, &tint.Options{Level: slog.LevelDebug - 100, TimeFormat: s.time, NoColor: !s.colour, AddSource: s.source})
	out := slogRecord(r)
	out.Message = escape(r.msg)
	for _, f := range r.fields {
		out.AddAttrs(s.attr(f))
	}
	_ = h.Handle(context.Background(), out) // a bytes.Buffer takes everything
	if stack != "" {
		for _, l := range escapeLines(stack) {
			b.WriteString("    " + l + "\n")
		}
	}
	return b.Bytes()
}

// attr gives tint what it writes as it is. It is not asked to quote a string: it lets escape
// characters through, since it takes them for colours.
func (s textStyle) attr(f field) slog.Attr {
	a := slog.Attr{Key: f.key, Value: f.value}
	if f.value.Kind() == slog.KindString && !bare(f.value.String()) {
		a.Value = slog.AnyValue([]byte(f.value.String())) // written with strconv.Quote
	}
	if s.colour && f.key == KeyErr {
		return tint.Attr(9, a)
	}
	return a
}

// jsonLine formats with the keys time, level, msg and the attributes'.
func jsonLine(r record) []byte {
	r.take(KeyMessageID)
	var b bytes.Buffer
	h := slog.NewJSONHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug - 100})
	out := slogRecord(r)
	for _, f := range r.fields {
		v := f.value
		if v.Kind() == slog.KindDuration {
			v = slog.StringValue(v.Duration().String())
		}
		out.AddAttrs(slog.Attr{Key: f.key, Value: v})
	}
	_ = h.Handle(context.Background(), out)
	return escapeJSON(b.Bytes())
}

// priority is the syslog level (syslog(3)).
func priority(l slog.Level) journal.Priority {
	switch {
	case l < slog.LevelInfo:
		return journal.PriDebug
	case l < slog.LevelWarn:
		return journal.PriInfo
	case l < slog.LevelError:
		return journal.PriWarning
	}
	return journal.PriErr
}

// journalSink writes native entries (systemd.journal-fields(7)). The attributes stand in the
// message too: plain journalctl shows nothing else.
func journalSink(identifier string, send func(string, journal.Priority, map[string]string) error, lost io.Writer) *sink {
	return &sink{
		format: func(r record) line { return journalLine(identifier, r) },
		write: func(lines []line) {
			for _, l := range lines {
				if err := send(l.message, l.priority, l.fields); err != nil {
					_, _ = io.WriteString(lost, l.message+"\n")
				}
			}
		},
	}
}

func journalLine(identifier string, r record) line {
	l := line{priority: priority(r.level), fields: map[string]string{"SYSLOG_IDENTIFIER": identifier}}
	if id := r.take(KeyMessageID); id != "" {
		l.fields["MESSAGE_ID"] = escape(id)
	}
	if stack := r.take(KeyStack); stack != "" {
		l.fields[fieldName(KeyStack)] = strings.Join(escapeLines(stack), "\n")
	}
	if r.pc != 0 {
		frame, _ := runtime.CallersFrames([]uintptr{r.pc}).Next()
		l.fields["CODE_FILE"], l.fields["CODE_LINE"], l.fields["CODE_FUNC"] = frame.File, strconv.Itoa(frame.Line), frame.Function
	}
	var b strings.Builder
	b.WriteString(escape(r.msg))
	for _, f := range r.fields {
		text := f.value.String()
		b.WriteString(" " + f.key + "=" + quoted(text))
		l.fields[fieldName(f.key)] = escape(text)
	}
	l.message = b.String()
	return l
}

// fieldName makes a field's name: upper-case letters, digits and "_".
func fieldName(key string) string {
	name := []byte("CTRL_" + strings.ToUpper(key))
	for i, c := range name {
		if (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			name[i] = '_'
		}
	}
	return string(name)
}
