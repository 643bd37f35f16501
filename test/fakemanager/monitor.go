package fakemanager

import (
	"slices"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

type monitor struct {
	owner string
	subs  []subscription
}

type subscription struct {
	node  unit.Glob
	units []unit.Glob
	all   bool // the pseudo-unit "*" too
}

func (m *Manager) newMonitor(owner string) dbus.ObjectPath {
	m.lastMon++
	m.mons[m.lastMon] = &monitor{owner: owner}
	return dbus.ObjectPath(wire.MonitorPath(m.lastMon))
}

func (m *Manager) serveMonitor(c *call) error {
	id, _ := wire.ParseMonitorPath(c.path)
	mon := m.mons[id]
	if mon == nil {
		return wire.ErrNoSuchMonitor.With("monitor %d does not exist", id)
	}
	switch c.member {
	case "Close":
		delete(m.mons, id)
		c.reply()
		return nil
	case "SubscribeList":
		var node string
		var units []string
		if err := dbus.Store(c.body, &node, &units); err != nil {
			return wire.ErrInvalidArgs.With("%v", err)
		}
		return m.subscribe(c, id, mon, node, units)
	}
	return wire.ErrUnknownMethod.With("no method %s", c.member)
}

func (m *Manager) subscribe(c *call, id uint32, mon *monitor, node string, units []string) error {
	var sub subscription
	var err error
	if sub.node, err = unit.CompileGlob(node); err != nil {
		return wire.ErrInvalidArgs.With("%v", err)
	}
	for _, pattern := range units {
		g, err := unit.CompileGlob(pattern)
		if err != nil {
			return wire.ErrInvalidArgs.With("%v", err)
		}
		sub.units = append(sub.units, g)
	}
	sub.all = slices.Contains(units, "*")
	mon.subs = append(mon.subs, sub)
	m.lastSub++
	c.reply(m.lastSub)
	for _, n := range m.fleet.Nodes {
		if !n.Offline && sub.node.Match(n.Name) {
			m.round(id, mon, n, sub, sub.all)
		}
	}
	return nil
}

// round tells a new subscription the present state.
func (m *Manager) round(id uint32, mon *monitor, n *Node, sub subscription, all bool) {
	event := func(member string, values ...any) {
		m.emit(mon.owner, wire.MonitorPath(id), wire.MonitorInterface, member, append([]any{n.Name}, values...)...)
	}
	if all {
		event("UnitNew", "*", "virtual")
		event("UnitStateChanged", "*", "active", "running", "virtual")
	}
	for _, u := range n.Units {
		if sub.matches(u.Name) && u.Load == "loaded" {
			event("UnitNew", u.Name, "virtual")
			event("UnitStateChanged", u.Name, u.Active, u.Sub, "virtual")
		}
	}
}

func (s *subscription) matches(name string) bool {
	return slices.ContainsFunc(s.units, func(g unit.Glob) bool { return g.Match(name) })
}

// unitChanged tells monitors about the state that a unit has now, and its properties.
func (m *Manager) unitChanged(node string, u *Unit) {
	m.monitorEvents(node, u.Name, "UnitStateChanged", u.Active, u.Sub, "real")
	byInterface := map[string]properties{}
	for name, value := range u.Properties {
		iface, property := interfaceOf(name)
		if v, err := parseValue(value); err == nil {
			if byInterface[iface] == nil {
				byInterface[iface] = properties{}
			}
			byInterface[iface][property] = v
		}
	}
	for iface, props := range byInterface {
		m.monitorEvents(node, u.Name, "UnitPropertiesChanged", iface, props)
	}
}

// monitorEvents sends an event to all monitors that want it.
func (m *Manager) monitorEvents(node, name, member string, values ...any) {
	for id := uint32(1); id <= m.lastMon; id++ {
		mon := m.mons[id]
		if mon != nil && slices.ContainsFunc(mon.subs, func(s subscription) bool { return s.node.Match(node) && s.matches(name) }) {
			m.emit(mon.owner, wire.MonitorPath(id), wire.MonitorInterface, member, append([]any{node, name}, values...)...)
		}
	}
}

func (m *Manager) change(node string, u *Unit, active, sub string, props map[string]string) {
	u.Active, u.Sub = active, sub
	if u.Properties == nil {
		u.Properties = map[string]string{}
	}
	for key, value := range props {
		u.Properties[key] = value
	}
	m.unitChanged(node, u)
}

// ChangeUnit sets a unit's state and properties, as if something had happened on the node.
func (m *Manager) ChangeUnit(node, name, active, sub string, props map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.change(node, m.fleet.node(node).unit(name), active, sub, props)
}
