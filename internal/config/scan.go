// Package config reads the configuration of both daemons: one table of keys gives the
// parser, the defaults, the checks, the sample files and the documentation.
package config

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// assignment is one KEY=VALUE with the place where it stands.
type assignment struct {
	section string
	key     string
	value   string
	file    string
	line    int // of the key, from 1
}

func (a assignment) where() string { return fmt.Sprintf("%s:%d", a.file, a.line) }

// maxFile is the largest configuration file, in bytes.
const maxFile = 4 << 20

// scan splits a file into assignments. Lines that begin with # or ; are comments, and only
// they: a value may hold both. An indented line continues the value before it, joined
// without a blank; a final backslash joins the next line with a blank, as in unit files.
func scan(file string, data []byte) ([]assignment, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: is larger than %d bytes", file, maxFile)
	}
	s := scanner{file: file}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	for text := range strings.Lines(string(data)) {
		s.line++
		if err := s.take(strings.TrimRight(text, "\r\n")); err != nil {
			return nil, err
		}
	}
	if s.open {
		return nil, s.fault("the last line ends in a backslash, but nothing follows it; remove the backslash")
	}
	return s.out, nil
}

type scanner struct {
	file    string
	line    int
	section string
	open    bool // the line before ended in a backslash
	fresh   bool // the line before was an assignment or its continuation
	out     []assignment
}

func (s *scanner) fault(format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", s.file, s.line, fmt.Sprintf(format, args...))
}

func (s *scanner) take(text string) error {
	if !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0 {
		return s.fault("contains bytes that are not UTF-8 text")
	}
	trimmed := strings.TrimSpace(text)
	switch {
	case trimmed == "" && !s.open:
		s.fresh = false
		return nil
	case trimmed != "" && (trimmed[0] == '#' || trimmed[0] == ';'):
		return nil // also between continuation lines
	case s.open:
		return s.join(trimmed, " ")
	case text[0] == ' ' || text[0] == '\t':
		if !s.fresh {
			return s.fault("is indented, but there is no assignment before it to continue")
		}
		return s.join(trimmed, "")
	case text[0] == '[':
		return s.header(trimmed)
	}
	return s.assign(trimmed)
}

// join appends a continuation. What looks like an assignment to a known key is none: the
// backslash before it was meant as part of a value, and would swallow the key silently.
func (s *scanner) join(text, with string) error {
	if key, _, ok := strings.Cut(text, "="); ok && s.open && known(strings.TrimSpace(key)) {
		return s.fault("the line before ends in a backslash, so %s= would become part of its value; remove the backslash", strings.TrimSpace(key))
	}
	last := &s.out[len(s.out)-1]
	text, s.open = strings.CutSuffix(text, `\`)
	last.value = strings.TrimSpace(last.value + with + strings.TrimSpace(text))
	return nil
}

func (s *scanner) header(text string) error {
	name, ok := strings.CutSuffix(text[1:], "]")
	if name = strings.Join(strings.Fields(name), " "); !ok || name == "" || strings.ContainsAny(name, "[]") {
		return s.fault("expected [section], got %q", text)
	}
	s.section, s.fresh = name, false
	return nil
}

func (s *scanner) assign(text string) error {
	key, value, ok := strings.Cut(text, "=")
	key = strings.TrimSpace(key)
	switch {
	case !ok:
		return s.fault("expected KEY=VALUE, got %q", text)
	case key == "":
		return s.fault("there is no key before the =")
	case s.section == "":
		return s.fault("%s= stands before the first [section]", key)
	}
	value, s.open = strings.CutSuffix(value, `\`)
	s.out = append(s.out, assignment{s.section, key, strings.TrimSpace(value), s.file, s.line})
	s.fresh = true
	return nil
}
