package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// assignment is one KEY=VALUE with the place where it stands.
type assignment struct {
	section string
	key     string
	value   string
	line    int // of the key, from 1
}

// maxFaults bounds how many mistakes are told at once.
const maxFaults = 20

// scan splits the text of a file into assignments. The rules:
//
//   - A line whose first character other than a blank is # or ; is a comment, and only such a
//     line: values may hold both. So is one between two lines of a value.
//   - KEY=VALUE, or KEY: VALUE; blanks around both are removed. There are no quotes.
//   - An indented line goes on the value before it, with nothing in between. A backslash at
//     the end of a line joins the next one with a blank, as in systemd.syntax(7).
//
// What would be taken into a value by one of these rules, and looks like a key or a section, is
// a mistake and not silently lost. headers are the lines with sections, also empty ones.
func scan(file string, data []byte) (list, headers []assignment, err error) {
	s := scanner{file: file}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	for text := range strings.Lines(string(data)) {
		s.line++
		if len(s.faults) < maxFaults {
			s.take(strings.TrimRight(text, "\r\n"))
		}
	}
	s.end("the end of the file")
	return s.out, s.headers, errors.Join(s.faults...)
}

type scanner struct {
	file    string
	line    int
	section string
	value   bool // there is a value that an indented line goes on
	open    int  // the line that ended in a backslash, 0 for none
	out     []assignment
	headers []assignment
	faults  []error
}

func (s *scanner) fault(line int, format string, args ...any) {
	s.faults = append(s.faults, fmt.Errorf("%s:%d: %s", s.file, line, fmt.Sprintf(format, args...)))
}

func (s *scanner) take(line string) {
	text := strings.Trim(line, " \t")
	indented := text != "" && line[0] != text[0]
	switch {
	case badText(line) != "":
		s.fault(s.line, "%s", badText(line))
	case text != "" && (text[0] == '#' || text[0] == ';'):
	case text == "":
		s.end("a blank line")
	case s.open > 0:
		s.join(text, indented, s.open, " ")
	case indented && s.value:
		s.join(text, indented, 0, "")
	case text[0] == '[':
		s.header(text)
	default:
		s.assign(text)
	}
}

// badText says what may not stand in a file at all.
func badText(line string) string {
	if !utf8.ValidString(line) {
		return "contains bytes that are not UTF-8 text"
	}
	for _, r := range line {
		if unicode.IsControl(r) && r != '\t' {
			return fmt.Sprintf("contains the control character %q", r)
		}
	}
	return ""
}

// end closes a value whose last line ended in a backslash.
func (s *scanner) end(what string) {
	if s.open > 0 {
		s.fault(s.open, "ends in a backslash, which joins the next line, but %s follows; remove the backslash", what)
		s.open = 0
	}
}

// keyLike is how keys look; no value of several lines needs a line that begins like it, but
// one may be indented.
var keyLike = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*[ \t]*=`)

// looksNew reports whether a line that would be joined was meant to stand alone.
func looksNew(text string, indented bool) bool {
	name := text
	if end := strings.IndexAny(text, "=:"); end >= 0 {
		name = strings.TrimSpace(text[:end])
		if known(name) {
			return true
		}
	}
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		return true
	}
	return !indented && keyLike.MatchString(text)
}

func (s *scanner) join(text string, indented bool, open int, with string) {
	last := &s.out[len(s.out)-1]
	if looksNew(text, indented) {
		if open > 0 {
			s.fault(open, "ends in a backslash, so line %d (%s) would become part of %s=; remove the backslash, or, if it is part of the value, indent that line", s.line, clip(text), last.key)
		} else {
			s.fault(s.line, "is indented, so %s would become part of %s= of line %d; keys and sections begin at the start of a line", clip(text), last.key, last.line)
		}
		s.open = 0
		return
	}
	last.value = strings.Trim(last.value+with+s.more(text), " \t")
}

// more takes the backslash off that joins the next line. Two are none: they stay as they are.
func (s *scanner) more(text string) string {
	s.open = 0
	if backslashes := len(text) - len(strings.TrimRight(text, `\`)); backslashes%2 == 1 {
		s.open = s.line
		return strings.TrimRight(text[:len(text)-1], " \t")
	}
	return text
}

func (s *scanner) header(text string) {
	s.value = false
	name, rest, ok := strings.Cut(text[1:], "]")
	name = strings.Join(strings.Fields(name), " ")
	switch {
	case !ok:
		s.fault(s.line, "%s has no ] at its end", clip(text))
	case rest != "":
		s.fault(s.line, "%s has text behind the ]; comments stand on lines of their own", clip(text))
	case name == "" || strings.Contains(name, "["):
		s.fault(s.line, "%s is no section", clip(text))
	}
	s.section = name
	s.headers = append(s.headers, assignment{section: name, line: s.line})
}

func (s *scanner) assign(text string) {
	end := strings.IndexAny(text, "=:")
	switch {
	case end < 0:
		s.fault(s.line, "%s is neither KEY=VALUE, nor [section], nor a comment, which begins with # or ;; a line that goes on the value before it is indented", clip(text))
		s.value = false
		return
	case end == 0:
		s.fault(s.line, "%s has no key before the %c", clip(text), text[0])
		s.value = false
		return
	}
	key := strings.TrimSpace(text[:end])
	if len(s.headers) == 0 {
		s.fault(s.line, "%s= stands before the first [section]", short(key))
	}
	value := strings.Trim(s.more(text[end+1:]), " \t")
	s.out = append(s.out, assignment{s.section, key, value, s.line})
	s.value = true
}

// clip quotes a text of a file for an error, and bounds it.
func clip(s string) string { return fmt.Sprintf("%q", short(s)) }

func short(s string) string {
	const limit = 60
	if len(s) <= limit {
		return s
	}
	cut := limit
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
