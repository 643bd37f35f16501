// Package unitfile reads and writes the text of systemd unit files.
package unitfile

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxSize is the largest unit file accepted, in bytes. Systemd itself refuses lines over
// 1 MiB (LONG_LINE_MAX); nothing that is written by hand comes near.
const MaxSize = 1 << 20

// File is a parsed unit file or drop-in. Sections stand in the order of the text; a section
// that appears twice is kept twice, as are repeated keys.
type File struct {
	Sections []Section
}

// Section is one [Name] and the assignments below it.
type Section struct {
	Name    string
	Line    int
	Entries []Entry
}

// Entry is one assignment. Value is what systemd sees: continuation lines are joined with a
// blank, the blanks around are cut, specifiers, quotes and escapes are as written.
type Entry struct {
	Key   string
	Value string
	Line  int // of the key, from 1
}

// Error is a fault in the text of a unit file.
type Error struct {
	File string
	Line int // from 1; 0 where the file as a whole is meant
	Text string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Text)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Text)
}

// Parse reads a unit file as systemd does (systemd.syntax(7)), but refuses what systemd
// would skip with a warning: text outside of a section, lines without "=", an unfinished
// section header, bytes that are not UTF-8. A byte order mark and lines that end in CR LF
// are read as systemd reads them; a CR alone ends a line for systemd and for nobody else, so
// it is refused. name is for error texts.
func Parse(name string, data []byte) (*File, error) {
	if len(data) > MaxSize {
		return nil, &Error{name, 0, fmt.Sprintf("is %d bytes long; a unit file may have %d", len(data), MaxSize)}
	}
	p := parser{name: name, file: &File{}}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		p.line++
		if err := p.physical(bytes.TrimSuffix(line, []byte("\r"))); err != nil {
			return nil, err
		}
	}
	if p.open {
		return nil, p.fault(p.start, "the last line ends in a backslash, but nothing follows it")
	}
	return p.file, nil
}

type parser struct {
	name  string
	file  *File
	line  int             // of the physical line at hand
	open  bool            // a continuation is under way
	start int             // where the logical line at hand began
	text  strings.Builder // the logical line so far
}

func (p *parser) fault(line int, format string, args ...any) error {
	return &Error{p.name, line, fmt.Sprintf(format, args...)}
}

func (p *parser) physical(line []byte) error {
	if i := bytes.IndexByte(line, 0); i >= 0 {
		return p.fault(p.line, "contains a NUL byte")
	}
	if bytes.IndexByte(line, '\r') >= 0 {
		return p.fault(p.line, "contains a carriage return in the middle, where systemd would begin a new line")
	}
	if !utf8.Valid(line) {
		return p.fault(p.line, "is not valid UTF-8")
	}
	trimmed := bytes.TrimLeft(line, " \t")
	// A comment inside a continuation is skipped, and the continuation goes on after it.
	if len(trimmed) > 0 && (trimmed[0] == '#' || trimmed[0] == ';') {
		return nil
	}
	if !p.open {
		if len(trimmed) == 0 {
			return nil
		}
		p.start = p.line
	}
	escaped := trailingBackslashes(line)%2 == 1
	if escaped {
		p.text.Write(line[:len(line)-1])
		p.text.WriteByte(' ')
		p.open = true
		return nil
	}
	p.text.Write(line)
	p.open = false
	logical := strings.Trim(p.text.String(), " \t")
	p.text.Reset()
	return p.logical(logical)
}

// trailingBackslashes counts them: an even number is escaped backslashes, not a
// continuation (config_parse in systemd's conf-parser.c).
func trailingBackslashes(line []byte) int {
	return len(line) - len(bytes.TrimRight(line, `\`))
}

func (p *parser) logical(text string) error {
	if text == "" {
		return nil
	}
	if text[0] == '[' {
		return p.header(text)
	}
	key, value, ok := strings.Cut(text, "=")
	key = strings.TrimRight(key, " \t")
	switch {
	case !ok:
		return p.fault(p.start, "expected KEY=VALUE, got %q", shorten(text))
	case key == "":
		return p.fault(p.start, "there is no key before the =")
	case strings.ContainsAny(key, " \t"):
		return p.fault(p.start, "key %q contains a blank", shorten(key))
	case len(p.file.Sections) == 0:
		return p.fault(p.start, "%s= stands before the first [Section]", shorten(key))
	}
	s := &p.file.Sections[len(p.file.Sections)-1]
	s.Entries = append(s.Entries, Entry{key, strings.Trim(value, " \t"), p.start})
	return nil
}

func (p *parser) header(text string) error {
	name := strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	if text[len(text)-1] != ']' || name == "" || strings.ContainsAny(name, "[]") {
		return p.fault(p.start, "expected [Section], got %q", shorten(text))
	}
	p.file.Sections = append(p.file.Sections, Section{Name: name, Line: p.start})
	return nil
}

// shorten keeps an error text readable and cuts at a character, never inside one.
func shorten(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// Values lists the values of a key over all sections of that name, in order. An empty
// assignment resets the list, as systemd treats its list settings.
func (f *File) Values(section, key string) []string {
	var values []string
	for _, s := range f.Sections {
		if s.Name != section {
			continue
		}
		for _, e := range s.Entries {
			switch {
			case e.Key != key:
			case e.Value == "":
				values = nil
			default:
				values = append(values, e.Value)
			}
		}
	}
	return values
}

// Value is the last value of a key, and whether it is set at all.
func (f *File) Value(section, key string) (string, bool) {
	value, set := "", false
	for _, s := range f.Sections {
		if s.Name != section {
			continue
		}
		for _, e := range s.Entries {
			if e.Key == key {
				value, set = e.Value, true
			}
		}
	}
	return value, set
}

// Has reports whether a section of that name stands in the file, empty or not.
func (f *File) Has(section string) bool {
	for _, s := range f.Sections {
		if s.Name == section {
			return true
		}
	}
	return false
}
