package agent

import (
	"maps"
	"slices"
	"strings"
	"time"

	"example.org/ctrl/internal/wire"
)

// ProxyState is the manager's word about a proxy of this node: one of wire's Proxy….
func (a *Agent) ProxyState(s Session, name, state, text string) {
	a.post(func() {
		if p := a.deps.proxies[name]; p != nil && a.current(s) == nil {
			a.proxyTold(p, state, text)
		}
	}, ignore)
}

func (a *Agent) proxyTold(p *proxy, state, text string) {
	switch state {
	case wire.ProxyWaits:
		a.proxyWaits(p, text)
	case wire.ProxyBegun:
		p.wait.Stop()
		if p.state.Is == proxyWaiting {
			a.moveProxy(p, proxyStarting, "the manager starts the target")
		}
	case wire.ProxyTargetUp:
		p.wait.Stop()
		if p.state.Is != proxyUp {
			a.moveProxy(p, proxyUp, "the target is up")
			a.answerProxy(p, nil)
		}
	case wire.ProxyRefused:
		if p.state.Is != proxyUp {
			a.refuseProxy(p, wire.ErrFailed.With("%s", text))
		}
	case wire.ProxyStop:
		a.actOnProxy(p, wire.Stop, text)
	case wire.ProxyRestart:
		a.actOnProxy(p, wire.TryRestart, text)
	case wire.ProxyTargetFailed:
		a.signalProxy(p, endFailed, text)
	case wire.ProxyTargetExited:
		a.signalProxy(p, endClean, text)
	case wire.ProxyAutoRestart:
		a.signalProxy(p, endRestarts, text)
	case wire.ProxyNodeLost:
		a.proxyNodeLost(p)
	case wire.ProxyNodeBack:
		p.loss.Stop()
	}
}

func (a *Agent) proxyWaits(p *proxy, why string) {
	if p.state.Is == proxyUp {
		return
	}
	p.why = why
	if p.state.Is == proxyStarting {
		a.moveProxy(p, proxyWaiting, why)
		a.armWait(p)
	} else if a.cfg.ProxyStartTimeout <= 0 {
		a.armWait(p)
	}
}

// actOnProxy stops or restarts a proxy by a job, as a job on the target has done to that, so
// that it reaches the units that depend on it as it would have on one machine.
func (a *Agent) actOnProxy(p *proxy, verb wire.Verb, why string) {
	a.log.Info("unit of another node has a job, so its proxy has one too", keyUnit, p.name, "verb", verb, "reason", why)
	a.systemd.StartJob(JobRequest{Unit: p.name, Verb: verb, Mode: wire.JobModes[0]}, a.cfg.CallTimeout, func(_ uint32, err error) {
		if err != nil {
			a.log.Warn("cannot follow what has become of a unit of another node", keyUnit, p.name, "verb", verb, keyErr, err)
		}
	})
}

// Signals that end a proxy's process, by what they make of its unit (units/ctrl-proxy@.service).
// Their numbers are the same on all architectures of Linux.
const (
	endFailed   int32 = 9  // SIGKILL: failed
	endClean    int32 = 15 // SIGTERM: inactive
	endRestarts int32 = 14 // SIGALRM: failed, and restarted by systemd
)

// signalPause is the time after which a proxy that is still active is sent its signal again:
// its process may have been between two programs, and lost it.
const signalPause = time.Second

// signalProxy lets a proxy end without a job, as the target has ended without one. How the
// process ends is how its unit ends (units/ctrl-proxy@.service).
func (a *Agent) signalProxy(p *proxy, signal int32, why string) {
	if a.deps.proxies[p.name] != p || p.state.Is != proxyUp {
		return
	}
	if p.active != "active" {
		p.due = func() { a.signalProxy(p, signal, why) }
		return
	}
	a.log.Info("unit of another node has ended, so its proxy ends too", keyUnit, p.name, "reason", why)
	a.systemd.Call("KillUnit", wire.KillArguments(p.name, "main", signal), a.cfg.CallTimeout, func(_ wire.Raw, err error) {
		a.later(func() {
			if err != nil {
				a.log.Debug("proxy cannot be ended", keyUnit, p.name, keyErr, err)
			}
			a.loop.After(signalPause, func() {
				if p.active == "active" {
					a.signalProxy(p, signal, why)
				}
			})
		})
	})
}

// lossVariable is how a unit file says what becomes of one proxy when the node is lost.
const lossVariable = "CTRL_ON_NODE_LOSS="

// proxyNodeLost does what was configured: for this proxy, else for all.
func (a *Agent) proxyNodeLost(p *proxy) {
	if p.state.Is != proxyUp {
		return
	}
	a.systemd.Call("GetUnitProperty", wire.Strings(p.name, "Service", "Environment"), a.cfg.CallTimeout, func(body wire.Raw, err error) {
		a.later(func() {
			policy := a.cfg.OnNodeLoss
			if err != nil {
				a.log.Warn("cannot read the environment of a proxy", keyUnit, p.name, keyErr, err)
			}
			list, _ := body.VariantStrings()
			for _, entry := range list {
				if text, ok := strings.CutPrefix(entry, lossVariable); ok && a.cfg.ParseNodeLoss != nil {
					own, err := a.cfg.ParseNodeLoss(text)
					if err != nil {
						a.log.Warn("environment of a proxy is not understood", keyUnit, p.name, keyErr, err)
						continue
					}
					policy = own
				}
			}
			a.applyLoss(p, policy)
		})
	})
}

func (a *Agent) applyLoss(p *proxy, policy NodeLoss) {
	if a.deps.proxies[p.name] != p {
		return
	}
	p.loss.Stop()
	if !policy.Stop {
		a.log.Info("node of a unit that others need is lost; they go on", keyUnit, p.name, "node", p.node)
		return
	}
	p.loss = a.loop.After(policy.After, func() { a.actOnProxy(p, wire.Stop, "its node is lost") })
}

// Targets is the manager's word which units of this node others need.
func (a *Agent) Targets(s Session, names []string) {
	a.post(func() {
		if a.current(s) == nil {
			a.setTargets(names)
		}
	}, ignore)
}

// ReleaseTarget is the manager's word that no dependent has to stop before a target any more.
func (a *Agent) ReleaseTarget(s Session, name string) {
	a.post(func() {
		if a.current(s) == nil {
			a.releaseHold(name)
		}
	}, ignore)
}

// WaitDependents is the stop of a dep unit: it comes before that of its target, and the reply
// when no unit of another node has to be stopped before that.
func (a *Agent) WaitDependents(name string, reply func()) {
	a.post(func() { a.hold(name, reply) }, func(error) { reply() })
}

func (a *Agent) sortedTargets() []*target {
	var all []*target
	for _, name := range slices.Sorted(maps.Keys(a.deps.targets)) {
		all = append(all, a.deps.targets[name])
	}
	return all
}
