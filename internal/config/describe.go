package config

import (
	"fmt"
	"strings"
	"time"
)

// Section describes one kind of section to people.
type Section struct {
	File  string // manager.conf or agent.conf
	Title string // as it is written, without brackets
	Keys  []Key
}

// Key describes one key to people.
type Key struct {
	Name    string
	Type    string
	Default string // as it is written; "" is none
	Example string // where there is no default
	Reload  bool   // SIGHUP applies a change
	Later   bool   // nothing in this version uses it
	Doc     string
}

// Sections are all sections of both files, with their keys in the order of the table.
func Sections() []Section {
	var out []Section
	for _, s := range []struct{ file, title, kind string }{
		{"manager.conf", "manager", managerSection}, {"manager.conf", "node NAME", nodeSection},
		{"agent.conf", "agent", agentSection}, {"agent.conf", "policy", policySection},
	} {
		section := Section{File: s.file, Title: s.title}
		for _, k := range in(s.kind) {
			section.Keys = append(section.Keys, Key{k.name, k.typeName(), k.def, k.example, k.reload, k.later, k.doc})
		}
		out = append(out, section)
	}
	return out
}

func (k *key) typeName() string {
	switch k.kind {
	case boolean:
		return "yes or no"
	case number:
		return fmt.Sprintf("%d to %d", k.low, k.high)
	case span:
		unit := "s"
		if k.unit == time.Millisecond {
			unit = "ms"
		}
		return "time span, alone in " + unit
	case word:
		return strings.Join(k.words, ", ")
	case list:
		return "list, separator " + k.separator()
	case path:
		return "absolute path"
	case nodeLoss:
		return "keep, stop, stop-after=TIME"
	}
	return "text"
}
