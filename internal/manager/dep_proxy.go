package manager

import (
	"slices"

	"example.org/ctrl/internal/machine"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// allReported takes the first report of a session. What the node needed before and does not
// name any more is let go.
func (m *Manager) allReported(n *node, all []ProxyReport, deps []string) {
	n.deps.reported, n.deps.told, n.deps.released = true, true, false
	m.forgetDeps(n)
	for _, name := range deps[:min(len(deps), MaxUnitsPerNode)] {
		if unit.Valid(name) {
			m.holdDep(n, name, true)
		}
	}
	named := make(map[string]bool, len(all))
	for _, r := range all {
		named[r.Name] = true
	}
	for _, p := range n.proxiesByName() {
		if !named[p.name] {
			m.dropProxy(p, "its node does not report it any more")
		}
	}
	for _, r := range all {
		m.proxyReported(n, r)
	}
	m.tellTargets(n.name)
	m.driveAll()
}

// proxyReported takes one proxy: that it is up, or that it asks for its target.
func (m *Manager) proxyReported(n *node, r ProxyReport) {
	node, target, err := unit.ParseProxy(r.Name)
	if err != nil || node != r.Node || target != r.Unit {
		m.log.Debug("proxy dropped: its name is not that of its target", keyNode, n.name, keyUnit, cleanReason(r.Name))
		return
	}
	p := n.deps.proxies[r.Name]
	if p == nil {
		if len(n.deps.proxies) >= MaxProxiesPerNode {
			m.log.Warn("proxy dropped: the node has too many", keyNode, n.name, "limit", MaxProxiesPerNode)
			return
		}
		p = &proxy{owner: n, name: r.Name, target: place{node, target}, state: machine.State[proxyState]{Is: machine.New}}
		n.deps.proxies[r.Name] = p
	}
	if r.Phase == wire.ProxyUp {
		if p.state.Is != proxyUp {
			m.moveProxy(p, proxyUp, "its node reports it as up")
		}
		m.need(p.target)
		m.awaitLoss(m.byName[node])
		m.drive(p.target)
		return
	}
	if p.state.Is != proxyWaiting && p.state.Is != proxyStarting {
		m.moveProxy(p, proxyWaiting, "its node asks for the target")
	}
	if err := m.mayDepend(n, p.target.node); err != nil {
		m.refuseProxy(p, err)
		return
	}
	t := m.need(p.target)
	if p.state.Is == proxyStarting {
		m.tellProxy(p, wire.ProxyBegun, "") // asked again by a new session
	}
	m.checkRelease(t)
	m.drive(p.target)
}

// mayDepend decides whether units of a node may depend on units of another.
func (m *Manager) mayDepend(n *node, target string) error {
	if _, err := m.find(target); err != nil {
		return err
	}
	if !slices.Contains(n.allowed, target) {
		return wire.ErrDependencyDenied.With(
			"units of node %q may not depend on units of node %q: add %s to AllowDependenciesOn= in [node %s] of the manager's configuration",
			n.name, target, target, n.name)
	}
	return nil
}

// refuseProxy ends a start with its reason.
func (m *Manager) refuseProxy(p *proxy, err error) {
	m.log.Info("unit of another node not started", keyNode, p.owner.name, keyUnit, p.name, keyErr, err)
	m.tellProxy(p, wire.ProxyRefused, wire.AsError(err).Text)
	m.dropProxy(p, err.Error())
}

// dropProxy forgets a proxy, and lets go what nobody needs any more.
func (m *Manager) dropProxy(p *proxy, why string) {
	if p.owner.deps.proxies[p.name] != p {
		return
	}
	delete(p.owner.deps.proxies, p.name)
	m.moveProxy(p, proxyGone, why)
	if t := m.deps.needed[p.target]; t != nil {
		m.checkRelease(t)
	}
	m.drive(p.target)
}
