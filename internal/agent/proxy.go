package agent

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"example.org/ctrl/internal/loop"
	"example.org/ctrl/internal/machine"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// A proxy is a local unit that stands for a unit of another node. Which there are is what
// systemd says: its process asks for the start, and the unit's own state says when it ends.

type proxyState string

const (
	proxyWaiting  proxyState = "waiting"
	proxyStarting proxyState = "starting"
	proxyUp       proxyState = "up"
	proxyGone     proxyState = "gone"
)

var proxyMachine = machine.Table[proxyState]{
	Name: "Proxy (agent)",
	Moves: []machine.Move[proxyState]{
		{From: machine.New, To: proxyWaiting, Why: "its process asks, or systemd is starting it"},
		{From: machine.New, To: proxyUp, Why: "systemd has it active"},
		{From: proxyWaiting, To: proxyStarting, Why: "the manager starts the target"},
		{From: proxyWaiting, To: proxyUp, Why: "the target is up"},
		{From: proxyWaiting, To: proxyGone, Why: "its unit has ended, or the time is up"},
		{From: proxyStarting, To: proxyUp, Why: "the target is up"},
		{From: proxyStarting, To: proxyWaiting, Why: "the manager or the target's node is lost"},
		{From: proxyStarting, To: proxyGone, Why: "its unit has ended, or the target has not started"},
		{From: proxyUp, To: proxyWaiting, Why: "its unit is restarted, so its process asks anew"},
		{From: proxyUp, To: proxyGone, Why: "its unit has ended"},
	},
}

// noAnswer is why a proxy waits whose manager is there.
const noAnswer = "the manager has not answered"

// Bounds of what a node may have. More is refused with wire.ErrLimitsExceeded.
const (
	// MaxProxies is how many units of other nodes the units of one node may depend on.
	MaxProxies = 4096
	// MaxTargets is how many units of one node others may depend on.
	MaxTargets = 4096
	// maxWaiters is how many calls may wait for one proxy: one process asks, and asks again.
	maxWaiters = 16
)

// NodeLoss is what becomes of a proxy whose target's node is lost.
type NodeLoss struct {
	Stop  bool // it is stopped; else it goes on
	After time.Duration
}

// Proxy is a proxy as it is reported to the manager.
type Proxy struct{ Name, Node, Unit, Phase string }

// dependencies is what this node has to do with other nodes' units, both ways. It outlives
// sessions: it is what systemd says, not what a manager knows.
type dependencies struct {
	proxies  map[string]*proxy
	targets  map[string]*target  // by the name that the manager gave
	deps     map[string]bool     // active dep units, by their target
	checking bool                // whether proxies that wait are still needed is about to be looked at
	listed   bool                // systemd was read since it came up
	told     bool                // the present session has had the first report
	holding  map[string][]func() // stops that wait for dependents elsewhere, by target
}

type proxy struct {
	name, node, target string
	state              machine.State[proxyState]
	active             string // as systemd says
	job                uint32 // its job in systemd's queue, 0 for none
	waiters            []func(error)
	wait               *loop.Timer // ProxyStartTimeout=
	why                string      // why it waits
	users              []string    // units that need it, known once it waits
	due                func()      // what is done once its unit is active
	loss               *loop.Timer
}

func newDependencies() dependencies {
	return dependencies{
		proxies: make(map[string]*proxy), targets: make(map[string]*target),
		deps: make(map[string]bool), holding: make(map[string][]func()),
	}
}

func (a *Agent) moveProxy(p *proxy, to proxyState, why string) bool {
	return p.state.Transition(&proxyMachine, to, a.log, why, slog.String(keyUnit, p.name))
}

// CreateProxy is a proxy's process asking for its target: the reply comes when the target is
// up, or with the reason why it is not.
// Errors: ErrInvalidArgs, ErrNoSuchNode, ErrDependencyDenied, ErrNodeOffline after
// ProxyStartTimeout=, ErrLimitsExceeded, ErrFailed, ErrShuttingDown, those of the target's start.
func (a *Agent) CreateProxy(local, node, target string, reply func(error)) {
	a.post(func() { a.createProxy(local, node, target, reply) }, reply)
}

// RemoveProxy says that a proxy has ended. One that is not there is no error.
func (a *Agent) RemoveProxy(local, node, target string, reply func(error)) {
	a.post(func() {
		err := checkProxy(local, node, target)
		if p := a.deps.proxies[local]; err == nil && p != nil {
			a.dropProxy(p, "removed")
		}
		reply(err)
	}, reply)
}

func checkProxy(local, node, target string) error {
	n, u, err := unit.ParseProxy(local)
	switch {
	case err != nil:
		return wire.ErrInvalidArgs.With("%v", err)
	case n != node || u != target:
		return wire.ErrInvalidArgs.With("%s stands for %s on node %q, not for %q on node %q", local, u, n, target, node)
	case !wire.ValidNodeName(node):
		return wire.ErrInvalidArgs.With("node name %q in %s is not valid: %s", node, local, wire.NodeNameRule)
	}
	return nil
}

func (a *Agent) createProxy(local, node, target string, reply func(error)) {
	err := checkProxy(local, node, target)
	switch {
	case err != nil:
		reply(err)
		return
	case a.deps.proxies[local] == nil && len(a.deps.proxies) >= MaxProxies:
		reply(wire.ErrLimitsExceeded.With("this node depends on %d units of other nodes already", MaxProxies))
		return
	case len(a.conn.addresses) == 0:
		reply(wire.ErrFailed.With("%s on node %q cannot be started: the agent of this node has no manager; set ManagerHost= in agent.conf", target, node))
		return
	}
	a.systemd.Units(local, a.cfg.CallTimeout, func(rows []UnitRow, err error) {
		a.loop.Defer(func() {
			switch {
			case a.over:
				reply(errShuttingDown())
			case err != nil:
				reply(err)
			case len(rows) == 0 || rows[0].Active != "activating":
				reply(wire.ErrFailed.With("%s is not being started; this is for its own process, start it with: systemctl start %s", local, local))
			default:
				a.proxyAsks(local, node, target, reply)
			}
		})
	})
}

func (a *Agent) proxyAsks(local, node, target string, reply func(error)) {
	p := a.deps.proxies[local]
	if p == nil {
		p = &proxy{name: local, node: node, target: target, state: machine.State[proxyState]{Is: machine.New}}
		a.deps.proxies[local] = p
	}
	p.active = "activating"
	if len(p.waiters) >= maxWaiters {
		reply(wire.ErrLimitsExceeded.With("%d calls wait for %s already", len(p.waiters), local))
		return
	}
	p.waiters = append(p.waiters, reply)
	p.loss.Stop()
	p.due = nil
	switch p.state.Is {
	case proxyWaiting, proxyStarting:
		// Its process asks again, after a restart of this agent or of the bus.
		if p.state.Is == proxyWaiting {
			a.armWait(p)
		}
		return
	}
	a.moveProxy(p, proxyWaiting, "its process asks")
	p.why = "the agent of this node is not connected to the manager at " + a.conn.presentAddress()
	if a.reporting() {
		p.why = noAnswer
		a.conn.link.ProxyNew(p.report())
	}
	a.armWait(p)
}

func (p *proxy) report() Proxy {
	r := Proxy{p.name, p.node, p.target, wire.ProxyStarting}
	if p.state.Is == proxyUp {
		r.Phase = wire.ProxyUp
	}
	return r
}

// armWait begins the time that a proxy waits for a node or a manager that is not there. A
// manager that is there has that time too, so that nothing waits without end.
func (a *Agent) armWait(p *proxy) {
	if p.wait == nil {
		a.learnUsers(p, neededBy, nil)
	}
	p.wait.Stop()
	limit := a.cfg.ProxyStartTimeout
	if limit <= 0 && a.reporting() && p.why == noAnswer {
		limit = a.cfg.CallTimeout
	}
	p.wait = a.loop.After(limit, func() {
		a.refuseProxy(p, wire.ErrNodeOffline.With("%s on node %q was not started within %v: %s (ProxyStartTimeout=)", p.target, p.node, limit, p.why))
	})
}

// refuseProxy ends a start; its process ends with the reason, and its unit with it.
func (a *Agent) refuseProxy(p *proxy, err error) {
	a.log.Warn("unit of another node not started", keyUnit, p.target, "node", p.node, keyErr, err)
	a.answerProxy(p, err)
	a.dropProxy(p, err.Error())
}

func (a *Agent) answerProxy(p *proxy, err error) {
	waiters := p.waiters
	p.waiters = nil
	for _, reply := range waiters {
		reply(err)
	}
}

// dropProxy forgets a proxy and says so.
func (a *Agent) dropProxy(p *proxy, why string) {
	if a.deps.proxies[p.name] != p {
		return
	}
	delete(a.deps.proxies, p.name)
	p.wait.Stop()
	p.loss.Stop()
	a.moveProxy(p, proxyGone, why)
	a.answerProxy(p, wire.ErrFailed.With("%s has ended: %s", p.name, why))
	if a.reporting() {
		a.conn.link.ProxyRemoved(p.name)
	}
}

// reporting says whether the present session's manager knows what was there when it began.
func (a *Agent) reporting() bool { return a.conn.state.Is == sessionOnline && a.deps.told }

// reportAll is the first report of a session: all proxies, and all dep units. It needs
// systemd's word about both.
func (a *Agent) reportAll() {
	if a.conn.state.Is != sessionOnline || !a.deps.listed || a.deps.told {
		return
	}
	a.deps.told = true
	var all []Proxy
	for _, name := range slices.Sorted(maps.Keys(a.deps.proxies)) {
		p := a.deps.proxies[name]
		if p.state.Is == proxyWaiting {
			p.why = noAnswer
		}
		all = append(all, p.report())
	}
	a.conn.link.Proxies(all, slices.Sorted(maps.Keys(a.deps.deps)))
}

// proxiesOffline is the end of a session. Nothing is stopped: what was being started waits
// for the next one.
func (a *Agent) proxiesOffline() {
	a.deps.told = false
	for _, name := range slices.Sorted(maps.Keys(a.deps.proxies)) {
		p := a.deps.proxies[name]
		if p.state.Is == proxyStarting {
			a.moveProxy(p, proxyWaiting, "the manager is lost")
			a.armWait(p)
		}
		if p.state.Is == proxyWaiting {
			p.why = "the connection to the manager is lost"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.deps.holding)) {
		a.releaseHold(name)
	}
}

// endProxies answers all that wait, at shutdown. Their processes ask the next agent.
func (a *Agent) endProxies() {
	for _, name := range slices.Sorted(maps.Keys(a.deps.proxies)) {
		a.answerProxy(a.deps.proxies[name], errShuttingDown())
	}
	for _, name := range slices.Sorted(maps.Keys(a.deps.holding)) {
		a.releaseHold(name)
	}
}
