package logging

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/coreos/go-systemd/v22/journal"
)

// sent is one entry that a test's journal got.
type sent struct {
	message  string
	priority journal.Priority
	fields   map[string]string
}

// text logs to a buffer and returns what stands there in the end.
func text(t *testing.T, cfg Config, out Output, do func(*Log)) string {
	t.Helper()
	var b bytes.Buffer
	out.Stderr = &b
	l := New(cfg, out)
	do(l)
	l.Close(t.Context())
	return b.String()
}

// entries logs to the journal.
func entries(t *testing.T, do func(*slog.Logger)) []sent {
	t.Helper()
	var got []sent
	out := Output{Name: "ctrl-test", Stderr: &bytes.Buffer{}, Send: func(m string, p journal.Priority, f map[string]string) error {
		got = append(got, sent{m, p, f})
		return nil
	}}
	l := New(Config{Level: slog.LevelDebug, Target: Journald}, out)
	do(l.Logger())
	l.Close(t.Context())
	return got
}

func TestTextOnATerminalAndElsewhere(t *testing.T) {
	say := func(l *Log) {
		l.Logger().With(KeyNode, "node1").Warn("job was refused", KeyUnit, "foo bar.service", KeyErr, errors.New(`no "x"`),
			"n", 3, "after", 1500*time.Millisecond, slog.Group("a", "b", true))
	}
	const attributes = `node=node1 unit="foo bar.service" err="no \"x\"" n=3 after=1.5s a.b=true` + "\n"
	for _, c := range []struct {
		name   string
		cfg    Config
		out    Output
		layout string // of the time in front, "" for none
		rest   string
	}{
		{"file", Config{}, Output{}, fullTime, " WRN job was refused " + attributes},
		{"terminal", Config{}, Output{Terminal: true}, clockTime, " WRN job was refused " + attributes},
		{"journal stream", Config{Target: Stderr}, Output{Journal: true}, "", "<4>WRN job was refused " + attributes},
		{"no journal", Config{Target: Auto}, Output{Journal: true}, "", "<4>WRN job was refused " + attributes},
		{"full", Config{Target: StderrFull}, Output{Terminal: true}, time.RFC3339Nano, " WRN logging/logging_test.go:"},
	} {
		got := text(t, c.cfg, c.out, say)
		if c.layout != "" {
			stamp, rest, _ := strings.Cut(got, " ")
			if _, err := time.Parse(c.layout, stamp); err != nil {
				t.Errorf("%s: %q does not begin with a time: %v", c.name, got, err)
			}
			got = " " + rest
		}
		if !strings.HasPrefix(got, c.rest) {
			t.Errorf("%s:\ngot  %q\nwant %q", c.name, got, c.rest)
		}
	}
	if coloured := text(t, Config{}, Output{Terminal: true, Colour: true}, say); !strings.Contains(coloured, "\x1b[") {
		t.Errorf("no colour in %q", coloured)
	}
}

// hostile is what a peer may say to be logged.
var hostile = []string{
	"\x1b[2Jgone", `\x1b[31m with a blank`, "two\nlines\r", "\x00", "\x9b31m", "\u009b31m", "\xff\xfe", "\u202egnp.exe",
	"\u2028", "a\tb", "\x7f", "\U000e0001tag", "é ü 日本",
}

func TestNothingHostileReachesTheReader(t *testing.T) {
	say := func(log *slog.Logger) {
		for _, s := range hostile {
			log.Info("a peer said "+s, "text", s, KeyErr, errors.New(s), "list", []string{s}, "bytes", []byte(s), s, "key",
				"value", fmt.Stringer(stringer(s)), KeyStack, "line "+s)
		}
	}
	for _, c := range []struct {
		name   string
		cfg    Config
		colour bool
	}{
		{"plain", Config{Target: Stderr}, false}, {"colour", Config{Target: Stderr}, true},
		{"full", Config{Target: StderrFull}, true}, {"json", Config{Target: JSON}, false},
	} {
		got := text(t, c.cfg, Output{Colour: c.colour}, func(l *Log) { say(l.Logger()) })
		// The colours of the log itself, and no other escape.
		for _, own := range []string{"\x1b[0m", "\x1b[2m", "\x1b[22m", "\x1b[92m", "\x1b[91m", "\x1b[2;91m"} {
			got = strings.ReplaceAll(got, own, "")
		}
		// For each message one line, and, but in JSON, one for each line of the stack.
		for i, line := range strings.Split(strings.TrimSuffix(got, "\n"), "\n") {
			if !printable(line) {
				t.Errorf("%s: line %d is %q", c.name, i+1, line)
			}
		}
	}
	for _, e := range entries(t, say) {
		for key, value := range e.fields {
			if key == "CTRL_STACK" {
				value = strings.ReplaceAll(value, "\n", "")
			}
			if !printable(value) || fieldName(strings.TrimPrefix(key, "CTRL_")) != key && strings.HasPrefix(key, "CTRL_") {
				t.Errorf("the journal got %q=%q", key, value)
			}
		}
		if !printable(e.message) {
			t.Errorf("the journal got the message %q", e.message)
		}
	}
}

type stringer string

func (s stringer) String() string { return string(s) }

// broken panics as methods do on a nil receiver.
type broken struct{ text string }

func (b *broken) Error() string { return b.text }

func TestJSONLosesNothing(t *testing.T) {
	for _, s := range hostile {
		got := text(t, Config{Target: JSON}, Output{}, func(l *Log) {
			l.Logger().Error(s, "text", s, "n", 7, "after", time.Second, "nothing", (*broken)(nil))
		})
		var o struct {
			Time    time.Time
			Level   string
			Msg     string
			Text    string
			N       int
			After   string
			Nothing string
		}
		if err := json.Unmarshal([]byte(got), &o); err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		want := strings.ToValidUTF8(s, "\ufffd")
		if strings.Contains(s, "\xff") {
			want = "\ufffd\ufffd" // one for each byte
		} else if strings.HasPrefix(s, "\x9b") {
			want = "\ufffd31m"
		}
		if o.Time.IsZero() || o.Level != "ERROR" || o.Msg != want || o.Text != want || o.N != 7 || o.After != "1s" ||
			!strings.HasPrefix(o.Nothing, "!PANIC") {
			t.Errorf("%q became %+v", got, o)
		}
	}
}

func TestJournalFields(t *testing.T) {
	got := entries(t, func(log *slog.Logger) {
		log.With(KeyNode, "node1").Info("unit was started", KeyUnit, `a\x2db.service`, KeyCallerID, 1000,
			KeyMessageID, "0123456789abcdef0123456789abcdef", KeyStack, "one\n\ttwo\n")
	})
	if len(got) != 1 {
		t.Fatalf("%d entries", len(got))
	}
	if want := `unit was started node=node1 unit="a\\x2db.service" caller_uid=1000`; got[0].message != want {
		t.Errorf("message is %q, want %q", got[0].message, want)
	}
	if got[0].priority != journal.PriInfo {
		t.Errorf("priority is %d", got[0].priority)
	}
	fields := maps.Clone(got[0].fields)
	if !strings.HasSuffix(fields["CODE_FILE"], "logging_test.go") || fields["CODE_LINE"] == "" || !strings.Contains(fields["CODE_FUNC"], "TestJournalFields") {
		t.Errorf("the place in the source is missing: %q", fields)
	}
	maps.DeleteFunc(fields, func(key, _ string) bool { return strings.HasPrefix(key, "CODE_") })
	want := map[string]string{
		"SYSLOG_IDENTIFIER": "ctrl-test", "CTRL_NODE": "node1", "CTRL_UNIT": `a\x2db.service`, "CTRL_CALLER_UID": "1000",
		"MESSAGE_ID": "0123456789abcdef0123456789abcdef", "CTRL_STACK": "one\n    two",
	}
	if !maps.Equal(fields, want) {
		t.Errorf("fields are %q, want %q", fields, want)
	}
}

func TestPriorities(t *testing.T) {
	got := entries(t, func(log *slog.Logger) {
		log.Debug("d")
		log.Info("i")
		log.Warn("w")
		log.Error("e")
	})
	want := []journal.Priority{journal.PriDebug, journal.PriInfo, journal.PriWarning, journal.PriErr}
	for i, p := range want {
		if i >= len(got) || got[i].priority != p {
			t.Fatalf("entries are %+v, want priorities %v", got, want)
		}
	}
}

func TestLevelTargetAndSilenceChange(t *testing.T) {
	var journalled []string
	out := Output{Send: func(m string, _ journal.Priority, _ map[string]string) error {
		journalled = append(journalled, m)
		return nil
	}}
	got := text(t, Config{Level: slog.LevelInfo, Target: Stderr}, out, func(l *Log) {
		log := l.Logger().With("a", 1)
		log.Debug("one")
		l.SetLevel(slog.LevelDebug)
		log.Debug("two")
		l.Apply(Config{Level: slog.LevelWarn, Target: Journald})
		log.Info("three")
		log.Warn("four")
		l.Apply(Config{Level: slog.LevelDebug, Target: Stderr, Quiet: true})
		log.Error("five")
		l.Apply(Config{Level: l.Level(), Target: Stderr})
		log.Debug("six")
		if l.Target() != Stderr || l.Level() != slog.LevelDebug {
			t.Errorf("target is %v, level %v", l.Target(), l.Level())
		}
	})
	var words []string
	for line := range strings.Lines(got) {
		words = append(words, strings.Fields(line)[2])
	}
	if fmt.Sprint(words) != "[two six]" || fmt.Sprint(journalled) != "[four a=1]" {
		t.Errorf("standard error got %v, the journal %q", words, journalled)
	}
}

func TestAutoTarget(t *testing.T) {
	send := func(string, journal.Priority, map[string]string) error { return nil }
	for _, c := range []struct {
		asked Target
		out   Output
		want  Target
	}{
		{Auto, Output{}, Stderr},
		{Auto, Output{Send: send}, Stderr}, // a journal there is, but somebody else reads standard error
		{Auto, Output{Journal: true, Send: send}, Journald},
		{Auto, Output{Journal: true}, Stderr},
		{Journald, Output{Send: send}, Journald},
		{Journald, Output{}, Stderr},
		{JSON, Output{Journal: true, Send: send}, JSON},
	} {
		var got Target
		said := text(t, Config{Target: c.asked}, c.out, func(l *Log) { got = l.Target() })
		if warned := strings.Contains(said, "there is no journal"); got != c.want || warned != (c.asked == Journald && c.out.Send == nil) {
			t.Errorf("%v with %+v is %v and said %q, want %v", c.asked, c.out, got, said, c.want)
		}
	}
}

func TestJournalThatFailsIsReplacedByStandardError(t *testing.T) {
	out := Output{Send: func(string, journal.Priority, map[string]string) error { return errors.New("gone") }}
	got := text(t, Config{Target: Journald}, out, func(l *Log) { l.Logger().Info("still here", "n", 1) })
	if got != "still here n=1\n" {
		t.Errorf("standard error got %q", got)
	}
}

// gate is a reader that takes nothing until it is opened.
type gate struct {
	open chan struct{}
	mu   sync.Mutex
	got  bytes.Buffer
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.open
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.got.Write(p)
}

func TestLoggingNeverWaitsForTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		l := New(Config{Target: Stderr}, Output{Stderr: g})
		l.Logger().Info("first")
		synctest.Wait() // the writer has taken it and waits
		const count, size = 700, maxValue
		for range count {
			l.Logger().Info("more", "text", strings.Repeat("x", size))
		}
		if l.queue.size > maxQueued {
			t.Errorf("%d bytes wait, more than %d", l.queue.size, maxQueued)
		}
		// Close gives up on a reader that does not read.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l.Close(ctx)
		close(g.open)
		<-l.queue.done
		lines := strings.Split(strings.TrimSuffix(g.got.String(), "\n"), "\n")
		taken := len(lines) - 2
		if taken < maxQueued/(2*size) || taken == count || !strings.Contains(lines[len(lines)-1], fmt.Sprintf("messages were lost, since the log was not taken fast enough count=%d", count-taken)) {
			t.Errorf("%d lines, the last is %.200q", len(lines), lines[len(lines)-1])
		}
	})
}

func TestLongValuesAreCut(t *testing.T) {
	got := text(t, Config{Target: Stderr}, Output{}, func(l *Log) {
		l.Logger().Info(strings.Repeat("ä", maxValue), "text", strings.Repeat("x", 10*maxValue))
	})
	if len(got) > 3*maxValue || !strings.Contains(got, "ä…") || !strings.Contains(got, "x…") {
		t.Errorf("%d bytes: %.40q", len(got), got)
	}
}

func TestWords(t *testing.T) {
	for word, want := range map[string]slog.Level{"debug": slog.LevelDebug, "INFO": slog.LevelInfo, "Warn": slog.LevelWarn, "eRRor": slog.LevelError} {
		got, err := ParseLevel(word)
		if err != nil || got != want || LevelWord(got) != strings.ToLower(word) {
			t.Errorf("ParseLevel(%q) = %v, %v", word, got, err)
		}
	}
	for _, word := range []string{"", "warning", "debug ", "INFOINFO", "4"} {
		if _, err := ParseLevel(word); err == nil || !strings.Contains(err.Error(), "debug, info, warn, error") {
			t.Errorf("ParseLevel(%q) gave %v", word, err)
		}
	}
	for i, word := range Targets {
		if got, err := ParseTarget(strings.ToUpper(word)); err != nil || got != Target(i) || got.String() != word {
			t.Errorf("ParseTarget(%q) = %v, %v", word, got, err)
		}
	}
	if _, err := ParseTarget("syslog"); err == nil {
		t.Error("ParseTarget took syslog")
	}
}

func TestEscape(t *testing.T) {
	for s, want := range map[string]string{
		`a\x2db é`: `a\x2db é`, "\x1b[2J": `\x1b[2J`, "a\nb\t": `a\nb\t`, "\xff": `\xff`, "\u202e": `\u202e`, "\u009b": `\u009b`, "\ufffd": "\ufffd",
	} {
		if got := escape(s); got != want {
			t.Errorf("escape(%q) = %q, want %q", s, got, want)
		}
	}
}

func FuzzEscape(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := escape(s)
		for _, r := range got {
			if !unicode.IsPrint(r) {
				t.Errorf("escape(%q) = %q", s, got)
			}
		}
		if escape(got) != got {
			t.Errorf("%q is escaped twice", s)
		}
		if len(clip(s, 10)) > 10+len("…") {
			t.Errorf("clip left %d bytes", len(clip(s, 10)))
		}
	})
}

// TestAlways: what must be written down does not depend on the level, only on silence.
func TestAlways(t *testing.T) {
	got := text(t, Config{Level: slog.LevelError, Target: Stderr}, Output{}, func(l *Log) {
		l.Logger().Warn("one")
		l.Always().With("n", 1).Info("two")
		l.Apply(Config{Level: slog.LevelDebug, Target: Stderr, Quiet: true})
		l.Always().Error("three")
	})
	if !strings.Contains(got, "two n=1") || strings.Contains(got, "one") || strings.Contains(got, "three") {
		t.Errorf("got %q", got)
	}
}
