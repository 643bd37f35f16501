package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// layer orders the sources: what comes from a later one wins.
type layer uint8

const (
	layerDefault layer = iota
	layerFiles
	layerEnvironment
	layerFile // -c
	layerFlag
)

// origin is where a value comes from.
type origin struct {
	name  string // a file, an environment variable or an option; "" is the default
	line  int    // in a file
	layer layer
}

func (o origin) String() string {
	switch {
	case o.name == "":
		return "default"
	case o.line == 0:
		return o.name
	}
	return fmt.Sprintf("%s:%d", o.name, o.line)
}

// entry is one value of a key as some source writes it. A list may have many, which add up.
type entry struct {
	key    string
	text   string
	origin origin
}

// settings are the entries of all keys that some source sets, by section ("node a" is one of
// its own). No entry is empty.
type settings struct {
	sections []string // in the order in which they appeared
	entries  map[string][]entry
}

func newSettings() *settings { return &settings{entries: make(map[string][]entry)} }

func place(section, name string) string { return section + "\x00" + name }

// put takes a value: an empty one means the default, and resets a list.
func (s *settings) put(section string, k *key, text string, o origin) {
	at := place(section, k.name)
	if text == "" || !k.adds() || o.layer == layerFlag {
		delete(s.entries, at)
	}
	if text != "" {
		s.entries[at] = append(s.entries[at], entry{k.name, text, o})
	}
	s.open(section)
}

// open notes that there is a section, also an empty one.
func (s *settings) open(section string) {
	if !slices.Contains(s.sections, section) {
		s.sections = append(s.sections, section)
	}
}

func (s *settings) forget(section, name string) { delete(s.entries, place(section, name)) }

// last is the entry that counts, nil where no source sets the key.
func (s *settings) last(section, name string) *entry {
	list := s.entries[place(section, name)]
	if len(list) == 0 {
		return nil
	}
	return &list[len(list)-1]
}

// origins finds for each word of a list the first line that holds it.
func (s *settings) origins(section, name string) map[string]*entry {
	first := make(map[string]*entry)
	list := s.entries[place(section, name)]
	for i := range list {
		for _, word := range splitList(list[i].text, find(section, name).separator()) {
			if first[word] == nil {
				first[word] = &list[i]
			}
		}
	}
	return first
}

// say names a key with its value and where that comes from, for errors about several keys.
func (s *settings) say(section, name string) string {
	if e := s.last(section, name); e != nil {
		return fmt.Sprintf("%s=%s (%s)", name, e.text, e.origin)
	}
	return fmt.Sprintf("%s=%s (default)", name, find(section, name).def)
}

// apply sets the fields of a target from the defaults and the entries of a section, which may
// be one of several of its kind. A list keeps the first of equal entries.
func (s *settings) apply(section, kind string, target any) []error {
	var faults []error
	for _, k := range in(kind) {
		field := k.field(target)
		list := s.entries[place(section, k.name)]
		if len(list) == 0 {
			k.clear(field)
			if k.def != "" {
				faults = append(faults, k.set(field, k.def)) // a test sets every default
			}
			continue
		}
		k.clear(field)
		for _, e := range list {
			if err := k.set(field, e.text); err != nil {
				faults = append(faults, fmt.Errorf("%s: %s=: %w%s", e.origin, k.name, err, inlineComment(e.text)))
			}
		}
		if words, ok := field.(*[]string); ok {
			*words = unique(*words)
		}
	}
	return faults
}

// inlineComment explains a value that somebody has put a comment behind.
func inlineComment(text string) string {
	if strings.Contains(text, " #") || strings.Contains(text, " ;") || strings.Contains(text, "\t#") {
		return "; comments stand on lines of their own"
	}
	return ""
}

func unique(words []string) []string {
	var out []string
	for _, w := range words {
		if !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}

// noteLater says which keys were set for nothing.
func (s *settings) noteLater(c *Common) {
	for _, section := range s.sections {
		kind, _, _ := strings.Cut(section, " ")
		for _, k := range in(kind) {
			if e := s.last(section, k.name); e != nil && k.later {
				c.Notes = append(c.Notes, fmt.Sprintf("%s= (%s) has no effect in this version", k.name, e.origin))
			}
		}
	}
}

// together makes one error of all that are none nil, at most maxFaults.
func together(faults []error) error {
	faults = slices.DeleteFunc(faults, func(err error) bool { return err == nil })
	if n := len(faults) - maxFaults; n > 0 {
		faults = append(faults[:maxFaults:maxFaults], fmt.Errorf("and %d more", n))
	}
	return errors.Join(faults...)
}
