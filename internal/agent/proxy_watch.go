package agent

import (
	"errors"

	"example.org/ctrl/internal/machine"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// What systemd says of proxies, dep units and targets.

// watchFilter is what systemd's signals are wanted of: what monitors asked for, and all that
// dependencies are made of.
func (a *Agent) watchFilter() func(string) bool {
	monitored := a.watched.filter()
	targets := make(map[string]bool, len(a.deps.targets))
	for name, t := range a.deps.targets {
		targets[name], targets[t.primary] = true, true
	}
	return func(name string) bool {
		return unit.IsProxy(name) || unit.IsDep(name) || targets[name] || monitored != nil && monitored(name)
	}
}

// listDependencies reads from systemd what there is, when it was reached.
func (a *Agent) listDependencies() {
	a.deps.listed = false
	a.systemd.Watch(a.watchFilter())
	up := a.ups
	a.systemd.Units(unit.DependencyGlob, a.cfg.CallTimeout, func(rows []UnitRow, err error) {
		a.later(func() {
			switch {
			case a.ups != up || errors.Is(err, wire.ErrDisconnected):
			case err != nil:
				a.log.Warn("cannot find out which units of other nodes are needed, trying again", keyErr, err)
				a.loop.After(resyncPause, func() {
					if a.ups == up {
						a.listDependencies()
					}
				})
			default:
				a.dependenciesListed(rows)
			}
		})
	})
	for _, t := range a.deps.targets {
		a.lookAtTarget(t)
	}
}

func (a *Agent) dependenciesListed(rows []UnitRow) {
	found := make(map[string]bool)
	for _, row := range rows {
		found[row.ID] = true
		if target, ok := unit.ParseDep(row.ID); ok {
			a.noteDep(target, row.Active)
			continue
		}
		a.proxyListed(row)
	}
	for name, p := range a.deps.proxies {
		if !found[name] {
			a.dropProxy(p, "its unit has gone")
		}
	}
	for target := range a.deps.deps {
		if name, err := unit.DepName(target); err != nil || !found[name] {
			a.noteDep(target, "inactive")
		}
	}
	a.deps.listed = true
	a.reportAll()
}

// proxyListed takes a proxy of which systemd told when it was asked for all.
func (a *Agent) proxyListed(row UnitRow) {
	node, target, err := unit.ParseProxy(row.ID)
	p := a.deps.proxies[row.ID]
	switch {
	case err != nil || !wire.ValidNodeName(node):
		return // its own process says so
	case p != nil:
		a.proxyState(p, row.Active)
		return
	case len(a.deps.proxies) >= MaxProxies:
		return
	}
	p = &proxy{name: row.ID, node: node, target: target, active: row.Active, state: machine.State[proxyState]{Is: machine.New}}
	switch row.Active {
	case "active", "reloading":
		a.moveProxy(p, proxyUp, "systemd has it active")
	case "activating":
		a.moveProxy(p, proxyWaiting, "systemd is starting it")
		a.armWait(p)
	default:
		return
	}
	a.deps.proxies[row.ID] = p
}

// dependencyChanged takes PropertiesChanged of a unit.
func (a *Agent) dependencyChanged(name, iface string, changed map[string]wire.Value) {
	if iface != wire.SystemdUnitInterface {
		return
	}
	active, known := changed["ActiveState"].AsString()
	if p := a.deps.proxies[name]; p != nil {
		if job, ok := changed["Job"].JobID(); ok {
			p.job = job
		}
		if !known {
			active = p.active
		}
		a.proxyState(p, active)
		return
	}
	if unit.IsDep(name) && known {
		if target, ok := unit.ParseDep(name); ok {
			a.noteDep(target, active)
		}
	}
	for _, t := range a.deps.targets {
		if t.name == name || t.primary == name {
			a.targetChanged(t, changed)
		}
	}
}

// dependencyRemoved takes UnitRemoved: systemd has forgotten a unit that is not active.
func (a *Agent) dependencyRemoved(name string) {
	if p := a.deps.proxies[name]; p != nil && p.job == 0 {
		a.dropProxy(p, "its unit has gone")
	}
	if target, ok := unit.ParseDep(name); ok && unit.IsDep(name) {
		a.noteDep(target, "inactive")
	}
	for _, t := range a.deps.targets {
		if t.name == name || t.primary == name {
			a.targetGone(t)
		}
	}
}

// proxyState takes the state of a proxy's unit. While it has a job it has not ended: it is
// being restarted.
func (a *Agent) proxyState(p *proxy, active string) {
	p.active = active
	switch active {
	case "active":
		if due := p.due; due != nil {
			p.due = nil
			due()
		}
	case "inactive", "failed":
		if p.job == 0 {
			a.dropProxy(p, "its unit is "+active)
		}
	}
}

func (a *Agent) noteDep(target, active string) {
	is := active == "active" || active == "activating" || active == "reloading"
	if is == a.deps.deps[target] {
		return
	}
	if is {
		a.deps.deps[target] = true
	} else {
		delete(a.deps.deps, target)
	}
	if a.reporting() {
		a.conn.link.DepState(target, is)
	}
}
