package agent

import (
	"maps"
	"slices"
	"time"

	"example.org/ctrl/internal/wire"
)

// A proxy that waits for a node has a job of its own, which systemd does not cancel with that of
// the unit that needs it. Locally nothing would wait so long; here the late node would start a
// target that nobody wants any more.

// neededBy are the properties of a proxy's unit that name who may need it.
var neededBy = []string{"RequiredBy", "WantedBy", "BoundBy", "UpheldBy"}

// jobEndedBadly looks whether proxies that wait are still needed, after a job has ended that was
// not done: it may have been that of the unit that needs them.
func (a *Agent) jobEndedBadly(result string) {
	if result == wire.ResultDone || a.deps.checking {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(a.deps.proxies)) {
		if p := a.deps.proxies[name]; p.state.Is == proxyWaiting {
			a.deps.checking = true
		}
	}
	if a.deps.checking {
		// After the other signals of the same transaction.
		a.loop.Defer(a.checkNeeds)
	}
}

func (a *Agent) checkNeeds() {
	a.deps.checking = false
	if a.over {
		return
	}
	a.systemd.Jobs(a.cfg.CallTimeout, func(queued []QueuedJob, err error) {
		a.later(func() {
			if err != nil {
				return // asked again after the next job
			}
			has := make(map[string]bool, len(queued))
			for _, j := range queued {
				has[j.Unit] = has[j.Unit] || j.Type != "stop"
			}
			for _, name := range slices.Sorted(maps.Keys(a.deps.proxies)) {
				if p := a.deps.proxies[name]; p.state.Is == proxyWaiting {
					a.askUsers(p, has, p.users)
				}
			}
		})
	})
}

// needPause is when a proxy that still waits is looked at first.
const needPause = time.Second

// learnUsers collects, one property after the other, who needs a proxy that begins to wait.
// Later would be too late: systemd forgets a unit that was given up, and its needs with it.
func (a *Agent) learnUsers(p *proxy, properties, users []string) {
	if a.deps.proxies[p.name] != p {
		return
	}
	if len(properties) == 0 {
		p.users = users
		// It may have been given up before its process asked.
		a.loop.After(needPause, func() {
			if a.deps.proxies[p.name] == p && p.state.Is == proxyWaiting {
				a.checkNeeds()
			}
		})
		return
	}
	a.systemd.Call("GetUnitProperty", wire.Strings(p.name, "Unit", properties[0]), a.cfg.CallTimeout, func(body wire.Raw, err error) {
		a.later(func() {
			if more, ok := body.VariantStrings(); err == nil && ok {
				users = append(users, more...)
			}
			a.learnUsers(p, properties[1:], users)
		})
	})
}

// askUsers stops a proxy if none of its users has a job or is active. Systemd would stop it for
// the same reason as soon as it was up (StopWhenUnneeded=).
func (a *Agent) askUsers(p *proxy, hasJob map[string]bool, users []string) {
	if a.deps.proxies[p.name] != p || p.state.Is != proxyWaiting {
		return
	}
	if len(users) == 0 {
		a.actOnProxy(p, wire.Stop, "nobody needs it any more")
		return
	}
	if hasJob[users[0]] {
		return
	}
	a.systemd.Units(users[0], a.cfg.CallTimeout, func(rows []UnitRow, err error) {
		a.later(func() {
			if err != nil || len(rows) > 0 && rows[0].Active != "inactive" && rows[0].Active != "failed" {
				return
			}
			a.askUsers(p, hasJob, users[1:])
		})
	})
}
