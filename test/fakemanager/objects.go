package fakemanager

import (
	"strings"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

type properties = map[string]dbus.Variant

func (m *Manager) managerProperties() properties {
	var names []string
	for _, n := range m.fleet.Nodes {
		names = append(names, n.Name)
	}
	return properties{
		"Status": dbus.MakeVariant(m.fleet.status()), "Nodes": dbus.MakeVariant(names), "LogLevel": dbus.MakeVariant(m.logLevel),
		"LogTarget": dbus.MakeVariant("stderr"), "Version": dbus.MakeVariant(m.fleet.Version),
	}
}

func (n *Node) properties() properties {
	facts := properties{}
	if n.Agent != "" {
		facts[wire.FactAgentVersion] = dbus.MakeVariant(n.Agent)
		facts[wire.FactSystemdVersion] = dbus.MakeVariant(n.Systemd)
		facts[wire.FactArchitecture] = dbus.MakeVariant("x86-64")
		facts[wire.FactFeatures] = dbus.MakeVariant([]string{"jobs", "monitors"})
	}
	return properties{
		"Name": dbus.MakeVariant(n.Name), "Status": dbus.MakeVariant(n.status()), "PeerIp": dbus.MakeVariant(n.Address),
		"LastSeenTimestamp": dbus.MakeVariant(n.LastSeen), "LastSeenTimestampMonotonic": dbus.MakeVariant(uint64(0)),
		"StatusTimestamp": dbus.MakeVariant(n.Since), "DisconnectReason": dbus.MakeVariant(n.Reason),
		"Optional": dbus.MakeVariant(n.Optional), "Facts": dbus.MakeVariant(facts),
	}
}

func (j *job) properties() properties {
	return properties{
		"Id": dbus.MakeVariant(j.id), "Node": dbus.MakeVariant(j.node), "Unit": dbus.MakeVariant(j.unit),
		"JobType": dbus.MakeVariant(j.verb), "State": dbus.MakeVariant(j.stat),
	}
}

func (m *Manager) objects() map[dbus.ObjectPath]map[string]properties {
	all := map[dbus.ObjectPath]map[string]properties{
		dbus.ObjectPath(wire.RootPath): {wire.ManagerInterface: m.managerProperties()},
	}
	for _, n := range m.fleet.Nodes {
		all[dbus.ObjectPath(wire.NodePath(n.Name))] = map[string]properties{wire.NodeInterface: n.properties()}
	}
	for _, j := range m.jobs {
		all[dbus.ObjectPath(wire.JobPath(j.id))] = map[string]properties{wire.JobInterface: j.properties()}
	}
	return all
}

func (m *Manager) serveProperties(c *call) error {
	var iface string
	if c.member != "GetAll" || dbus.Store(c.body, &iface) != nil {
		return wire.ErrUnknownMethod.With("no method %s", c.member)
	}
	for _, props := range []struct {
		iface string
		props properties
	}{{wire.ManagerInterface, m.managerProperties()}} {
		if iface == props.iface && c.path == wire.RootPath {
			c.reply(props.props)
			return nil
		}
	}
	return wire.ErrUnknownInterface.With("no interface %s", iface)
}

func (m *Manager) serveManager(c *call) error {
	switch c.member {
	case "ListNodes":
		rows := []wire.NodeRow{}
		for _, n := range m.fleet.Nodes {
			rows = append(rows, wire.NodeRow{Name: n.Name, Path: wire.NodePath(n.Name), Status: n.status(), Address: n.Address})
		}
		c.reply(nodeRows(rows))
	case "ListJobs":
		c.reply(m.jobRows())
	case "ListUnitsFiltered":
		return m.listUnits(c)
	case "ListUnitFiles":
		c.reply(m.listUnitFiles())
	case "CancelJob":
		id, _ := c.body[0].(uint32)
		j := m.jobs[id]
		if j == nil {
			return wire.ErrNoSuchJob.With("job %d does not exist", id)
		}
		m.calls = append(m.calls, "cancel "+j.node+" "+j.unit)
		c.reply()
		m.endJob(j, wire.ResultCanceled)
	case "CreateMonitor":
		c.reply(m.newMonitor(c.sender))
	default:
		return m.serveControl(c)
	}
	return nil
}

type nodeRow struct {
	Name    string
	Path    dbus.ObjectPath
	Status  string
	Address string
}

func nodeRows(rows []wire.NodeRow) []nodeRow {
	out := []nodeRow{}
	for _, r := range rows {
		out = append(out, nodeRow{r.Name, dbus.ObjectPath(r.Path), r.Status, r.Address})
	}
	return out
}

type jobRow struct {
	ID                      uint32
	Node, Unit, Type, State string
	Path                    dbus.ObjectPath
}

func (m *Manager) jobRows() []jobRow {
	out := []jobRow{}
	for id := uint32(1); id <= m.lastJob; id++ {
		if j := m.jobs[id]; j != nil {
			out = append(out, jobRow{j.id, j.node, j.unit, j.verb, j.stat, dbus.ObjectPath(wire.JobPath(j.id))})
		}
	}
	return out
}

type unitRow struct {
	Name, Description, Load, Active, Sub, Followed string
	Path                                           dbus.ObjectPath
	JobID                                          uint32
	JobType                                        string
	JobPath                                        dbus.ObjectPath
}

func (m *Manager) listUnits(c *call) error {
	var nodes, states, patterns []string
	if err := dbus.Store(c.body, &nodes, &states, &patterns); err != nil {
		return wire.ErrInvalidArgs.With("%v", err)
	}
	m.calls = append(m.calls, "* ListUnitsFiltered "+arguments(c.body))
	answer := map[string][]unitRow{}
	for _, pattern := range nodes {
		found := false
		for _, n := range m.fleet.Nodes {
			found = found || matches([]string{pattern}, n.Name)
		}
		if !found {
			return wire.ErrNoSuchNode.With("no node matches %q", pattern)
		}
	}
	for _, n := range m.fleet.Nodes {
		if !n.Offline && !n.Silent && matches(nodes, n.Name) {
			answer[n.Name] = n.rows(states, patterns)
		}
	}
	c.reply(answer)
	return nil
}

func (n *Node) rows(states, patterns []string) []unitRow {
	rows := []unitRow{}
	for _, u := range n.Units {
		inState := len(states) == 0
		for _, s := range states {
			inState = inState || s == u.Load || s == u.Active || s == u.Sub
		}
		if inState && matches(patterns, u.Name) {
			rows = append(rows, unitRow{u.Name, u.Description, u.Load, u.Active, u.Sub, u.Followed, dbus.ObjectPath(wire.UnitPath(u.Name)), 0, "", "/"})
		}
	}
	return rows
}

func (m *Manager) listUnitFiles() map[string][]UnitFile {
	all := map[string][]UnitFile{}
	for _, n := range m.fleet.Nodes {
		if !n.Offline && !n.Silent {
			all[n.Name] = n.files()
		}
	}
	return all
}

func (n *Node) files() []UnitFile {
	files := append([]UnitFile{}, n.Files...)
	for _, u := range n.Units {
		if u.FileState != "" {
			files = append(files, UnitFile{"/etc/systemd/system/" + u.Name, u.FileState})
		}
	}
	return files
}

func matches(globs []string, name string) bool {
	for _, g := range globs {
		if glob, err := unit.CompileGlob(g); err == nil && glob.Match(name) {
			return true
		}
	}
	return len(globs) == 0
}

// interfaceOf splits "Service.Result" into systemd's interface and the property.
func interfaceOf(name string) (iface, property string) {
	kind, rest, ok := strings.Cut(name, ".")
	if !ok {
		return wire.SystemdUnitInterface, name
	}
	return wire.SystemdName + "." + kind, rest
}
