package config

import (
	"fmt"
	"strings"
	"time"
)

// kind is the type of a key's value.
type kind uint8

const (
	boolean kind = iota
	number
	span
	text
	word
	list
	path
	nodeLoss
)

// key is one row of the table.
type key struct {
	section  string
	name     string
	kind     kind
	def      string        // default, as it would be written
	unit     time.Duration // of a bare number where kind is span
	low      int64         // limits where kind is number, or of a span in nanoseconds
	high     int64
	off      bool     // where kind is span: 0 and infinity switch the thing off, low is for others
	whole    bool     // where kind is span: whole seconds only
	words    []string // where kind is word
	split    string   // separator where kind is list, "" is a comma
	single   bool     // a list that one line gives whole: it replaces what is before it
	reload   bool     // SIGHUP applies it
	later    bool     // nothing in this version uses it
	example  string   // for the sample, where the default is empty
	doc      string
	field    func(any) any // the field of a Manager, Agent, Node or Policy that it sets
	check    func(string) error
	variable string // of the environment
}

// Sections of the files.
const (
	managerSection = "manager"
	agentSection   = "agent"
	nodeSection    = "node"
	policySection  = "policy"
)

const ms = time.Millisecond

// keys is the table. Its order is the order of the samples and the documentation.
var keys = join(managerKeys, commonKeys(managerSection), nodeKeys, agentKeys, commonKeys(agentSection), policyKeys)

func join(parts ...[]key) []key {
	var all []key
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func of[T any](field func(*T) any) func(any) any {
	return func(c any) any {
		if c, ok := c.(*T); ok {
			return field(c)
		}
		return nil
	}
}

func common(field func(*Common) any) func(any) any {
	return func(c any) any {
		switch c := c.(type) {
		case *Manager:
			return field(&c.Common)
		case *Agent:
			return field(&c.Common)
		}
		return nil
	}
}

// known reports whether some section has a key of that name.
func known(name string) bool {
	for i := range keys {
		if keys[i].name == name {
			return true
		}
	}
	return false
}

func find(section, name string) *key {
	for i := range keys {
		if keys[i].section == section && keys[i].name == name {
			return &keys[i]
		}
	}
	return nil
}

// in lists the keys of a section.
func in(section string) []*key {
	var out []*key
	for i := range keys {
		if keys[i].section == section {
			out = append(out, &keys[i])
		}
	}
	return out
}

func names(section string) []string {
	var out []string
	for _, k := range in(section) {
		out = append(out, k.name)
	}
	return out
}

func (k *key) separator() string {
	if k.split == "" {
		return ","
	}
	return k.split
}

// adds reports whether values add up instead of replacing each other.
func (k *key) adds() bool { return k.kind == list && !k.single }

// set parses a value into a field: of a list the entries of one line, which it appends.
func (k *key) set(field any, value string) error {
	var err error
	switch f := field.(type) {
	case *bool:
		*f, err = parseBool(value)
	case *int:
		*f, err = parseInt(value, k.low, k.high)
	case *time.Duration:
		*f, err = k.parseSpan(value)
	case *NodeLoss:
		*f, err = ParseNodeLoss(value)
	case *string:
		*f, err = k.parseText(value)
	case *[]string:
		for _, entry := range splitList(value, k.separator()) {
			if entry, err = k.parseText(entry); err != nil {
				return err
			}
			*f = append(*f, entry)
		}
	}
	return err
}

func (k *key) parseText(value string) (string, error) {
	if k.kind == word {
		return parseWord(value, k.words)
	}
	if k.kind == path {
		return value, checkPath(value)
	}
	if k.check != nil {
		return value, k.check(value)
	}
	return value, nil
}

func (k *key) parseSpan(value string) (time.Duration, error) {
	d, err := parseSpan(value, k.unit)
	low, high := time.Duration(k.low), time.Duration(k.high)
	switch {
	case err != nil:
		return 0, err
	case k.off && (d == 0 || d == Forever):
		return 0, nil
	case d == Forever && high == Forever:
		return d, nil
	case d < low && k.unit == ms && strings.Trim(value, "0123456789") == "":
		return 0, fmt.Errorf("%s is %s, since a number alone is in milliseconds here, and at least %s are wanted; write %ss for seconds",
			clip(value), formatSpan(d), formatSpan(low), value)
	case d < low, d > high:
		return 0, fmt.Errorf("%s is not between %s and %s", clip(value), formatSpan(low), formatSpan(high))
	case k.whole && d%time.Second != 0:
		return 0, fmt.Errorf("%s is no whole number of seconds, and the kernel takes no part of one", clip(value))
	}
	return d, nil
}

// format writes a field as set reads it.
func (k *key) format(field any) string {
	switch f := field.(type) {
	case *bool:
		return formatBool(*f)
	case *int:
		return fmt.Sprint(*f)
	case *time.Duration:
		return formatSpan(*f)
	case *NodeLoss:
		return f.String()
	case *string:
		return *f
	case *[]string:
		return strings.Join(*f, k.separator())
	}
	return ""
}

// clear gives a field its zero value.
func (k *key) clear(field any) {
	switch f := field.(type) {
	case *bool:
		*f = false
	case *int:
		*f = 0
	case *time.Duration:
		*f = 0
	case *NodeLoss:
		*f = NodeLoss{}
	case *string:
		*f = ""
	case *[]string:
		*f = nil
	}
}

// copy gives one field the value of the same field elsewhere.
func (k *key) copy(to, from any) {
	switch f := from.(type) {
	case *bool:
		*to.(*bool) = *f
	case *int:
		*to.(*int) = *f
	case *time.Duration:
		*to.(*time.Duration) = *f
	case *NodeLoss:
		*to.(*NodeLoss) = *f
	case *string:
		*to.(*string) = *f
	case *[]string:
		*to.(*[]string) = *f
	}
}
