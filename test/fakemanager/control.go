package fakemanager

import (
	"slices"
	"strings"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/wire"
)

// serveControl is what changes the manager itself.
func (m *Manager) serveControl(c *call) error {
	m.calls = append(m.calls, strings.TrimSpace("manager "+c.member+" "+arguments(c.body)))
	switch c.member {
	case "SetLogLevel":
		if err := checkLevel(c); err != nil {
			return err
		}
		m.logLevel = strings.ToUpper(c.body[0].(string))
	case "EnableMetrics", "DisableMetrics":
		m.metrics = c.member == "EnableMetrics"
		c.reply()
	case "Shutdown":
		c.reply()
		m.leave()
	default:
		return wire.ErrUnknownMethod.With("no method %s", c.member)
	}
	return nil
}

func checkLevel(c *call) error {
	level, _ := c.body[0].(string)
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, strings.ToLower(level)) {
		return wire.ErrInvalidArgs.With("log level %q is not known", level)
	}
	c.reply()
	return nil
}

// measured tells how long a job took: always the same.
func (m *Manager) measured(j *job) {
	if !m.metrics {
		return
	}
	if j.verb == "start" {
		m.emit("", wire.MetricsPath, wire.MetricsInterface, "StartUnitJobMetrics", j.node, string(wire.JobPath(j.id)), j.unit, uint64(12345), uint64(9876))
	}
	m.emit("", wire.MetricsPath, wire.MetricsInterface, "AgentJobMetrics", j.node, j.unit, "StartUnit", uint64(11000))
}

// fleetChanged tells what follows from a node that has come or gone: monitors, and the status
// of the fleet where it is another one than before.
func (m *Manager) fleetChanged(n *Node, before string) {
	for id := uint32(1); id <= m.lastMon; id++ {
		if mon := m.mons[id]; mon != nil {
			m.nodeEvents(id, mon, n)
		}
	}
	if now := m.fleet.status(); now != before {
		m.emitChanged(wire.RootPath, wire.ManagerInterface, map[string]dbus.Variant{"Status": dbus.MakeVariant(now)})
	}
}

// nodeEvents are the virtual events of a node that has come or gone, for one monitor.
func (m *Manager) nodeEvents(id uint32, mon *monitor, n *Node) {
	for _, s := range mon.subs {
		switch {
		case !s.node.Match(n.Name):
		case !n.Offline:
			m.round(id, mon, n, s, s.all)
		default:
			for _, u := range n.Units {
				if s.matches(u.Name) && u.Load == "loaded" {
					m.emit(mon.owner, wire.MonitorPath(id), wire.MonitorInterface, "UnitRemoved", n.Name, u.Name, "virtual")
				}
			}
			if s.all {
				m.emit(mon.owner, wire.MonitorPath(id), wire.MonitorInterface, "UnitRemoved", n.Name, "*", "virtual")
			}
		}
	}
}
