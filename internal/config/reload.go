package config

import "slices"

// Changed compares two configurations of the manager: which keys a reload applies, and
// which need a restart. A key of another section than [manager] is named with it.
func (c *Manager) Changed(to *Manager) (applied, restart []string) {
	applied, restart = changed(managerSection, "", c, to)
	var names []string
	for _, n := range append(slices.Clone(c.sections), to.sections...) {
		if !slices.Contains(names, n.Name) {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		from, next := c.section(name), to.section(name)
		a, r := changed(nodeSection, "[node "+name+"] ", from, next)
		applied, restart = append(applied, a...), append(restart, r...)
	}
	return applied, restart
}

// section is what the section of a node says, or would say if it stood there.
func (c *Manager) section(name string) *Node {
	for _, n := range c.sections {
		if n.Name == name {
			return n
		}
	}
	n := (&Manager{}).Node(name)
	return &n
}

// Changed compares two configurations of an agent as Manager.Changed does.
func (c *Agent) Changed(to *Agent) (applied, restart []string) {
	applied, restart = changed(agentSection, "", c, to)
	a, r := changed(policySection, "[policy] ", &c.Policy, &to.Policy)
	return append(applied, a...), append(restart, r...)
}

func changed(section, prefix string, from, to any) (applied, restart []string) {
	for _, k := range in(section) {
		if k.format(k.field(from)) == k.format(k.field(to)) {
			continue
		}
		if k.reload {
			applied = append(applied, prefix+k.name)
		} else {
			restart = append(restart, prefix+k.name)
		}
	}
	return applied, restart
}

// KeepUntilRestart gives c the values of now of all keys that take effect at the next start
// only. c is then what is in effect after a reload.
func (c *Manager) KeepUntilRestart(now *Manager) { keep(managerSection, c, now) }

// KeepUntilRestart gives c the values of now of all keys that take effect at the next start
// only. c is then what is in effect after a reload.
func (c *Agent) KeepUntilRestart(now *Agent) { keep(agentSection, c, now) }

func keep(section string, to, from any) {
	for _, k := range in(section) {
		if !k.reload {
			k.copy(k.field(to), k.field(from))
		}
	}
}
