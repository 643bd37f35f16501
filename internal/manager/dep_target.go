package manager

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// drive does for one place what its proxies, its node and its state ask for. It may be called
// at any time: what is under way is not begun twice.
func (m *Manager) drive(at place) {
	if m.over {
		return
	}
	proxies := m.proxiesOf(at)
	n := m.byName[at.node]
	t := m.deps.needed[at]
	if len(proxies) == 0 {
		m.letDepGo(n, at, t)
		return
	}
	if t == nil {
		t = m.need(at)
	}
	if n == nil || n.session == nil || !n.deps.told {
		m.waitForNode(n, proxies)
		return
	}
	if t.leaving || t.starting || t.undecided {
		if !t.leaving {
			m.join(t, proxies)
		}
		return
	}
	if m.join(t, proxies) > 0 || t.state == wire.TargetUnknown && slices.ContainsFunc(proxies, isUp) {
		m.startTarget(n, t)
	}
}

func isUp(p *proxy) bool { return p.state.Is == proxyUp }

// join makes the proxies that wait share the start that begins, or is under way, and counts
// those that wait for it.
func (m *Manager) join(t *needed, proxies []*proxy) (starting int) {
	for _, p := range proxies {
		if p.state.Is == proxyWaiting {
			m.moveProxy(p, proxyStarting, "the target is started")
			m.tellProxy(p, wire.ProxyBegun, "")
			m.seekCycle(p)
		}
		if p.state.Is == proxyStarting {
			starting++
		}
	}
	return starting
}

// waitForNode tells proxies that their target's node is not there.
func (m *Manager) waitForNode(n *node, proxies []*proxy) {
	for _, p := range proxies {
		if p.state.Is == proxyStarting {
			m.moveProxy(p, proxyWaiting, "the target's node is lost")
		}
		if p.state.Is != proxyWaiting {
			continue
		}
		if n == nil {
			_, err := m.find(p.target.node)
			m.refuseProxy(p, err)
			continue
		}
		if n.session != nil {
			continue // it is about to report
		}
		m.tellProxy(p, wire.ProxyWaits, wire.AsError(n.offlineError()).Text)
	}
}

// startTarget starts the dep unit of a target, which starts the target.
func (m *Manager) startTarget(n *node, t *needed) {
	dep, err := unit.DepName(t.unit)
	if err != nil {
		m.startFailed(t, wire.ErrInvalidArgs.With("%v", err))
		return
	}
	t.starting = true
	m.depJob(t.node, dep, wire.Start, func(result string, err error) {
		if m.over || n.session == nil || err != nil || result == wire.ResultDone {
			t.starting = false
		} // else it has failed, and until that is told nobody is to try again
		switch {
		case m.over:
		case n.session == nil:
			m.drive(t.place)
		case err != nil:
			m.startFailed(t, err)
		case result == wire.ResultDone:
			m.started(t)
		default:
			m.explainFailure(n, t, result)
		}
	})
}

// depJob asks for a job of a dep unit, through the queue that all jobs go through, and calls
// ended once: with the result, or the reason why there is no job.
func (m *Manager) depJob(node, dep string, verb wire.Verb, ended func(result string, err error)) {
	m.startJob(JobRequest{Node: node, Unit: dep, Verb: verb, Mode: modeReplace}, func(id uint32, err error) {
		if err != nil {
			ended("", err)
			return
		}
		before := m.deps.jobs[id] // a job that is shared
		m.deps.jobs[id] = func(result string) {
			if before != nil {
				before(result)
			}
			ended(result, nil)
		}
	})
}

// depJobEnded is called at the end of every job.
func (m *Manager) depJobEnded(id uint32, result string) {
	if ended := m.deps.jobs[id]; ended != nil {
		delete(m.deps.jobs, id)
		// Not within the end of the job, whose own consequences come first.
		m.loop.Defer(func() { ended(result) })
	}
}

// started is the good end of a start. A target that is down again has ended by itself: a
// oneshot unit counts as up once it is done, and one that has failed at once has not started.
func (m *Manager) started(t *needed) {
	if t.state == wire.TargetDeactivating {
		t.undecided = true // what it comes to is about to be told
		return
	}
	if t.state == wire.TargetFailed {
		m.startFailed(t, wire.ErrFailed.With("%s on node %q has failed right after its start; see: ctl status %s %s", t.unit, t.node, t.node, t.unit))
		return
	}
	for _, p := range m.proxiesOf(t.place) {
		if p.state.Is == proxyStarting {
			m.moveProxy(p, proxyUp, "the dep unit's job is done")
			m.tellProxy(p, wire.ProxyTargetUp, "")
		}
	}
	m.mirror(t)
	m.drive(t.place)
}

// startFailed ends all that waited for a start, and the proxies for whose sake a target that
// its node had lost was to be started again.
func (m *Manager) startFailed(t *needed, err error) {
	for _, p := range m.proxiesOf(t.place) {
		switch p.state.Is {
		case proxyStarting:
			m.refuseProxy(p, err)
		case proxyUp:
			m.endProxy(p, wire.ProxyTargetFailed, wire.AsError(err).Text)
		}
	}
	m.drive(t.place)
}

// explainFailure adds to a job's result what the target's systemd says about it.
func (m *Manager) explainFailure(n *node, t *needed, result string) {
	fail := func(detail string) {
		t.starting = false
		m.startFailed(t, wire.ErrFailed.With("%s on node %q did not start: %s%s; see: ctl status %s %s",
			t.unit, t.node, resultText(result), detail, t.node, t.unit))
	}
	m.pass(n.session, "GetUnitProperty", wire.Strings(t.unit, "Service", "Result"), m.cfg.QueryTimeout, func(body wire.Raw, err error) {
		text, ok := body.VariantString()
		switch {
		case errors.Is(err, wire.ErrNodeOffline):
			t.starting = false
			m.drive(t.place)
		case err == nil && ok && text != "success":
			fail(" (" + cleanReason(text) + ")")
		default:
			fail("")
		}
	})
}

// resultText words the result of a job on a dep unit, which its target has caused.
func resultText(result string) string {
	switch result {
	case "dependency", wire.ResultFailed:
		return "it has failed"
	case wire.ResultCanceled:
		return "its start was canceled"
	case wire.ResultTimeout:
		return "its start has timed out"
	}
	return "result " + result
}

// targetState takes a report about a target.
func (m *Manager) targetState(n *node, name, state string) {
	t := m.deps.needed[place{n.name, name}]
	if t == nil || len(state) > 32 {
		return
	}
	t.state = state
	if t.leaving && state != wire.TargetDeactivating {
		t.leaving = false
	}
	if t.undecided && state != wire.TargetDeactivating {
		t.undecided = false
		m.started(t)
		return
	}
	if !t.starting {
		m.mirror(t)
	}
	if state == wire.TargetActive {
		for _, p := range m.proxiesOf(t.place) {
			if isUp(p) {
				m.tellProxy(p, wire.ProxyNodeBack, "")
			}
		}
	}
	m.drive(t.place)
}

// mirror lets the proxies that are up end as the target has.
func (m *Manager) mirror(t *needed) {
	word, text := fate(t)
	if word == "" {
		return
	}
	for _, p := range m.proxiesOf(t.place) {
		if isUp(p) {
			m.endProxy(p, word, text)
		}
	}
}

// fate is what the state of a target means for a proxy that is up, "" for nothing.
func fate(t *needed) (word, text string) {
	where := fmt.Sprintf("%s on node %q ", t.unit, t.node)
	switch t.state {
	case wire.TargetFailed:
		return wire.ProxyTargetFailed, where + "has failed"
	case wire.TargetExited:
		return wire.ProxyTargetExited, where + "has ended"
	case wire.TargetStopped:
		return wire.ProxyStop, where + "was stopped"
	case wire.TargetAutoRestart:
		return wire.ProxyAutoRestart, where + "is restarted by its node"
	}
	return "", ""
}

func (m *Manager) endProxy(p *proxy, word, text string) {
	if m.moveProxy(p, proxyEnding, text) {
		m.tellProxy(p, word, text)
	}
}

// targetLeaving lets the dependents of a target go first when a job stops or restarts it.
func (m *Manager) targetLeaving(n *node, name string, restart bool) {
	t := m.deps.needed[place{n.name, name}]
	if t == nil {
		n.session.link.ReleaseTarget(name)
		return
	}
	t.leaving = true
	word, what := wire.ProxyStop, "is being stopped"
	if restart {
		word, what = wire.ProxyRestart, "is being restarted"
	}
	for _, p := range m.proxiesOf(t.place) {
		if isUp(p) {
			m.endProxy(p, word, fmt.Sprintf("%s on node %q %s", t.unit, t.node, what))
		}
	}
	m.checkRelease(t)
}

// checkRelease lets the stop of a target go on when none of its dependents is left that has to
// go first. Nodes that are not there are not waited for.
func (m *Manager) checkRelease(t *needed) {
	n := m.byName[t.node]
	if !t.leaving || n == nil || n.session == nil {
		return
	}
	for _, p := range m.proxiesOf(t.place) {
		if p.state.Is == proxyEnding && p.owner.session != nil {
			return
		}
	}
	n.session.link.ReleaseTarget(t.unit)
}

// letDepGo stops the dep unit of a place that nobody needs, where that is certain.
func (m *Manager) letDepGo(n *node, at place, t *needed) {
	if t != nil && !t.starting {
		delete(m.deps.needed, at)
		defer m.tellTargets(at.node)
	}
	if n == nil || n.session == nil || !n.deps.told || !n.deps.deps[at.unit] || t != nil && t.starting || !m.certain(at) {
		return
	}
	dep, err := unit.DepName(at.unit)
	if err != nil {
		return
	}
	m.depJob(at.node, dep, wire.Stop, func(string, error) { m.drive(at) })
	m.holdDep(n, at.unit, false) // until its node says otherwise
}

// certain reports whether no node can need a place of which none says so: each that may has
// told this manager what it needs, or was away for longer than its ReleaseAfter=.
func (m *Manager) certain(at place) bool {
	for _, n := range m.nodes {
		if !n.deps.reported && !n.deps.released && slices.Contains(n.allowed, at.node) {
			return false
		}
	}
	return true
}

// driveAll looks at everything that is needed, or was.
func (m *Manager) driveAll() {
	places := slices.Collect(maps.Keys(m.deps.needed))
	for n := range m.deps.holders {
		for target := range n.deps.deps {
			places = append(places, place{n.name, target})
		}
	}
	slices.SortFunc(places, comparePlaces)
	for _, at := range slices.Compact(places) {
		m.drive(at)
	}
}

// awaitLoss begins the time after which a node that is away counts as lost.
func (m *Manager) awaitLoss(n *node) {
	if n == nil || n.session != nil || n.deps.loss != nil {
		return
	}
	n.deps.loss = m.loop.After(m.lossGrace(), func() { m.nodeLost(n) })
}

func (m *Manager) nodeLost(n *node) {
	n.deps.lost = true
	for at := range m.deps.needed {
		if at.node != n.name {
			continue
		}
		for _, p := range m.proxiesOf(at) {
			if isUp(p) {
				m.tellProxy(p, wire.ProxyNodeLost, wire.AsError(n.offlineError()).Text)
			}
		}
	}
}

// depsOnline is the begin of a session: its first report follows.
func (m *Manager) depsOnline(n *node) {
	n.deps.told = false
	n.deps.loss.Stop()
	n.deps.release.Stop()
	n.deps.loss, n.deps.release, n.deps.lost = nil, nil, false
	m.forgetDeps(n)
}

// depsOffline is the end of a session. Nothing that the node needs is let go.
func (m *Manager) depsOffline(n *node) {
	n.deps.told = false
	m.forgetDeps(n)
	for at, t := range m.deps.needed {
		if at.node == n.name {
			t.state, t.leaving, t.undecided = "", false, false
		}
	}
	m.awaitLoss(n)
	m.armRelease(n)
	for _, p := range n.proxiesByName() {
		if t := m.deps.needed[p.target]; t != nil {
			m.checkRelease(t)
		}
	}
	m.driveAll()
}

// armRelease begins ReleaseAfter= of a node that is away.
func (m *Manager) armRelease(n *node) {
	if n.releaseAfter <= 0 || n.session != nil || n.deps.release != nil {
		return
	}
	n.deps.release = m.loop.After(max(n.releaseAfter-time.Since(n.lastSeen), 0), func() {
		n.deps.released = true
		for _, p := range n.proxiesByName() {
			m.dropProxy(p, "ReleaseAfter= has passed")
		}
		m.driveAll()
	})
}

// depsRemoved is a node leaving the fleet: what it needed is let go.
func (m *Manager) depsRemoved(n *node) {
	n.deps.loss.Stop()
	n.deps.release.Stop()
	for _, p := range n.proxiesByName() {
		m.dropProxy(p, "its node has left the fleet")
	}
}
