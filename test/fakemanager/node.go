package fakemanager

import (
	"strings"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

func (m *Manager) serveNode(c *call, n *Node) error {
	if verb, ok := wire.VerbOfMethod(c.member); ok {
		var name, mode string
		if err := dbus.Store(c.body, &name, &mode); err != nil {
			return wire.ErrInvalidArgs.With("%v", err)
		}
		return m.startJob(c, n, name, verb.String())
	}
	if c.member == "StartTransientUnit" {
		return m.startTransient(c, n)
	}
	first := ""
	if len(c.body) > 0 {
		first, _ = c.body[0].(string)
	}
	u := n.unit(first)
	if u != nil && u.Does[c.member] != nil && u.Does[c.member].Error != "" {
		return &wire.Error{Name: u.Does[c.member].Error, Text: u.Does[c.member].Text}
	}
	return m.ask(c, n, u, first)
}

// ask answers what makes no job.
func (m *Manager) ask(c *call, n *Node, u *Unit, name string) error {
	switch c.member {
	case "ListUnitsFiltered":
		var states, patterns []string
		if err := dbus.Store(c.body, &states, &patterns); err != nil {
			return wire.ErrInvalidArgs.With("%v", err)
		}
		c.reply(n.rows(states, patterns))
	case "ListUnitFiles":
		c.reply(n.files())
	case "GetUnitProperties":
		iface, _ := c.body[1].(string)
		return replyProperties(c, u, name, iface)
	case "GetUnitProcesses":
		list := []Process{}
		if u != nil {
			list = append(list, u.Processes...)
		}
		c.reply(list)
	case "ReadUnitFiles":
		if u == nil || len(u.Texts) == 0 {
			return wire.ErrSystemdNoSuchUnit.With("No files found for %s.", name)
		}
		c.reply(u.Texts)
	case "GetUnitFileState":
		if u == nil || u.FileState == "" {
			return &wire.Error{Name: wire.DBusName + ".Error.FileNotFound", Text: "No such file or directory"}
		}
		c.reply(u.FileState)
	case "GetDefaultTarget":
		c.reply(n.Default)
	case "SetDefaultTarget":
		n.Default = name
		c.reply([]change{{"symlink", "/etc/systemd/system/default.target", "/lib/systemd/system/" + name}})
	case "KillUnit", "FreezeUnit", "ThawUnit", "ResetFailedUnit", "SetUnitProperties":
		if u == nil {
			return wire.ErrSystemdNoSuchUnit.With("Unit %s not loaded.", name)
		}
		c.reply()
	case "ResetFailed", "Reload", "SwitchManager":
		c.reply()
	case "SetLogLevel":
		return checkLevel(c)
	case "Shutdown":
		c.reply()
		m.setOffline(n, true, "the agent shut down")
	default:
		return m.unitFiles(c, n)
	}
	return nil
}

type change struct{ Type, File, Source string }

func (m *Manager) unitFiles(c *call, n *Node) error {
	files, _ := c.body[0].([]string)
	changes := []change{}
	carries := true
	for _, name := range files {
		u := n.unit(name)
		if u == nil {
			return &wire.Error{Name: wire.DBusName + ".Error.FileNotFound", Text: "Unit file " + name + " does not exist."}
		}
		if b := u.Does[c.member]; b != nil && b.Error != "" {
			return &wire.Error{Name: b.Error, Text: b.Text}
		}
		link := "/etc/systemd/system/multi-user.target.wants/" + name
		carries = carries && u.FileState != "static"
		switch {
		case c.member == "MaskUnitFiles":
			changes = append(changes, change{"symlink", "/etc/systemd/system/" + name, "/dev/null"})
		case c.member == "UnmaskUnitFiles":
			changes = append(changes, change{"unlink", "/etc/systemd/system/" + name, ""})
		case c.member == "DisableUnitFiles" && u.FileState == "enabled":
			changes = append(changes, change{"unlink", link, ""})
		case c.member != "DisableUnitFiles" && u.FileState == "disabled":
			changes = append(changes, change{"symlink", link, "/etc/systemd/system/" + name})
		}
	}
	switch c.member {
	case "EnableUnitFiles", "PresetUnitFiles":
		c.reply(carries, changes)
	case "DisableUnitFiles", "MaskUnitFiles", "UnmaskUnitFiles":
		c.reply(changes)
	default:
		return wire.ErrUnknownMethod.With("no method %s", c.member)
	}
	return nil
}

func replyProperties(c *call, u *Unit, name, iface string) error {
	if u == nil {
		u = &Unit{Name: name, Load: "not-found", Active: "inactive", Sub: "dead"}
	}
	props := properties{}
	if iface == "" || iface == wire.SystemdUnitInterface {
		for key, value := range map[string]string{
			"Id": u.Name, "Description": orElse(u.Description, u.Name), "LoadState": u.Load, "ActiveState": u.Active,
			"SubState": u.Sub, "UnitFileState": u.FileState,
		} {
			props[key] = dbus.MakeVariant(value)
		}
		props["Names"] = dbus.MakeVariant(append([]string{u.Name}, u.Aliases...))
	}
	for key, value := range u.Properties {
		of, property := interfaceOf(key)
		if iface != "" && iface != of {
			continue
		}
		v, err := parseValue(value)
		if err != nil {
			return wire.ErrFailed.With("property %s: %v", key, err)
		}
		props[property] = v
	}
	c.reply(props)
	return nil
}

func (m *Manager) startJob(c *call, n *Node, name, verb string) error {
	u := n.unit(name)
	if err := unit.CheckInstance(name); err != nil {
		return wire.ErrInvalidArgs.With("%v", err)
	}
	switch {
	case u == nil && strings.HasPrefix(verb, "stop"):
		return wire.ErrSystemdNoSuchUnit.With("Unit %s not loaded.", name)
	case u == nil:
		return wire.ErrSystemdNoSuchUnit.With("Unit %s not found.", name)
	case u.Load == "masked":
		return wire.ErrSystemdUnitMasked.With("Unit %s is masked.", name)
	}
	how := u.Does[verb]
	if how == nil {
		how = &Behaviour{}
	}
	return m.begin(c, n, name, verb, how)
}

func (m *Manager) startTransient(c *call, n *Node) error {
	name, _ := c.body[0].(string)
	how := &Behaviour{Active: "active", Sub: "running"}
	if u := n.unit(name); u != nil {
		if u.Does["run"] != nil {
			how = u.Does["run"]
		} else if u.Load == "loaded" {
			return &wire.Error{Name: wire.SystemdName + ".UnitExists", Text: "Unit " + name + " was already loaded or has a fragment file."}
		}
	} else {
		n.Units = append(n.Units, &Unit{Name: name, Load: "loaded", Active: "inactive", Sub: "dead"})
	}
	return m.begin(c, n, name, "start", how)
}

// begin makes a job: JobNew, then the answer, then what else is to happen.
func (m *Manager) begin(c *call, n *Node, name, verb string, how *Behaviour) error {
	if how.Error != "" {
		return &wire.Error{Name: how.Error, Text: how.Text}
	}
	m.lastJob++
	j := &job{id: m.lastJob, node: n.Name, unit: name, verb: verb, stat: wire.JobRunning, how: how}
	m.jobs[j.id] = j
	path := dbus.ObjectPath(wire.JobPath(j.id))
	m.emit("", wire.RootPath, wire.ManagerInterface, "JobNew", j.id, path)
	if how.Early {
		m.endJob(j, orElse(how.Result, wire.ResultDone))
	}
	c.reply(path)
	m.ping(c.sender, j)
	switch {
	case how.Cut:
		m.setOffline(n, true, "no sign of life for 6 s")
	case how.Quit:
		m.leave()
	case !how.Hang && !how.Early:
		m.endJob(j, orElse(how.Result, wire.ResultDone))
	}
	for _, step := range how.Then {
		m.step(n, name, step)
	}
	return nil
}

func (m *Manager) step(n *Node, name string, s Step) {
	switch u := n.unit(name); {
	case s.Cut:
		m.monitorEvents(n.Name, name, "UnitStateChanged", "inactive", "agent-offline", "virtual")
		m.setOffline(n, true, "no sign of life for 6 s")
	case s.Removed:
		m.monitorEvents(n.Name, name, "UnitRemoved", "real")
	default:
		m.change(n.Name, u, s.Active, s.Sub, s.Properties)
	}
}

// becomes is what a verb that is done makes of a unit.
var becomes = map[string][2]string{"start": {"active", "running"}, "stop": {"inactive", "dead"}, "restart": {"active", "running"}, "reload-or-restart": {"active", "running"}}

func (m *Manager) endJob(j *job, result string) {
	delete(m.jobs, j.id)
	if u := m.fleet.node(j.node).unit(j.unit); u != nil {
		if state, ok := becomes[j.verb]; ok && result == wire.ResultDone {
			u.Active, u.Sub = state[0], state[1]
		}
		u.Active, u.Sub = orElse(j.how.Active, u.Active), orElse(j.how.Sub, u.Sub)
		for name, value := range j.how.Properties {
			if u.Properties == nil {
				u.Properties = map[string]string{}
			}
			u.Properties[name] = value
		}
	}
	m.measured(j)
	m.emit("", wire.RootPath, wire.ManagerInterface, "JobRemoved", j.id, dbus.ObjectPath(wire.JobPath(j.id)), j.node, j.unit, result)
	if u := m.fleet.node(j.node).unit(j.unit); u != nil {
		m.unitChanged(j.node, u)
	}
}
