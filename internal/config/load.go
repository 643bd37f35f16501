package config

import (
	"fmt"
	"slices"
	"strings"
)

// Options say where to read a configuration from.
type Options struct {
	Root     string              // before /usr/lib and /etc, for tests
	File     string              // -c FILE, read after all others; must exist
	Getenv   func(string) string // nil: no environment
	Flags    []Flag              // command line, wins over all
	User     bool                // read the user's files instead of the system's
	Hostname string              // what NodeName= is by default
	// CheckAddress, if there is one, says more about an address in ManagerAddress=.
	CheckAddress func(string) error
}

// Flag is one setting of the command line.
type Flag struct {
	Option string // as typed, for error texts: --port
	Key    string
	Value  string
}

func (o *Options) getenv(name string) string {
	if o.Getenv == nil {
		return ""
	}
	return o.Getenv(name)
}

// LoadManager reads the manager's configuration. An error holds all that is wrong, a line for
// each with file and line, or the option.
func LoadManager(opt Options) (*Manager, error) {
	c := &Manager{}
	l := loader{opt: opt, main: managerSection, others: []string{nodeSection}, settings: newSettings()}
	c.settings = l.settings
	l.load()
	l.fault(l.settings.apply(managerSection, managerSection, c)...)
	for _, section := range l.settings.sections {
		if name, ok := strings.CutPrefix(section, nodeSection+" "); ok {
			n := &Node{Name: name}
			l.fault(l.settings.apply(section, nodeSection, n)...)
			c.sections = append(c.sections, n)
		}
	}
	l.places(&c.Places)
	if len(l.faults) == 0 {
		l.fault(c.finish()...)
	}
	if err := together(l.faults); err != nil {
		return nil, err
	}
	return c, nil
}

// LoadAgent reads an agent's configuration. An error holds all that is wrong, a line for each
// with file and line, or the option.
func LoadAgent(opt Options) (*Agent, error) {
	c := &Agent{}
	l := loader{opt: opt, main: agentSection, others: []string{policySection}, settings: newSettings()}
	c.settings = l.settings
	l.load()
	l.fault(l.settings.apply(agentSection, agentSection, c)...)
	l.fault(l.settings.apply(policySection, policySection, &c.Policy)...)
	l.places(&c.Places)
	if len(l.faults) == 0 {
		l.fault(c.finish(opt.Hostname)...)
		l.addresses(c.ManagerAddress)
	}
	if err := together(l.faults); err != nil {
		return nil, err
	}
	return c, nil
}

// loader collects what all sources say.
type loader struct {
	opt      Options
	main     string   // section of the daemon, which is also the base of the file names
	others   []string // kinds of sections that may stand beside it
	settings *settings
	faults   []error
}

func (l *loader) fault(faults ...error) {
	for _, err := range faults {
		if err != nil {
			l.faults = append(l.faults, err)
		}
	}
}

func (l *loader) load() {
	files, err := l.files()
	l.fault(err)
	for _, file := range files {
		l.file(file, layerFiles)
	}
	for _, k := range in(l.main) {
		if k.variable == "" {
			continue
		}
		if value := l.opt.getenv(k.variable); value != "" {
			l.settings.put(l.main, k, value, origin{name: k.variable, layer: layerEnvironment})
		}
	}
	if l.opt.File != "" {
		l.file(l.opt.File, layerFile)
	}
	for _, f := range l.opt.Flags {
		k := find(l.main, f.Key)
		if k == nil {
			l.fault(fmt.Errorf("%s: there is no key %s", f.Option, f.Key))
			continue
		}
		if f.Value == "" {
			l.fault(fmt.Errorf("%s: needs a value", f.Option))
		}
		l.settings.put(l.main, k, f.Value, origin{name: f.Option, layer: layerFlag})
	}
}

func (l *loader) addresses(list []string) {
	e := l.settings.last(agentSection, "ManagerAddress")
	if l.opt.CheckAddress == nil || e == nil {
		return
	}
	for _, address := range list {
		if err := l.opt.CheckAddress(address); err != nil {
			l.fault(fmt.Errorf("%s: ManagerAddress=: %w", e.origin, err))
		}
	}
}

// file takes the assignments of one file. Of a file with mistakes nothing is taken.
func (l *loader) file(name string, from layer) {
	data, err := read(name, from == layerFile)
	if err != nil {
		l.fault(err)
		return
	}
	list, headers, err := scan(name, data)
	if err != nil {
		l.fault(err)
		return
	}
	bad := make(map[string]bool)
	for _, h := range headers {
		if bad[h.section] {
			continue
		}
		if err := l.checkSection(h.section); err != nil {
			l.fault(fmt.Errorf("%s:%d: %w", name, h.line, err))
			bad[h.section] = true
			continue
		}
		l.settings.open(h.section)
	}
	lines := make(map[string]int)
	for _, a := range list {
		if !bad[a.section] {
			if err := l.assign(a, origin{name, a.line, from}, lines); err != nil {
				l.fault(fmt.Errorf("%s:%d: %w", name, a.line, err))
			}
		}
	}
}

func (l *loader) assign(a assignment, o origin, lines map[string]int) error {
	kind, _, _ := strings.Cut(a.section, " ")
	k := find(kind, a.key)
	if k == nil {
		return l.unknownKey(kind, a)
	}
	at := place(a.section, a.key)
	if before, twice := lines[at]; twice && !k.adds() {
		return fmt.Errorf("%s= is set twice in this file, in line %d already; remove one", a.key, before)
	}
	lines[at] = a.line
	l.settings.put(a.section, k, a.value, o)
	return nil
}

// checkSection refuses a section that has no meaning for this daemon.
func (l *loader) checkSection(section string) error {
	kind, name, named := strings.Cut(section, " ")
	switch {
	case section == l.main || !named && kind != nodeSection && slices.Contains(l.others, kind):
		return nil
	case kind == nodeSection && slices.Contains(l.others, kind):
		if !named {
			return fmt.Errorf("section [node] has no name; write [node NAME]")
		}
		return checkNodeName(name)
	}
	here := "[manager] and [node NAME]"
	if l.main == agentSection {
		here = "[agent] and [policy]"
	}
	for _, other := range []struct{ kind, file string }{
		{managerSection, "manager.conf"}, {nodeSection, "manager.conf"}, {agentSection, "agent.conf"}, {policySection, "agent.conf"},
	} {
		if kind == other.kind && other.file != l.main+".conf" {
			return fmt.Errorf("section [%s] belongs into %s; here stand %s", section, other.file, here)
		}
	}
	if near := nearest(kind, append([]string{l.main}, l.others...)); near != "" {
		return fmt.Errorf("section [%s] is not known; did you mean [%s]?", section, near)
	}
	return fmt.Errorf("section [%s] is not known; here stand %s", section, here)
}

// unknownKey says what was probably meant.
func (l *loader) unknownKey(kind string, a assignment) error {
	unknown := fmt.Sprintf("key %s= is not known in [%s]", short(a.key), a.section)
	if name := renamed(kind, a.key); name != "" {
		return fmt.Errorf("%s; here it is called %s=", unknown, name)
	}
	if near := nearest(a.key, names(kind)); near != "" && strings.EqualFold(near, a.key) {
		return fmt.Errorf("%s; did you mean %s=?", unknown, near)
	}
	for _, other := range append([]string{l.main}, l.others...) {
		if find(other, a.key) != nil {
			return fmt.Errorf("%s; it belongs into %s", unknown, sectionTitle(other))
		}
	}
	for _, other := range []string{managerSection, nodeSection, agentSection, policySection} {
		if find(other, a.key) != nil {
			return fmt.Errorf("%s; it belongs to the other daemon, into %s", unknown, sectionTitle(other))
		}
	}
	if near := nearest(a.key, names(kind)); near != "" {
		return fmt.Errorf("%s; did you mean %s=?", unknown, near)
	}
	return fmt.Errorf("%s", unknown)
}

// renamed is what a key of BlueChi's, or of the other daemon's, is called here.
func renamed(kind, name string) string {
	switch {
	case kind == managerSection && (name == "ControllerPort" || name == "ManagerPort"):
		return "Port"
	case kind == agentSection && name == "Port":
		return "ManagerPort"
	}
	here := strings.Replace(name, "Controller", "Manager", 1)
	if here == name || find(kind, here) == nil {
		return ""
	}
	return here
}

func sectionTitle(kind string) string {
	if kind == nodeSection {
		return "[node NAME]"
	}
	return "[" + kind + "]"
}
