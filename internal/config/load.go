package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"
)

// Options say where to read a configuration from.
type Options struct {
	Root     string              // before /usr/lib and /etc, for tests
	File     string              // -c FILE, read after all others; must exist
	Getenv   func(string) string // nil: no environment
	Flags    []Flag              // command line, wins over all
	User     bool                // read the user's files instead of the system's
	Hostname string
}

// Flag is one setting of the command line.
type Flag struct {
	Option string // as typed, for error texts: --port
	Key    string
	Value  string
}

// origin is where a value comes from.
type origin struct {
	name string // a file, an environment variable or an option; "" is the default
	line int
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

// LoadManager reads the manager's configuration. An error names file and line, or the
// option.
func LoadManager(opt Options) (*Manager, error) {
	c := &Manager{}
	l := loader{opt: opt, section: managerSection, target: c, common: &c.Common}
	l.node = func(name string) *Node {
		for _, n := range c.sections {
			if n.Name == name {
				return n
			}
		}
		n := &Node{Name: name}
		c.sections = append(c.sections, n)
		return n
	}
	if err := l.load(); err != nil {
		return nil, err
	}
	return c, c.finish(opt)
}

// LoadAgent reads an agent's configuration. An error names file and line, or the option.
func LoadAgent(opt Options) (*Agent, error) {
	c := &Agent{}
	l := loader{opt: opt, section: agentSection, target: c, common: &c.Common}
	if err := l.load(); err != nil {
		return nil, err
	}
	return c, c.finish(opt)
}

type loader struct {
	opt     Options
	section string // which is also the base of the file names
	target  any
	common  *Common
	node    func(name string) *Node // nil where [node NAME] is no section
}

func (l *loader) load() error {
	l.common.origins = make(map[string]origin)
	for i := range keys {
		if k := &keys[i]; k.section == l.section && k.def != "" {
			if err := k.set(k.field(l.target), k.def, false); err != nil {
				return fmt.Errorf("default of %s=: %w", k.name, err)
			}
		}
	}
	files, err := l.files()
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := l.file(file); err != nil {
			return err
		}
	}
	if err := l.environment(); err != nil {
		return err
	}
	if l.opt.File != "" {
		if err := l.file(l.opt.File); err != nil {
			return err
		}
	}
	for _, f := range l.opt.Flags {
		if err := l.outside(f.Option, f.Key, f.Value); err != nil {
			return err
		}
	}
	return nil
}

// files lists the files that are there: the main ones, then the drop-ins of all folders by
// file name, where one below /etc takes the place of its namesake below /usr/lib.
func (l *loader) files() ([]string, error) {
	folders := []string{filepath.Join(l.opt.Root, "/usr/lib/ctrl"), filepath.Join(l.opt.Root, "/etc/ctrl")}
	if l.opt.User {
		folders = []string{filepath.Join(l.opt.Root, l.userFolder())}
	}
	var out []string
	dropIns := make(map[string]string)
	for _, folder := range folders {
		main := filepath.Join(folder, l.section+".conf")
		if _, err := os.Stat(main); err == nil {
			out = append(out, main)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("cannot read configuration: %w", err)
		}
		entries, err := os.ReadDir(main + ".d")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("cannot read configuration: %w", err)
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".conf") && !e.IsDir() {
				dropIns[e.Name()] = filepath.Join(main+".d", e.Name())
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(dropIns)) {
		out = append(out, dropIns[name])
	}
	return out, nil
}

func (l *loader) userFolder() string {
	if l.opt.Getenv != nil {
		if dir := l.opt.Getenv("XDG_CONFIG_HOME"); dir != "" {
			return filepath.Join(dir, "ctrl")
		}
		if dir := l.opt.Getenv("HOME"); dir != "" {
			return filepath.Join(dir, ".config/ctrl")
		}
	}
	return "/nonexistent/ctrl"
}

func (l *loader) file(name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("cannot read configuration: %w", err)
	}
	assignments, err := scan(name, data)
	if err != nil {
		return err
	}
	seen := make(map[string]assignment)
	for _, a := range assignments {
		if err := l.assign(a, seen); err != nil {
			return fmt.Errorf("%s: %w", a.where(), err)
		}
	}
	return nil
}

func (l *loader) assign(a assignment, seen map[string]assignment) error {
	section, target, err := l.place(a.section)
	if err != nil {
		return err
	}
	k := find(section, a.key)
	if k == nil {
		return unknownKey(section, a)
	}
	id := a.section + " " + a.key
	if before, twice := seen[id]; twice && k.kind != list {
		return fmt.Errorf("%s= is set twice in this file, in line %d already", a.key, before.line)
	}
	seen[id] = a
	if err := k.set(k.field(target), a.value, true); err != nil {
		return fmt.Errorf("%s=: %w", a.key, err)
	}
	l.common.origins[id] = origin{a.file, a.line}
	if a.value == "" && k.kind != list {
		delete(l.common.origins, id)
	}
	return nil
}

// place finds what a section sets.
func (l *loader) place(section string) (string, any, error) {
	if section == l.section {
		return section, l.target, nil
	}
	name, isNode := strings.CutPrefix(section, nodeSection+" ")
	switch {
	case isNode && l.node != nil:
		if err := checkNodeName(name); err != nil {
			return "", nil, fmt.Errorf("section [%s]: node name %w", section, err)
		}
		return nodeSection, l.node(name), nil
	case l.node != nil:
		return "", nil, fmt.Errorf("section [%s] is not known here; the manager has [%s] and [node NAME]", section, managerSection)
	}
	return "", nil, fmt.Errorf("section [%s] is not known here; the agent has [%s]", section, agentSection)
}

func unknownKey(section string, a assignment) error {
	if renamed := strings.Replace(a.key, "Controller", "Manager", 1); renamed != a.key && find(section, renamed) != nil {
		return fmt.Errorf("key %s= is not known; here it is called %s=", a.key, renamed)
	}
	if near := nearest(a.key, names(section)); near != "" {
		return fmt.Errorf("key %s= is not known in [%s]; did you mean %s=?", a.key, a.section, near)
	}
	return fmt.Errorf("key %s= is not known in [%s]", a.key, a.section)
}

// environment names the variables that set a key (cli.md); an empty one is not set.
var environment = []struct{ variable, key string }{
	{"CTRL_LOG_LEVEL", "LogLevel"}, {"CTRL_LOG_TARGET", "LogTarget"}, {"CTRL_LOG_IS_QUIET", "LogIsQuiet"},
}

func (l *loader) environment() error {
	if l.opt.Getenv == nil {
		return nil
	}
	for _, e := range environment {
		if value := l.opt.Getenv(e.variable); value != "" {
			if err := l.outside(e.variable, e.key, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// outside sets a key from outside of the files. A list given there replaces the files'.
func (l *loader) outside(name, keyName, value string) error {
	k := find(l.section, keyName)
	if k == nil {
		return fmt.Errorf("%s: there is no key %s", name, keyName)
	}
	if k.kind == list {
		k.set(k.field(l.target), "", true)
	}
	if err := k.set(k.field(l.target), value, true); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	l.common.origins[l.section+" "+keyName] = origin{name: name}
	return nil
}

// set parses a value into a field. An empty value is the default, and of a list nothing.
func (k *key) set(field any, value string, overDefault bool) error {
	if value == "" && overDefault && k.kind != list {
		value = k.def
	}
	if k.check != nil && k.kind != list && value != "" {
		if err := k.check(value); err != nil {
			return err
		}
	}
	var err error
	switch f := field.(type) {
	case *bool:
		*f, err = parseBool(value)
	case *int:
		var n int64
		n, err = parseInt(value, k.low, k.high)
		*f = int(n)
	case *time.Duration:
		*f, err = parseSpan(value, k.unit)
	case *[]string:
		return k.setList(f, value)
	case *string:
		*f = value
		if k.kind == word {
			*f, err = parseWord(value, k.words)
		}
		if k.kind == path && value != "" && !filepath.IsAbs(value) {
			err = fmt.Errorf("%q is no absolute path", value)
		}
	}
	return err
}

func (k *key) setList(f *[]string, value string) error {
	if value == "" {
		*f = nil
		return nil
	}
	separator := k.split
	if separator == "" {
		separator = ","
	}
	for _, entry := range parseList(value, separator) {
		if k.check != nil {
			if err := k.check(entry); err != nil {
				return err
			}
		}
		if !slices.Contains(*f, entry) {
			*f = append(*f, entry)
		}
	}
	return nil
}

func join(words []string) string {
	sort.Strings(words)
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
