package journal

import (
	"strings"
	"unicode/utf8"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// maxEntries is how many entries one answer holds at most.
const maxEntries = 2000

// collector puts entries together into one answer.
type collector struct {
	entries []wire.LogEntry
	size    int
	most    int // bytes
}

// add takes an entry, if there is room. The first one is cut where it has to be.
func (c *collector) add(e *entry) bool {
	size := e.size()
	if len(c.entries) > 0 && (c.size+size > c.most || len(c.entries) >= maxEntries) {
		return false
	}
	if size > c.most {
		e.shrink(size - c.most)
	}
	c.size += size
	c.entries = append(c.entries, e.wire())
	return true
}

// shrink takes so many bytes off the largest fields.
func (e *entry) shrink(by int) {
	for by > 0 {
		largest := -1
		for i, f := range e.fields {
			if largest < 0 || len(f.value) > len(e.fields[largest].value) {
				largest = i
			}
		}
		if largest < 0 || len(e.fields[largest].value) == 0 {
			return
		}
		f := &e.fields[largest]
		off := min(by, max(len(f.value)/2, 1))
		f.value, f.cut = f.value[:len(f.value)-off], true
		by -= off
	}
}

// wire makes of an entry what travels.
func (e *entry) wire() wire.LogEntry {
	out := wire.LogEntry{Time: e.time, Cursor: e.cursor, Fields: make(map[string]wire.Value, len(e.fields))}
	var cut []string
	var more map[string][]field
	for _, f := range e.fields {
		if f.cut {
			cut = append(cut, strings.ToValidUTF8(f.name, "?"))
			f.value = wholeText(f.value)
		}
		if !validName(f.name) {
			continue
		}
		if _, twice := out.Fields[f.name]; twice {
			if more == nil {
				more = make(map[string][]field)
			}
			more[f.name] = append(more[f.name], f)
			continue
		}
		out.Fields[f.name] = value(f.value)
	}
	for name, others := range more {
		out.Fields[name] = values(append([]field{e.first(name)}, others...))
	}
	if cut != nil {
		out.Fields[wire.LogFieldCut] = peer.MustValue(cut)
	}
	return out
}

func (e *entry) first(name string) field {
	for _, f := range e.fields {
		if f.name == name {
			return f
		}
	}
	return field{}
}

// wholeText takes off the beginning of a character that was cut.
func wholeText(b []byte) []byte {
	for i := 1; i <= min(utf8.UTFMax-1, len(b)); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// validName reports whether a field has a name as journald makes them
// (journal_field_valid in systemd), or is our own note.
func validName(name string) bool {
	if name == wire.LogFieldNote {
		return true
	}
	return name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

func isText(b []byte) bool {
	return utf8.Valid(b) && !strings.ContainsRune(string(b), 0)
}

func value(b []byte) wire.Value {
	if isText(b) {
		return peer.MustValue(string(b))
	}
	return peer.MustValue(b)
}

func values(fields []field) wire.Value {
	text, raw := make([]string, len(fields)), make([][]byte, len(fields))
	all := true
	for i, f := range fields {
		text[i], raw[i] = string(f.value), f.value
		all = all && isText(f.value)
	}
	if all {
		return peer.MustValue(text)
	}
	return peer.MustValue(raw)
}
