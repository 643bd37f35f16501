package manager

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"time"

	"example.org/ctrl/internal/loop"
	"example.org/ctrl/internal/machine"
	"example.org/ctrl/internal/unit"
)

// Dependencies of units on units of other nodes. What is needed is derived from the proxies
// that nodes report, each time anew; nothing is counted.

type proxyState string

const (
	proxyWaiting  proxyState = "waiting"
	proxyStarting proxyState = "starting"
	proxyUp       proxyState = "up"
	proxyEnding   proxyState = "ending"
	proxyGone     proxyState = "gone"
)

var proxyMachine = machine.Table[proxyState]{
	Name: "Proxy (manager)",
	Moves: []machine.Move[proxyState]{
		{From: machine.New, To: proxyWaiting, Why: "its node asks for the target"},
		{From: machine.New, To: proxyUp, Why: "its node reports it as up"},
		{From: proxyWaiting, To: proxyStarting, Why: "the target's node is there, its dep unit is started"},
		{From: proxyWaiting, To: proxyUp, Why: "its node reports it as up, in a new session"},
		{From: proxyWaiting, To: proxyGone, Why: "refused, or its node reports its end"},
		{From: proxyStarting, To: proxyUp, Why: "the dep unit's job is done"},
		{From: proxyStarting, To: proxyWaiting, Why: "the target's node is lost"},
		{From: proxyStarting, To: proxyGone, Why: "the target has not started, or its node reports its end"},
		{From: proxyUp, To: proxyEnding, Why: "the target has a job, or has ended"},
		{From: proxyUp, To: proxyWaiting, Why: "its node asks anew"},
		{From: proxyUp, To: proxyGone, Why: "its node reports its end"},
		{From: proxyEnding, To: proxyWaiting, Why: "its node asks anew"},
		{From: proxyEnding, To: proxyUp, Why: "its node reports it as up, in a new session"},
		{From: proxyEnding, To: proxyGone, Why: "its node reports its end"},
	},
}

// MaxProxiesPerNode is how many proxies a node may report; more are refused.
const MaxProxiesPerNode = 4096

// place is a unit of a node.
type place struct{ node, unit string }

func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.unit, b.unit))
}

// proxy stands, on its own node, for a unit of another.
type proxy struct {
	owner  *node
	name   string
	target place
	state  machine.State[proxyState]
}

// needed is a unit that others depend on. It is there while proxies stand for it, or while a
// job of its dep unit is under way.
type needed struct {
	place
	state    string // as its node has reported in the present session, "" for not yet
	starting bool   // a job that starts its dep unit is under way
	// undecided: its dep unit has started, but it is going down.
	undecided bool
	leaving   bool // a job stops or restarts it, and its dependents go first
}

// dependencies is all that the manager knows of them.
type dependencies struct {
	needed  map[place]*needed
	jobs    map[uint32]func(result string) // what follows the end of our jobs, by id
	holders map[*node]bool                 // nodes with active dep units: few of a large fleet
}

func newDependencies() dependencies {
	return dependencies{needed: make(map[place]*needed), jobs: make(map[uint32]func(string)), holders: make(map[*node]bool)}
}

// nodeDeps is what one node has to do with dependencies.
type nodeDeps struct {
	proxies  map[string]*proxy
	reported bool            // this node has said once, to this manager, what it needs
	told     bool            // it has said so in its present session
	deps     map[string]bool // targets whose dep unit is active, of the present session
	release  *loop.Timer     // ReleaseAfter=
	released bool            // that time has passed
	loss     *loop.Timer     // until the node counts as lost
	lost     bool
}

// ProxyReport is a proxy as its node reports it; Phase is wire.ProxyStarting or wire.ProxyUp.
type ProxyReport struct{ Name, Node, Unit, Phase string }

// Proxies is a node's first report in a session: all its proxies, and the targets of all dep
// units that are active there.
func (m *Manager) Proxies(s Session, all []ProxyReport, deps []string) {
	m.reportPost(s, func(n *node) { m.allReported(n, all, deps) })
}

// ProxyNew says that a proxy of session s asks for its target, or asks again.
func (m *Manager) ProxyNew(s Session, r ProxyReport) {
	m.reportPost(s, func(n *node) { m.proxyReported(n, r) })
}

// ProxyRemoved says that a proxy has ended.
func (m *Manager) ProxyRemoved(s Session, name string) {
	m.reportPost(s, func(n *node) {
		if p := n.deps.proxies[name]; p != nil {
			m.dropProxy(p, "reported by its node")
		}
	})
}

// TargetState is the state of a unit that others need, one of wire's Target….
func (m *Manager) TargetState(s Session, unitName, state string) {
	m.reportPost(s, func(n *node) { m.targetState(n, unitName, state) })
}

// TargetLeaving says that a job is about to stop or restart a unit that others need. It waits
// until AgentLink.ReleaseTarget.
func (m *Manager) TargetLeaving(s Session, unitName string, restart bool) {
	m.reportPost(s, func(n *node) { m.targetLeaving(n, unitName, restart) })
}

// DepState says that the dep unit of a target is active, or is not any more.
func (m *Manager) DepState(s Session, unitName string, active bool) {
	m.reportPost(s, func(n *node) {
		if !unit.Valid(unitName) {
			return
		}
		m.holdDep(n, unitName, active && len(n.deps.deps) < MaxUnitsPerNode)
		m.drive(place{n.name, unitName})
	})
}

// holdDep notes that the dep unit of a target is active on its node, or is not any more.
func (m *Manager) holdDep(n *node, target string, active bool) {
	if active {
		n.deps.deps[target] = true
		m.deps.holders[n] = true
		return
	}
	delete(n.deps.deps, target)
	if len(n.deps.deps) == 0 {
		delete(m.deps.holders, n)
	}
}

func (m *Manager) forgetDeps(n *node) {
	clear(n.deps.deps)
	delete(m.deps.holders, n)
}

// reportPost hands a session's report to the core, unless the session has ended.
func (m *Manager) reportPost(s Session, fn func(n *node)) {
	m.post(func() {
		if session := m.sessions[s]; session != nil {
			fn(session.node)
		}
	}, ignore)
}

func (m *Manager) moveProxy(p *proxy, to proxyState, why string) bool {
	return p.state.Transition(&proxyMachine, to, m.log, why,
		slog.String(keyNode, p.owner.name), slog.String(keyUnit, p.name))
}

// proxiesOf lists those that stand for a place, by node and name: also those of nodes that
// are lost, which need it until they say otherwise.
func (m *Manager) proxiesOf(at place) []*proxy {
	var all []*proxy
	for _, n := range m.nodes {
		for _, p := range n.deps.proxies {
			if p.target == at {
				all = append(all, p)
			}
		}
	}
	slices.SortFunc(all, func(a, b *proxy) int {
		return cmp.Or(cmp.Compare(a.owner.name, b.owner.name), cmp.Compare(a.name, b.name))
	})
	return all
}

// need finds or makes the record of a place.
func (m *Manager) need(at place) *needed {
	t := m.deps.needed[at]
	if t == nil {
		t = &needed{place: at}
		m.deps.needed[at] = t
		m.tellTargets(at.node)
	}
	return t
}

// tellTargets says to a node which of its units others need. It comes before the start of
// anything that is new in the list.
func (m *Manager) tellTargets(name string) {
	n := m.byName[name]
	if n == nil || n.session == nil {
		return
	}
	var units []string
	for at := range m.deps.needed {
		if at.node == name {
			units = append(units, at.unit)
		}
	}
	slices.Sort(units)
	n.session.link.Targets(units)
}

// tell sends the manager's word about a proxy to its node.
func (m *Manager) tellProxy(p *proxy, state, text string) {
	if s := p.owner.session; s != nil && !s.over {
		s.link.ProxyState(p.name, state, text)
	}
}

// lossGrace is how long a node may be away after its session has ended before it counts as
// lost: agents and managers restart.
func (m *Manager) lossGrace() time.Duration {
	return max(m.cfg.HeartbeatThreshold, 6*time.Second)
}

func (d *nodeDeps) init() {
	if d.proxies == nil {
		d.proxies, d.deps = make(map[string]*proxy), make(map[string]bool)
	}
}

func (n *node) proxiesByName() []*proxy {
	var all []*proxy
	for _, name := range slices.Sorted(maps.Keys(n.deps.proxies)) {
		all = append(all, n.deps.proxies[name])
	}
	return all
}
